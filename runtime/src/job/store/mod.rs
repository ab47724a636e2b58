//! The store: ranks that `torchrun` started, which exchange messages through a table of keys and values that its agent keeps for them.
//!
//! It is the `TCPStore` of PyTorch, where torch itself finds its ranks: a server that all ranks connect to. We are one more client of it.
//!
//! | file | what |
//! |---|---|
//! | `requests` | what can be asked, byte by byte |
//! | `line` | a connection on which a question waits for its answer |
//! | `round` | how ranks agree on a name for all that they write: restarted ones find what was left of others |
//! | `inbox` | messages to this rank, taken by a thread of their own |
//! | `outbox` | messages to others, on a connection that never waits |
//! | `board` | signs of life: each rank writes one key, and reads those of others at once |
//! | `wire` | all of it as a wire |
//!
//! A message is one value, or several if it is large. Its sender adds 1 to the counter of the receiver's inbox, which gives it a slot there, and
//! writes the value to the slot; the receiver waits for the slots in their order, takes the value and deletes it. A sender asks for slots and fills
//! them in one order, so its messages arrive in that order. A slot whose sender died before it filled it is passed over after a while.

mod board;
mod inbox;
mod line;
mod outbox;
mod requests;
mod round;
mod wire;

use super::rank::Rank;
use super::{Job, Settings, Unconnected};
use line::Line;
use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

/// How long it may take to reach a store.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where a store is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    /// Its host, as a name or a number.
    pub host: String,
    /// Its port there.
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
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

/// Joins the ranks that share a store.
///
/// # Errors
/// If the store cannot be reached, or not all ranks come in time.
pub fn join(address: &Address, member: &Member, settings: Settings) -> Result<Job, Unconnected> {
    // Not on the messenger's thread: what is wrong here is told at once.
    let (out, taking) = reach(address).map_err(Unconnected::Unreachable)?;
    let (member, name, stall) = (member.clone(), address.to_string(), settings.stall);
    Job::start(settings, move || {
        let rank = Rank(member.rank);
        let (out, names) = round::join(out, &member).map_err(|error| format!("the store at {name}: {error}"))?;
        Ok((wire::Store::open(name, names, (out, taking), &member, stall)?, rank, member.n_ranks))
    })
}

/// Two connections: one to ask for what is there at once, one to wait for messages.
fn reach(address: &Address) -> Result<(Line, Line), String> {
    let until = Instant::now() + PATIENCE;
    Ok((Line::open(address, until)?, Line::open(address, until)?))
}
