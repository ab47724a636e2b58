//! Channels: transfers between devices of one process, without buffers of their own (rendezvous).
//!
//! A queue per (sender, receiver, class) pairs sends with receives in order. Whoever comes second copies the bytes from
//! arena to arena and marks the tokens of both; a `wait` blocks until its token is marked. Under stress every queue has a
//! courier that lets each pair wait for a random time before it copies: still in order, but never when one expects it.

use crate::collective::{Group, Part};
use crate::copies::{Copies, Copy};
use crate::fault::Fault;
use crate::memory::Region;
use crate::profile::Profile;
use crate::random::mix;
use pipe_ir::ids::{DeviceId, GroupId, TokenId};
use pipe_ir::instruction::{Class, Direction, Instruction};
use pipe_ir::program::Program;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
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
    groups: Vec<Group>,
    copies: Copies,
    mailboxes: Arc<Mailboxes>,
    couriers: Mutex<Vec<JoinHandle<()>>>,
}

/// The marks of all tokens, and whom to wake.
pub(crate) struct Mailboxes {
    devices: Vec<Mailbox>,
    poisoned: AtomicBool,
}

struct Mailbox {
    marks: Vec<AtomicBool>,
    thread: OnceLock<Thread>,
}

/// Turns of a waiting device before it sleeps: the other end often comes soon, but cores are shared.
const YIELDS: u32 = 32;
/// The longest delay of a transfer under stress.
const STRESS_MICROS: u64 = 300;

impl Channels {
    /// The queues that a program uses; with a seed, under stress.
    pub(crate) fn new(program: &Program, stress: Option<u64>) -> Self {
        let mailbox = |n_tokens: u32| Mailbox {
            marks: (0..n_tokens).map(|_| AtomicBool::new(false)).collect(),
            thread: OnceLock::new(),
        };
        let devices = program.devices.iter().map(|device| mailbox(device.n_tokens)).collect();
        let mailboxes = Arc::new(Mailboxes { devices, poisoned: AtomicBool::new(false) });
        let mut queues: BTreeMap<_, Mutex<Queue>> = BTreeMap::new();
        for (index, device) in program.devices.iter().enumerate() {
            let own = DeviceId::from_index(index);
            for instruction in device.setup.iter().chain(&device.step) {
                match *instruction {
                    Instruction::SendStart { to, class, .. } => queues.entry((own, to, class)).or_default(),
                    Instruction::RecvStart { from, class, .. } => queues.entry((from, own, class)).or_default(),
                    _ => continue,
                };
            }
        }
        let mut couriers = Vec::new();
        if let Some(seed) = stress {
            for (index, queue) in queues.values_mut().enumerate() {
                let (sender, receiver) = mpsc::channel();
                locked(queue).courier = Some(sender);
                let mailboxes = Arc::clone(&mailboxes);
                couriers.push(thread::spawn(move || deliver_late(&mailboxes, &receiver, mix(seed, index as u64))));
            }
        }
        let (groups, mut others) = Group::all(program, &mailboxes, stress);
        couriers.append(&mut others);
        let (copies, mut threads) = Copies::new(program, &mailboxes, stress);
        couriers.append(&mut threads);
        Self { queues, groups, copies, mailboxes, couriers: Mutex::new(couriers) }
    }

    /// Says which thread waits for a device's tokens; before its first wait.
    pub(crate) fn register(&self, device: DeviceId) {
        // A second registration names the same thread.
        let _ = self.mailboxes.devices[device.index()].thread.set(thread::current());
    }

    /// Posts one end of a transfer; pairs it if the other end is there.
    pub(crate) fn post(&self, end: End, from: DeviceId, to: DeviceId, class: Class, posted: Posted) {
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
        self.groups[group.index()].join(part);
    }

    /// Queues a copy between a device and its host.
    pub(crate) fn copy(&self, device: DeviceId, direction: Direction, copy: Copy) {
        self.copies.start(device, direction, copy);
    }

    /// What all collectives took so far.
    pub(crate) fn profile(&self) -> Profile {
        let mut profile = Profile::default();
        self.groups.iter().for_each(|group| group.add_profile(&mut profile));
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
        self.mailboxes.poisoned.store(true, Ordering::Release);
        for thread in self.mailboxes.devices.iter().filter_map(|mailbox| mailbox.thread.get()) {
            thread.unpark();
        }
    }
}

impl Drop for Channels {
    fn drop(&mut self) {
        for queue in self.queues.values() {
            locked(queue).courier = None;
        }
        self.groups.iter().for_each(Group::close);
        self.copies.close();
        for courier in self.couriers.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // A courier that panicked has poisoned the run already.
            let _ = courier.join();
        }
    }
}

impl Mailboxes {
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
