//! Lanes: threads of a device beside its own, each with what the device's list gives it, one after the other.

use super::{pause, since};
use crate::channels::Channels;
use crate::devices::Device;
use crate::values::random::Counter;
use pipe_distributed::tokens::{End, Posted, locked};
use pipe_distributed::{Fault, Profile, RunError, Span};
use pipe_ir::ids::{DeviceId, LaneId, TokenId};
use pipe_ir::instruction::Instruction;
use pipe_ir::verify::{List, Verified};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// Instructions of the step list that a lane is to execute.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given {
    /// Position of the first one.
    pub(super) first: usize,
    /// How many.
    pub(super) count: usize,
    /// Marked when they have ended.
    pub(super) token: TokenId,
    /// The number of the list's first optimizer step, from 0.
    pub(super) step: u64,
    /// When the list began for all devices.
    pub(super) started: Instant,
}

/// The lanes of one device.
pub(crate) struct Lanes {
    threads: Vec<LaneThread>,
    shared: Arc<Shared>,
}

/// What a lane and the list of its device share.
struct Shared {
    id: DeviceId,
    program: Arc<Verified>,
    channels: Arc<Channels>,
    /// Why a lane cannot go on.
    error: Mutex<Option<RunError>>,
}

struct LaneThread {
    given: Option<mpsc::Sender<Given>>,
    lane: Arc<Mutex<Lane>>,
    thread: Option<JoinHandle<()>>,
}

/// What executes, and what it did since the last report.
struct Lane {
    device: Box<dyn Device>,
    pauses: Option<Counter>,
    spans: Vec<Span>,
}

impl Lanes {
    /// Starts a thread for each lane of a device.
    pub(crate) fn start(
        program: &Arc<Verified>,
        id: DeviceId,
        devices: Vec<Box<dyn Device>>,
        (channels, stress): (&Arc<Channels>, Option<u64>),
    ) -> Self {
        let (program, channels) = (Arc::clone(program), Arc::clone(channels));
        let shared = Arc::new(Shared { id, program, channels, error: Mutex::new(None) });
        let thread = |(number, device): (usize, Box<dyn Device>)| {
            let pauses = stress.map(|seed| Counter::new(seed, &format!("{id} lane {number}")));
            let lane = Arc::new(Mutex::new(Lane { device, pauses, spans: Vec::new() }));
            let (sender, receiver) = mpsc::channel();
            let (own, shared) = (Arc::clone(&lane), Arc::clone(&shared));
            let thread = thread::spawn(move || {
                shared.channels.register(id, Some(LaneId::from_index(number)));
                receiver.iter().for_each(|given| shared.take(&own, given));
            });
            LaneThread { given: Some(sender), lane, thread: Some(thread) }
        };
        let threads = devices.into_iter().enumerate().map(thread).collect();
        Self { threads, shared }
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// Gives a lane what stands behind its `lane.start`.
    pub(super) fn give(&self, lane: LaneId, given: Given) {
        // The thread lives until the lanes are dropped.
        if let Some(thread) = &self.threads[lane.index()].given {
            let _ = thread.send(given);
        }
    }

    /// By lane: what it ran since the last report. The list has waited for all of it.
    pub(super) fn take_spans(&self) -> Vec<Vec<Span>> {
        self.threads.iter().map(|thread| std::mem::take(&mut locked(&thread.lane).spans)).collect()
    }

    /// Why a lane could not go on, if one could not.
    pub(super) fn take_error(&self) -> Option<RunError> {
        locked(&self.shared.error).take()
    }

    /// Adds where the time of all lanes went.
    pub(super) fn add_profile(&self, profile: &mut Profile) {
        self.threads.iter().for_each(|thread| profile.merge(&locked(&thread.lane).device.profile()));
    }
}

impl Shared {
    /// Executes what a lane was given. After a fault, everybody's waits end.
    fn take(&self, lane: &Mutex<Lane>, given: Given) {
        let result = catch_unwind(AssertUnwindSafe(|| self.execute(&mut locked(lane), given)));
        let error = match result {
            Ok(Ok(())) => return self.channels.mark(self.id, given.token),
            Ok(Err((index, fault))) => {
                let instruction = format!("{:?}", self.program.program().devices[self.id.index()].step[index]);
                RunError::Instruction { device: self.id, list: List::Step, index, instruction, fault }
            }
            Err(panic) => RunError::Panic { device: self.id, message: super::pool::words(&*panic) },
        };
        locked(&self.error).get_or_insert(error);
        self.channels.poison();
    }

    fn execute(&self, lane: &mut Lane, given: Given) -> Result<(), (usize, Fault)> {
        let program = self.program.program();
        let own = &program.devices[self.id.index()];
        for index in given.first..given.first + given.count {
            if let Some(pauses) = &mut lane.pauses {
                pause(pauses);
            }
            let result = match own.step[index] {
                Instruction::Wait { token } => self.channels.wait(self.id, token),
                Instruction::Run { exec, microbatch, operands } => {
                    let step = given.step + u64::from(program.step_of(microbatch));
                    let start = since(given.started);
                    let result = lane.device.run(step, exec, own.operands(operands));
                    if lane.device.is_timed() {
                        lane.spans.push(Span { exec, microbatch, start, end: since(given.started) });
                    }
                    result
                }
                Instruction::SendStart { buffer, to, class, token } => {
                    let posted = Posted { device: self.id, token, region: lane.device.region(buffer) };
                    self.channels.post(End::Send, self.id, to, class, posted);
                    Ok(())
                }
                other => Err(Fault::new(format!("a lane does not take `{}`", other.word()))),
            };
            result.map_err(|fault| (index, fault))?;
        }
        Ok(())
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        for thread in &mut self.threads {
            thread.given = None;
            if let Some(thread) = thread.thread.take() {
                // Whatever it panicked with was kept as an error.
                let _ = thread.join();
            }
        }
    }
}
