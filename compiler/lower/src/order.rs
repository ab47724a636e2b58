//! The global order: all tasks in one line, each after what it reads, otherwise by the time at which they start.

use super::index32;
use crate::program_tables::ProgramTables;
use pipe_ir::ids::DeviceId;
use pipe_ir::task::Task;
use pipe_schedule::dependencies::{Dependencies, TaskTable};
use pipe_schedule::schedule::{Schedule, ScheduledTask};
use pipe_schedule::timing::timeline::Timeline;
use pipe_schedule::units::Ticks;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

const NONE: u32 = u32::MAX;

/// Where each task stands in the global order, and where each value comes from.
pub(super) struct GlobalOrder {
    /// By device and position in its order.
    pub ranks: Vec<Vec<u32>>,
    /// By value and microbatch ([`ProgramTables::entry`]): the position of its producer in its device's order.
    producers: Vec<u32>,
}

/// What has been put in line so far.
struct Line<'s, 'a> {
    schedule: &'s Schedule,
    timeline: &'a Timeline,
    work: &'a ProgramTables,
    order: GlobalOrder,
    /// Devices whose next task could be next: by its start and end.
    ready: BinaryHeap<Reverse<(Ticks, Ticks, DeviceId)>>,
    /// By value and microbatch: a device that waits for it, the first of a list.
    waiting: Vec<u32>,
    /// By device: the next one in its list.
    behind: Vec<u32>,
    next_rank: u32,
    sums: Option<LateSums<'a>>,
}

/// Which tasks wait for sums of gradients that travel, or that updates before them wait for.
struct LateSums<'a> {
    dependencies: &'a Dependencies,
    /// The tasks in line.
    done: TaskTable,
    /// Devices that wait for a task.
    waiting: BTreeMap<Task, Vec<DeviceId>>,
}

impl LateSums<'_> {
    /// The first task that another one waits for.
    fn missing(&self, task: Task) -> Option<Task> {
        let updates = self.dependencies.update_inputs(task).iter().copied();
        self.dependencies.sum_inputs(task).chain(updates).find(|input| self.done.position(*input).is_none())
    }
}

impl GlobalOrder {
    pub(super) fn new(
        schedule: &Schedule,
        timeline: &Timeline,
        work: &ProgramTables,
        dependencies: Option<&Dependencies>,
    ) -> Self {
        let ranks = schedule.orders.iter().map(|tasks| Vec::with_capacity(tasks.len())).collect();
        let mut line = Line {
            schedule,
            timeline,
            work,
            order: Self { ranks, producers: vec![NONE; work.n_entries()] },
            ready: BinaryHeap::new(),
            waiting: vec![NONE; work.n_entries()],
            behind: vec![NONE; schedule.n_devices()],
            next_rank: 0,
            sums: dependencies.filter(|all| !all.sums().is_empty() || all.has_updates()).map(|dependencies| LateSums {
                dependencies,
                done: TaskTable::empty(&schedule.placement, schedule.n_microbatches),
                waiting: BTreeMap::new(),
            }),
        };
        let devices = || (0..schedule.n_devices()).map(DeviceId::from_index);
        devices().for_each(|device| line.consider(device));
        while let Some(Reverse((_, _, device))) = line.ready.pop() {
            line.append(device);
        }
        // A schedule that cannot run to its end has tasks left; whatever is written for it, the verifier rejects.
        for device in devices() {
            while line.order.ranks[device.index()].len() < schedule.orders[device.index()].len() {
                line.append(device);
            }
        }
        line.order
    }

    /// How many tasks of a device come before a rank.
    pub(super) fn before(&self, device: DeviceId, rank: u32) -> u32 {
        index32(self.ranks[device.index()].partition_point(|other| *other < rank))
    }

    /// The rank of the task at a position of a device.
    pub(super) fn rank(&self, device: DeviceId, position: u32) -> Option<u32> {
        self.ranks[device.index()].get(position as usize).copied()
    }

    /// The position of the task that computes a value, in its device's order.
    pub(super) fn producer(&self, entry: usize) -> Option<usize> {
        let position = self.producers[entry];
        (position != NONE).then_some(position as usize)
    }
}

impl<'s> Line<'s, '_> {
    fn next_node(&self, device: DeviceId) -> &'s [ScheduledTask] {
        self.schedule.node(device, self.order.ranks[device.index()].len())
    }

    /// Makes a device ready, or lets it wait for the first value that its next task lacks, or that
    /// of its next two which share it.
    fn consider(&mut self, device: DeviceId) {
        let node = self.next_node(device);
        if node.is_empty() {
            return;
        }
        for task in node.iter().map(|one| one.task) {
            if let Some(sums) = &mut self.sums
                && let Some(missing) = sums.missing(task)
            {
                sums.waiting.entry(missing).or_default().push(device);
                return;
            }
            let Some(exec) = self.work.exec(task) else { continue };
            for (value, microbatch) in self.work.reads(exec, task.microbatch) {
                let entry = self.work.entry(value, microbatch);
                if self.work.producer(value, microbatch).is_some() && self.order.producers[entry] == NONE {
                    self.behind[device.index()] = std::mem::replace(&mut self.waiting[entry], device.0);
                    return;
                }
            }
        }
        let position = self.order.ranks[device.index()].len();
        let (start, end) = (&self.timeline.starts[device.index()], &self.timeline.ends[device.index()]);
        self.ready.push(Reverse((start[position], end[position], device)));
    }

    /// Puts the next task of a device in line, or its next two.
    fn append(&mut self, device: DeviceId) {
        for task in self.next_node(device).iter().map(|one| one.task) {
            self.append_task(device, task);
        }
        self.consider(device);
    }

    fn append_task(&mut self, device: DeviceId, task: Task) {
        let position = index32(self.order.ranks[device.index()].len());
        self.order.ranks[device.index()].push(self.next_rank);
        self.next_rank += 1;
        let waiting = self.sums.as_mut().and_then(|sums| {
            sums.done.insert(task, 0, 0);
            sums.waiting.remove(&task)
        });
        waiting.into_iter().flatten().for_each(|device| self.consider(device));
        if let Some(exec) = self.work.exec(task) {
            for value in &self.work.flow(exec).writes {
                let entry = self.work.entry(*value, task.microbatch);
                self.order.producers[entry] = position;
                let mut waiting = std::mem::replace(&mut self.waiting[entry], NONE);
                while waiting != NONE {
                    let next = std::mem::replace(&mut self.behind[waiting as usize], NONE);
                    self.consider(DeviceId(waiting));
                    waiting = next;
                }
            }
        }
    }
}
