//! Collectives: the reductions of a step and the gatherings of its weights with the tables of the
//! program, by the device and task after which it joins.
//!
//! All have a place in one order, in which every device joins its own.

use super::index32;
use super::order::GlobalOrder;
use crate::all_gathers::{Member, Round, TaskRange};
use crate::program_tables::ProgramTables;
use pipe_ir::ids::{DeviceId, ExecId, GroupId, ValueId};
use pipe_schedule::timing::reductions::Reduction;
use pipe_schedule::timing::timeline::Timeline;

/// A device's part of a reduction.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReductionPart {
    /// How many tasks of the device come before it.
    pub(super) position: u32,
    pub(super) gradients: ValueId,
    pub(super) group: GroupId,
    /// What waits for it; the end of the step where nothing does.
    pub(super) update: Option<ExecId>,
    /// The weights that are gathered after the update, where its members have a share each.
    pub(super) divided: Option<ValueId>,
    /// How many tasks of the device come before its end is waited for, where gradients leave.
    pub ends: u32,
}

/// A device's part of a gathering.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gathering {
    /// How many tasks of the device come before it.
    pub(super) position: u32,
    pub(super) weights: ValueId,
    pub(super) share: ValueId,
    pub(super) group: GroupId,
    /// How many tasks of the device come before its end is waited for.
    pub(super) waits: u32,
    /// The tasks that it is for, if the device has any.
    pub(super) run: Option<TaskRange>,
    /// Whether the device joins before the place of the gathering in the global order, so that others may still have to
    /// do what they do before earlier gatherings.
    pub(super) is_early: bool,
}

/// What a device joins.
#[derive(Clone, Copy, Debug)]
pub(super) enum Join {
    Sum(ReductionPart),
    Gather(Gathering),
}

impl Join {
    /// How many tasks of the device come before it.
    pub(super) const fn position(&self) -> u32 {
        match self {
            Self::Sum(part) => part.position,
            Self::Gather(gathering) => gathering.position,
        }
    }
}

/// All collectives of a step.
pub(super) struct Collectives {
    pub(super) groups: Vec<Vec<DeviceId>>,
    /// By device, in the order in which it joins.
    joins: Vec<Vec<Join>>,
    /// The group of all devices, where they add up the squares of their gradients.
    pub(super) all: Option<GroupId>,
}

/// A collective, and its place in the order of all: behind a rank, or before it.
enum Together<'a> {
    Sum(&'a Reduction),
    Gather(&'a Round),
}

impl Collectives {
    /// Numbers the groups in the order of their first collective.
    pub(super) fn new(
        (reductions, rounds): (&[Reduction], &[Round]),
        work: &ProgramTables,
        (order, timeline): (&GlobalOrder, &Timeline),
    ) -> Self {
        let mut joining = Joining {
            work,
            order,
            timeline,
            groups: Vec::new(),
            joins: vec![Vec::new(); order.ranks.len()],
            last_sums: vec![None; order.ranks.len()],
            has_rounds: !rounds.is_empty(),
        };
        for (rank, together) in in_order(reductions, rounds, order) {
            match together {
                Together::Sum(reduction) => joining.sum(reduction, rank),
                Together::Gather(round) => joining.gather(round),
            }
        }
        let devices = (0..order.ranks.len()).map(DeviceId::from_index);
        let is_summed = work.norm().is_some() && devices.len() > 1;
        let all = is_summed.then(|| joining.group(devices.collect()));
        Self { groups: joining.groups, joins: joining.joins, all }
    }

    /// What a device joins, in its order.
    pub(super) fn of(&self, device: DeviceId) -> &[Join] {
        &self.joins[device.index()]
    }

    /// The reductions of a device, in its order.
    pub(super) fn sums(&self, device: DeviceId) -> impl Iterator<Item = &ReductionPart> {
        self.of(device).iter().filter_map(|join| match join {
            Join::Sum(part) => Some(part),
            Join::Gather(_) => None,
        })
    }
}

/// All collectives in one order, each with its rank: reductions in theirs, behind the last
/// contribution to them, gatherings before a task, and those before the same task as their members join them.
fn in_order<'a>(reductions: &'a [Reduction], rounds: &'a [Round], order: &GlobalOrder) -> Vec<(u32, Together<'a>)> {
    let mut all = Vec::new();
    let mut last = 0;
    for (number, reduction) in reductions.iter().enumerate() {
        last =
            reduction.members.iter().filter_map(|member| order.rank(member.device, member.after?)).fold(last, u32::max);
        all.push(((last, true, 0, number), Together::Sum(reduction)));
    }
    for (number, round) in rounds.iter().enumerate() {
        let positions = round.members.iter().map(|member| u64::from(member.position)).sum();
        all.push(((round.joins, false, positions, number), Together::Gather(round)));
    }
    all.sort_by_key(|(place, _)| *place);
    all.into_iter().map(|((rank, ..), together)| (rank, together)).collect()
}

/// Lets devices join one collective after the other.
struct Joining<'a> {
    work: &'a ProgramTables,
    order: &'a GlobalOrder,
    timeline: &'a Timeline,
    groups: Vec<Vec<DeviceId>>,
    joins: Vec<Vec<Join>>,
    /// By device: which of its joins is its last reduction, and from which task on that may be waited for.
    last_sums: Vec<Option<(usize, u32)>>,
    has_rounds: bool,
}

impl Joining<'_> {
    fn group(&mut self, members: Vec<DeviceId>) -> GroupId {
        let known = self.groups.iter().position(|group| *group == members);
        let group = GroupId::from_index(known.unwrap_or(self.groups.len()));
        if known.is_none() {
            self.groups.push(members);
        }
        group
    }

    fn sum(&mut self, reduction: &Reduction, rank: u32) {
        let Some(gradients) = self.work.value(reduction.gradients) else { return };
        let group = self.group(reduction.members.iter().map(|member| member.device).collect());
        let weights = self.work.weights_of(gradients).map(|group| group.parameters);
        let divided = weights.filter(|_| self.work.is_divided(gradients));
        // The last task behind which a member joins.
        let joins = reduction.members.iter().filter_map(|member| self.order.rank(member.device, member.after?));
        let last = joins.chain(self.has_rounds.then_some(rank)).max();
        for member in &reduction.members {
            let (device, index) = (member.device, member.device.index());
            let before = self.joins[index].last().map_or(0, Join::position);
            let position = member.after.map_or(0, |after| after + 1).max(before);
            let update = self.work.update_with(gradients, device);
            // The first task that comes later in the global order, so that nobody waits for who
            // waits; and the first one that starts when all members have joined and had the time
            // for it.
            let safe = last.map_or(0, |last| self.order.before(device, last + 1));
            let starts = &self.timeline.starts[index];
            let ends = index32(starts.partition_point(|start| *start < reduction.end));
            // Who joins the next one waits for the one before, so that few sums have gradients on a device.
            if let Some((before, safe)) = self.last_sums[index]
                && let Join::Sum(before) = &mut self.joins[index][before]
            {
                before.ends = before.ends.min(position).max(safe);
            }
            self.last_sums[index] = Some((self.joins[index].len(), safe.max(position)));
            let ends = ends.max(safe).max(position);
            self.joins[index].push(Join::Sum(ReductionPart { position, gradients, group, update, divided, ends }));
        }
    }

    fn gather(&mut self, round: &Round) {
        let group = self.group(round.members.iter().map(|member| member.device).collect());
        for Member { device, share, run, position } in round.members.iter().copied() {
            let joins = &mut self.joins[device.index()];
            let position = joins.last().map_or(position, |before| position.max(before.position()));
            // Whoever does not need the weights lets the others have them when these do.
            let waits = run.map_or_else(|| self.order.before(device, round.first), |run| run.first);
            let is_early = position < self.order.before(device, round.joins);
            let weights = round.weights;
            joins.push(Join::Gather(Gathering { position, weights, share, group, waits, run, is_early }));
        }
    }
}
