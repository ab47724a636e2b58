//! Collectives: the reductions of a step with the tables of the program, by the device and task after which it joins.

use super::index32;
use super::order::Order;
use super::work::Work;
use crate::reductions::Reduction;
use crate::timeline::Timeline;
use pipe_ir::ids::{DeviceId, ExecId, GroupId, ValueId};

/// A device's part of a collective.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// How many tasks of the device come before it.
    pub(super) position: u32,
    pub(super) gradients: ValueId,
    pub(super) group: GroupId,
    /// What waits for it; the end of the step where nothing does.
    pub(super) update: Option<ExecId>,
    /// The weights that are gathered after the update, where its members have a share each.
    pub(super) divided: Option<ValueId>,
    /// How many tasks of the device come before its end is waited for, where gradients leave.
    pub(super) ends: u32,
}

/// All collectives of a step.
pub(super) struct Collectives {
    pub(super) groups: Vec<Vec<DeviceId>>,
    /// By device, in the order in which it joins.
    parts: Vec<Vec<Part>>,
}

impl Collectives {
    /// Numbers the groups in the order of their first collective.
    pub(super) fn new(reductions: &[Reduction], work: &Work, (order, timeline): (&Order, &Timeline)) -> Self {
        let mut collectives = Self { groups: Vec::new(), parts: vec![Vec::new(); order.ranks.len()] };
        // By device: from which task on the last collective that it joined may be waited for.
        let mut last_safe = vec![None; order.ranks.len()];
        for reduction in reductions {
            let Some(gradients) = work.value(reduction.gradients) else { continue };
            let members: Vec<DeviceId> = reduction.members.iter().map(|member| member.device).collect();
            let known = collectives.groups.iter().position(|group| *group == members);
            let group = GroupId::from_index(known.unwrap_or(collectives.groups.len()));
            if known.is_none() {
                collectives.groups.push(members);
            }
            let weights = work.weights_of(gradients).map(|group| group.parameters);
            let divided = weights.filter(|_| work.is_divided(gradients));
            for member in &reduction.members {
                let position = member.after.map_or(0, |after| after + 1);
                let update = work.update_with(gradients, member.device);
                let (safe, ends) = ends(reduction, member.device, order, timeline);
                let own = &mut collectives.parts[member.device.index()];
                // Who joins the next one waits for the one before, so that few sums have gradients on a device.
                if let Some((before, safe)) = own.last_mut().zip(last_safe[member.device.index()]) {
                    before.ends = before.ends.min(position).max(safe);
                }
                last_safe[member.device.index()] = Some(safe.max(position));
                own.push(Part { position, gradients, group, update, divided, ends: ends.max(safe).max(position) });
            }
        }
        collectives
    }

    /// What a device joins, in its order.
    pub(super) fn of(&self, device: DeviceId) -> &[Part] {
        &self.parts[device.index()]
    }
}

/// The first task of a device that comes later in the global order than what the members join after, so that nobody waits for who waits; and the
/// first one that starts when all members have joined and had the time for it.
fn ends(reduction: &Reduction, device: DeviceId, order: &Order, timeline: &Timeline) -> (u32, u32) {
    let joins = reduction.members.iter().filter_map(|member| {
        let ranks = &order.ranks[member.device.index()];
        ranks.get(member.after? as usize).copied()
    });
    let last = joins.max();
    let (ranks, starts) = (&order.ranks[device.index()], &timeline.starts[device.index()]);
    let after = ranks.partition_point(|rank| Some(*rank) <= last);
    (index32(after), index32(starts.partition_point(|start| *start < reduction.end)))
}
