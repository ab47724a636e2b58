//! What devices that hold the same weights divide: which updates are of shares, whose these are,
//! and which weights are kept in them.

use super::ProgramTables;
use pipe_ir::ids::{DeviceId, ExecId, GroupId, StageId, ValueId};
use pipe_ir::program::Chunk;
use pipe_ir::task::Task;
use pipe_ir::value::{Share, ValueKind};
use pipe_model::stage_set::WeightGroup;
use std::collections::BTreeMap;

impl ProgramTables {
    pub(super) fn find_divided(&mut self) {
        self.divided = vec![false; self.values.len()];
        for exec in self.execs.iter().filter(|exec| exec.chunk.is_some_and(|chunk| chunk.group.is_some())) {
            for value in exec.operands.iter().map(|operand| operand.value) {
                self.divided[value.index()] |= self.values[value.index()].kind == ValueKind::ParameterGradients;
            }
        }
    }

    /// Finds the weights that are kept in shares, whose rows are in the order of their members.
    pub(super) fn find_shares(&mut self) {
        let mut rows: BTreeMap<ValueId, Vec<ValueId>> = BTreeMap::new();
        for (index, value) in self.values.iter().enumerate() {
            if let Some(own) = value.share {
                rows.entry(own.whole).or_default().push(ValueId::from_index(index));
            }
        }
        let members = |group: &WeightGroup| {
            let rows = rows.get(&group.parameters)?;
            Some((group.parameters, self.members(&group.stages).into_iter().zip(rows.iter().copied()).collect()))
        };
        self.shares = self.weights.iter().filter_map(members).collect();
    }

    /// The weights of which a value is a share; the value itself where it is none.
    pub(super) fn whole(&self, value: ValueId) -> ValueId {
        self.values[value.index()].share.map_or(value, |own| own.whole)
    }

    /// The weights that are kept in shares, with the devices that hold them, each with its share.
    pub(crate) fn kept(&self) -> impl Iterator<Item = (ValueId, &[(DeviceId, ValueId)])> {
        self.shares.iter().map(|(weights, shares)| (*weights, shares.as_slice()))
    }

    /// The shares of weights that a device keeps.
    pub(crate) fn shares_of(&self, device: DeviceId) -> impl Iterator<Item = ValueId> {
        let own = move |shares: &Vec<(DeviceId, ValueId)>| shares.iter().find(|(other, _)| *other == device).copied();
        self.shares.values().filter_map(own).map(|(_, share)| share)
    }

    /// Whether weights are kept in shares, and whole only while tasks read them.
    pub(crate) fn is_kept(&self, weights: ValueId) -> bool {
        self.shares.contains_key(&weights)
    }

    /// The stage that has weights; none where several stages share them.
    pub(crate) fn only_stage_of(&self, weights: ValueId) -> Option<StageId> {
        let group = self.weights.iter().find(|group| group.parameters == weights)?;
        <[StageId; 1]>::try_from(group.stages.as_slice()).ok().map(|[stage]| stage)
    }

    /// The weights that are kept in shares and that a task reads.
    pub(crate) fn gathered_for(&self, task: Task) -> impl Iterator<Item = ValueId> {
        let operands = self.exec(task).map_or(&[][..], |exec| &self.execs[exec.index()].operands);
        operands.iter().map(|operand| operand.value).filter(|value| self.is_kept(*value))
    }

    /// Says in the updates of shares which group divides the weights.
    pub(crate) fn name_groups(&mut self, groups: &[Vec<DeviceId>]) {
        for index in 0..self.execs.len() {
            if self.execs[index].chunk.is_some_and(|chunk| chunk.group.is_some()) {
                let members = self.homes_of(&self.execs[index]);
                let group = groups.iter().position(|group| *group == members).map(GroupId::from_index);
                self.execs[index].chunk = self.execs[index].chunk.map(|chunk| Chunk { group, ..chunk });
            }
        }
        for shares in self.shares.values() {
            let is_theirs = |group: &Vec<DeviceId>| shares.iter().map(|(device, _)| device).eq(group);
            let Some(group) = groups.iter().position(is_theirs).map(GroupId::from_index) else { continue };
            for (_, share) in shares {
                let row = &mut self.values[share.index()];
                row.share = row.share.map(|own| Share { group, ..own });
            }
        }
    }

    /// What changes the weights that have these gradients, on a device: nothing where the others
    /// have all shares of them.
    pub(crate) fn update_with(&self, gradients: ValueId, device: DeviceId) -> Option<ExecId> {
        let update = self.weights_of(gradients)?.update?;
        if !self.is_divided(gradients) {
            return Some(update);
        }
        let has = |exec: &ExecId| self.execs[exec.index()].operands.iter().any(|operand| operand.value == gradients);
        let is_update = |exec: &ExecId| self.execs[exec.index()].is_update();
        self.execs_of(device).filter(is_update).find(has)
    }

    /// The updates of a stage on a device. Updates of weights that several stages share are left out.
    pub(crate) fn updates_of(&self, stage: StageId, device: DeviceId) -> impl Iterator<Item = ExecId> {
        let own = self.weights.iter().filter(move |group| group.stages == [stage]);
        own.filter_map(move |group| self.update_with(group.gradients?, device))
    }

    /// Whether the devices that hold these gradients divide what they are for.
    pub(crate) fn is_divided(&self, gradients: ValueId) -> bool {
        self.divided[gradients.index()]
    }

    /// Whether gradients are on a device only from the first task that adds to them until their sum is used. Those that
    /// are clipped are used when all sums are known, at the end of the step.
    pub(crate) fn leaves(&self, value: ValueId) -> bool {
        self.zero.gradients() && self.divided[value.index()] && self.norm.is_none()
    }
}
