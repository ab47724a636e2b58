//! Collectives: the reductions of a step with the tables of the program, by the device and task after which it joins.

use super::work::Work;
use crate::reductions::Reduction;
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
}

/// All collectives of a step.
pub(super) struct Collectives {
    pub(super) groups: Vec<Vec<DeviceId>>,
    /// By device, in the order in which it joins.
    parts: Vec<Vec<Part>>,
}

impl Collectives {
    /// Numbers the groups in the order of their first collective.
    pub(super) fn new(reductions: &[Reduction], work: &Work, n_devices: usize) -> Self {
        let mut collectives = Self { groups: Vec::new(), parts: vec![Vec::new(); n_devices] };
        for reduction in reductions {
            let Some(gradients) = work.value(reduction.gradients) else { continue };
            let members: Vec<DeviceId> = reduction.members.iter().map(|member| member.device).collect();
            let known = collectives.groups.iter().position(|group| *group == members);
            let group = GroupId::from_index(known.unwrap_or(collectives.groups.len()));
            if known.is_none() {
                collectives.groups.push(members);
            }
            let update = work.update_with(gradients);
            for member in &reduction.members {
                let position = member.after.map_or(0, |after| after + 1);
                collectives.parts[member.device.index()].push(Part { position, gradients, group, update });
            }
        }
        collectives
    }

    /// What a device joins, in its order.
    pub(super) fn of(&self, device: DeviceId) -> &[Part] {
        &self.parts[device.index()]
    }
}
