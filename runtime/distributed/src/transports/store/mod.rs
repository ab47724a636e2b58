//! The store: ranks that exchange messages through a table of keys and values that somebody keeps for them.
//!
//! Under `torchrun` it is the `TCPStore` of PyTorch, where torch itself finds its ranks: a server
//! that all ranks connect to. We are one more client of it. A launcher that keeps none, such as
//! `srun`, leaves that to the first rank.
//!
//! | file | what |
//! |---|---|
//! | `requests` | what can be asked, byte by byte |
//! | `line` | a connection on which a question waits for its answer |
//! | `round` | how ranks agree on a name for all that they write: restarted ones find what was left of others |
//! | `inbox` | messages to this rank, taken by a thread of their own |
//! | `outbox` | messages to others, on a connection that never waits |
//! | `heartbeats` | signs of life: each rank writes one key, and reads those of others at once |
//! | `wire` | all of it as a wire |
//! | `server` | the table, where the first rank keeps it |
//!
//! A message is one value, or several if it is large. Its sender adds 1 to the counter of the
//! receiver's inbox, which gives it a slot there, and writes the value to the slot; the receiver
//! waits for the slots in their order, takes the value and deletes it. A sender asks for slots and
//! fills them in one order, so its messages arrive in that order. A slot whose sender died before
//! it filled it is passed over after a while.

mod heartbeats;
mod inbox;
mod line;
mod outbox;
mod requests;
mod round;
mod server;
mod wire;

use crate::job::{Job, Settings, Unconnected};
use crate::rank::Rank;
use line::Line;
use server::Server;
use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

/// How long it may take to reach a store, and how long the launcher's may not be there yet.
const PATIENCE: Duration = Duration::from_secs(10);
const LATE: Duration = Duration::from_secs(2);

/// Who keeps a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeper {
    /// `torchrun`.
    Torchrun,
    /// The first rank, for all.
    FirstRank,
}

/// Where a store is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    /// Its host, as a name or a number.
    pub host: String,
    /// Its port there.
    pub port: u16,
    /// Who keeps it.
    pub keeper: Keeper,
}

/// As it is called in messages.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.keeper {
            Keeper::Torchrun => "torchrun's store at ",
            Keeper::FirstRank => "the store of rank 0 at ",
        })?;
        f.write_str(&self.place())
    }
}

impl Address {
    /// Its host and port.
    fn place(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

/// One of several ranks that share a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Which.
    pub rank: u32,
    /// How many there are.
    pub n_ranks: u32,
    /// Those on the same host.
    pub near: Range<u32>,
    /// What tells this job apart from others with the same store.
    pub job: String,
}

/// Joins the ranks that share a store, which this one keeps where that is said of the first rank, and it is that.
///
/// # Errors
/// If the store cannot be kept or reached, or not all ranks come in time.
pub fn join(address: &Address, member: &Member, settings: Settings) -> Result<Job, Unconnected> {
    // Not on the progress thread: what is wrong here is told at once.
    let keeps = address.keeper == Keeper::FirstRank && Rank(member.rank) == Rank::FIRST;
    let server = keeps.then(|| keep(address)).transpose().map_err(Unconnected::Unreachable)?;
    let (out, taking) = reach(address, keeps, settings.stall).map_err(Unconnected::Unreachable)?;
    let (member, address, stall) = (member.clone(), address.clone(), settings.stall);
    Job::start(settings, move || {
        let rank = Rank(member.rank);
        let (out, names) = round::join(out, &member).map_err(|error| format!("{address}: {error}"))?;
        Ok((wire::Store::open(address, names, (server, out, taking), &member, stall)?, rank, member.n_ranks))
    })
}

fn keep(address: &Address) -> Result<Server, String> {
    let port = address.port;
    Server::open(port).map_err(|error| {
        format!("rank 0 cannot keep a store for the others at port {port}: {error} (MASTER_PORT can name another one, the same on all ranks)")
    })
}

/// Two connections: one to ask for what is there at once, one to wait for messages.
fn reach(address: &Address, keeps: bool, stall: Duration) -> Result<(Line, Line), String> {
    let host = if keeps { "localhost" } else { &address.host };
    // Of ranks, the first one may be started last.
    let late = if address.keeper == Keeper::FirstRank { stall } else { LATE };
    let until = Instant::now() + PATIENCE.max(late);
    Ok((Line::open(address, host, late, until)?, Line::open(address, host, late, until)?))
}
