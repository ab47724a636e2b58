//! The outbox: messages to other ranks, on a connection that never waits.
//!
//! A piece first asks for a slot in the inbox of its receiver, and is written when that is known.
//! Several are under way at once; control messages go before the pieces of transfers. What the progress thread
//! sends has ended when its last piece was copied from where it is.

use super::inbox::head;
use super::line::{LONGEST, Line};
use super::requests::Requests;
use super::round::Names;
use crate::memory::Region;
use crate::rank::Rank;
use crate::transports::store::heartbeats::Heartbeats;
use crate::wire::Tag;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// The largest piece, in bytes.
const PIECE: usize = 1 << 20;
/// Pieces that wait for their slots at once, and bytes that are not yet written.
const WINDOW: usize = 8;
const ROOM: usize = 2 << 20;

/// Messages that go one after the other.
#[derive(Default)]
struct SendQueue {
    waiting: VecDeque<Message>,
    /// How many were given, and have ended.
    given: u64,
    ended: u64,
}

struct Message {
    to: Rank,
    tag: Tag,
    from: Region,
    done: usize,
}

/// A message under way: whether it is a control message, and its number among those.
#[derive(Clone, Copy)]
pub(super) struct Sending(bool, u64);

/// What a request is answered with.
enum Expected {
    /// The slot of a piece, and whether that is one of a control message.
    Slot { to: Rank, tag: Tag, part: Region, is_last: bool, is_control: bool },
    /// So many values for the board.
    Values(usize),
    /// A number that says only that all before it was done.
    Mark,
}

/// Everything that this rank asks without waiting.
pub(super) struct Outbox {
    stream: TcpStream,
    names: Names,
    own: Rank,
    requests: Requests,
    written: usize,
    answers: Vec<u8>,
    expected: VecDeque<(Instant, Expected)>,
    n_slots: usize,
    control: SendQueue,
    transfers: SendQueue,
    pub(super) board: Heartbeats,
}

impl Outbox {
    pub(super) fn open(line: Line, names: Names, own: Rank, board: Heartbeats) -> io::Result<Self> {
        let stream = line.into_stream();
        stream.set_nonblocking(true)?;
        let mut requests = Requests::default();
        board.begin(&mut requests);
        Ok(Self {
            stream,
            names,
            own,
            requests,
            written: 0,
            answers: Vec::new(),
            expected: VecDeque::new(),
            n_slots: 0,
            control: SendQueue::default(),
            transfers: SendQueue::default(),
            board,
        })
    }

    /// Queues a message; control messages go first.
    pub(super) fn send(&mut self, to: Rank, tag: Tag, from: Region, is_control: bool) -> Sending {
        let queue = if is_control { &mut self.control } else { &mut self.transfers };
        queue.waiting.push_back(Message { to, tag, from, done: 0 });
        queue.given += 1;
        Sending(is_control, queue.given)
    }

    /// Whether its bytes are not needed any more.
    pub(super) fn has_ended(&self, sending: Sending) -> bool {
        let queue = if sending.0 { &self.control } else { &self.transfers };
        sending.1 <= queue.ended
    }

    /// Shows a sign to the others.
    pub(super) fn show(&mut self, sign: &[u8]) {
        self.board.show(sign, &mut self.requests);
    }

    /// Announces to all who is lost.
    pub(super) fn announce(&mut self, lost: &[u8]) {
        self.board.announce(lost, &mut self.requests);
    }

    /// Looks at the signs of the others, unless it waits for them already.
    pub(super) fn look(&mut self) {
        if !self.expected.iter().any(|(_, expected)| matches!(expected, Expected::Values(_))) {
            let n_values = self.board.look(&mut self.requests);
            self.expected.push_back((Instant::now(), Expected::Values(n_values)));
        }
    }

    /// How long the store has not answered the oldest request.
    pub(super) fn silence(&self) -> Duration {
        self.expected.front().map_or(Duration::ZERO, |(asked, _)| asked.elapsed())
    }

    /// This process stood still: what was answered meanwhile is still to be read.
    pub(super) fn excuse(&mut self) {
        let now = Instant::now();
        self.expected.iter_mut().for_each(|(asked, _)| *asked = now);
    }

    /// Goes on as far as it can. Whether anything moved.
    pub(super) fn turn(&mut self) -> io::Result<bool> {
        let mut moved = false;
        loop {
            self.claim();
            let went = self.write()? | self.read()?;
            if !went {
                return Ok(moved);
            }
            moved = true;
        }
    }

    /// Waits until everything has reached the store, but no longer than this.
    pub(super) fn finish(&mut self, most: Duration) {
        let began = Instant::now();
        self.requests.add(&self.names.counter(self.own), 0);
        self.expected.push_back((began, Expected::Mark));
        while began.elapsed() < most && !self.expected.is_empty() && self.turn().is_ok() {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Asks for slots of the next pieces.
    fn claim(&mut self) {
        while self.n_slots < WINDOW && self.requests.0.len() - self.written < ROOM {
            let is_control = !self.control.waiting.is_empty();
            let queue = if is_control { &mut self.control } else { &mut self.transfers };
            let Some(message) = queue.waiting.front_mut() else { return };
            let (to, tag, end) = (message.to, message.tag, (message.done + PIECE).min(message.from.len()));
            let part = message.from.part(message.done, end - message.done);
            let is_last = end == message.from.len();
            message.done = end;
            if is_last {
                queue.waiting.pop_front();
            }
            self.requests.add(&self.names.counter(to), 1);
            self.expected.push_back((Instant::now(), Expected::Slot { to, tag, part, is_last, is_control }));
            self.n_slots += 1;
        }
    }

    fn write(&mut self) -> io::Result<bool> {
        let before = self.written;
        while self.written < self.requests.0.len() {
            match self.stream.write(&self.requests.0[self.written..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(more) => self.written += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let moved = self.written > before;
        if self.written == self.requests.0.len() {
            self.requests.0.clear();
            self.written = 0;
        } else if self.written > ROOM {
            self.requests.0.drain(..self.written);
            self.written = 0;
        }
        Ok(moved)
    }

    /// Reads answers, and does what they allow.
    fn read(&mut self) -> io::Result<bool> {
        if self.expected.is_empty() {
            return Ok(false);
        }
        let mut room = [0; 16 << 10];
        let mut moved = false;
        loop {
            match self.stream.read(&mut room) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(more) => self.answers.extend_from_slice(&room[..more]),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
            moved = true;
        }
        let mut rest = self.answers.as_slice();
        while let Some((_, expected)) = self.expected.front() {
            match expected {
                Expected::Slot { to, tag, part, is_last, is_control } => {
                    let Some(slot) = take_number(&mut rest) else { break };
                    let head = head(self.own, *tag, *is_last);
                    self.requests.set(&self.names.slot(*to, slot - 1), &[&head, part.bytes()]);
                    self.n_slots -= 1;
                    let queue = if *is_control { &mut self.control } else { &mut self.transfers };
                    queue.ended += u64::from(*is_last);
                }
                Expected::Values(n_values) => {
                    let Some(values) = take_values(&mut rest, *n_values)? else { break };
                    self.board.read(values, &mut self.requests);
                }
                Expected::Mark => {
                    let Some(_) = take_number(&mut rest) else { break };
                }
            }
            self.expected.pop_front();
        }
        let used = self.answers.len() - rest.len();
        self.answers.drain(..used);
        Ok(moved)
    }
}

fn take_number(answers: &mut &[u8]) -> Option<i64> {
    let (number, rest) = answers.split_first_chunk()?;
    *answers = rest;
    Some(i64::from_le_bytes(*number))
}

/// So many values, when all of them are there.
fn take_values<'a>(answers: &mut &'a [u8], n_values: usize) -> io::Result<Option<Vec<&'a [u8]>>> {
    let mut rest = *answers;
    let mut values = Vec::with_capacity(n_values);
    for _ in 0..n_values {
        let Some(length) = take_number(&mut rest) else { return Ok(None) };
        let length = usize::try_from(length).ok().filter(|length| *length <= LONGEST);
        let length = length.ok_or_else(|| io::Error::other("it answers with a value that is too long"))?;
        let Some((value, after)) = rest.split_at_checked(length) else { return Ok(None) };
        values.push(value);
        rest = after;
    }
    *answers = rest;
    Ok(Some(values))
}
