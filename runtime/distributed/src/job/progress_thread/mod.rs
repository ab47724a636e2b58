//! The progress thread: the one thread of a process that talks to other ranks. It starts what the others
//! post, marks the tokens of what has ended, and watches the others: says that its rank lives, and
//! notices when another one does not.

mod heartbeat;

use super::Settings;
use super::exchange::{Outlet, Ticket};
use crate::fault::RunError;
use crate::job::control_messages::{ControlMessage, ControlMessages, Subject};
use crate::job::failure_detector::{BEAT, FailureDetector};
use crate::job::mailbox::{Mailbox, Opened, Post};
use crate::job::rank_state::RankState;
use crate::lost::{Lost, Process};
use crate::memory::Region;
use crate::profile::Profile;
use crate::rank::Rank;
use crate::tokens::{End, Posted};
use crate::wire::{Signs, Tag, Wire};
use pipe_ir::ids::GroupId;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// The most bytes of one message: libraries count them in 32 bits.
const LARGEST: usize = 1 << 30;
/// Turns without anything to do before the thread sleeps: cores are shared.
const YIELDS: u32 = 50;
/// How long it then sleeps, more and more: less where messages are under way.
const SHORTEST: Duration = Duration::from_micros(20);
const LONGEST: Duration = Duration::from_micros(200);
const LONGEST_IDLE: Duration = Duration::from_millis(2);

/// A message of a transfer; of large ones there are several, which count together.
struct Transfer {
    posted: Posted,
    others: Option<Rc<Cell<usize>>>,
}

/// A rank's progress thread at work.
pub(crate) struct ProgressThread<W: Wire> {
    wire: W,
    mailbox: Arc<Mailbox>,
    settings: Settings,
    messages: ControlMessages<W>,
    watch: FailureDetector,
    sign: RankState,
    transfers: Vec<(W::Request, Transfer)>,
    pieces: Vec<(W::Request, Ticket)>,
    opened: Option<Opened>,
    /// Whether no more posts come.
    leaves: bool,
    has_said_bye: bool,
    /// Who is lost, since when that is known, and how long the first one that is well has to tell the user.
    lost: Option<(Vec<Lost>, Instant, Duration)>,
    /// Since when this rank wants to end without the others.
    parts: Option<Instant>,
}

impl<W: Wire> ProgressThread<W> {
    /// Begins to exchange control messages with the other ranks. Fails if the machine lacks memory for it.
    pub(crate) fn new(mut wire: W, mailbox: Arc<Mailbox>, settings: Settings) -> Result<Self, RunError> {
        let mut messages = ControlMessages::new(&mut wire, mailbox.rank, mailbox.n_ranks)?;
        let sign = RankState { process: Process::own(), ..RankState::default() };
        let (interval, others) = if let Some(signs) = wire.signs() {
            (signs.interval(), signs.seen())
        } else {
            messages.send_all(Subject::Hello, &serde_json::to_vec(&sign.process).unwrap_or_default());
            (BEAT, (0..mailbox.n_ranks).map(Rank::from_index).filter(|rank| *rank != mailbox.rank).collect())
        };
        let watch = FailureDetector::new(mailbox.rank, others, interval, settings.stall);
        let (transfers, pieces) = (Vec::with_capacity(1024), Vec::with_capacity(1024));
        let (opened, leaves, has_said_bye, lost, parts) = (None, false, false, None, None);
        Ok(Self {
            wire,
            mailbox,
            settings,
            messages,
            watch,
            sign,
            transfers,
            pieces,
            opened,
            leaves,
            has_said_bye,
            lost,
            parts,
        })
    }

    /// Works until the job ends. Says when it begins to leave together with the others.
    pub(crate) fn work(mut self, closing: &mpsc::Sender<()>) {
        let (mut idle, mut sleep) = (0, SHORTEST);
        while !self.is_done() {
            if self.turn() {
                (idle, sleep) = (0, SHORTEST);
                continue;
            }
            if self.is_over() {
                self.forget();
                self.wire.leave();
                return;
            }
            idle += 1;
            if idle <= YIELDS {
                thread::yield_now();
                continue;
            }
            thread::park_timeout(sleep);
            let is_busy = !self.transfers.is_empty() || !self.pieces.is_empty();
            sleep = (2 * sleep).min(if is_busy { LONGEST } else { LONGEST_IDLE });
        }
        if self.transfers.is_empty() && self.pieces.is_empty() {
            // Who started the job waits for it.
            let _ = closing.send(());
            self.wire.close();
        } else {
            self.forget();
            self.wire.leave();
        }
    }

    /// Looks after everything once. Whether anything moved.
    fn turn(&mut self) -> bool {
        let mut moved = self.wire.turn().unwrap_or_else(|cut| self.cut(cut));
        while let Some(post) = self.mailbox.take() {
            self.start(post);
            moved = true;
        }
        moved |= self.end_transfers();
        moved |= self.exchange();
        let mut messages = Vec::new();
        moved |= self.messages.advance(&mut self.wire, |message| messages.push(message));
        for (rank, sign) in self.wire.signs().map(Signs::take).unwrap_or_default() {
            // A sign that cannot be read is none.
            drop(serde_json::from_slice(&sign).map(|sign| self.watch.saw(rank, sign)));
        }
        // Who is silent is judged when everything that came was read: another rank may have told the user already.
        if !messages.is_empty() {
            messages.into_iter().for_each(|message| self.open(message));
        } else if self.watch.is_due() {
            self.beat();
        }
        let is_idle = self.transfers.is_empty() && self.pieces.is_empty();
        if self.leaves && self.mailbox.failure().is_some() {
            // The others may be gone already.
            self.parts.get_or_insert_with(Instant::now);
        } else if self.leaves && !self.has_said_bye && is_idle {
            self.has_said_bye = true;
            if self.wire.signs().is_none() {
                self.messages.send_all(Subject::Bye, &[]);
            } else {
                self.say_that_it_lives();
            }
        }
        moved
    }

    /// Whether all ranks took leave of each other.
    fn is_done(&self) -> bool {
        self.has_said_bye && self.watch.is_alone() && !self.is_behind(&[])
    }

    /// Whether messages wait for any rank but these.
    fn is_behind(&self, but: &[Lost]) -> bool {
        let others =
            (0..self.mailbox.n_ranks).map(Rank::from_index).filter(|rank| but.iter().all(|lost| lost.rank != *rank));
        others.into_iter().any(|rank| self.messages.is_behind(rank))
    }

    fn start(&mut self, post: Post) {
        match post {
            Post::Transfer { end, peer, tag, posted } => self.transfer(end, (peer, tag), posted),
            Post::Join(group, part) => {
                if let Some(exchange) = self.exchange_of(group) {
                    exchange.join(part);
                }
            }
            Post::Open(opened) => {
                if self.mailbox.failure().is_some() {
                    opened.tokens.poison();
                }
                self.opened = Some(opened);
            }
            Post::Profile(reply) => {
                let mut profile = Profile::default();
                let exchanges = self.opened.iter().flat_map(|opened| &opened.exchanges);
                exchanges.flatten().for_each(|exchange| exchange.add_profile(&mut profile));
                // Who asked may have gone.
                drop(reply.send(profile));
            }
            Post::ControlMessage(to, subject, text) => self.messages.send(to, subject, &text),
            Post::Broadcast(subject, text) => self.messages.send_all(subject, &text),
            Post::Leave => self.leaves = true,
            Post::Part => self.parts = Some(Instant::now()),
            Post::Vanish => self.parts = heartbeat::long_ago(),
        }
    }

    fn exchange_of(&mut self, group: GroupId) -> Option<&mut super::exchange::Exchange> {
        self.opened.as_mut()?.exchanges.get_mut(group.index())?.as_mut()
    }

    fn transfer(&mut self, end: End, (peer, tag): (Rank, Tag), posted: Posted) {
        let n_messages = posted.region.len().div_ceil(LARGEST).max(1);
        let others = (n_messages > 1).then(|| Rc::new(Cell::new(n_messages)));
        for number in 0..n_messages {
            let from = number * LARGEST;
            let part: Region = posted.region.part(from, LARGEST.min(posted.region.len() - from));
            let request = match end {
                End::Send => self.wire.send(peer, tag, part),
                End::Receive => self.wire.receive(peer, tag, part),
            };
            self.transfers.push((request, Transfer { posted, others: others.clone() }));
        }
    }

    /// Marks the tokens of transfers that have ended.
    fn end_transfers(&mut self) -> bool {
        let opened = self.opened.as_ref();
        take_ended(&mut self.wire, &mut self.transfers, |transfer| {
            let left = transfer.others.as_ref().map_or(0, |others| {
                others.set(others.get() - 1);
                others.get()
            });
            if let Some(opened) = opened.filter(|_| left == 0) {
                opened.tokens.mark(transfer.posted);
            }
        })
    }

    /// Lets exchanges go on.
    fn exchange(&mut self) -> bool {
        let Some(opened) = &mut self.opened else { return false };
        take_ended(&mut self.wire, &mut self.pieces, |ticket| {
            if let Some(exchange) = opened.exchanges.get_mut(ticket.group.index()).and_then(Option::as_mut) {
                exchange.ended(ticket);
            }
        });
        let mut moved = false;
        let mut outlet = Outlet { wire: &mut self.wire, started: &mut self.pieces };
        for (group, exchange) in opened.exchanges.iter_mut().enumerate() {
            if let Some(exchange) = exchange {
                moved |= exchange.advance(GroupId::from_index(group), &mut outlet, &opened.tokens);
            }
        }
        moved
    }

    fn open(&mut self, message: ControlMessage) {
        self.watch.heard(message.from);
        match message.subject {
            Subject::Hello => {
                if let Ok(process) = serde_json::from_slice(&message.text) {
                    self.watch.met(message.from, process);
                }
            }
            Subject::Beat => self.watch.at(message.from, &message.text),
            Subject::Word => self.mailbox.put(message.from, message.text),
            Subject::Fault => self.fail(message.from, String::from_utf8_lossy(&message.text).into_owned()),
            Subject::Told => self.mailbox.told(),
            Subject::Bye => self.watch.left(message.from),
        }
    }

    /// Nobody waits any more.
    fn fail(&mut self, rank: Rank, message: String) {
        self.mailbox.fail(rank, message);
        if let Some(opened) = &self.opened {
            opened.tokens.poison();
        }
    }

    /// Leaves everything as it is. Messages that are under way keep the memory that they are written to.
    fn forget(&mut self) {
        let transfers = std::mem::take(&mut self.transfers).into_iter().map(|(request, _)| request);
        let pieces = std::mem::take(&mut self.pieces).into_iter().map(|(request, _)| request);
        transfers.chain(pieces).for_each(|request| self.wire.forget(request));
        self.messages.forget(&mut self.wire);
        std::mem::forget(self.opened.take());
    }
}

/// Takes out the messages that have ended. Whether any has. They are tested in their order: those that wait longest
/// come first, and the last one takes the place of one that ended.
fn take_ended<W: Wire, T>(wire: &mut W, messages: &mut Vec<(W::Request, T)>, mut ended: impl FnMut(T)) -> bool {
    let before = messages.len();
    let mut index = 0;
    while index < messages.len() {
        let (request, message) = messages.swap_remove(index);
        match wire.test(request) {
            Some(request) => {
                messages.push((request, message));
                let last = messages.len() - 1;
                messages.swap(index, last);
                index += 1;
            }
            None => ended(message),
        }
    }
    messages.len() < before
}
