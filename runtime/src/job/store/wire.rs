//! The store as a wire.

use super::Member;
use super::board::Board;
use super::inbox::{Inbox, Piece};
use super::line::Line;
use super::outbox::{Outbox, Sending};
use super::round::Names;
use crate::job::mail;
use crate::job::rank::Rank;
use crate::job::wire::{Signs, Tag, Wire};
use crate::memory::Region;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::time::Duration;

/// Between two signs: as often as in other jobs, and of very many ranks so seldom that a store has some 10,000 to do a second.
const SIGN: Duration = Duration::from_millis(100);
const SIGN_OF_EACH: Duration = Duration::from_micros(100);
/// How long one waits until the last message has reached the store: in peace, and where others are lost.
const LAST: Duration = Duration::from_secs(1);
const LAST_OF_ALL: Duration = Duration::from_millis(200);

/// One rank's end.
pub(super) struct Store {
    /// Where it is.
    name: String,
    outbox: Outbox,
    inbox: Inbox,
    /// By sender and tag: pieces that nobody has received, and the receives that wait, in their order.
    arrived: BTreeMap<(Rank, Tag), VecDeque<Piece>>,
    waiting: BTreeMap<(Rank, Tag), VecDeque<u64>>,
    receives: u64,
    stall: Duration,
    interval: Duration,
    broken: Option<String>,
}

/// A message under way.
pub(super) enum Request {
    Send(Sending),
    Receive { from: Rank, tag: Tag, number: u64, into: Region, filled: usize },
}

impl Store {
    /// Takes up both connections.
    pub(super) fn open(
        name: String,
        names: Names,
        (out, taking): (Line, Line),
        member: &Member,
        stall: Duration,
    ) -> Result<Self, String> {
        let own = Rank(member.rank);
        let interval = SIGN.max(SIGN_OF_EACH * member.n_ranks);
        let open = || {
            let board = Board::new(names.clone(), member);
            let outbox = Outbox::open(out, names.clone(), own, board)?;
            Ok((outbox, Inbox::open(taking, names, own, 10 * interval)?))
        };
        let (outbox, inbox) = open().map_err(|error: io::Error| format!("the store at {name}: {error}"))?;
        let (arrived, waiting, broken) = (BTreeMap::new(), BTreeMap::new(), None);
        Ok(Self { name, outbox, inbox, arrived, waiting, receives: 0, stall, interval, broken })
    }

    fn step(&mut self) -> io::Result<bool> {
        let mut moved = self.outbox.turn()?;
        while let Some(piece) = self.inbox.take()? {
            self.arrived.entry((piece.from, piece.tag)).or_default().push_back(piece);
            moved = true;
        }
        Ok(moved)
    }

    /// Copies what has arrived of a message. How much of it is there, and whether that is all.
    fn receive_some(&mut self, queue: (Rank, Tag), into: Region, mut filled: usize) -> (usize, bool) {
        while let Some(piece) = self.arrived.get_mut(&queue).and_then(VecDeque::pop_front) {
            let (bytes, left) = (piece.bytes(), into.len() - filled);
            if bytes.len() > left || piece.is_last && bytes.len() < left {
                self.broken = Some(format!("{} sent {} bytes where {left} were expected", queue.0, bytes.len()));
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

    fn end(mut self, most: Duration) {
        self.outbox.finish(most);
        self.inbox.close();
    }
}

impl Wire for Store {
    type Request = Request;

    fn send(&mut self, to: Rank, tag: Tag, from: Region) -> Request {
        Request::Send(self.outbox.send(to, tag, from, tag == mail::TAG))
    }

    fn receive(&mut self, from: Rank, tag: Tag, into: Region) -> Request {
        self.receives += 1;
        self.waiting.entry((from, tag)).or_default().push_back(self.receives);
        Request::Receive { from, tag, number: self.receives, into, filled: 0 }
    }

    fn test(&mut self, request: Request) -> Option<Request> {
        match request {
            Request::Send(sending) => (!self.outbox.has_ended(sending)).then_some(request),
            Request::Receive { from, tag, number, into, filled } => {
                let queue = (from, tag);
                if self.waiting.get(&queue).and_then(VecDeque::front) != Some(&number) {
                    return Some(request);
                }
                let (filled, is_whole) = self.receive_some(queue, into, filled);
                if !is_whole {
                    return Some(Request::Receive { from, tag, number, into, filled });
                }
                self.waiting.get_mut(&queue)?.pop_front();
                None
            }
        }
    }

    fn forget(&mut self, _: Request) {}

    fn turn(&mut self) -> Result<bool, String> {
        let moved = match self.step() {
            Ok(moved) => moved,
            Err(error) => {
                let gone = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
                let why = if gone.contains(&error.kind()) { "it has ended".to_owned() } else { error.to_string() };
                self.broken.get_or_insert(why);
                false
            }
        };
        if self.outbox.silence() > self.stall {
            self.broken.get_or_insert(format!("it has not answered for {:.1}s", self.outbox.silence().as_secs_f64()));
        }
        match &self.broken {
            None => Ok(moved),
            Some(why) => Err(format!("torchrun's store at {}, which connects the ranks: {why}", self.name)),
        }
    }

    fn signs(&mut self) -> Option<&mut dyn Signs> {
        Some(self)
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
        self.outbox.board.announced()
    }

    fn is_late(&self) -> bool {
        self.outbox.silence() > 5 * self.interval
    }
}
