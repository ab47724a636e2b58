//! Parts of stages: a stage's tasks as a chain of parts, some of them on lanes beside compute.
//!
//! Wherever a schedule has parts, tables by [`StageId`] have a row for each part: a part is a stage of its own, with
//! the stages' parts in a row. [`StageParts`] says which stage a part is of, and what it is called. A lane is a queue
//! of each device. Queues are numbered like devices: first the devices themselves, whose queue is compute, then the
//! first lane of each device, then the second, and so on.

pub mod divided;
pub mod joins;
pub mod lanes;

use crate::placement::{DeviceSets, Placement};
use crate::stage_graph::{Earlier, Neighbours, StageGraph};
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use pipe_ir::task::TaskKind;
use std::ops::Range;
use std::sync::Arc;

/// A part of a stage, or what one device does of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// The stage.
    pub stage: StageId,
    /// Which of the parts of its stage, from 0, in the order of the forward.
    pub position: usize,
    /// What it is called.
    pub name: Arc<str>,
    /// Which of the parts of its stage with this name it is. None if it is the only one.
    pub nth: Option<u32>,
    /// Its lane, by position in [`StageParts::lanes`]. None if it runs on compute.
    pub lane: Option<usize>,
    /// Of a stage on several devices at once, the device that runs it alone. None if all run it together, or only one
    /// device has the stage.
    pub member: Option<DeviceId>,
}

/// The parts of all stages. Empty if every stage is a whole.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StageParts {
    lanes: Vec<Arc<str>>,
    /// By the [`StageId`] of each part.
    parts: Vec<Part>,
    /// By stage: its first part; and the end of all.
    first: Vec<usize>,
    /// The rows of each position of each stage: one, or one for each device that runs the part alone.
    positions: Vec<Range<usize>>,
    /// By stage: its first position; and the end of all.
    first_position: Vec<usize>,
}

/// The names and lanes of a stage's parts, in the order of the forward.
pub type Named = Vec<(Arc<str>, Option<usize>)>;

impl StageParts {
    /// The parts of each stage, which has at least one. A stage on several devices at once has a row for each of them
    /// of every part on compute: they meet on lanes only.
    pub fn new(lanes: Vec<Arc<str>>, stages: &[Named], placement: &Placement) -> Self {
        let mut all = Self { lanes, first: vec![0], first_position: vec![0], ..Self::default() };
        for (stage, own) in (0..).map(StageId::from_index).zip(stages) {
            let devices = placement.devices(stage, MicrobatchId(0));
            for (position, (name, lane)) in own.iter().enumerate() {
                let same =
                    |parts: &[(Arc<str>, Option<usize>)]| parts.iter().filter(|(other, _)| other == name).count();
                let nth = (same(own) > 1).then(|| u32::try_from(same(&own[..position])).unwrap_or(u32::MAX));
                let part = Part { stage, position, name: Arc::clone(name), nth, lane: *lane, member: None };
                let start = all.parts.len();
                if lane.is_some() || devices.len() == 1 {
                    all.parts.push(part);
                } else {
                    all.parts.extend(devices.iter().map(|device| Part { member: Some(*device), ..part.clone() }));
                }
                all.positions.push(start..all.parts.len());
            }
            all.first.push(all.parts.len());
            all.first_position.push(all.positions.len());
        }
        all
    }

    /// Whether no stage has parts.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The number of parts of all stages, each counted once, whatever devices run it alone.
    pub fn count(&self) -> usize {
        self.positions.len()
    }

    /// The number of rows of all stages.
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Whether a row is the first of its stage that its device computes. It holds the activation of its stage unless
    /// something else is said.
    pub fn is_first_on_compute(&self, row: StageId) -> bool {
        let rows = self.rows(self.stage_of(row)).map(StageId::from_index);
        let first = rows.filter_map(|row| self.part(row)).find(|part| part.lane.is_none());
        let position = |part: &Part| (part.lane, part.position);
        first.map(position) == self.part(row).map(position)
    }

    /// Whether a stage has several parts of one name.
    pub fn has_several_of_a_name(&self) -> bool {
        self.parts.iter().any(|part| part.nth.is_some())
    }

    /// Whether some part is on a lane.
    pub fn any_on_lanes(&self) -> bool {
        self.parts.iter().any(|part| part.lane.is_some())
    }

    /// The names of the lanes.
    pub fn lanes(&self) -> &[Arc<str>] {
        &self.lanes
    }

    /// The number of stages. Without parts, each of the `rows` is one.
    pub fn n_stages(&self, rows: usize) -> usize {
        if self.is_empty() { rows } else { self.first.len() - 1 }
    }

    /// The part that a row stands for. None if rows are whole stages.
    pub fn part(&self, row: StageId) -> Option<&Part> {
        self.parts.get(row.index())
    }

    /// The stage of a row.
    pub fn stage_of(&self, row: StageId) -> StageId {
        self.part(row).map_or(row, |part| part.stage)
    }

    /// The lane of a row. None if it runs on compute.
    pub fn lane(&self, row: StageId) -> Option<usize> {
        self.part(row)?.lane
    }

    /// The rows of a stage, in the order of the forward.
    pub fn rows(&self, stage: StageId) -> Range<usize> {
        match self.first.get(stage.index()..=stage.index() + 1) {
            Some(&[first, end]) => first..end,
            _ => stage.index()..stage.index() + 1,
        }
    }

    /// The rows of a stage that have a name.
    pub fn named<'a>(&'a self, stage: StageId, name: &'a str) -> impl Iterator<Item = StageId> + 'a {
        let is_named = move |row: &StageId| self.part(*row).is_some_and(|part| &*part.name == name);
        self.rows(stage).map(StageId::from_index).filter(is_named)
    }

    /// Whether some part has a name.
    pub fn has(&self, name: &str) -> bool {
        self.parts.iter().any(|part| &*part.name == name)
    }

    /// All names of parts, each once, in the order of the stages.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for part in &self.parts {
            if !names.contains(&&*part.name) {
                names.push(&part.name);
            }
        }
        names
    }

    /// `s1`, or `s1.dispatch`, or `s1.dispatch on d2`.
    pub fn name(&self, row: StageId) -> String {
        match self.part(row) {
            None => row.to_string(),
            Some(Part { stage, member: Some(device), .. }) => {
                format!("{stage}.{} on {device}", self.parts[row.index()].words())
            }
            Some(part) => format!("{}.{}", part.stage, part.words()),
        }
    }

    /// `F s1`, or `F.dispatch s1`.
    pub fn task(&self, kind: TaskKind, row: StageId) -> String {
        match self.part(row) {
            None => format!("{} {row}", kind.letters()),
            Some(part) => format!("{}.{} {}", kind.letters(), part.words(), part.stage),
        }
    }

    /// The device that a queue belongs to.
    pub fn device(&self, queue: DeviceId, n_devices: usize) -> DeviceId {
        if self.lanes.is_empty() { queue } else { DeviceId::from_index(queue.index() % n_devices.max(1)) }
    }

    /// The lane that a queue is, by position. None if it is compute.
    pub fn lane_of(&self, queue: DeviceId, n_devices: usize) -> Option<usize> {
        (queue.index() / n_devices.max(1)).checked_sub(1)
    }

    /// The queue of a device that runs a row.
    pub fn queue(&self, device: DeviceId, row: StageId, n_devices: usize) -> DeviceId {
        let lanes = self.lane(row).map_or(0, |lane| lane + 1);
        DeviceId::from_index(device.index() + lanes * n_devices)
    }

    /// `d1`, or `d1 link`.
    pub fn queue_name(&self, queue: DeviceId, n_devices: usize) -> String {
        let device = self.device(queue, n_devices);
        match self.lane_of(queue, n_devices).and_then(|lane| self.lanes.get(lane)) {
            Some(lane) => format!("{device} {lane}"),
            None => device.to_string(),
        }
    }

    /// The placement of parts: each where its stage is, on the queue of its lane.
    pub fn placement(&self, stages: &Placement, n_devices: usize) -> Placement {
        let mut sets = DeviceSets::default();
        for microbatch in (0..stages.period()).map(MicrobatchId) {
            for row in (0..self.parts.len()).map(StageId::from_index) {
                let all = stages.devices(self.stage_of(row), microbatch);
                let member = self.part(row).and_then(|part| part.member.as_ref());
                let homes = member.map_or(all, std::slice::from_ref).iter();
                sets.push(homes.map(|device| self.queue(*device, row, n_devices)));
            }
        }
        stages.with_stages(self.parts.len(), sets)
    }

    /// The rows of a stage, position by position in the order of the forward.
    pub fn positions(&self, stage: StageId) -> impl DoubleEndedIterator<Item = Range<usize>> + '_ {
        let whole = stage.index()..stage.index() + 1;
        let own = match self.first_position.get(stage.index()..=stage.index() + 1) {
            Some(&[first, end]) => &self.positions[first..end],
            _ => &[],
        };
        self.is_empty().then_some(whole).into_iter().chain(own.iter().cloned())
    }

    /// Of the rows of a position, the one that a device runs.
    pub fn of_device(&self, rows: &Range<usize>, device: DeviceId) -> usize {
        // Members ascend.
        let own = self.parts.get(rows.clone()).filter(|own| own.len() > 1);
        let place = own.and_then(|own| own.binary_search_by_key(&Some(device), |part| part.member).ok());
        rows.start + place.unwrap_or_default()
    }

    /// Whether each row of a position is run by a device alone.
    fn is_alone(&self, rows: &Range<usize>) -> bool {
        self.parts[rows.start].member.is_some()
    }

    /// The graph of parts. The parts of a stage are a chain. The first part of a stage reads the last parts of the
    /// stages before it. A part that each device runs alone reads only the same device, if that part ran alone too.
    pub fn graph(&self, stages: &StageGraph) -> StageGraph {
        if self.is_empty() {
            return stages.clone();
        }
        let all = || (0..self.n_stages(0)).map(StageId::from_index);
        let ends = |stage: StageId| {
            let mut own = self.positions(stage);
            let first = own.next().expect("a stage has a part");
            (first.clone(), own.next_back().unwrap_or(first))
        };
        let ids = |rows: Range<usize>| rows.map(StageId::from_index);
        let (mut before, mut after) = (Neighbours::default(), Neighbours::default());
        for stage in all() {
            let own: Vec<Range<usize>> = self.positions(stage).collect();
            // The rows of a position, and those of its neighbour in the same stage.
            let join = |side: &mut Neighbours, rows: &Range<usize>, others: &Range<usize>| {
                if self.is_alone(rows) && self.is_alone(others) {
                    ids(others.clone()).for_each(|other| side.push(1, [other]));
                } else {
                    side.push(rows.len(), ids(others.clone()));
                }
            };
            before.push(own[0].len(), stages.before(stage).iter().flat_map(|from| ids(ends(*from).1)));
            for pair in own.windows(2) {
                join(&mut before, &pair[1], &pair[0]);
                join(&mut after, &pair[0], &pair[1]);
            }
            after.push(own[own.len() - 1].len(), stages.after(stage).iter().flat_map(|to| ids(ends(*to).0)));
        }
        let earlier = stages.earlier().iter().flat_map(|edge| {
            let (from, to) = (ends(edge.from).1, ends(edge.to).0);
            let each = from.flat_map(move |from| to.clone().map(move |to| (from, to)));
            each.map(|(from, to)| Earlier { from: StageId::from_index(from), to: StageId::from_index(to), ..*edge })
        });
        StageGraph::of_neighbours(before, after).with_earlier(earlier)
    }
}

impl Part {
    /// `dispatch`, or `dispatch[1]` if its stage has several of that name.
    pub fn words(&self) -> String {
        match self.nth {
            Some(nth) => format!("{}[{nth}]", self.name),
            None => self.name.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> StageParts {
        let named = |name: &str, lane| (Arc::from(name), lane);
        let experts = vec![named("mlp", None), named("send", Some(0)), named("mlp", None)];
        StageParts::new(
            vec![Arc::from("link")],
            &[vec![named("all", None)], experts],
            &Placement::of_stages(vec![DeviceId(0); 2]),
        )
    }

    #[test]
    fn parts_are_rows_with_names_and_queues() {
        let parts = parts();
        assert_eq!([0, 1].map(|stage| parts.rows(StageId(stage))), [0..1, 1..4]);
        assert_eq!([0, 1, 2, 3].map(|row| parts.name(StageId(row))), ["s0.all", "s1.mlp[0]", "s1.send", "s1.mlp[1]"]);
        assert_eq!(parts.task(TaskKind::Forward, StageId(2)), "F.send s1");
        assert_eq!(parts.named(StageId(1), "mlp").collect::<Vec<_>>(), [StageId(1), StageId(3)]);
        assert_eq!(parts.queue(DeviceId(1), StageId(2), 2), DeviceId(3));
        assert_eq!(parts.queue_name(DeviceId(3), 2), "d1 link");
        assert_eq!((parts.n_stages(4), StageParts::default().n_stages(4)), (2, 4));
        assert_eq!((parts.names(), parts.has("send")), (vec!["all", "mlp", "send"], true));
    }

    #[test]
    fn parts_of_a_stage_are_a_chain_where_their_stage_is() {
        let parts = parts();
        let graph = parts.graph(&StageGraph::chain(2));
        assert_eq!(graph, StageGraph::chain(4));
        let placement = parts.placement(&Placement::of_stages(vec![DeviceId(1), DeviceId(0)]), 2);
        let homes = (0..4).map(|row| placement.devices_of(StageId(row))[0].0);
        assert_eq!(homes.collect::<Vec<_>>(), [1, 0, 2, 0]);
    }

    #[test]
    fn devices_that_have_a_stage_at_once_meet_on_lanes_only() {
        let named = |name: &str, lane| (Arc::from(name), lane);
        let spread = vec![named("spread", Some(0)), named("one", None), named("two", None), named("sum", Some(0))];
        let mut sets = DeviceSets::default();
        sets.push([DeviceId(0)]);
        sets.push([DeviceId(0), DeviceId(1)]);
        let placement = Placement::of_stages(sets);
        let parts = StageParts::new(vec![Arc::from("c")], &[vec![named("layers", None)], spread], &placement);
        assert_eq!(parts.positions(StageId(1)).collect::<Vec<_>>(), [1..2, 2..4, 4..6, 6..7]);
        assert_eq!(parts.name(StageId(3)), "s1.one on d1");
        let edges = [(0, 1), (1, 2), (1, 3), (2, 4), (3, 5), (4, 6), (5, 6)];
        let edges = edges.map(|(from, to)| (StageId(from), StageId(to)));
        assert_eq!(parts.graph(&StageGraph::chain(2)), StageGraph::new(7, edges));
        let placement = parts.placement(&placement, 2);
        let homes = |row| placement.devices_of(StageId(row)).iter().map(|queue| queue.0).collect::<Vec<_>>();
        assert_eq!([0, 1, 2, 3, 6].map(homes), [vec![0], vec![2, 3], vec![0], vec![1], vec![2, 3]]);
        assert!(parts.is_first_on_compute(StageId(3)) && !parts.is_first_on_compute(StageId(4)));
    }
}
