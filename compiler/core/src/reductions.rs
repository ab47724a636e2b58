//! Reductions: where the gradients of replicated weights are added up over the devices that hold them.
//!
//! A group of weights that lives on several devices has one reduction in a step. Each device joins it right after its
//! last task that adds to these gradients. All reductions stand in one order, by the time at which the last member could
//! join, and every device joins its own in that order: so members never join two of them the other way round. Blocks that
//! run on across steps have none: their partial sums travel from device to device.

use crate::check::dependencies::Slot;
use crate::latency::Latency;
use crate::model::stage_set::StageSet;
use crate::schedule::Schedule;
use crate::timeline::Timeline;
use crate::units::Ticks;
use pipe_ir::ids::{DeviceId, StageId, ValueId};
use pipe_ir::task::TaskKind;

/// The gradients of one group of weights, added up over its devices.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reduction {
    /// A value of the stage set.
    pub gradients: ValueId,
    /// The stage of that value.
    pub stage: StageId,
    /// The devices that hold the weights, ascending.
    pub members: Vec<Member>,
    /// When all have the sum.
    pub end: Ticks,
    /// The task after which a member joins that the others wait for longest.
    pub last: Option<Slot>,
}

/// A device's part of a reduction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// Which device.
    pub device: DeviceId,
    /// The task after which it joins, a position in its order; none where it joins as the step begins.
    pub after: Option<u32>,
}

impl Member {
    /// When it joins.
    #[must_use]
    pub fn joins(self, timeline: &Timeline) -> Ticks {
        self.after.map_or(Ticks::ZERO, |after| timeline.ends[self.device.index()][after as usize])
    }
}

impl Reduction {
    /// Ends when what the last member adds has come to all others.
    fn conclude(&mut self, timeline: &Timeline, latency: &Latency) {
        let all = || self.members.iter().map(|member| member.device);
        let ends = |member: &&Member| member.joins(timeline) + latency.farthest(member.device, all());
        // Of several that the others wait for, the first device.
        let last = self.members.iter().rev().max_by_key(ends);
        let end = last.as_ref().map_or(Ticks::ZERO, ends);
        let last = last.and_then(|member| Some(Slot { device: member.device, position: member.after? }));
        (self.end, self.last) = (end, last);
    }
}

/// All reductions of a step, in their order; each ends when what its members add has come to all others.
#[must_use]
pub fn reductions(schedule: &Schedule, set: &StageSet, timeline: &Timeline, latency: &Latency) -> Vec<Reduction> {
    let mut all: Vec<Reduction> = Vec::new();
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
            all.push(Reduction { gradients, stage, members, end: Ticks::ZERO, last: None });
        }
    }
    if all.is_empty() {
        return all;
    }
    add_last_contributions(schedule, set, &mut all);
    all.sort_by_key(|one| (one.members.iter().map(|member| member.joins(timeline)).max(), one.gradients));
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

/// Finds each member's last task that adds to the gradients.
fn add_last_contributions(schedule: &Schedule, set: &StageSet, all: &mut [Reduction]) {
    // By stage and kind: the reductions that its tasks add to.
    let adds = |stage: usize, kind: TaskKind| {
        let exec = set.stages.get(stage).and_then(|stage| stage.run_of(kind));
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
