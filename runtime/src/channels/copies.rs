//! Copies between the memory of devices and that of their hosts: a queue each way, which carries
//! them one after the other.
//!
//! On devices that compute, each queue has a thread of its own, so that copies go on while
//! executables run. Under stress each copy waits for a random time first. Devices without memory
//! have nothing to copy: there a copy has ended when it starts.

use crate::values::random::mix;
use pipe_distributed::tokens::{Posted, Tokens};
use pipe_ir::ids::DeviceId;
use pipe_ir::instruction::{Direction, Instruction};
use pipe_ir::program::Program;
use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// What is copied, and where to; the token is that of both.
pub(crate) type Copy = (Posted, Posted);

/// The longest delay of a copy under stress.
const STRESS_MICROS: u64 = 300;

/// All queues of a run.
pub(crate) struct Copies {
    tokens: Arc<Tokens>,
    queues: BTreeMap<(DeviceId, Direction), mpsc::Sender<Copy>>,
}

impl Copies {
    /// The queues that the devices of this process use, and their threads.
    pub(crate) fn new(
        program: &Program,
        tokens: &Arc<Tokens>,
        stress: Option<u64>,
        is_here: &impl Fn(DeviceId) -> bool,
    ) -> (Self, Vec<JoinHandle<()>>) {
        let (mut queues, mut threads) = (BTreeMap::new(), Vec::new());
        let here = program.devices.iter().enumerate().filter(|(index, _)| is_here(DeviceId::from_index(*index)));
        for (index, device) in here {
            for direction in Direction::ALL {
                let uses = |one: &Instruction| matches!(one, Instruction::CopyStart { direction: own, .. } if *own == direction);
                if !device.step.iter().any(uses) {
                    continue;
                }
                let (sender, receiver) = mpsc::channel();
                queues.insert((DeviceId::from_index(index), direction), sender);
                let (tokens, seed) = (Arc::clone(tokens), stress.map(|seed| mix(seed, 2 * index as u64)));
                threads.push(thread::spawn(move || carry(&tokens, &receiver, seed)));
            }
        }
        (Self { tokens: Arc::clone(tokens), queues }, threads)
    }

    /// Queues a copy.
    pub(crate) fn start(&self, device: DeviceId, direction: Direction, copy: Copy) {
        let queue = self.queues.get(&(device, direction)).filter(|_| !copy.0.region.is_empty());
        // The thread lives until the queues are closed, after the last copy.
        match queue {
            Some(queue) => drop(queue.send(copy)),
            None => self.tokens.mark(copy.1),
        }
    }

    /// Ends the threads when they have carried what was queued.
    pub(crate) fn close(&mut self) {
        self.queues.clear();
    }
}

/// The life of a queue's thread.
fn carry(tokens: &Tokens, copies: &mpsc::Receiver<Copy>, stress: Option<u64>) {
    for (count, (from, to)) in copies.iter().enumerate() {
        if let Some(seed) = stress {
            thread::sleep(Duration::from_micros(mix(seed, count as u64) % STRESS_MICROS));
        }
        to.region.copy_from(from.region);
        tokens.mark(to);
    }
}
