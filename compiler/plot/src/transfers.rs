//! What travels between devices: once to every device that reads it, with the size of the program's own sends.

use super::bytes::sent;
use super::drawn::Basis;
use super::{TickScale, Transfer};
use pipe_ir::ids::DeviceId;
use pipe_ir::instruction::Class;
use pipe_ir::program::Program;
use pipe_ir::task::{Task, TaskKind};
use pipe_schedule::order::Position;
use std::collections::BTreeSet;

/// All transfers, in the order in which tasks read them.
pub(super) fn all(basis: Basis<'_>, program: Option<&Program>, scale: &TickScale) -> Vec<Transfer> {
    let Basis { schedule, order, .. } = basis;
    let sizes = program.map(sent).unwrap_or_default();
    let mut seen: BTreeSet<(u32, DeviceId, Class)> = BTreeSet::new();
    let mut transfers = Vec::new();
    for slot in &order.sequence {
        for task in schedule.node(slot.device, slot.position as usize).iter().map(|one| one.task) {
            let sums: Vec<Task> = order.dependencies.sum_inputs(task).collect();
            for input in order.dependencies.inputs_beside_updates(task) {
                let is_sum = sums.contains(&input) && input.stage == task.stage;
                let class = match input.kind {
                    _ if is_sum => Class::Sum,
                    TaskKind::Forward => Class::Activation,
                    _ => Class::Gradient,
                };
                for (to, position) in order.table.places(&schedule.placement, task) {
                    let one = ReadPoint { slot: Position::new(to, position), class };
                    transfers.extend(one.transfer(basis, input, scale).and_then(|found| {
                        let from = schedule.device_of(input);
                        let microbatch = Some(input.microbatch).filter(|_| class != Class::Sum);
                        let of = |stage| sizes.get(&(from, to, class, stage, microbatch)).copied();
                        // Gradients belong to the stage whose output they are of, or where sizes
                        // are all there is, to the one that computes them.
                        let owner = if class == Class::Gradient { task.stage } else { input.stage };
                        let bytes = of(owner).or_else(|| of(input.stage));
                        seen.insert((found.from, to, class)).then_some(Transfer { bytes, ..found })
                    }));
                }
            }
        }
    }
    transfers
}

/// Where something is read.
struct ReadPoint {
    slot: Position,
    class: Class,
}

impl ReadPoint {
    /// What comes from the task that makes it, unless it is there already.
    fn transfer(&self, basis: Basis<'_>, input: Task, scale: &TickScale) -> Option<Transfer> {
        let Basis { schedule, order, costs, timeline } = basis;
        let homes = schedule.devices_of(input);
        let n_devices = schedule.n_devices();
        let device = |queue: DeviceId| schedule.parts.device(queue, n_devices);
        if homes.iter().any(|home| device(*home) == device(self.slot.device)) {
            return None;
        }
        let from = Position::new(schedule.device_of(input), order.position(input));
        let end = timeline.end(from);
        let carried = timeline.carried.get(&(from.device, from.position, device(self.slot.device)));
        let hop = schedule.hop(&costs.latency, homes, &[self.slot.device]);
        // It may wait for its turn on a lane.
        let [end, arrival] = carried.copied().unwrap_or([end, end + hop]);
        // It may come sooner than it usually does, as measured, but no later than it is read.
        let arrival = arrival.min(timeline.starts[self.slot.device.index()][self.slot.position as usize]).max(end);
        Some(Transfer {
            from: scale.index(from),
            to: scale.index(self.slot),
            class: self.class,
            start: scale.ticks(end),
            end: scale.ticks(arrival),
            bytes: None,
        })
    }
}
