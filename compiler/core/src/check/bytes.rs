//! Rule: no device ever holds more bytes than it has, or than the pipeline requires.
//!
//! What is alive follows from the allocs and frees of the device's own instructions, so it does not depend on time.

use crate::diagnostic::{Code, Diagnostic, Diagnostics};
use crate::pipeline::{Limit, Pipeline};
use crate::recompute::recomputing;
use crate::schedule::Schedule;
use pipe_ir::ids::{BufferId, DeviceId, ValueId};
use pipe_ir::instruction::Instruction;
use pipe_ir::program::{DeviceProgram, Program};
use pipe_ir::task::Task;
use pipe_ir::units::Bytes;
use std::collections::BTreeMap;

/// Kinds of values that are named one by one; the rest is summed up.
const SHOWN: usize = 6;

/// Compares every device's arena with the pipeline's memory and its requirements.
///
/// # Errors
/// A diagnostic per device and limit.
pub fn check(pipeline: &Pipeline, schedule: &Schedule, program: &Program) -> Result<(), Diagnostics> {
    let mut found = Diagnostics::new();
    for (index, device) in program.devices.iter().enumerate() {
        let id = DeviceId::from_index(index);
        let (peak, arena) = (device.peak, device.arena);
        if let Some((memory, span)) = pipeline.memory.filter(|(memory, _)| arena > *memory) {
            let message = format!("{id} needs {arena}, but has {memory}");
            let mut diagnostic = Diagnostic::error(Code::MemoryExceeded, span, format!("{memory} each"), message);
            let fullest = fullest(program, device);
            if let Some(task) = fullest.task {
                let order = &schedule.orders[index];
                let origin = order.iter().find(|scheduled| scheduled.task == task).map(|scheduled| scheduled.origin);
                let text = format!("{id} holds {peak} at `{task}`");
                diagnostic = match origin.map(|origin| schedule.origins[usize::from(origin)]) {
                    Some(span) => diagnostic.label(span, text),
                    None => diagnostic.note(text),
                };
            }
            diagnostic = alive(diagnostic, &fullest.alive);
            // Rounded up, because `memory` takes whole bytes only, and at least these.
            let enough = arena.0.div_ceil(1024);
            let recompute = if recomputing(schedule).contains(&true) { "" } else { " `recompute all`," };
            let help = format!("use more devices, a schedule with a lower peak,{recompute} or `memory {enough}KiB`");
            found.push(diagnostic.help(help));
        }
        for requirement in &pipeline.requirements {
            if let Limit::Memory(limit) = requirement.limit
                && arena > limit
            {
                let message = format!("{id} needs {arena}, but at most {limit} is required");
                let error = Diagnostic::error(Code::RequirementFailed, requirement.span, "does not hold", message);
                found.push(alive(error, &fullest(program, device).alive).help("use a schedule with a lower peak"));
            }
        }
    }
    if found.is_empty() { Ok(()) } else { Err(found) }
}

/// The moment at which most bytes are alive.
#[derive(Default)]
struct Fullest {
    /// The task that runs next, or is running.
    task: Option<Task>,
    /// Number and bytes of the buffers alive, by what they hold.
    alive: BTreeMap<&'static str, (usize, Bytes)>,
}

fn fullest(program: &Program, device: &DeviceProgram) -> Fullest {
    let holds = values_of_buffers(program, device);
    let mut is_alive = vec![false; device.buffers.len()];
    let (mut live, mut reached) = (Bytes::ZERO, false);
    let mut fullest = Fullest::default();
    for instruction in device.setup.iter().chain(&device.step) {
        match *instruction {
            Instruction::Alloc { buffer } => {
                is_alive[buffer.index()] = true;
                live += device.buffers[buffer.index()].bytes;
                if live == device.peak && !reached {
                    reached = true;
                    fullest.alive = sums(program, device, &is_alive, &holds);
                }
            }
            Instruction::Free { buffer } => {
                is_alive[buffer.index()] = false;
                live -= device.buffers[buffer.index()].bytes;
            }
            Instruction::Run { exec, microbatch, .. } if reached => {
                let exec = program.exec(exec);
                fullest.task = Some(Task { kind: exec.kind, stage: exec.stage, microbatch });
                return fullest;
            }
            _ => {}
        }
    }
    fullest
}

/// What each buffer holds first, by [`BufferId`].
fn values_of_buffers(program: &Program, device: &DeviceProgram) -> Vec<Option<ValueId>> {
    let mut holds: Vec<Option<ValueId>> = vec![None; device.buffers.len()];
    let mut hold = |buffer: BufferId, value: ValueId| {
        holds[buffer.index()].get_or_insert(value);
    };
    for instruction in device.setup.iter().chain(&device.step) {
        match *instruction {
            Instruction::Fill { buffer, value, .. }
            | Instruction::Load { buffer, value, .. }
            | Instruction::RecvStart { buffer, value, .. } => hold(buffer, value),
            Instruction::Run { exec, operands, .. } => {
                let values = program.exec(exec).operands.iter().map(|operand| operand.value);
                device.operands(operands).iter().zip(values).for_each(|(buffer, value)| hold(*buffer, value));
            }
            _ => {}
        }
    }
    holds
}

fn sums(
    program: &Program,
    device: &DeviceProgram,
    is_alive: &[bool],
    holds: &[Option<ValueId>],
) -> BTreeMap<&'static str, (usize, Bytes)> {
    let mut alive: BTreeMap<&'static str, (usize, Bytes)> = BTreeMap::new();
    for ((buffer, _), value) in device.buffers.iter().zip(is_alive).zip(holds).filter(|((_, alive), _)| **alive) {
        let word = value.map_or("other buffers", |value| program.value(value).kind.word());
        let (count, bytes) = alive.entry(word).or_default();
        *count += 1;
        *bytes += buffer.bytes;
    }
    alive
}

fn alive(mut diagnostic: Diagnostic, alive: &BTreeMap<&'static str, (usize, Bytes)>) -> Diagnostic {
    let mut rows: Vec<_> = alive.iter().collect();
    rows.sort_by_key(|(_, (_, bytes))| std::cmp::Reverse(*bytes));
    for (word, (count, bytes)) in rows.into_iter().take(SHOWN) {
        let buffers = if *count == 1 { "1 buffer".to_owned() } else { format!("{count} buffers") };
        diagnostic = diagnostic.note(format!("alive at this point: {bytes} of {}, {buffers}", word.replace('_', " ")));
    }
    diagnostic
}
