//! Divides tasks of whole stages into tasks of their parts.

use super::StageParts;
use crate::schedule::ScheduledTask;
use pipe_ir::ids::{DeviceId, StageId};
use pipe_ir::task::{Task, TaskKind};
use std::collections::VecDeque;
use std::ops::Range;

/// Whether tasks of a kind need weights. Parts on lanes have no weights, so they have no such tasks.
pub const fn has_weights(kind: TaskKind) -> bool {
    matches!(kind, TaskKind::BackwardWeight | TaskKind::Recompute)
}

impl StageParts {
    /// The rows of all parts that a task of the whole stage runs, in the order in which its kind runs them. `W` and `R`
    /// run compute parts only.
    pub fn of_task(&self, kind: TaskKind, stage: StageId) -> impl Iterator<Item = Range<usize>> + '_ {
        let has = move |rows: &Range<usize>| !has_weights(kind) || !self.is_on_lane(rows.start);
        self.in_order(kind, stage).filter(has)
    }

    /// The rows of the parts with this name, in the order in which the kind runs them.
    pub fn of_named<'p>(
        &'p self,
        kind: TaskKind,
        stage: StageId,
        name: &'p str,
    ) -> impl Iterator<Item = Range<usize>> + 'p {
        let is_named = move |rows: &Range<usize>| {
            self.part(StageId::from_index(rows.start)).is_some_and(|part| &*part.name == name)
        };
        self.in_order(kind, stage).filter(is_named)
    }

    fn in_order(&self, kind: TaskKind, stage: StageId) -> impl Iterator<Item = Range<usize>> + '_ {
        let mut positions = self.positions(stage);
        let is_forward = matches!(kind, TaskKind::Forward | TaskKind::Recompute);
        std::iter::from_fn(move || if is_forward { positions.next() } else { positions.next_back() })
    }

    /// The next part with the same stage, name and device. None if there is none. In backwards, it runs first.
    pub fn next_of_name(&self, row: StageId) -> Option<StageId> {
        let own = self.part(row).filter(|own| own.nth.is_some())?;
        let later = row.index() + 1..self.rows(own.stage).end;
        later
            .map(StageId::from_index)
            .find(|later| self.part(*later).is_some_and(|later| later.name == own.name && later.member == own.member))
    }

    /// Whether a row is on a lane.
    pub fn is_on_lane(&self, row: usize) -> bool {
        self.lane(StageId::from_index(row)).is_some()
    }

    /// Divides a task of a whole stage into the tasks of its parts on a device.
    pub fn tasks_of(&self, whole: ScheduledTask, device: DeviceId) -> impl Iterator<Item = ScheduledTask> + '_ {
        let rows = self.of_task(whole.task.kind, whole.task.stage);
        let row = move |rows: Range<usize>| StageId::from_index(self.of_device(&rows, device));
        rows.map(move |rows| ScheduledTask { task: Task { stage: row(rows), ..whole.task }, ..whole })
    }

    /// Merges two runs of parts into one list. They alternate, the backward first: each runs up to and including its
    /// next part on a lane. Megatron-LM merges a forward and a backward in the same way.
    pub fn by_turns(&self, mut halves: Vec<VecDeque<ScheduledTask>>) -> Vec<ScheduledTask> {
        halves.sort_by_key(|half| half.front().is_some_and(|one| one.task.kind == TaskKind::Forward));
        let mut list = Vec::with_capacity(halves.iter().map(VecDeque::len).sum());
        while halves.iter().any(|half| !half.is_empty()) {
            for half in &mut halves {
                while let Some(one) = half.pop_front() {
                    list.push(one);
                    if self.lane(one.task.stage).is_some() {
                        break;
                    }
                }
            }
        }
        list
    }

    /// Turns the lists of devices into the orders of queues, and sets the place of each task in its list.
    pub fn in_queues(&self, lists: Vec<Vec<ScheduledTask>>) -> Vec<Vec<ScheduledTask>> {
        let n_devices = lists.len();
        let mut queues = vec![Vec::new(); n_devices * (1 + self.lanes.len())];
        for (device, list) in (0..).map(DeviceId).zip(lists) {
            for (at, one) in (0..).zip(list) {
                let queue = self.queue(device, one.task.stage, n_devices);
                queues[queue.index()].push(ScheduledTask { at, ..one });
            }
        }
        queues
    }

    /// Divides each task of orders of whole stages into its parts, which run one after the other.
    pub fn divided(&self, orders: Vec<Vec<ScheduledTask>>) -> Vec<Vec<ScheduledTask>> {
        let list = |(device, order): (DeviceId, Vec<ScheduledTask>)| {
            order.into_iter().flat_map(|one| self.tasks_of(one, device)).collect()
        };
        self.in_queues((0..).map(DeviceId).zip(orders).map(list).collect())
    }
}
