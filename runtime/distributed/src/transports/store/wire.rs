//! The store as a wire.

use super::inbox::{Inbox, Piece};
use super::line::Line;
use super::outbox::{Outbox, Sending};
use super::round::Names;
use super::server::Server;
use super::{Address, Keeper, Member};
use crate::job::control_messages;
use crate::lost::{How, Lost};
use crate::memory::Region;
use crate::rank::Rank;
use crate::transports::store::heartbeats::Heartbeats;
use crate::wire::{Cut, Signs, Tag, Wire};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

/// Between two signs: as often as in other jobs, and of very many ranks so seldom that a store has
/// some 10,000 to do a second.
const SIGN: Duration = Duration::from_millis(100);
const SIGN_OF_EACH: Duration = Duration::from_micros(100);
/// How long one waits until the last message has reached the store: in peace, and where others are lost.
const LAST: Duration = Duration::from_secs(1);
const LAST_OF_ALL: Duration = Duration::from_millis(200);
/// How long who keeps it waits for others that have heard of a loss, to end before it does.
const OTHERS: Duration = Duration::from_secs(3);
/// Connections of a rank.
const LINES: usize = 2;

/// One rank's end.
pub(super) struct Store {
    address: Address,
    /// All of it, if this rank keeps it.
    server: Option<Server>,
    outbox: Outbox,
    inbox: Inbox,
    /// By sender and tag: pieces that nobody has received, and the receives that wait, in their order.
    arrived: BTreeMap<(Rank, Tag), VecDeque<Piece>>,
    /// How many pieces those are together: most often none, and nothing has to be looked up.
    n_arrived: usize,
    waiting: BTreeMap<(Rank, Tag), VecDeque<u64>>,
    receives: u64,
    stall: Duration,
    interval: Duration,
    /// The last turn.
    last: Instant,
    broken: Option<Cut>,
}

/// A message under way.
pub(super) enum OpenTransfer {
    Send(Sending),
    Receive { from: Rank, tag: Tag, number: u64, into: Region, filled: usize },
}

impl Store {
    /// Takes up both connections.
    pub(super) fn open(
        address: Address,
        names: Names,
        (server, out, taking): (Option<Server>, Line, Line),
        member: &Member,
        stall: Duration,
    ) -> Result<Self, String> {
        let own = Rank(member.rank);
        let interval = SIGN.max(SIGN_OF_EACH * member.n_ranks);
        let open = || {
            let board = Heartbeats::new(names.clone(), member);
            let outbox = Outbox::open(out, names.clone(), own, board)?;
            Ok((outbox, Inbox::open(taking, names, own, 10 * interval)?))
        };
        let (outbox, inbox) = open().map_err(|error: io::Error| format!("{address}: {error}"))?;
        let (arrived, waiting, broken) = (BTreeMap::new(), BTreeMap::new(), None);
        Ok(Self {
            address,
            server,
            outbox,
            inbox,
            arrived,
            n_arrived: 0,
            waiting,
            receives: 0,
            stall,
            interval,
            last: Instant::now(),
            broken,
        })
    }

    fn step(&mut self) -> io::Result<bool> {
        let mut moved = self.outbox.turn()?;
        while let Some(piece) = self.inbox.take()? {
            self.arrived.entry((piece.from, piece.tag)).or_default().push_back(piece);
            self.n_arrived += 1;
            moved = true;
        }
        Ok(moved)
    }

    /// Copies what has arrived of a message. How much of it is there, and whether that is all.
    fn receive_some(&mut self, queue: (Rank, Tag), into: Region, mut filled: usize) -> (usize, bool) {
        while let Some(piece) = self.arrived.get_mut(&queue).and_then(VecDeque::pop_front) {
            self.n_arrived -= 1;
            let (bytes, left) = (piece.bytes(), into.len() - filled);
            if bytes.len() > left || piece.is_last && bytes.len() < left {
                let why = format!("{} sent {} bytes where {left} were expected", queue.0, bytes.len());
                self.broken = Some(self.cut(&why));
                return (filled, false);
            }
            into.part(filled, bytes.len()).bytes_mut().copy_from_slice(bytes);
            filled += bytes.len();
            if piece.is_last {
                return (filled, true);
            }
        }
        (filled, false)
    }

    /// Nothing goes through it any more, for what is wrong with it.
    fn cut(&self, why: &str) -> Cut {
        Cut::Failed(format!("{}, which connects the ranks: {why}", self.address))
    }

    /// The same where it ended or is silent: with the rank that keeps it, if one does.
    fn lost(&self, how: How) -> Cut {
        match (self.address.keeper, how) {
            (Keeper::FirstRank, how) => Cut::Keeper(Rank::FIRST, how),
            (Keeper::Torchrun, How::Silent(silence)) => {
                self.cut(&format!("it has not answered for {:.1}s", silence.as_secs_f64()))
            }
            (Keeper::Torchrun, _) => self.cut("it has ended"),
        }
    }

    fn end(self, most: Duration) {
        let Self { mut outbox, inbox, server, .. } = self;
        outbox.finish(most);
        inbox.close();
        drop(outbox);
        if let Some(server) = server {
            server.wait_for_leave(0, most);
        }
    }
}

impl Wire for Store {
    type Request = OpenTransfer;

    fn send(&mut self, to: Rank, tag: Tag, from: Region) -> OpenTransfer {
        OpenTransfer::Send(self.outbox.send(to, tag, from, tag == control_messages::TAG))
    }

    fn receive(&mut self, from: Rank, tag: Tag, into: Region) -> OpenTransfer {
        self.receives += 1;
        self.waiting.entry((from, tag)).or_default().push_back(self.receives);
        OpenTransfer::Receive { from, tag, number: self.receives, into, filled: 0 }
    }

    fn test(&mut self, request: OpenTransfer) -> Option<OpenTransfer> {
        match request {
            OpenTransfer::Send(sending) => (!self.outbox.has_ended(sending)).then_some(request),
            OpenTransfer::Receive { .. } if self.n_arrived == 0 => Some(request),
            OpenTransfer::Receive { from, tag, number, into, filled } => {
                let queue = (from, tag);
                if self.waiting.get(&queue).and_then(VecDeque::front) != Some(&number) {
                    return Some(request);
                }
                let (filled, is_whole) = self.receive_some(queue, into, filled);
                if !is_whole {
                    return Some(OpenTransfer::Receive { from, tag, number, into, filled });
                }
                self.waiting.get_mut(&queue)?.pop_front();
                None
            }
        }
    }

    fn forget(&mut self, _: OpenTransfer) {}

    fn turn(&mut self) -> Result<bool, Cut> {
        let now = Instant::now();
        if now - self.last > self.stall / 2 {
            self.outbox.excuse();
        }
        self.last = now;
        let moved = match self.step() {
            Ok(moved) => moved,
            Err(error) => {
                let gone = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
                let is_gone = gone.contains(&error.kind());
                let cut = if is_gone { self.lost(How::Ended) } else { self.cut(&error.to_string()) };
                self.broken.get_or_insert(cut);
                false
            }
        };
        let silence = self.outbox.silence();
        if silence > self.stall && self.broken.is_none() {
            self.broken = Some(self.lost(How::Silent(silence)));
        }
        self.broken.clone().map_or(Ok(moved), Err)
    }

    fn signs(&mut self) -> Option<&mut dyn Signs> {
        Some(self)
    }

    fn linger(&self, lost: &[Lost]) {
        if let Some(server) = &self.server {
            // Connections of processes that have ended are closed already.
            let n_left = 1 + lost.iter().filter(|lost| lost.how != How::Ended).count();
            server.wait_for_leave(LINES * n_left, OTHERS);
        }
    }

    fn close(self) {
        self.end(LAST);
    }

    fn leave(self) {
        self.end(LAST_OF_ALL);
    }
}

impl Signs for Store {
    fn seen(&self) -> Vec<Rank> {
        self.outbox.board.seen()
    }

    fn interval(&self) -> Duration {
        self.interval
    }

    fn show(&mut self, sign: &[u8]) {
        self.outbox.show(sign);
    }

    fn look(&mut self) {
        self.outbox.look();
    }

    fn looks(&self) -> (u64, u64) {
        self.outbox.board.looks
    }

    fn take(&mut self) -> Vec<(Rank, Vec<u8>)> {
        self.outbox.board.take()
    }

    fn announce(&mut self, lost: &[u8]) {
        self.outbox.announce(lost);
    }

    fn announced(&self) -> &[u8] {
        &self.outbox.board.announced
    }

    fn is_late(&self) -> bool {
        self.outbox.silence() > 5 * self.interval
    }
}
