//! Reductions: where the gradients of replicated weights are added up over the devices that hold them.
//!
//! A group of weights that lives on several devices has one reduction in a step. Each device joins it right after its
//! last task that adds to these gradients, or where its order says `reduce`. All reductions stand in one order, by
//! the time at which the last member could join, and every device joins its own in that order: so members never join
//! two of them the other way round. Blocks that run on across steps have none: their partial sums travel from device
//! to device.

mod placed;

use pipe_ir::ids::{DeviceId, StageId};
use pipe_ir::task::TaskKind;
use pipe_model::stage_set::StageSet;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::step_tasks::StepTaskKind;
use pipe_schedule::timing::latency::Latency;
use pipe_schedule::timing::reductions::{Member, Reduction};
use pipe_schedule::timing::timeline::Timeline;
use pipe_schedule::units::Ticks;

/// All reductions of a step, in their order; each ends when what its members add has come to all others.
pub fn reductions(schedule: &Schedule, set: &StageSet, timeline: &Timeline, latency: &Latency) -> Vec<Reduction> {
    let mut all = without_places(schedule, set);
    if all.is_empty() {
        return all;
    }
    add_last_contributions(schedule, set, &mut all);
    all.sort_by_key(|one| (one.members.iter().map(|member| member.joins(timeline)).max(), one.gradients));
    if schedule.step_tasks.first(StepTaskKind::Reduce).is_some() {
        all = placed::in_order(schedule, set, all);
    }
    let mut joined: Vec<Option<u32>> = vec![None; schedule.n_devices()];
    for one in &mut all {
        for member in &mut one.members {
            let before = &mut joined[member.device.index()];
            member.after = member.after.max(*before);
            *before = member.after;
        }
        one.conclude(timeline, latency);
    }
    all
}

/// Whether a step has reductions.
pub fn has_any(schedule: &Schedule, set: &StageSet) -> bool {
    !without_places(schedule, set).is_empty()
}

/// All reductions of a step, before it is known where members join them.
fn without_places(schedule: &Schedule, set: &StageSet) -> Vec<Reduction> {
    let mut all = Vec::new();
    if schedule.window.is_some() {
        // Without a flush, sums travel from worker to worker.
        return all;
    }
    for group in &set.weights {
        let mut homes: Vec<DeviceId> =
            group.stages.iter().flat_map(|stage| schedule.placement.devices_of(*stage)).copied().collect();
        homes.sort_unstable();
        homes.dedup();
        // Devices that run every task together have no gradients of their own.
        let is_together = |stage: &StageId| schedule.placement.set_size(*stage) == homes.len();
        if let (Some(gradients), false) = (group.gradients, group.stages.iter().all(is_together)) {
            let members = homes.into_iter().map(|device| Member { device, after: None }).collect();
            let stage = set.values[gradients.index()].stage;
            all.push(Reduction { gradients, stage, members, begins: None, end: Ticks::ZERO, last: None });
        }
    }
    all
}

/// Finds each member's last task that adds to the gradients.
fn add_last_contributions(schedule: &Schedule, set: &StageSet, all: &mut [Reduction]) {
    // By stage and kind: the reductions that its tasks add to.
    let adds = |stage: usize, kind: TaskKind| {
        let exec = set.stages.get(stage).and_then(|stage| stage.run_of(kind, false));
        let operands = exec.map_or(&[][..], |exec| &set.execs[exec.index()].operands);
        let reductions = all.iter().enumerate();
        let added = reductions.filter(|(_, one)| operands.iter().any(|operand| operand.value == one.gradients));
        added.map(|(index, _)| index).collect::<Vec<_>>()
    };
    let stages = 0..schedule.n_stages();
    let table: Vec<_> = stages.map(|stage| TaskKind::ALL.map(|kind| adds(stage, kind))).collect();
    let of = |stage: StageId, kind: TaskKind| &table[stage.index()][kind.index()];
    for (device, order) in schedule.orders.iter().enumerate() {
        let device = DeviceId::from_index(device);
        for (position, scheduled) in order.iter().enumerate() {
            for index in of(scheduled.task.stage, scheduled.task.kind) {
                let members = &mut all[*index].members;
                if let Ok(member) = members.binary_search_by_key(&device, |member| member.device) {
                    members[member].after = u32::try_from(position).ok();
                }
            }
        }
    }
}
