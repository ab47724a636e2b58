//! What a device's program copies when: the residency plan of its chunks, in the bytes that everything else leaves.
//!
//! A device is written twice: without its chunks, to count what else is alive at each of its steps,
//! and with them. Its steps are its tasks, then the updates at the end. Chunks may take what the
//! device's memory leaves, or, where nothing says how much that is, as much as lets each step have
//! its own, while those of the next step come and what the one before changed goes back.

use super::emit::Code;
use crate::offload::plan::{Plan, Reference, Shortage, Step, plan};
use crate::program_tables::ProgramTables;
use pipe_ir::ids::{DeviceId, ExecId, ValueId};
use pipe_ir::instruction::Instruction;
use pipe_ir::program::{Access, Space};
use pipe_ir::units::Bytes;
use pipe_schedule::schedule::Schedule;

/// When the chunks of a device come and go.
#[derive(Clone, Default)]
pub(super) struct Residency {
    /// The value that each chunk is.
    pub(super) chunks: Vec<ValueId>,
    pub(super) plan: Plan,
    /// By step: the stays that come right before it, that it uses first, that were last used by the
    /// one before, and that leave.
    pub(super) comes: Vec<Vec<usize>>,
    pub(super) begins: Vec<Vec<usize>>,
    pub ends: Vec<Vec<usize>>,
    pub(super) leaves: Vec<Vec<usize>>,
}

impl Residency {
    /// The plan for a device, given its code without chunks, and what it may hold; with as little
    /// as possible where that is not said.
    pub(super) fn new(
        schedule: &Schedule,
        work: &ProgramTables,
        device: DeviceId,
        bare: &Code,
        limit: Option<Bytes>,
    ) -> Self {
        let (chunks, mut reference) = reference(schedule, work, device);
        let others = others(bare, reference.steps.len());
        let most = |limit: u64, reference: &mut Reference| {
            for (step, others) in reference.steps.iter_mut().zip(&others) {
                step.room = limit.saturating_sub(*others);
            }
            plan(reference)
        };
        let said = limit.ok_or(Shortage { step: 0, needed: 0 }).and_then(|limit| most(limit.0, &mut reference));
        // With this much every step has room.
        let plan = said.or_else(|_| most(least(&reference, &others), &mut reference)).unwrap_or_default();
        let n_steps = reference.steps.len();
        let mut all = Self { chunks, ..Self::default() };
        for list in [&mut all.comes, &mut all.begins, &mut all.ends, &mut all.leaves] {
            list.resize(n_steps + 1, Vec::new());
        }
        for (index, stay) in plan.stays.iter().enumerate() {
            all.comes[stay.from].push(index);
            all.begins[stay.first].push(index);
            all.ends[stay.last + 1].push(index);
            all.leaves[stay.until].push(index);
        }
        Self { plan, ..all }
    }
}

/// The executables of a device in the order in which they run; none for a task without anything to do.
fn steps(schedule: &Schedule, work: &ProgramTables, device: DeviceId) -> Vec<Option<ExecId>> {
    let tasks = schedule.orders[device.index()].iter().map(|scheduled| work.exec(scheduled.task));
    let is_update = |exec: &ExecId| work.execs[exec.index()].is_update();
    tasks.chain(work.execs_of(device).filter(is_update).map(Some)).collect()
}

/// The chunks of a device, and which of them its steps use.
fn reference(schedule: &Schedule, work: &ProgramTables, device: DeviceId) -> (Vec<ValueId>, Reference) {
    let mut numbers = vec![None; work.values.len()];
    let (mut chunks, mut reference) = (Vec::new(), Reference::default());
    for exec in steps(schedule, work, device) {
        let operands = exec.map_or(&[][..], |exec| &work.execs[exec.index()].operands);
        let mut step = Step::default();
        for operand in operands.iter().filter(|operand| work.is_offloaded(operand.value)) {
            let number = *numbers[operand.value.index()].get_or_insert_with(|| {
                chunks.push(operand.value);
                reference.chunks.push(work.values[operand.value.index()].bytes.aligned().0);
                chunks.len() - 1
            });
            step.uses.push((number, operand.access != Access::Read));
        }
        reference.steps.push(step);
    }
    (chunks, reference)
}

/// The most bytes that are alive during each step, without chunks.
fn others(bare: &Code, n_steps: usize) -> Vec<u64> {
    let mut alive = [0; Space::ALL.len()];
    let mut count = |instruction: &Instruction| {
        bare.count(instruction, &mut alive);
        alive[Space::Device.index()]
    };
    let persistent = bare.setup.iter().map(&mut count).last().unwrap_or_default();
    let mut others = vec![persistent; n_steps];
    let mut next = bare.steps.iter().copied().peekable();
    let mut step: usize = 0;
    for (index, instruction) in bare.step.iter().enumerate() {
        while next.next_if(|begin| *begin <= index).is_some() {
            step += 1;
        }
        let now = count(instruction);
        if let Some(most) = others.get_mut(step.saturating_sub(1)) {
            *most = (*most).max(now);
        }
    }
    others
}

/// What a device must hold so that each step has its chunks beside those of the next one and those
/// that the one before changed.
fn least(reference: &Reference, others: &[u64]) -> u64 {
    let steps = &reference.steps;
    let mut most = 0;
    for (index, own) in steps.iter().enumerate() {
        let before =
            index.checked_sub(1).into_iter().flat_map(|before| &steps[before].uses).filter(|(_, changes)| *changes);
        let behind = steps.get(index + 1).into_iter().flat_map(|step| &step.uses);
        let mut chunks: Vec<usize> = own.uses.iter().chain(before).chain(behind).map(|(chunk, _)| *chunk).collect();
        chunks.sort_unstable();
        chunks.dedup();
        let bytes: u64 = chunks.iter().map(|chunk| reference.chunks[*chunk]).sum();
        most = most.max(others[index] + bytes);
    }
    most
}
