//! Rules about what buffers hold: readers find the value that they expect, and a step ends with what it began with.

mod content;
mod joins;
mod norm;

pub(super) use content::Content;

use super::List;
use super::orders::Holders;
use super::report::{Report, at};
use crate::ids::{BufferId, DeviceId, ExecId, GroupId, MicrobatchId, ValueId};
use crate::instruction::{Collective, Fill, Instruction, OperandRange};
use crate::program::{Access, DeviceProgram, Exec, Operand, Program};
use crate::task::TaskKind;
use crate::units::Bytes;
use crate::value::ValueKind;
use norm::Norm;
use std::collections::BTreeMap;

/// Gradients of one value on one device, as far as this step.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Sum {
    /// From the step before.
    #[default]
    Stale,
    Zeroed,
    Added,
    /// Added up over all devices that hold it.
    Reduced,
    /// The same, but only this device's share of it, as a member of the group.
    Scattered(GroupId),
    /// Exactly the gradients of the step's microbatches up to this one, in their order, whoever computed them.
    Upto(MicrobatchId),
}

/// What a `coll.start` or `gather.start` joins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Joined {
    /// Position in the step.
    pub(super) index: u32,
    /// For what.
    pub(super) collective: Collective,
    /// With whom.
    pub(super) group: GroupId,
    /// The gradients or weights.
    pub(super) value: ValueId,
    /// The bytes of their buffer.
    pub(super) bytes: Bytes,
    /// The version of a share that is gathered from.
    pub(super) version: Option<i64>,
}

struct Contents<'a> {
    program: &'a Program,
    device: DeviceId,
    code: &'a DeviceProgram,
    buffers: Vec<Content>,
    /// By value: how far its sum is, and the buffer in which it was zeroed.
    sums: BTreeMap<ValueId, (Sum, Option<BufferId>)>,
    holders: &'a Holders,
    /// By value: buffers that the set-up filled with it; each holds an older version of it than the one before.
    filled: BTreeMap<ValueId, i64>,
    sent: Vec<Content>,
    joined: Vec<Joined>,
    norm: Norm,
}

/// Checks one device and returns what each `send.start`, and each `coll.start` and `gather.start`,
/// carries, in their order.
pub(super) fn check(
    program: &Program,
    holders: &Holders,
    device: DeviceId,
    code: &DeviceProgram,
    report: &mut Report,
) -> (Vec<Content>, Vec<Joined>) {
    let buffers = vec![Content::Nothing; code.buffers.len()];
    // Only of what the device touches, so that many devices with many values take no longer than
    // they have instructions.
    let (sums, filled) = (BTreeMap::new(), BTreeMap::new());
    let (sent, joined) = (Vec::new(), Vec::new());
    let norm = Norm::default();
    let mut contents = Contents { program, device, code, buffers, sums, filled, holders, sent, joined, norm };
    for (index, instruction) in code.setup.iter().enumerate() {
        if let Err(message) = contents.instruction(instruction) {
            report.error(at(device, List::Setup, index), message);
        }
    }
    let start = contents.buffers.clone();
    contents.sums.values_mut().for_each(|(sum, _)| *sum = Sum::Stale);
    contents.norm = Norm::default();
    for (index, instruction) in code.step.iter().enumerate() {
        let result = match *instruction {
            Instruction::CollStart { buffer, collective, group, .. } => contents.join(index, buffer, collective, group),
            Instruction::GatherStart { buffer, share, group, .. } => {
                contents.gather_shares(index, (buffer, share), group)
            }
            _ => contents.instruction(instruction),
        };
        if let Err(message) = result {
            report.step(device, index, message);
        }
    }
    let alone = |(_, (sum, _)): &(&ValueId, &(Sum, _))| matches!(sum, Sum::Zeroed | Sum::Added);
    for (id, (_, buffer)) in contents.sums.iter().filter(alone) {
        let id = *id;
        if let (Some(others), Some(buffer)) = (holders.shared(id), buffer) {
            let index = last_write(program, code, buffer.index()).unwrap_or(0);
            let name = &program.value(id).name;
            report.step(device, index, format!("`{name}` is held by {others} devices, but is never reduced"));
        }
    }
    // What is version 0 for this step list is as many updates older for the next one.
    let next = |before: Content| match before {
        Content::Version(value, version) if holders.changes(value) => {
            Content::Version(value, version + i64::from(program.n_steps))
        }
        other => other,
    };
    let changed = |buffer: &usize| {
        let (before, after) = (next(start[*buffer]), contents.buffers[*buffer]);
        before != after && after != Content::Unknown && alive(code, *buffer)
    };
    for buffer in (0..start.len()).filter(changed) {
        let (before, after) = (next(start[buffer]).describe(program), contents.buffers[buffer].describe(program));
        let index = last_write(program, code, buffer).unwrap_or(0);
        report.step(
            device,
            index,
            format!("leaves {after} in %{buffer}, which the next step expects to hold {before}"),
        );
    }
    (contents.sent, contents.joined)
}

/// Whether a buffer lives from step to step.
fn alive(code: &DeviceProgram, buffer: usize) -> bool {
    let allocates = |instruction: &Instruction| matches!(instruction, Instruction::Alloc { buffer: other } if other.index() == buffer);
    code.setup.iter().any(allocates)
}

fn last_write(program: &Program, code: &DeviceProgram, buffer: usize) -> Option<usize> {
    code.step.iter().rposition(|instruction| {
        let mut writes = false;
        instruction.accesses(program, code, |other, touch| {
            writes |= other.index() == buffer && touch != crate::operand::Touch::Read;
        });
        writes
    })
}

impl Contents<'_> {
    fn instruction(&mut self, instruction: &Instruction) -> Result<(), String> {
        match *instruction {
            Instruction::Alloc { buffer } | Instruction::Free { buffer } => {
                self.buffers[buffer.index()] = Content::Nothing;
                Ok(())
            }
            Instruction::Fill { buffer, value, with } => {
                self.buffers[buffer.index()] = self.fresh(value);
                self.fill(buffer, value, with)
            }
            Instruction::RecvStart { buffer, value, microbatch, .. } if self.travels(value) => {
                self.buffers[buffer.index()] = Content::Persistent(value);
                self.sums.insert(value, (Sum::Upto(microbatch), Some(buffer)));
                Ok(())
            }
            Instruction::Load { buffer, value, microbatch }
            | Instruction::RecvStart { buffer, value, microbatch, .. } => {
                self.buffers[buffer.index()] = Content::Of(value, microbatch);
                Ok(())
            }
            Instruction::Run { exec, microbatch, operands } => self.run(exec, microbatch, operands),
            Instruction::Emit { buffer } => self.emit(buffer),
            Instruction::SendStart { buffer, .. } => {
                let content = self.carried(buffer);
                self.sent.push(content);
                match content {
                    Content::Of(..) | Content::Unknown => Ok(()),
                    Content::Nothing
                    | Content::Persistent(_)
                    | Content::Version(..)
                    | Content::Between(..)
                    | Content::Exchanged(..)
                    | Content::Share(..) => {
                        let held = content.describe(self.program);
                        Err(format!("{buffer} holds {held}; only values of a microbatch are sent"))
                    }
                }
            }
            Instruction::CopyStart { buffer, from, .. } => self.copy(from, buffer),
            Instruction::Wait { .. }
            | Instruction::LaneStart { .. }
            | Instruction::CollStart { .. }
            | Instruction::GatherStart { .. } => Ok(()),
        }
    }

    /// Until it is waited for, nobody writes what a copy reads, so that it carries what is there when it starts.
    fn copy(&mut self, from: BufferId, to: BufferId) -> Result<(), String> {
        let content = self.buffers[from.index()];
        self.buffers[to.index()] = content;
        let may_travel = match content {
            Content::Version(..) | Content::Unknown => true,
            Content::Of(value, _) => self.program.value(value).kind != ValueKind::Loss,
            Content::Nothing
            | Content::Persistent(_)
            | Content::Between(..)
            | Content::Share(..)
            | Content::Exchanged(..) => false,
        };
        if may_travel {
            return Ok(());
        }
        let held = content.describe(self.program);
        Err(format!("{from} holds {held}; only weights, state of the optimizer and values of a microbatch are copied"))
    }

    /// Whether a value is a sum that travels from device to device: gradients that several devices hold, where weights
    /// change while microbatches are under way.
    fn travels(&self, value: ValueId) -> bool {
        let is_gradient = self.program.value(value).kind == ValueKind::ParameterGradients;
        is_gradient && !self.program.lags.is_empty() && self.holders.shared(value).is_some()
    }

    /// What a transfer carries that sends a buffer.
    fn carried(&self, buffer: BufferId) -> Content {
        let content = self.buffers[buffer.index()];
        match content {
            Content::Persistent(value) if self.travels(value) => match self.sums.get(&value) {
                Some((Sum::Upto(microbatch), Some(home))) if *home == buffer => Content::Of(value, *microbatch),
                _ => content,
            },
            _ => content,
        }
    }

    /// Adds the gradient of a microbatch to a sum that travels, or updates with all of them.
    fn travelling(&mut self, (kind, microbatch): (TaskKind, MicrobatchId), operand: &Operand) -> Result<(), String> {
        let per_step = self.program.microbatches_of_step();
        let begins = microbatch.0.is_multiple_of(per_step);
        let (sum, _) = self.sums.entry(operand.value).or_default();
        let before = *sum;
        let name = &self.program.value(operand.value).name;
        if kind == TaskKind::Update {
            // What is only read is still the total, and may be sent on.
            *sum = if operand.access == Access::Read { before } else { Sum::Stale };
            let last = MicrobatchId(microbatch.0 + (per_step - 1));
            let complete = before == Sum::Upto(last);
            return if complete { Ok(()) } else { Err(format!("`{name}` is not the sum of its step up to {last}")) };
        }
        *sum = Sum::Upto(microbatch);
        let follows = match before {
            Sum::Zeroed => begins,
            Sum::Upto(last) => !begins && last.0 + 1 == microbatch.0,
            Sum::Stale | Sum::Added | Sum::Reduced | Sum::Scattered(_) => false,
        };
        if follows { Ok(()) } else { Err(format!("`{name}` is not the sum of its step up to the microbatch before")) }
    }

    /// What a buffer holds that is filled with a value.
    fn fresh(&mut self, value: ValueId) -> Content {
        if !matches!(self.program.value(value).kind, ValueKind::Parameters | ValueKind::OptimizerState) {
            return Content::Persistent(value);
        }
        let filled = self.filled.entry(value).or_default();
        let version = -*filled;
        if self.holders.changes(value) {
            *filled += 1;
        }
        Content::Version(value, version)
    }

    /// What a run expects in the buffer of an operand, and what it leaves there.
    fn expected(&self, exec: &Exec, operand: &Operand, microbatch: MicrobatchId) -> (Content, Content) {
        let value = operand.value;
        let row = self.program.value(value);
        let content = match row.kind {
            ValueKind::Parameters | ValueKind::OptimizerState if !self.holders.changes(value) => {
                Content::Version(value, 0)
            }
            ValueKind::Parameters | ValueKind::OptimizerState if exec.kind == TaskKind::Update => {
                return self.updated(exec, row.kind, (value, i64::from(self.program.step_of(microbatch))));
            }
            ValueKind::Parameters | ValueKind::OptimizerState => {
                Content::Version(value, self.program.version_read(exec.stage, microbatch))
            }
            kind if kind.is_persistent() => Content::Persistent(value),
            ValueKind::Exchanged => {
                let microbatch = operand.microbatch(microbatch);
                return (Content::Exchanged(value, microbatch), Content::Of(value, microbatch));
            }
            _ => Content::Of(value, operand.microbatch(microbatch)),
        };
        (content, content)
    }

    /// What an update expects of weights or the optimizer's state, and what it leaves. Weights that
    /// are updated in chunks are those of neither version until the last one; weights that are
    /// divided, until the shares of all are there. A share that is kept by itself is all that is
    /// updated.
    fn updated(&self, exec: &Exec, kind: ValueKind, (value, version): (ValueId, i64)) -> (Content, Content) {
        let (before, after) = (Content::Version(value, version), Content::Version(value, version + 1));
        let is_all = self.program.value(value).share.is_none();
        let Some(chunk) = exec.chunk.filter(|_| is_all && kind == ValueKind::Parameters) else {
            return (before, after);
        };
        if chunk.group.is_some() {
            return (before, Content::Share(value, version));
        }
        let between = |chunks| Content::Between(value, version, chunks);
        let expected = if chunk.number == 0 { before } else { between(chunk.number) };
        (expected, if self.program.ends_update(exec) { after } else { between(chunk.number + 1) })
    }

    fn fill(&mut self, buffer: BufferId, value: ValueId, with: Fill) -> Result<(), String> {
        let row = self.program.value(value);
        if row.kind == ValueKind::GradientNorm {
            return self.begin_norm();
        }
        if row.kind != ValueKind::ParameterGradients {
            return Ok(());
        }
        let before = self.sums.insert(value, (Sum::Zeroed, Some(buffer))).unwrap_or_default().0;
        match (with, before) {
            (Fill::Init, _) => Err("gradients start at zero".to_owned()),
            (Fill::Zero, Sum::Added | Sum::Reduced | Sum::Scattered(_)) => {
                Err(format!("drops what was added to `{}` in this step", row.name))
            }
            (Fill::Zero, Sum::Stale | Sum::Zeroed | Sum::Upto(_)) => Ok(()),
        }
    }

    fn emit(&mut self, buffer: BufferId) -> Result<(), String> {
        match self.buffers[buffer.index()] {
            Content::Unknown => Ok(()),
            Content::Of(value, _) if self.program.value(value).kind == ValueKind::Loss => Ok(()),
            other => Err(format!("{buffer} holds {}, which is not a loss", other.describe(self.program))),
        }
    }

    fn run(&mut self, id: ExecId, microbatch: MicrobatchId, range: OperandRange) -> Result<(), String> {
        let exec = self.program.exec(id);
        let mut result = Ok(());
        for (operand, buffer) in exec.operands.iter().zip(self.code.operands(range)) {
            let value = self.program.value(operand.value);
            let (expected, left) = self.expected(exec, operand, microbatch);
            let held = &mut self.buffers[buffer.index()];
            let reads = operand.access != Access::Write;
            if reads && *held != expected && *held != Content::Unknown {
                let (expected, found) = (expected.describe(self.program), held.describe(self.program));
                *held = Content::Unknown;
                result = Err(format!("expects {expected} in {buffer}, which holds {found}"));
            } else if operand.access != Access::Read {
                *held = left;
            }
            let judged = match value.kind {
                ValueKind::ParameterGradients if exec.is_squares() => self.count(exec, operand.value, *buffer),
                ValueKind::ParameterGradients => self.gradient(exec, microbatch, operand, *buffer),
                ValueKind::GradientNorm if exec.is_squares() => self.add_squares(),
                ValueKind::GradientNorm => self.read_norm(operand.value),
                _ => Ok(()),
            };
            result = judged.and(result);
        }
        result
    }

    fn gradient(
        &mut self,
        exec: &Exec,
        microbatch: MicrobatchId,
        operand: &Operand,
        buffer: BufferId,
    ) -> Result<(), String> {
        let kind = exec.kind;
        if self.travels(operand.value) {
            let name = &self.program.value(operand.value).name;
            if self.sums.get(&operand.value).is_some_and(|(_, home)| home.is_some_and(|home| home != buffer)) {
                return Err(format!("`{name}` of this step is not in {buffer}"));
            }
            return self.travelling((kind, microbatch), operand);
        }
        let (sum, home) = self.sums.entry(operand.value).or_default();
        let name = &self.program.value(operand.value).name;
        let before = *sum;
        let updates = kind == TaskKind::Update;
        *sum = match operand.access {
            // What is added after an update belongs to the next step, which starts at zero.
            // Updates of chunks share the gradients.
            Access::Read if updates && !self.program.ends_update(exec) => before,
            Access::Read | Access::Update if updates => Sum::Stale,
            Access::Read if before != Sum::Stale => before,
            _ => Sum::Added,
        };
        if home.is_some_and(|home| home != buffer) {
            return Err(format!("`{name}` of this step is not in {buffer}"));
        }
        if !updates && operand.access != Access::Read && self.is_counted(operand.value) {
            return Err(format!("the squares of `{name}` are added up already in this step"));
        }
        match (operand.access, before) {
            (Access::Write, Sum::Stale | Sum::Zeroed) => Ok(()),
            (Access::Write, _) => Err(format!("overwrites what was added to `{name}` in this step")),
            (Access::Read | Access::Update, Sum::Stale) => {
                Err(format!("`{name}` was not filled with zeros in this step"))
            }
            (_, Sum::Zeroed | Sum::Added) if updates => match self.holders.shared(operand.value) {
                Some(others) => Err(format!("`{name}` is held by {others} devices, but was not reduced before")),
                None => Ok(()),
            },
            (Access::Update, Sum::Reduced) | (_, Sum::Scattered(_)) if !updates => {
                Err(format!("`{name}` was reduced already in this step"))
            }
            (_, Sum::Scattered(group)) if exec.chunk.and_then(|chunk| chunk.group) != Some(group) => {
                Err(format!("only the share of {} in `{name}` was reduced before", self.device))
            }
            (Access::Read | Access::Update, _) => Ok(()),
        }
    }
}
