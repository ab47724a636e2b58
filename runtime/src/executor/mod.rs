//! The executor of one device: takes its instructions one by one.
//!
//! This is the only place that knows what every instruction does at run time.

mod lanes;
pub mod ledger;
mod pool;
pub(crate) mod threads;

use crate::channels::Channels;
use crate::devices::Device;
use crate::executor::lanes::{Given, Lanes};
use crate::executor::ledger::Ledger;
use crate::values::random::Counter;
use pipe_distributed::collective::Part;
use pipe_distributed::tokens::{End, Posted};
use pipe_distributed::{DeviceStep, Fault, Joined, Nanos, Profile, RunError, Span};
use pipe_ir::graph::DType;
use pipe_ir::ids::{BufferId, DeviceId, GroupId, MicrobatchId, TokenId};
use pipe_ir::instruction::{Collective, Count, Instruction};
use pipe_ir::program::{Access, DeviceProgram, Program, Space};
use pipe_ir::value::ValueKind;
use pipe_ir::verify::{List, Verified};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// What a device does when its next transfer has not ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Patience {
    /// Its thread sleeps.
    Waits,
    /// It lets the next device of the same thread go on.
    Yields,
}

/// How far a device came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// To the end of the list.
    Done,
    /// To this instruction, whose transfer has not ended.
    Blocked(usize),
}

/// A device at work.
pub(crate) struct Executor {
    pub(crate) id: DeviceId,
    program: Arc<Verified>,
    device: Box<dyn Device>,
    lanes: Lanes,
    channels: Arc<Channels>,
    ledger: Ledger,
    /// The microbatch of each `emit` of a step, in order.
    emitted: Vec<MicrobatchId>,
    /// What the buffers of persistent values consist of.
    dtypes: BTreeMap<BufferId, DType>,
    /// Collectives that were joined and not waited for, while a trace is kept.
    joined: Vec<(TokenId, Collective, GroupId, Nanos)>,
    /// Random pauses before instructions.
    pauses: Option<Counter>,
    trace: bool,
    report: DeviceStep,
}

/// The longest pause under stress; one instruction in four takes one.
const PAUSE_MICROS: u64 = 100;

/// A pass over one list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass {
    pub(crate) list: List,
    /// The number of the list's first optimizer step, from 0.
    pub(crate) step: u64,
    /// When it began for all devices.
    pub(crate) started: Instant,
    pub(crate) patience: Patience,
}

impl Executor {
    pub(crate) fn new(
        program: Arc<Verified>,
        id: DeviceId,
        (device, lanes): (Box<dyn Device>, Lanes),
        channels: Arc<Channels>,
        stress: Option<u64>,
    ) -> Self {
        let own = &program.program().devices[id.index()];
        let ledger = Ledger::new(own.buffers.clone(), stress.is_some());
        let emitted = emitted_microbatches(program.program(), own);
        let dtypes = dtypes(program.program(), own);
        let pauses = stress.map(|seed| Counter::new(seed, &id.to_string()));
        Self {
            id,
            program,
            device,
            lanes,
            channels,
            ledger,
            emitted,
            dtypes,
            joined: Vec::new(),
            pauses,
            trace: false,
            report: DeviceStep::default(),
        }
    }

    /// Whether reports hold every run.
    pub(crate) fn set_trace(&mut self, trace: bool) {
        self.trace = trace;
    }

    /// Where the time went, if it was asked for.
    pub(crate) fn profile(&self) -> Profile {
        let mut profile = self.device.profile();
        self.lanes.add_profile(&mut profile);
        profile
    }

    /// What the device did since the last report.
    pub(crate) fn take_report(&mut self) -> DeviceStep {
        let device = self.ledger.used(Space::Device);
        let (peak, high_water, host) = (device.peak, device.high_water, self.ledger.used(Space::Host));
        let mut report = std::mem::take(&mut self.report);
        report.note_lanes(self.lanes.take_spans(), self.trace);
        DeviceStep { peak, high_water, host, ..report }
    }

    /// Executes a list from an instruction on.
    pub(crate) fn advance(&mut self, pass: &Pass, from: usize) -> Result<Progress, RunError> {
        let program = Arc::clone(&self.program);
        let own = &program.program().devices[self.id.index()];
        let list = match pass.list {
            List::Setup => &own.setup,
            List::Step => &own.step,
        };
        let mut on_lanes = 0;
        for (index, instruction) in list.iter().enumerate().skip(from) {
            if on_lanes > 0 {
                on_lanes -= 1;
                self.report.instructions += 1;
                continue;
            }
            if let Instruction::LaneStart { lane, count: Count(count), token } = *instruction {
                let count = count as usize;
                self.lanes.give(lane, Given { first: index + 1, count, token, step: pass.step, started: pass.started });
                on_lanes = count;
            }
            if let Some(pauses) = &mut self.pauses {
                pause(pauses);
            }
            self.channels.at(self.id, pass.list, index);
            match self.execute(own, pass, *instruction) {
                Ok(true) => self.report.instructions += 1,
                Ok(false) => return Ok(Progress::Blocked(index)),
                Err(fault) => {
                    if let Some(error) = self.lanes.take_error().filter(|_| fault.is_secondary()) {
                        return Err(error);
                    }
                    let (device, list, instruction) = (self.id, pass.list, format!("{instruction:?}"));
                    return Err(RunError::Instruction { device, list, index, instruction, fault });
                }
            }
        }
        Ok(Progress::Done)
    }

    /// The optimizer step that a microbatch of the list belongs to, and which one of that step it is.
    fn of_step(&self, pass: &Pass, microbatch: MicrobatchId) -> (u64, MicrobatchId) {
        let program = self.program.program();
        let step = pass.step + u64::from(program.step_of(microbatch));
        (step, MicrobatchId(microbatch.0 % program.microbatches_of_step()))
    }

    /// Whether every run is kept: for a trace, or for what lanes hide behind it.
    fn keeps_spans(&self) -> bool {
        self.trace || !self.lanes.is_empty()
    }

    /// Executes one instruction; `false` where it must be tried again later.
    fn execute(&mut self, own: &DeviceProgram, pass: &Pass, instruction: Instruction) -> Result<bool, Fault> {
        match instruction {
            Instruction::Alloc { buffer } => self.ledger.alloc(buffer)?,
            Instruction::Free { buffer } => {
                self.ledger.free(buffer)?;
                self.device.freed(buffer);
            }
            Instruction::Fill { buffer, value, with } => {
                if let Some(slot) = self.program.program().value(value).tensors.first() {
                    self.dtypes.insert(buffer, slot.ty.dtype);
                }
                self.device.fill(buffer, value, with)?;
            }
            Instruction::Load { buffer, value, microbatch } => {
                let (step, microbatch) = self.of_step(pass, microbatch);
                self.device.load(step, buffer, value, microbatch)?;
            }
            Instruction::Run { exec, microbatch, operands } => {
                let operands = own.operands(operands);
                let (step, _) = self.of_step(pass, microbatch);
                if !self.device.is_timed() {
                    self.device.run(step, exec, operands)?;
                    return Ok(true);
                }
                let start = since(pass.started);
                self.device.run(step, exec, operands)?;
                let span = Span { exec, microbatch, start, end: since(pass.started) };
                let piece = self.program.program().exec(exec).piece;
                self.report.record(span, piece, self.keeps_spans());
            }
            Instruction::Emit { buffer } => {
                let loss = self.device.emit(buffer)?;
                let microbatch = self.emitted.get(self.report.losses.len()).copied().unwrap_or(MicrobatchId(0));
                self.report.losses.push((microbatch, loss));
            }
            Instruction::SendStart { buffer, to, class, token } => {
                let posted = Posted { device: self.id, token, region: self.device.region(buffer) };
                self.channels.post(End::Send, self.id, to, class, posted);
            }
            Instruction::RecvStart { buffer, value: _, microbatch: _, from, class, token } => {
                let posted = Posted { device: self.id, token, region: self.device.region(buffer) };
                self.channels.post(End::Receive, from, self.id, class, posted);
            }
            Instruction::CollStart { buffer, collective, group, token } => {
                let posted = Posted { device: self.id, token, region: self.device.region(buffer) };
                if self.trace {
                    self.joined.push((token, collective, group, since(pass.started)));
                }
                let dtype = self.dtypes.get(&buffer).copied().unwrap_or(DType::F32);
                self.channels.join(group, Part { posted, collective, dtype, share: None });
            }
            Instruction::GatherStart { buffer, share, group, token } => {
                let posted = Posted { device: self.id, token, region: self.device.region(buffer) };
                if self.trace {
                    self.joined.push((token, Collective::AllGather, group, since(pass.started)));
                }
                let dtype = self.dtypes.get(&share).copied().unwrap_or(DType::F32);
                let share = Some(self.device.region(share));
                self.channels.join(group, Part { posted, collective: Collective::AllGather, dtype, share });
            }
            Instruction::CopyStart { buffer, from, direction, token } => {
                let posted = |buffer| Posted { device: self.id, token, region: self.device.region(buffer) };
                self.channels.copy(self.id, direction, (posted(from), posted(buffer)));
            }
            Instruction::LaneStart { .. } => {}
            Instruction::Wait { token } => {
                match pass.patience {
                    Patience::Waits => self.channels.wait(self.id, token)?,
                    Patience::Yields if !self.channels.has_ended(self.id, token) => return Ok(false),
                    Patience::Yields => {}
                }
                if let Some(place) = self.joined.iter().position(|(joined, ..)| *joined == token) {
                    let (_, collective, group, start) = self.joined.swap_remove(place);
                    self.report.joined.push(Joined { collective, group, start, end: since(pass.started) });
                }
            }
        }
        Ok(true)
    }
}

fn since(started: Instant) -> Nanos {
    Nanos(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

fn pause(pauses: &mut Counter) {
    let random = pauses.next_u64();
    if random.is_multiple_of(4) {
        thread::sleep(Duration::from_micros((random >> 32) % PAUSE_MICROS));
    }
}

/// For each `emit` of a step: the microbatch of the run that wrote the buffer last.
pub fn emitted_microbatches(program: &Program, own: &DeviceProgram) -> Vec<MicrobatchId> {
    let mut writers = vec![MicrobatchId(0); own.buffers.len()];
    let mut emitted = Vec::new();
    for instruction in &own.step {
        match *instruction {
            Instruction::Run { exec, microbatch, operands } => {
                let accesses = program.exec(exec).operands.iter().map(|operand| operand.access);
                let written =
                    own.operands(operands).iter().zip(accesses).filter(|(_, access)| *access == Access::Write);
                for (buffer, _) in written {
                    writers[buffer.index()] = microbatch;
                }
            }
            Instruction::Emit { buffer } => emitted.push(writer(&writers, buffer)),
            Instruction::Alloc { .. }
            | Instruction::Free { .. }
            | Instruction::Fill { .. }
            | Instruction::Load { .. }
            | Instruction::SendStart { .. }
            | Instruction::RecvStart { .. }
            | Instruction::CollStart { .. }
            | Instruction::GatherStart { .. }
            | Instruction::CopyStart { .. }
            | Instruction::LaneStart { .. }
            | Instruction::Wait { .. } => {}
        }
    }
    emitted
}

/// What buffers consist of that collectives add up: those of persistent values, as far as these are filled, and of what
/// members exchange. The type of their tensors.
pub fn dtypes(program: &Program, own: &DeviceProgram) -> BTreeMap<BufferId, DType> {
    let exchanged = own.step.iter().flat_map(|instruction| {
        let Instruction::Run { exec, operands, .. } = instruction else { return Vec::new() };
        let operands = program.exec(*exec).operands.iter().zip(own.operands(*operands));
        let values = operands.map(|(operand, buffer)| (*buffer, program.value(operand.value)));
        let found = values.filter(|(_, value)| value.kind == ValueKind::Exchanged);
        found.map(|(buffer, value)| (buffer, value.dtype())).collect()
    });
    let filled = own.setup.iter().chain(&own.step).filter_map(|instruction| match instruction {
        Instruction::Fill { buffer, value, .. } => Some((*buffer, program.value(*value).tensors.first()?.ty.dtype)),
        _ => None,
    });
    filled.chain(exchanged).collect()
}

fn writer(writers: &[MicrobatchId], buffer: BufferId) -> MicrobatchId {
    writers[buffer.index()]
}
