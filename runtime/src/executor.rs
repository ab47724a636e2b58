//! The executor: runs the instruction list of one device, one `match` over the instruction table.

use crate::channel::{Channel, Stopped, Tokens, random_delay};
use crate::device::{Context, Device};
use crate::fault::Fault;
use crate::ledger::Ledger;
use crate::random::Counter;
use crate::trace::{DeviceStep, Nanos, Ran};
use pipe_ir::ids::{BufferId, DeviceId, ExecId, MicrobatchId};
use pipe_ir::instruction::{Class, Instruction, OperandRange};
use pipe_ir::program::{Buffer, DeviceProgram};
use std::sync::Arc;
use std::time::Instant;

/// The channels that one device sends to or receives from, by peer and class.
pub(crate) struct Ports {
    channels: Vec<Option<Arc<Channel>>>,
}

impl Ports {
    pub(crate) fn new(n_devices: usize) -> Self {
        Self { channels: vec![None; 2 * n_devices] }
    }

    pub(crate) fn connect(&mut self, peer: DeviceId, class: Class, channel: Arc<Channel>) {
        self.channels[2 * peer.index() + class as usize] = Some(channel);
    }

    fn get(&self, peer: DeviceId, class: Class) -> &Channel {
        let channel = self.channels[2 * peer.index() + class as usize].as_deref();
        channel.expect("a channel is opened for every transfer in the program")
    }
}

/// One device at work.
pub(crate) struct Executor {
    pub(crate) id: DeviceId,
    pub(crate) device: Box<dyn Device>,
    pub(crate) context: Arc<Context>,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) inbound: Ports,
    pub(crate) outbound: Ports,
    pub(crate) ledger: Ledger,
    pub(crate) fault: Arc<Fault>,
    /// Start of the run.
    pub(crate) epoch: Instant,
    /// In stress mode: delays before instructions.
    pub(crate) delays: Option<Counter>,
    /// Microbatch of each buffer's contents, so that an emitted loss is known by its microbatch.
    pub(crate) contents: Vec<MicrobatchId>,
    /// Operands of the `run` at hand.
    pub(crate) operands: Vec<Buffer>,
}

/// Why a list ended early.
pub(crate) enum Failure {
    /// This device cannot go on.
    Here(String),
    /// Another one has failed.
    Elsewhere,
}

impl From<Stopped> for Failure {
    fn from(_: Stopped) -> Self {
        Self::Elsewhere
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self::Here(message)
    }
}

impl Executor {
    /// Runs the set-up list.
    pub(crate) fn set_up(&mut self) -> Result<DeviceStep, Failure> {
        let context = Arc::clone(&self.context);
        let program = &context.program().devices[self.id.index()];
        self.run_list(program, &program.setup, 0)
    }

    /// Runs one optimizer step; steps count from 0.
    pub(crate) fn step(&mut self, step: u64) -> Result<DeviceStep, Failure> {
        let context = Arc::clone(&self.context);
        let program = &context.program().devices[self.id.index()];
        self.run_list(program, &program.step, step)
    }

    fn run_list(&mut self, program: &DeviceProgram, list: &[Instruction], step: u64) -> Result<DeviceStep, Failure> {
        let mut report = DeviceStep::default();
        for instruction in list {
            if let Some(delays) = &mut self.delays {
                std::thread::sleep(random_delay(delays) / 4);
            }
            self.execute(program, instruction, step, &mut report)?;
            report.instructions += 1;
        }
        Ok(report)
    }

    fn execute(
        &mut self,
        program: &DeviceProgram,
        instruction: &Instruction,
        step: u64,
        report: &mut DeviceStep,
    ) -> Result<(), Failure> {
        let place = |buffer: BufferId| program.buffers[buffer.index()];
        match *instruction {
            Instruction::Alloc { buffer } => self.ledger.alloc(buffer, place(buffer))?,
            Instruction::Free { buffer } => self.ledger.free(buffer, place(buffer))?,
            Instruction::Fill { buffer, value, with } => self.device.fill(&self.context, place(buffer), value, with),
            Instruction::Load { buffer, value, microbatch } => {
                self.device.load(&self.context, place(buffer), value, microbatch, step);
            }
            Instruction::Run { exec, microbatch, operands } => {
                let ran = self.run(program, exec, microbatch, operands, step)?;
                report.ran.push(ran);
            }
            Instruction::Emit { buffer } => {
                if let Some(loss) = self.device.emit(place(buffer)) {
                    report.losses.push((self.contents[buffer.index()], loss));
                }
            }
            Instruction::SendStart { buffer, to, class, token } => {
                self.outbound.get(to, class).send(place(buffer), token);
            }
            Instruction::RecvStart { buffer, from, class, token, .. } => {
                self.inbound.get(from, class).receive(place(buffer), token);
            }
            Instruction::Wait { token } => self.tokens.wait(token, &self.fault)?,
        }
        Ok(())
    }

    fn run(
        &mut self,
        program: &DeviceProgram,
        exec: ExecId,
        microbatch: MicrobatchId,
        operands: OperandRange,
        step: u64,
    ) -> Result<Ran, Failure> {
        self.operands.clear();
        for buffer in program.operands(operands) {
            self.operands.push(program.buffers[buffer.index()]);
            self.contents[buffer.index()] = microbatch;
        }
        let start = Nanos::from(self.epoch.elapsed());
        let ran = self.device.run(&self.context, exec, &self.operands, step);
        let end = Nanos::from(self.epoch.elapsed());
        let name =
            |error| format!("{} `run @{} {microbatch}`: {error}", self.id, self.context.program().exec(exec).name());
        ran.map_err(name)?;
        Ok(Ran { exec, microbatch, start, end })
    }
}
