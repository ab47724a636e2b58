//! Channels: transfers between devices, without buffers of their own (rendezvous). What has an end
//! on another rank goes to the progress thread.
//!
//! A queue per (sender, receiver, class) pairs sends with receives in order. Whoever comes second
//! copies the bytes from arena to arena and marks the tokens of both; a `wait` blocks until its
//! token is marked. Under stress every queue has a courier that lets each pair wait for a random
//! time before it copies: still in order, but never when one expects it.

use crate::collective::{Group, Part};
use crate::copies::{Copies, Copy};
use crate::fault::{Fault, RunError};
use crate::job::Position;
use crate::memory::Region;
use crate::profile::Profile;
use crate::random::mix;
use crate::remote::{RankView, Remote};
use pipe_ir::ids::{DeviceId, GroupId, TokenId};
use pipe_ir::instruction::{Class, Direction, Start};
use pipe_ir::program::{DeviceProgram, Program};
use pipe_ir::verify::List;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

/// One end of a transfer, waiting for the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posted {
    pub(crate) device: DeviceId,
    pub(crate) token: TokenId,
    pub(crate) region: Region,
}

/// Which end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Send,
    Receive,
}

#[derive(Default)]
struct Queue {
    sends: VecDeque<Posted>,
    receives: VecDeque<Posted>,
    courier: Option<mpsc::Sender<(Posted, Posted)>>,
}

/// All queues of a run.
pub(crate) struct Channels {
    queues: BTreeMap<(DeviceId, DeviceId, Class), Mutex<Queue>>,
    /// By group; none where members are on other ranks.
    groups: Vec<Option<Group>>,
    copies: Copies,
    /// What goes to other ranks, in a job of several.
    remote: Option<Remote>,
    mailboxes: Arc<Mailboxes>,
    couriers: Mutex<Vec<JoinHandle<()>>>,
}

/// The marks of all tokens, and whom to wake.
pub struct Mailboxes {
    devices: Vec<Mailbox>,
    poisoned: AtomicBool,
}

struct Mailbox {
    marks: Vec<AtomicBool>,
    /// See [`Position::pack`].
    position: AtomicU64,
    thread: OnceLock<Thread>,
}

/// Turns of a waiting device before it sleeps: the other end often comes soon, but cores are shared.
const YIELDS: u32 = 32;
/// The longest delay of a transfer under stress.
const STRESS_MICROS: u64 = 300;

impl Channels {
    /// The queues that a program uses; with a seed, under stress; in a job of several ranks, those
    /// of the devices of one.
    ///
    /// # Errors
    /// If the machine lacks memory for what is exchanged with other ranks.
    pub(crate) fn new(program: &Program, stress: Option<u64>, rank_view: Option<&RankView>) -> Result<Self, RunError> {
        let is_here = |device: DeviceId| rank_view.is_none_or(|rank_view| rank_view.has(device));
        let mailbox = |(index, device): (usize, &DeviceProgram)| {
            let n_tokens = if is_here(DeviceId::from_index(index)) { device.n_tokens } else { 0 };
            let marks = (0..n_tokens).map(|_| AtomicBool::new(false)).collect();
            Mailbox { marks, position: AtomicU64::new(0), thread: OnceLock::new() }
        };
        let devices = program.devices.iter().enumerate().map(mailbox).collect();
        let mailboxes = Arc::new(Mailboxes { devices, poisoned: AtomicBool::new(false) });
        let mut queues: BTreeMap<_, Mutex<Queue>> = BTreeMap::new();
        for queue in queues_of(program) {
            if is_here(queue.0) && is_here(queue.1) {
                queues.entry(queue).or_default();
            }
        }
        let remote = rank_view.map(|rank_view| Remote::new(program, rank_view, &mailboxes)).transpose()?;
        let mut couriers = Vec::new();
        if let Some(seed) = stress {
            for (index, queue) in queues.values_mut().enumerate() {
                let (sender, receiver) = mpsc::channel();
                locked(queue).courier = Some(sender);
                let mailboxes = Arc::clone(&mailboxes);
                couriers.push(thread::spawn(move || deliver_late(&mailboxes, &receiver, mix(seed, index as u64))));
            }
        }
        let (groups, mut others) = Group::all(program, &mailboxes, stress, &is_here);
        couriers.append(&mut others);
        let (copies, mut threads) = Copies::new(program, &mailboxes, stress, &is_here);
        couriers.append(&mut threads);
        Ok(Self { queues, groups, copies, remote, mailboxes, couriers: Mutex::new(couriers) })
    }

    /// Says which thread waits for a device's tokens; before its first wait.
    pub(crate) fn register(&self, device: DeviceId) {
        // A second registration names the same thread.
        let _ = self.mailboxes.devices[device.index()].thread.set(thread::current());
    }

    /// Posts one end of a transfer; pairs it if the other end is there.
    pub(crate) fn post(&self, end: End, from: DeviceId, to: DeviceId, class: Class, posted: Posted) {
        if let Some(remote) = self.remote.as_ref().filter(|remote| remote.takes(from, to)) {
            remote.post(end, (from, to, class), posted);
            return;
        }
        let mut queue = locked(&self.queues[&(from, to, class)]);
        let (own, other) = match end {
            End::Send => (&mut *queue, End::Receive),
            End::Receive => (&mut *queue, End::Send),
        };
        let partner = match other {
            End::Send => own.sends.pop_front(),
            End::Receive => own.receives.pop_front(),
        };
        let Some(partner) = partner else {
            match end {
                End::Send => own.sends.push_back(posted),
                End::Receive => own.receives.push_back(posted),
            }
            return;
        };
        let (send, receive) = if end == End::Send { (posted, partner) } else { (partner, posted) };
        match &own.courier {
            // The courier lives until the channels are closed, after the last post.
            Some(courier) => drop(courier.send((send, receive))),
            None => {
                drop(queue);
                self.mailboxes.complete(send, receive);
            }
        }
    }

    /// Joins the next collective of a group.
    pub(crate) fn join(&self, group: GroupId, part: Part) {
        match (&self.groups[group.index()], &self.remote) {
            (Some(group), _) => group.join(part),
            (None, Some(remote)) => remote.join(group, part),
            // Without other ranks every group is here.
            (None, None) => {}
        }
    }

    /// A device begins an instruction: other ranks want to know.
    pub(crate) fn at(&self, device: DeviceId, list: List, index: usize) {
        if self.remote.is_none() {
            return;
        }
        self.mailboxes.at(device, list, index);
    }

    /// Queues a copy between a device and its host.
    pub(crate) fn copy(&self, device: DeviceId, direction: Direction, copy: Copy) {
        self.copies.start(device, direction, copy);
    }

    /// What all collectives took so far.
    pub(crate) fn profile(&self) -> Profile {
        let mut profile = Profile::default();
        self.groups.iter().flatten().for_each(|group| group.add_profile(&mut profile));
        if let Some(remote) = &self.remote {
            profile.merge(&remote.profile());
        }
        profile
    }

    /// Whether a transfer or collective has ended; its mark is taken off.
    pub(crate) fn has_ended(&self, device: DeviceId, token: TokenId) -> bool {
        self.mailboxes.devices[device.index()].marks[token.index()].swap(false, Ordering::Acquire)
    }

    /// Blocks until a transfer or collective has ended.
    pub(crate) fn wait(&self, device: DeviceId, token: TokenId) -> Result<(), Fault> {
        for turn in 0.. {
            if self.has_ended(device, token) {
                return Ok(());
            }
            if self.mailboxes.poisoned.load(Ordering::Acquire) {
                return Err(Fault::abandoned());
            }
            if turn < YIELDS {
                thread::yield_now();
            } else {
                thread::park();
            }
        }
        Ok(())
    }

    /// Ends all waits, now and later: a device cannot go on.
    pub(crate) fn poison(&self) {
        self.mailboxes.poison();
    }
}

/// A queue: who sends, who receives, and what.
pub type QueueName = (DeviceId, DeviceId, Class);

/// The queues that a program uses; some of them several times.
pub fn queues_of(program: &Program) -> impl Iterator<Item = QueueName> {
    let devices = program.devices.iter().enumerate();
    devices.flat_map(|(index, device)| {
        let own = DeviceId::from_index(index);
        device.setup.iter().chain(&device.step).filter_map(move |instruction| match instruction.starts()?.1 {
            Start::Send(to, class) => Some((own, to, class)),
            Start::Receive(from, class) => Some((from, own, class)),
            Start::Join(_) | Start::Copy(_) => None,
        })
    })
}

impl Drop for Channels {
    fn drop(&mut self) {
        for queue in self.queues.values() {
            locked(queue).courier = None;
        }
        self.groups.iter().flatten().for_each(Group::close);
        self.copies.close();
        for courier in self.couriers.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // A courier that panicked has poisoned the run already.
            let _ = courier.join();
        }
    }
}

impl Mailboxes {
    /// Those of devices that wait for no tokens: they only say where they are.
    #[must_use]
    pub fn of_positions(n_devices: usize) -> Self {
        let mailbox = || Mailbox { marks: Vec::new(), position: AtomicU64::new(0), thread: OnceLock::new() };
        Self { devices: (0..n_devices).map(|_| mailbox()).collect(), poisoned: AtomicBool::new(false) }
    }

    /// A device is at an instruction.
    pub fn at(&self, device: DeviceId, list: List, index: usize) {
        self.devices[device.index()].position.store(Position::pack(list, index), Ordering::Relaxed);
    }

    /// Ends all waits, now and later.
    pub(crate) fn poison(&self) {
        self.poisoned.store(true, Ordering::Release);
        for thread in self.devices.iter().filter_map(|mailbox| mailbox.thread.get()) {
            thread.unpark();
        }
    }

    /// Where a device is, as one number (see [`Position::pack`]).
    pub(crate) fn position(&self, device: usize) -> u64 {
        self.devices.get(device).map_or(0, |mailbox| mailbox.position.load(Ordering::Relaxed))
    }

    fn complete(&self, send: Posted, receive: Posted) {
        receive.region.copy_from(send.region);
        self.mark(send);
        self.mark(receive);
    }

    pub(crate) fn mark(&self, posted: Posted) {
        let mailbox = &self.devices[posted.device.index()];
        mailbox.marks[posted.token.index()].store(true, Ordering::Release);
        if let Some(thread) = mailbox.thread.get() {
            thread.unpark();
        }
    }
}

/// The life of a courier.
fn deliver_late(mailboxes: &Mailboxes, pairs: &mpsc::Receiver<(Posted, Posted)>, seed: u64) {
    for (count, (send, receive)) in pairs.iter().enumerate() {
        thread::sleep(Duration::from_micros(mix(seed, count as u64) % STRESS_MICROS));
        mailboxes.complete(send, receive);
    }
}

/// A queue is consistent at every moment, even if a thread that held it broke.
pub(crate) fn locked<T>(queue: &Mutex<T>) -> MutexGuard<'_, T> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}
