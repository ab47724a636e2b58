//! Rules about the tables of a program and the ids in its instructions. Every later group relies on them.

mod chunks;
mod graphs;
mod norm;
mod optimizers;
pub(super) mod pieces;
mod shapes;
pub(super) mod shares;
mod stream;

use super::report::{Report, at};
use super::{List, Place, devices};
use crate::graph::DType;
use crate::ids::{BufferId, DeviceId, ExecId, GroupId, LaneId, MicrobatchId, StageId, TokenId, ValueId};
use crate::instruction::{Count, Direction, Fill, Instruction, OperandRange};
use crate::kernels;
use crate::program::{Access, Body, DeviceProgram, Exec, Program, Space};
use crate::task::TaskKind;
use crate::training::{HeldOut, Training};
use crate::units::Bytes;
use crate::value::{Init, Value, ValueKind};
use std::collections::BTreeSet;

/// Checks tables, then the fields of every instruction.
pub(super) fn check(program: &Program, report: &mut Report) {
    if program.devices.is_empty() || program.n_microbatches == 0 {
        report.error(Place::Program, "a program has at least one device and one microbatch");
    }
    if !stream::check(program, report) {
        return;
    }
    if program.devices.len() > 1 << 30 {
        report.error(Place::Program, "a program has at most 2^30 devices");
    }
    if let Err(message) = pieces::members(program) {
        report.error(Place::Program, message);
    }
    if program.training.as_ref().is_some_and(|training| !finite(training)) {
        report.error(Place::Program, "a training setting is infinite or not a number");
    }
    if let Some(message) = program.training.as_ref().and_then(wrong_validation) {
        report.error(Place::Program, message);
    }
    if let Some(message) = program.training.as_ref().and_then(wrong_decay) {
        report.error(Place::Program, message);
    }
    if let Err(message) = norm::values(program) {
        report.error(Place::Program, message);
    }
    lanes(program, report);
    groups(program, report);
    values(program, report);
    let kept = if report.found() { BTreeSet::new() } else { shares::kept(program, report) };
    if report.found() {
        // Executables are judged by the values that they touch.
        return;
    }
    let mut names = BTreeSet::new();
    let mut are_sound = true;
    for (index, exec) in program.execs.iter().enumerate() {
        let place = Place::Exec(u32::try_from(index).unwrap_or(u32::MAX));
        let chunk = exec.chunk.map(|chunk| chunk.number);
        if !names.insert((exec.letters(), exec.stage, exec.slice, exec.edge, chunk, exec.piece, exec.is_repeated)) {
            report.error(place, format!("`@{}` is declared twice", exec.name()));
        }
        if let Err(message) = exec_row(program, &kept, exec) {
            report.error(place, message);
            are_sound = false;
        }
    }
    stream::wholes(program, report);
    if are_sound {
        // Pieces are checked together only if all of their values and nodes exist.
        pieces::check(program, report);
    }
    chunks::check(program, report);
    norm::check(program, report);
    if let Some(stage) = idle_stage(program) {
        report.error(Place::Program, format!("{stage} has no executable"));
    }
    for (device, code) in devices(program) {
        let stamps = vec![u32::MAX; code.buffers.len()];
        let mut fields = Fields { program, kept: &kept, device, code, stamps };
        for (list, instructions) in [(List::Setup, &code.setup), (List::Step, &code.step)] {
            for (index, instruction) in instructions.iter().enumerate() {
                let result = fields.instruction(list, index, instruction);
                if let Err(message) = result {
                    report.error(at(device, list, index), message);
                }
            }
        }
    }
}

/// The first stage without work, found in time linear in the executables, however many stages are stated.
fn idle_stage(program: &Program) -> Option<StageId> {
    let stages: BTreeSet<StageId> = program.execs.iter().map(|exec| exec.stage).collect();
    (0..program.n_stages).map(StageId).find(|stage| !stages.contains(stage))
}

fn finite(training: &Training) -> bool {
    let rate = &training.learning_rate;
    training.optimizer.values().into_iter().chain([rate.peak, rate.minimum.unwrap_or(0.0)]).all(f64::is_finite)
}

/// What is wrong with what a run is evaluated on.
fn wrong_validation(training: &Training) -> Option<&'static str> {
    let validation = training.validation.as_ref()?;
    match validation.data {
        HeldOut::Share(share) if !(share > 0.0 && share < 1.0) => {
            Some("the share for validation is above 0 and below 1")
        }
        _ if validation.every == 0 => Some("a validation comes every step or less often"),
        HeldOut::Share(_) | HeldOut::File(_) => None,
    }
}

/// What is wrong with how the learning rate falls.
fn wrong_decay(training: &Training) -> Option<&'static str> {
    match training.learning_rate.minimum {
        None if !training.learning_rate.decay.is_default() => Some("a learning rate without a minimum does not decay"),
        _ if training.learning_rate.decay.over == Some(0) => Some("a learning rate decays over 1 step or more"),
        _ => None,
    }
}

fn lanes(program: &Program, report: &mut Report) {
    let mut names = BTreeSet::new();
    for lane in program.lanes.iter().filter(|lane| !names.insert(*lane)) {
        report.error(Place::Program, format!("two lanes are called `{lane}`"));
    }
}

fn groups(program: &Program, report: &mut Report) {
    for (index, members) in program.groups.iter().enumerate() {
        let place = Place::Group(u32::try_from(index).unwrap_or(u32::MAX));
        let distinct: BTreeSet<DeviceId> = members.iter().copied().collect();
        if distinct.len() < members.len() {
            report.error(place, "a device is a member twice");
        } else if members.len() < 2 && program.members < 2 {
            report.error(place, format!("a group has at least two members, not {}", members.len()));
        }
        let count = program.devices.len();
        if let Some(stranger) = members.iter().find(|device| device.index() >= count) {
            report.error(place, format!("{stranger} is not one of {count} devices"));
        }
    }
}

fn values(program: &Program, report: &mut Report) {
    let mut names = BTreeSet::new();
    let loss = program.loss_type();
    for (index, value) in program.values.iter().enumerate() {
        let place = Place::Value(u32::try_from(index).unwrap_or(u32::MAX));
        if !names.insert(&value.name) {
            report.error(place, format!("the name `{}` is taken", value.name));
        }
        if let Err(message) = value_row(program, loss, value) {
            report.error(place, message);
        }
    }
}

fn stage(program: &Program, stage: StageId) -> Result<(), String> {
    if stage.0 < program.n_stages { Ok(()) } else { Err(format!("{stage} is not one of {} stages", program.n_stages)) }
}

fn value_row(program: &Program, loss: DType, value: &Value) -> Result<(), String> {
    stage(program, value.stage)?;
    let dtype = value.dtype();
    if value.kind == ValueKind::Loss && (dtype != loss || !dtype.is_float()) {
        return Err(format!("all losses are numbers of one type, but this one is {dtype} and the first {loss}"));
    }
    if value.kind == ValueKind::Loss && value.bytes < loss.bytes() {
        return Err(format!("a loss takes {} bytes, not {}", loss.bytes().0, value.bytes.0));
    }
    for slot in &value.tensors {
        let name = &slot.name;
        graphs::tensor(&slot.ty).map_err(|message| format!("tensor `{name}`: {message}"))?;
        if value.kind == ValueKind::Data {
            stream::data(program, slot).map_err(|message| format!("tensor `{name}`: {message}"))?;
        }
        graphs::aligned(&slot.ty, slot.offset.0).map_err(|message| format!("tensor `{name}` {message}"))?;
        shares::slot(value, slot).map_err(|message| format!("tensor `{name}` {message}"))?;
        pieces::slot(program, value, slot).map_err(|message| format!("tensor `{name}` {message}"))?;
        if slot.offset.0.checked_add(slot.ty.bytes().0).is_none_or(|end| end > value.bytes.0) {
            return Err(format!("tensor `{name}` is not inside the {} bytes of its value", value.bytes.0));
        }
        if matches!(slot.init, Some(Init::Normal(deviation)) if !deviation.is_finite()) {
            return Err(format!("tensor `{name}` starts with an infinite standard deviation"));
        }
    }
    Ok(())
}

fn exec_row(program: &Program, kept: &BTreeSet<ValueId>, exec: &Exec) -> Result<(), String> {
    stage(program, exec.stage)?;
    stream::slice(program, exec)?;
    if exec.is_repeated && exec.kind != TaskKind::Forward {
        return Err("only a forward can be repeated".to_owned());
    }
    let mut seen = BTreeSet::new();
    for operand in &exec.operands {
        let value =
            program.values.get(operand.value.index()).ok_or_else(|| format!("there is no {}", operand.value))?;
        let again = exec.kind == TaskKind::Update && value.kind == ValueKind::Parameters;
        if !seen.insert((operand.value, operand.ahead)) && !again {
            return Err(format!("`{}` is an operand twice", value.name));
        }
        if operand.ahead != 0 && (value.kind.is_persistent() || operand.access != Access::Read) {
            return Err(format!("`{}` of another slice can only be read, and only what belongs to one", value.name));
        }
        if exec.kind == TaskKind::Update && !value.kind.is_persistent() {
            return Err(format!("an update has no microbatch, but `{}` belongs to one", value.name));
        }
        let stays = matches!(value.kind, ValueKind::Parameters | ValueKind::OptimizerState);
        if exec.kind != TaskKind::Update && stays && operand.access != Access::Read {
            return Err(format!("only an update changes `{}`", value.name));
        }
        if value.kind == ValueKind::GradientNorm && !matches!(exec.body, Body::Optimizer | Body::Squares) {
            return Err(format!("`{}` is for updates, and what it is added up with", value.name));
        }
        shares::operand(program, kept, exec, operand)?;
    }
    match &exec.body {
        Body::Abstract => Ok(()),
        Body::Graph(graph) => {
            graphs::check(program, exec, graph)?;
            scratch(program, exec, kernels::plan(graph).scratch)
        }
        Body::Optimizer => optimizers::check(program, exec),
        Body::Squares => norm::squares(program, exec),
    }
}

/// Checks that the temporaries of a graph have room.
fn scratch(program: &Program, exec: &Exec, needed: Bytes) -> Result<(), String> {
    let values = exec.operands.iter().map(|operand| program.value(operand.value));
    let mut found = values.filter(|value| value.kind == ValueKind::Scratch);
    let bytes = found.next().map_or(Bytes::ZERO, |value| value.bytes);
    match found.next() {
        Some(second) => Err(format!("`{}` is a second scratch", second.name)),
        None if bytes < needed => {
            Err(format!("its temporaries take {} bytes, but its scratch has {}", needed.0, bytes.0))
        }
        None => Ok(()),
    }
}

/// The fields of the instructions of one device.
struct Fields<'a> {
    program: &'a Program,
    /// Weights that are kept in shares.
    kept: &'a BTreeSet<ValueId>,
    device: DeviceId,
    code: &'a DeviceProgram,
    /// The last `run` that had this buffer as an operand, to find doubles.
    stamps: Vec<u32>,
}

impl Fields<'_> {
    fn instruction(&mut self, list: List, index: usize, instruction: &Instruction) -> Result<(), String> {
        if list == List::Setup && !matches!(instruction, Instruction::Alloc { .. } | Instruction::Fill { .. }) {
            return Err("the set-up has only `alloc` and `fill`".to_owned());
        }
        match *instruction {
            Instruction::Alloc { buffer } | Instruction::Free { buffer } => self.buffer(buffer),
            Instruction::Emit { buffer } => self.within(buffer, Space::Device),
            Instruction::Fill { buffer, value, with } => {
                self.holds(buffer, value)?;
                self.persistent(value, true)?;
                self.fill(list, value, with)?;
                shares::fill(self.program, self.kept, self.device, value)
            }
            Instruction::Load { buffer, value, microbatch } => {
                self.holds(buffer, value)?;
                self.within(buffer, Space::Device)?;
                self.microbatch(microbatch)?;
                match self.program.value(value) {
                    data if data.kind == ValueKind::Data => stream::load(self.program, data, microbatch),
                    _ => Err("only data can be loaded".to_owned()),
                }
            }
            Instruction::Run { exec, microbatch, operands } => self.run(index, exec, microbatch, operands),
            Instruction::SendStart { buffer, to, token, .. } => {
                self.within(buffer, Space::Device)?;
                self.peer(to)?;
                self.token(token)
            }
            Instruction::RecvStart { buffer, value, microbatch, from, token, .. } => {
                self.holds(buffer, value)?;
                self.within(buffer, Space::Device)?;
                self.persistent(value, false)?;
                self.microbatch(microbatch)?;
                self.peer(from)?;
                self.token(token)
            }
            Instruction::CollStart { buffer, group, token, .. } => {
                self.within(buffer, Space::Device)?;
                self.member(group)?;
                self.token(token)
            }
            Instruction::GatherStart { buffer, share, group, token } => {
                self.within(buffer, Space::Device)?;
                self.within(share, Space::Device)?;
                self.member(group)?;
                self.token(token)
            }
            Instruction::CopyStart { buffer, from, direction, token } => {
                self.copy(buffer, from, direction)?;
                self.token(token)
            }
            Instruction::LaneStart { lane, count, token } => {
                self.lane(index, lane, count)?;
                self.token(token)
            }
            Instruction::Wait { token } => self.token(token),
        }
    }

    /// What runs on a lane is there, and may run there.
    fn lane(&self, index: usize, lane: LaneId, Count(count): Count) -> Result<(), String> {
        let known = self.program.lanes.len();
        if lane.index() >= known {
            return Err(format!("{lane} is not one of {known} lanes"));
        }
        let behind = self.code.step.get(index + 1..).unwrap_or_default();
        let on_lane = behind.get(..count as usize).filter(|on_lane| !on_lane.is_empty());
        let on_lane = on_lane.ok_or_else(|| {
            format!("gives a lane {count} instructions, of at least 1 and the {} behind it", behind.len())
        })?;
        let may = |one: &&Instruction| {
            matches!(one, Instruction::Wait { .. } | Instruction::Run { .. } | Instruction::SendStart { .. })
        };
        match on_lane.iter().find(|one| !may(one)) {
            Some(other) => Err(format!("gives a lane `{}`; lanes take `wait`, `run` and `send.start`", other.word())),
            None => Ok(()),
        }
    }

    fn buffer(&self, buffer: BufferId) -> Result<(), String> {
        if buffer.index() < self.code.buffers.len() { Ok(()) } else { Err(format!("{} has no {buffer}", self.device)) }
    }

    /// Only copies, and what begins and ends lifespans, reach the host's memory.
    fn within(&self, buffer: BufferId, space: Space) -> Result<(), String> {
        self.buffer(buffer)?;
        if self.code.buffers[buffer.index()].space == space {
            return Ok(());
        }
        let (is, should) = if space == Space::Device { ("host", "device") } else { ("device", "host") };
        Err(format!("{buffer} lies in the {is}'s memory, not in the {should}'s"))
    }

    fn copy(&self, to: BufferId, from: BufferId, direction: Direction) -> Result<(), String> {
        let (source, target) = direction.spaces();
        self.within(from, source)?;
        self.within(to, target)?;
        let bytes = |buffer: BufferId| self.code.buffers[buffer.index()].bytes.0;
        if bytes(from) == bytes(to) {
            return Ok(());
        }
        Err(format!("copies {} bytes into a buffer of {}", bytes(from), bytes(to)))
    }

    fn holds(&self, buffer: BufferId, value: ValueId) -> Result<(), String> {
        self.buffer(buffer)?;
        let row = self.program.values.get(value.index()).ok_or_else(|| format!("there is no {value}"))?;
        let bytes = self.code.buffers[buffer.index()].bytes;
        if bytes >= row.bytes {
            return Ok(());
        }
        Err(format!("{buffer} has {} bytes, but `{}` takes {}", bytes.0, row.name, row.bytes.0))
    }

    fn persistent(&self, value: ValueId, persistent: bool) -> Result<(), String> {
        let row = self.program.value(value);
        match (row.kind.is_persistent(), persistent) {
            (false, true) => Err(format!("`{}` belongs to a microbatch and cannot be filled", row.name)),
            // Sums of gradients travel where weights change while microbatches are under way.
            (true, false) if row.kind == ValueKind::ParameterGradients && !self.program.lags.is_empty() => Ok(()),
            (true, false) => Err(format!("`{}` belongs to no microbatch and cannot be received", row.name)),
            _ => Ok(()),
        }
    }

    fn fill(&self, list: List, value: ValueId, with: Fill) -> Result<(), String> {
        let row = self.program.value(value);
        let kept = matches!(row.kind, ValueKind::Parameters | ValueKind::OptimizerState);
        match (row.kind, with) {
            (ValueKind::Parameters, Fill::Zero) => Err(format!("`{}` starts with its initial contents", row.name)),
            (ValueKind::OptimizerState | ValueKind::GradientNorm | ValueKind::Scratch, Fill::Init) => {
                Err(format!("`{}` starts at zero", row.name))
            }
            _ if kept && list == List::Step => Err(format!("the step would forget `{}`", row.name)),
            _ => Ok(()),
        }
    }

    fn microbatch(&self, microbatch: MicrobatchId) -> Result<(), String> {
        let count = self.program.n_microbatches;
        if microbatch.0 < count { Ok(()) } else { Err(format!("{microbatch} is not one of {count} microbatches")) }
    }

    fn peer(&self, peer: DeviceId) -> Result<(), String> {
        if peer == self.device {
            return Err("a device transfers nothing to itself".to_owned());
        }
        let count = self.program.devices.len();
        if peer.index() < count { Ok(()) } else { Err(format!("{peer} is not one of {count} devices")) }
    }

    fn member(&self, group: GroupId) -> Result<(), String> {
        let members = self.program.groups.get(group.index()).ok_or_else(|| format!("there is no group {group}"))?;
        if members.contains(&self.device) { Ok(()) } else { Err(format!("{} is not a member of {group}", self.device)) }
    }

    fn token(&self, token: TokenId) -> Result<(), String> {
        let count = self.code.n_tokens;
        if token.0 < count { Ok(()) } else { Err(format!("{token} is not one of {count} tokens")) }
    }

    fn run(&mut self, index: usize, id: ExecId, microbatch: MicrobatchId, range: OperandRange) -> Result<(), String> {
        let exec = self.program.execs.get(id.index()).ok_or_else(|| format!("there is no executable {id}"))?;
        self.microbatch(microbatch)?;
        if exec.kind == TaskKind::Update && !microbatch.0.is_multiple_of(self.program.microbatches_of_step()) {
            return Err(format!("an update writes the first microbatch of its step, not {microbatch}"));
        }
        let start = range.start as usize;
        let operands = self.code.operands.get(start..start.saturating_add(range.len as usize));
        let operands = operands.ok_or("its operands are not in the device's table")?;
        if operands.len() != exec.operands.len() {
            return Err(format!("it has {} operands, but takes {}", operands.len(), exec.operands.len()));
        }
        stream::run(self.program, exec, microbatch)?;
        shares::run(self.program, exec, self.device)?;
        let stamp = u32::try_from(index).unwrap_or(u32::MAX - 1);
        for (buffer, operand) in operands.iter().zip(&exec.operands) {
            self.holds(*buffer, operand.value)?;
            self.within(*buffer, Space::Device)?;
            if std::mem::replace(&mut self.stamps[buffer.index()], stamp) == stamp {
                return Err(format!("{buffer} is an operand twice"));
            }
        }
        Ok(())
    }
}
