//! The inbox: messages to this rank. A thread waits for the next slot, takes what is there, and
//! wakes the progress thread.

use super::line::Line;
use super::requests::{GIVEN_UP, READY, THERE};
use super::round::Names;
use crate::rank::Rank;
use crate::wire::Tag;
use std::collections::BTreeSet;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Bytes before those of a message: its sender, its tag, and whether it is the last piece.
pub(super) const HEAD: usize = 9;
/// Slots that are looked at beyond one that nobody fills.
const AHEAD: usize = 64;

/// A message, or a piece of one.
pub(super) struct Piece {
    pub(super) from: Rank,
    pub(super) tag: Tag,
    pub(super) is_last: bool,
    value: Vec<u8>,
}

/// What stands before a piece.
pub(super) fn head(from: Rank, tag: Tag, is_last: bool) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..4].copy_from_slice(&from.0.to_le_bytes());
    head[4..8].copy_from_slice(&tag.to_le_bytes());
    head[8] = u8::from(is_last);
    head
}

impl Piece {
    fn read(value: Vec<u8>) -> io::Result<Self> {
        let Some((head, _)) = value.split_first_chunk::<HEAD>() else {
            return Err(io::Error::other("a message of it has no head"));
        };
        let [a, b, c, d, e, f, g, h, is_last] = *head;
        let (from, tag) = (Rank(u32::from_le_bytes([a, b, c, d])), Tag::from_le_bytes([e, f, g, h]));
        Ok(Self { from, tag, is_last: is_last == 1, value })
    }

    /// Its bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.value[HEAD..]
    }
}

/// What the thread hands over.
pub(super) struct Inbox {
    pieces: mpsc::Receiver<io::Result<Piece>>,
    connection: TcpStream,
}

impl Inbox {
    /// Starts the thread, which wakes this one. A slot that nobody fills for so long is passed over.
    pub(super) fn open(line: Line, names: Names, own: Rank, patience: Duration) -> io::Result<Self> {
        let connection = line.handle()?;
        let (to, pieces) = mpsc::channel();
        let out = Out { to, progress_thread: thread::current() };
        let mut taking =
            Taking { line, names, own, next: 0, taken: BTreeSet::new(), heard: Instant::now(), patience, out };
        thread::Builder::new().name("inbox".to_owned()).spawn(move || {
            // The progress thread ends the connection when it leaves: then nobody hears it.
            let Err(error) = taking.work();
            taking.out.put(Err(error));
        })?;
        Ok(Self { pieces, connection })
    }

    /// The next piece, if one is there.
    pub(super) fn take(&self) -> io::Result<Option<Piece>> {
        self.pieces.try_recv().ok().transpose()
    }

    /// Ends the thread.
    pub(super) fn close(&self) {
        // It may be closed already.
        drop(self.connection.shutdown(Shutdown::Both));
    }
}

/// Where pieces go.
struct Out {
    to: mpsc::Sender<io::Result<Piece>>,
    progress_thread: Thread,
}

impl Out {
    fn put(&self, piece: io::Result<Piece>) {
        // Who does not listen any more has ended.
        drop(self.to.send(piece));
        self.progress_thread.unpark();
    }
}

/// The thread at work.
struct Taking {
    line: Line,
    names: Names,
    own: Rank,
    /// The first slot that is not taken, and those after it that are.
    next: i64,
    taken: BTreeSet<i64>,
    /// When a message was taken last, or looked for.
    heard: Instant,
    patience: Duration,
    out: Out,
}

impl Taking {
    /// Takes one message after the other.
    fn work(&mut self) -> io::Result<std::convert::Infallible> {
        self.wait()?;
        loop {
            if self.line.byte_soon()?.is_some() {
                self.take()?;
            } else if self.heard.elapsed() > self.patience || !self.taken.is_empty() {
                self.look_ahead()?;
            } else {
                continue;
            }
            self.heard = Instant::now();
        }
    }

    fn wait(&mut self) -> io::Result<()> {
        self.line.requests.wait(&self.names.slot(self.own, self.next));
        self.line.ask()
    }

    /// Takes the next slot, which is filled, and waits for the one after it.
    fn take(&mut self) -> io::Result<()> {
        let slot = self.names.slot(self.own, self.next);
        self.line.requests.get(&slot);
        self.line.requests.delete(&slot);
        self.next += 1;
        while self.taken.remove(&self.next) {
            self.next += 1;
        }
        self.wait()?;
        let piece = Piece::read(self.line.value()?)?;
        self.line.number()?;
        self.out.put(Ok(piece));
        Ok(())
    }

    /// The next slot may belong to a rank that ended before it filled it: takes what is in those after it.
    fn look_ahead(&mut self) -> io::Result<()> {
        self.line.requests.cancel_wait();
        self.line.requests.add(&self.names.counter(self.own), 0);
        self.line.ask()?;
        let mut answer = self.line.byte()?;
        if answer == THERE {
            // It was filled just now.
            answer = self.line.byte()?;
        }
        if answer != GIVEN_UP {
            return Err(io::Error::other("it does not answer what was asked"));
        }
        let end = self.line.number()?;
        let slots: Vec<i64> = (self.next..end).filter(|slot| !self.taken.contains(slot)).take(AHEAD).collect();
        let (before, after) = (self.check(&slots)?, self.check(&slots)?);
        for (index, slot) in slots.iter().enumerate() {
            if before[index] {
                let key = self.names.slot(self.own, *slot);
                self.line.requests.get(&key);
                self.line.requests.delete(&key);
                self.line.ask()?;
                let piece = Piece::read(self.line.value()?)?;
                self.line.number()?;
                self.out.put(Ok(piece));
                self.taken.insert(*slot);
            } else if after[index] {
                // A rank fills its slots in their order: those that come now may be of the same one.
                break;
            }
        }
        while self.taken.remove(&self.next) {
            self.next += 1;
        }
        self.wait()
    }

    /// Which of these slots are filled.
    fn check(&mut self, slots: &[i64]) -> io::Result<Vec<bool>> {
        for slot in slots {
            self.line.requests.check(&self.names.slot(self.own, *slot));
        }
        self.line.ask()?;
        slots.iter().map(|_| Ok(self.line.byte()? == READY)).collect()
    }
}
