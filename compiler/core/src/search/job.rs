//! What the search orders. A lane holds the tasks of one kind and stage in the order of their microbatches: microbatches
//! are alike, so no schedule gets longer or holds more by taking them in turn. A schedule is then a list of lanes per
//! device, and the n-th mention of a lane is its microbatch n.

use super::scale::Scale;
use crate::dependencies::{Dependencies, SCHEDULED};
use crate::schedule::{Costs, Schedule, ScheduledTask};
use pipe_ir::ids::{MicrobatchId, StageId};
use pipe_ir::task::{Task, TaskKind};

/// Moments and durations of the search: costs without their common divisor, so that no sum of them overflows.
pub type Time = i64;
/// For each device, the lanes in the order of their tasks.
pub type Orders = Vec<Vec<usize>>;

/// All tasks of one kind and stage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lane {
    /// Kind of work.
    pub kind: TaskKind,
    /// Of which stage.
    pub stage: StageId,
    /// Where its tasks run; on several devices a task occupies all of them at once.
    pub devices: Vec<usize>,
    /// How long one task takes.
    pub duration: Time,
    /// Memory that a task takes on each of its devices when it starts, or gives back when it ends, if negative.
    pub takes: i64,
    /// Lanes whose task of the same microbatch must have ended, each with the latency from there.
    pub needs: Vec<(usize, Time)>,
    /// Lanes that need this one, likewise.
    pub feeds: Vec<(usize, Time)>,
}

/// Lanes, in an order in which each comes after those that it needs, with the memory that they share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Job {
    /// All lanes.
    pub lanes: Vec<Lane>,
    /// The lanes of each device, ascending.
    pub on_device: Vec<Vec<usize>>,
    /// Tasks of each lane.
    pub microbatches: usize,
    /// Memory of each device, in what [`Lane::takes`] counts.
    pub capacity: Vec<i64>,
}

impl Job {
    /// The tasks of a schedule without replicas, in whatever order it has them, with every backward split in `B` and `W` or
    /// none, and the activations that each device may hold.
    #[must_use]
    pub fn new(schedule: &Schedule, split: bool, costs: &Costs, scale: &Scale, capacity: Vec<i64>) -> Self {
        let n_stages = schedule.n_stages();
        let dependencies = Dependencies::uniform(&schedule.graph, split);
        let backward = if split { &SCHEDULED[1..3] } else { &SCHEDULED[3..] };
        let forward = (0..n_stages).map(|stage| (TaskKind::Forward, stage));
        let backward = (0..n_stages).rev().flat_map(|stage| backward.iter().map(move |kind| (*kind, stage)));
        let keys: Vec<(TaskKind, usize)> = forward.chain(backward).collect();
        let devices = |stage: usize| schedule.placement.devices(StageId::from_index(stage), MicrobatchId(0));
        let find = |kind, stage: StageId| keys.iter().position(|key| *key == (kind, stage.index()));
        let lane = |&(kind, stage): &(TaskKind, usize)| {
            let (id, own) = (StageId::from_index(stage), devices(stage));
            // A fused backward comes after its forward anyway, through the stages that read it; needs that say so twice would only
            // mislead.
            let is_implied = |from: StageId| !split && from == id && !schedule.graph.after(id).is_empty();
            let needs = dependencies.input_kinds(kind, id).filter(|(_, from)| !is_implied(*from));
            let needs = needs.filter_map(|(kind, from)| {
                let latency = costs.latency.between_sets(devices(from.index()), own);
                Some((find(kind, from)?, scale.of(latency)))
            });
            let takes = match kind {
                TaskKind::Forward => 1,
                TaskKind::BackwardWeight | TaskKind::Backward => -1,
                _ => 0,
            };
            let duration = scale.of(costs.of(kind, id));
            Lane {
                kind,
                stage: id,
                devices: own.iter().map(|device| device.index()).collect(),
                duration,
                takes,
                needs: needs.collect(),
                feeds: Vec::new(),
            }
        };
        let lanes = keys.iter().map(lane).collect();
        Self::of_lanes(lanes, schedule.n_microbatches as usize, capacity)
    }

    /// Lanes whose `feeds` are still to be filled in.
    #[must_use]
    pub fn of_lanes(mut lanes: Vec<Lane>, microbatches: usize, capacity: Vec<i64>) -> Self {
        let mut on_device = vec![Vec::new(); capacity.len()];
        for index in 0..lanes.len() {
            for device in &lanes[index].devices {
                on_device[*device].push(index);
            }
            for (need, latency) in lanes[index].needs.clone() {
                lanes[need].feeds.push((index, latency));
            }
        }
        Self { lanes, on_device, microbatches, capacity }
    }

    /// The same with another number of microbatches.
    #[must_use]
    pub fn with_microbatches(&self, microbatches: usize) -> Self {
        Self { microbatches, ..self.clone() }
    }

    /// The same with time running backwards: what took memory gives it back, and a schedule read from its end is one of
    /// this job.
    #[must_use]
    pub fn reversed(&self) -> Self {
        let last = self.lanes.len().saturating_sub(1);
        let lane = |lane: &Lane| {
            let needs = lane.feeds.iter().map(|(index, latency)| (last - index, *latency)).collect();
            Lane { takes: -lane.takes, needs, feeds: Vec::new(), ..lane.clone() }
        };
        Self::of_lanes(self.lanes.iter().rev().map(lane).collect(), self.microbatches, self.capacity.clone())
    }

    /// Orders of the reversed job as orders of this one.
    #[must_use]
    pub fn turned(&self, orders: &Orders) -> Orders {
        let last = self.lanes.len().saturating_sub(1);
        orders.iter().map(|order| order.iter().rev().map(|lane| last - lane).collect()).collect()
    }

    /// Number of tasks.
    #[must_use]
    pub fn n_tasks(&self) -> usize {
        self.lanes.len() * self.microbatches
    }

    /// The most time that a device works on one microbatch: no period is shorter.
    #[must_use]
    pub fn work(&self) -> Time {
        let work = |lanes: &Vec<usize>| lanes.iter().map(|lane| self.lanes[*lane].duration).sum();
        self.on_device.iter().map(work).max().unwrap_or(0)
    }

    /// The longest way from the end of each lane's task to the end of its microbatch.
    #[must_use]
    pub fn tails(&self) -> Vec<Time> {
        let mut tails = vec![0; self.lanes.len()];
        for (index, lane) in self.lanes.iter().enumerate().rev() {
            let rest = lane.feeds.iter().map(|(next, latency)| latency + self.lanes[*next].duration + tails[*next]);
            tails[index] = rest.max().unwrap_or(0);
        }
        tails
    }

    /// Whether every device's order keeps to its memory.
    #[must_use]
    pub fn fits(&self, orders: &Orders) -> bool {
        (0..orders.len()).all(|device| self.fits_on(device, orders[device].iter().copied()))
    }

    /// Whether the order of one device keeps to its memory.
    pub fn fits_on(&self, device: usize, order: impl Iterator<Item = usize>) -> bool {
        let mut held = 0;
        order.into_iter().all(|lane| {
            held += self.lanes[lane].takes;
            held <= self.capacity[device]
        })
    }

    /// A schedule's tasks as lanes: fused backwards become `B` and then `W` where this job splits them, and the other way
    /// round `W` is left out. `None` where a lane is out of microbatch order, or a task of another job.
    #[must_use]
    pub fn orders(&self, schedule: &Schedule) -> Option<Orders> {
        let split = self.lanes.iter().any(|lane| lane.kind == TaskKind::BackwardInput);
        let mut orders = vec![Vec::new(); self.capacity.len()];
        for (device, tasks) in schedule.orders.iter().enumerate() {
            let mut next = vec![0; self.lanes.len()];
            for Task { kind, stage, microbatch } in tasks.iter().map(|scheduled| scheduled.task) {
                let kinds: &[TaskKind] = match (kind, split) {
                    (TaskKind::Backward, true) => &SCHEDULED[1..3],
                    (TaskKind::BackwardInput, false) => &SCHEDULED[3..],
                    (TaskKind::BackwardWeight, false) => &[],
                    _ => &[kind],
                };
                for kind in kinds {
                    let find = |lane: &&usize| (self.lanes[**lane].kind, self.lanes[**lane].stage) == (*kind, stage);
                    let lane = *self.on_device.get(device)?.iter().find(find)?;
                    if next[lane] != microbatch.index() {
                        return None;
                    }
                    next[lane] += 1;
                    orders[device].push(lane);
                }
            }
            if self.on_device.get(device)?.iter().any(|lane| next[*lane] != self.microbatches) {
                return None;
            }
        }
        Some(orders)
    }

    /// The tasks that orders stand for.
    #[must_use]
    pub fn tasks(&self, orders: &Orders) -> Vec<Vec<ScheduledTask>> {
        let tasks = |order: &Vec<usize>| {
            let mut next = vec![0; self.lanes.len()];
            let task = |lane: &usize| {
                let microbatch = MicrobatchId::from_index(next[*lane]);
                next[*lane] += 1;
                let Lane { kind, stage, .. } = self.lanes[*lane];
                ScheduledTask { task: Task { kind, stage, microbatch }, origin: 0, with_next: false }
            };
            order.iter().map(task).collect()
        };
        orders.iter().map(tasks).collect()
    }
}
