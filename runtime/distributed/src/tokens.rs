//! Tokens: what a device waits for. One is marked when its transfer, collective or copy has ended, or what a lane was
//! given.

use crate::fault::Fault;
use crate::lost::Position;
use crate::memory::Region;
use pipe_ir::ids::{DeviceId, LaneId, TokenId};
use pipe_ir::instruction::Class;
use pipe_ir::verify::List;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};

/// One end of a transfer, waiting for the other.
#[derive(Clone, Copy, Debug)]
pub struct Posted {
    /// Whose.
    pub device: DeviceId,
    /// Marked when it has ended.
    pub token: TokenId,
    /// From where, or to where.
    pub region: Region,
}

/// Which end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// From here.
    Send,
    /// To here.
    Receive,
}

/// Those of all devices: which of them are marked, and whom to wake.
pub struct Tokens {
    devices: Vec<DeviceTokens>,
    poisoned: AtomicBool,
}

struct DeviceTokens {
    marks: Vec<AtomicBool>,
    /// See [`Position::pack`].
    position: AtomicU64,
    /// The one that executes its list, and then those of its lanes.
    threads: Vec<OnceLock<Thread>>,
}

/// Turns of a waiting device before it sleeps: the other end often comes soon, but cores are shared.
const YIELDS: u32 = 32;

impl Tokens {
    /// So many of each device, which has so many lanes; where there are none, it only says where it is.
    pub fn new(counts: impl Iterator<Item = u32>, n_lanes: usize) -> Self {
        let device = |count: u32| DeviceTokens {
            marks: (0..count).map(|_| AtomicBool::new(false)).collect(),
            position: AtomicU64::new(0),
            threads: (0..=n_lanes).map(|_| OnceLock::new()).collect(),
        };
        Self { devices: counts.map(device).collect(), poisoned: AtomicBool::new(false) }
    }

    /// Says which thread waits for a device's tokens, in its list or on a lane; before its first wait.
    pub fn register(&self, device: DeviceId, lane: Option<LaneId>) {
        // A second registration names the same thread.
        let place = lane.map_or(0, |lane| lane.index() + 1);
        let _ = self.devices[device.index()].threads[place].set(thread::current());
    }

    /// A device is at an instruction.
    pub fn at(&self, device: DeviceId, list: List, index: usize) {
        self.devices[device.index()].position.store(Position::pack(list, index), Ordering::Relaxed);
    }

    /// Ends all waits, now and later.
    pub fn poison(&self) {
        self.poisoned.store(true, Ordering::Release);
        for thread in self.devices.iter().flat_map(|device| &device.threads).filter_map(OnceLock::get) {
            thread.unpark();
        }
    }

    /// Where a device is, as one number (see [`Position::pack`]).
    pub(crate) fn position(&self, device: usize) -> u64 {
        self.devices.get(device).map_or(0, |device| device.position.load(Ordering::Relaxed))
    }

    /// Whether a transfer, collective or copy has ended; its mark is taken off.
    pub fn has_ended(&self, device: DeviceId, token: TokenId) -> bool {
        self.devices[device.index()].marks[token.index()].swap(false, Ordering::Acquire)
    }

    /// Blocks until one has ended.
    ///
    /// # Errors
    /// If another device cannot go on.
    pub fn wait(&self, device: DeviceId, token: TokenId) -> Result<(), Fault> {
        for turn in 0.. {
            if self.has_ended(device, token) {
                return Ok(());
            }
            if self.poisoned.load(Ordering::Acquire) {
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

    /// What it stands for has ended.
    pub fn mark(&self, posted: Posted) {
        let device = &self.devices[posted.device.index()];
        device.marks[posted.token.index()].store(true, Ordering::Release);
        device.threads.iter().filter_map(OnceLock::get).for_each(Thread::unpark);
    }
}

/// A queue: who sends, who receives, and what.
pub type QueueName = (DeviceId, DeviceId, Class);

/// A queue is consistent at every moment, even if a thread that held it broke.
pub fn locked<T>(queue: &Mutex<T>) -> MutexGuard<'_, T> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}
