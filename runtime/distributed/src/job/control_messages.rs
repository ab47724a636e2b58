//! Control messages between ranks, of any length, cut into frames of one size that every wire carries at once.
//!
//! From each other rank one receive of a frame is always open, and to each one frame at most is
//! under way, so that a rank that has stopped costs the others no memory but that of the messages to
//! it.

use crate::fault::RunError;
use crate::memory::{Memory, Region};
use crate::rank::Rank;
use crate::wire::{Tag, Wire};
use pipe_ir::ids::DeviceId;
use pipe_ir::units::Bytes;
use std::collections::VecDeque;

/// Bytes of a frame: below what MPI libraries send without asking the receiver.
const FRAME: usize = 2048;
/// Of which say how many others count, and whether they are the last of their message.
const HEAD: usize = 4;
/// No transfer has it.
pub(crate) const TAG: Tag = 0;

/// What a message is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Subject {
    /// Who the sender is; the first message.
    Hello,
    /// The sender lives, and where its devices are.
    Beat,
    /// For whoever waits for one, in the order in which they were sent.
    Word,
    /// The sender cannot go on, and why.
    Fault,
    /// The user was told why the job ends.
    Told,
    /// The last message.
    Bye,
}

impl Subject {
    const ALL: [Self; 6] = [Self::Hello, Self::Beat, Self::Word, Self::Fault, Self::Told, Self::Bye];
}

/// A message, opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ControlMessage {
    pub(crate) from: Rank,
    pub(crate) subject: Subject,
    pub(crate) text: Vec<u8>,
}

/// The messages from and to one other rank.
struct Peer<R> {
    rank: Rank,
    /// Whole messages, with their subject in front.
    outgoing: VecDeque<Vec<u8>>,
    /// How much of the first one is sent.
    sent: usize,
    sending: Option<R>,
    receiving: Option<R>,
    /// The frames of a message that came so far.
    incoming: Vec<u8>,
    out_frame: Region,
    in_frame: Region,
}

/// All messages of a process.
pub(crate) struct ControlMessages<W: Wire> {
    peers: Vec<Peer<W::Request>>,
    /// Holds the frames.
    memory: Option<Memory>,
}

impl<W: Wire> ControlMessages<W> {
    /// Opens a receive from every other rank.
    pub(crate) fn new(wire: &mut W, own: Rank, n_ranks: usize) -> Result<Self, RunError> {
        let bytes = Bytes((2 * FRAME * n_ranks) as u64);
        let memory = Memory::new(bytes).ok_or(RunError::OutOfMemory { device: DeviceId(0), bytes })?;
        let frame = |number: usize| memory.region(Bytes((number * FRAME) as u64), Bytes(FRAME as u64));
        let others = (0..n_ranks).filter(|rank| *rank != own.index());
        let peer = |rank: usize| {
            let (in_frame, out_frame) = (frame(2 * rank), frame(2 * rank + 1));
            let rank = Rank::from_index(rank);
            Peer {
                rank,
                outgoing: VecDeque::new(),
                sent: 0,
                sending: None,
                receiving: Some(wire.receive(rank, TAG, in_frame)),
                incoming: Vec::new(),
                out_frame,
                in_frame,
            }
        };
        Ok(Self { peers: others.map(peer).collect(), memory: Some(memory) })
    }

    /// Queues a message.
    pub(crate) fn send(&mut self, to: Rank, subject: Subject, text: &[u8]) {
        let message = [&[subject as u8], text].concat();
        self.peers.iter_mut().filter(|peer| peer.rank == to).for_each(|peer| peer.outgoing.push_back(message.clone()));
    }

    /// Queues a message to everybody else.
    pub(crate) fn send_all(&mut self, subject: Subject, text: &[u8]) {
        let ranks: Vec<Rank> = self.peers.iter().map(|peer| peer.rank).collect();
        ranks.into_iter().for_each(|rank| self.send(rank, subject, text));
    }

    /// Whether messages to a rank wait for it.
    pub(crate) fn is_behind(&self, to: Rank) -> bool {
        self.peers.iter().any(|peer| peer.rank == to && (peer.sending.is_some() || !peer.outgoing.is_empty()))
    }

    /// Moves frames; hands over the messages that are complete. Whether any frame moved.
    pub(crate) fn advance(&mut self, wire: &mut W, mut open: impl FnMut(ControlMessage)) -> bool {
        let mut moved = false;
        for peer in &mut self.peers {
            moved |= peer.post_out(wire);
            while let Some(message) = peer.take_in(wire, &mut moved) {
                open(message);
            }
        }
        moved
    }

    /// Forgets what is under way; it keeps its memory.
    pub(crate) fn forget(&mut self, wire: &mut W) {
        for peer in self.peers.drain(..) {
            peer.sending.into_iter().chain(peer.receiving).for_each(|request| wire.forget(request));
        }
        std::mem::forget(self.memory.take());
    }
}

impl<R> Peer<R> {
    fn post_out<W: Wire<Request = R>>(&mut self, wire: &mut W) -> bool {
        if let Some(request) = self.sending.take() {
            self.sending = wire.test(request);
        }
        let Some(message) = self.outgoing.front().filter(|_| self.sending.is_none()) else { return false };
        let end = (self.sent + FRAME - HEAD).min(message.len());
        let (part, is_last) = (&message[self.sent..end], end == message.len());
        let frame = self.out_frame.bytes_mut();
        let length = u16::try_from(part.len()).unwrap_or_default().to_le_bytes();
        frame[..HEAD].copy_from_slice(&[length[0], length[1], u8::from(is_last), 0]);
        frame[HEAD..HEAD + part.len()].copy_from_slice(part);
        self.sent = if is_last { 0 } else { end };
        if is_last {
            self.outgoing.pop_front();
        }
        self.sending = Some(wire.send(self.rank, TAG, self.out_frame));
        true
    }

    /// The next complete message, if its last frame is there. After the last message nothing is received any more.
    fn take_in<W: Wire<Request = R>>(&mut self, wire: &mut W, moved: &mut bool) -> Option<ControlMessage> {
        loop {
            let request = self.receiving.take()?;
            self.receiving = wire.test(request);
            if self.receiving.is_some() {
                return None;
            }
            *moved = true;
            let frame = self.in_frame.bytes();
            let length = usize::from(u16::from_le_bytes([frame[0], frame[1]]));
            self.incoming.extend(frame[HEAD..].iter().take(length));
            let message = (frame[2] == 1).then(|| std::mem::take(&mut self.incoming));
            let subject = message.as_ref().and_then(|message| message.first());
            let subject = Subject::ALL.into_iter().find(|known| subject == Some(&(*known as u8)));
            if subject != Some(Subject::Bye) {
                self.receiving = Some(wire.receive(self.rank, TAG, self.in_frame));
            }
            if let (Some(mut text), Some(subject)) = (message, subject) {
                text.remove(0);
                return Some(ControlMessage { from: self.rank, subject, text });
            }
        }
    }
}
