//! What the search orders. A lane holds the tasks of one kind and stage in the order of their microbatches: microbatches
//! are alike, so no schedule gets longer or holds more by taking them in turn. A schedule is then a list of lanes per
//! device, and the n-th mention of a lane is its microbatch n.

use super::fusion::{Counts, Fusion, Part};
use super::scale::Scale;
use crate::dependencies::{Dependencies, SCHEDULED};
use crate::recompute::recomputing;
use crate::schedule::{Costs, Schedule, ScheduledTask};
use crate::units::Ticks;
use pipe_ir::ids::{MicrobatchId, StageId};
use pipe_ir::task::{Task, TaskKind};

/// Moments and durations of the search: costs without their common divisor, so that no sum of them overflows.
pub type Time = i64;
/// For each device, the lanes in the order of their tasks. Beyond the lanes, numbers are those of [`Job::fusions`].
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
    /// Lanes whose tasks of one microbatch may also be one task.
    pub fusions: Vec<Fusion>,
    /// By lane: what its fusion is.
    pub(super) parts: Vec<Part>,
    /// By lane: no task of it takes less, in whatever form.
    pub(super) least: Vec<Time>,
    /// The lanes of each device, ascending.
    pub on_device: Vec<Vec<usize>>,
    /// Tasks of each lane.
    pub microbatches: usize,
    /// Memory of each device, in what [`Lane::takes`] counts.
    pub capacity: Vec<i64>,
    /// What no schedule that is allowed holds more than: the same, unless how much memory there is was only estimated.
    pub most: Vec<i64>,
}

/// Whether a backward in two halves may be of use: not where all of `W` takes no time, and `BW` no more than `B`.
fn may_split(costs: &Costs) -> bool {
    let of = |stage: &[Ticks; TaskKind::ALL.len()], kind: TaskKind| stage[kind.index()];
    costs.tasks.iter().any(|stage| {
        let takes_time = of(stage, TaskKind::BackwardWeight) > Ticks::ZERO;
        takes_time || of(stage, TaskKind::Backward) > of(stage, TaskKind::BackwardInput)
    })
}

impl Job {
    /// The tasks of a schedule without replicas, in whatever order it has them, and the parts of activations that each device may
    /// hold. Every backward is split in `B` and `W`, or may be fused where that takes less. The same stages recompute.
    #[must_use]
    pub fn new(schedule: &Schedule, costs: &Costs, scale: &Scale, capacity: Vec<i64>) -> Self {
        let n_stages = schedule.n_stages();
        let recomputing = recomputing(schedule);
        let splits = may_split(costs);
        let dependencies = Dependencies::uniform(&schedule.graph, splits).with_recomputation(recomputing.clone());
        let forward = (0..n_stages).map(|stage| (TaskKind::Forward, stage));
        let halves = if splits { &SCHEDULED[1..3] } else { &SCHEDULED[3..4] };
        let backward = (0..n_stages).rev().flat_map(|stage| {
            let again = recomputing[stage].then_some(TaskKind::Recompute);
            again.into_iter().chain(halves.iter().copied()).map(move |kind| (kind, stage))
        });
        let keys: Vec<(TaskKind, usize)> = forward.chain(backward).collect();
        let devices = |stage: usize| schedule.placement.devices(StageId::from_index(stage), MicrobatchId(0));
        let find = |kind, stage: StageId| keys.iter().position(|key| *key == (kind, stage.index()));
        let lane = |&(kind, stage): &(TaskKind, usize)| {
            let (id, own) = (StageId::from_index(stage), devices(stage));
            // A fused backward comes after its forward anyway, through the stages that read it; needs that say so twice would only
            // mislead.
            let is_implied =
                |from: TaskKind| !splits && from == TaskKind::Forward && !schedule.graph.after(id).is_empty();
            let needs =
                dependencies.input_kinds(kind, id).filter(|(from, _)| kind != TaskKind::Backward || !is_implied(*from));
            let needs = needs.filter_map(|(kind, from)| {
                let latency = costs.latency.between_sets(devices(from.index()), own);
                Some((find(kind, from)?, scale.of(latency)))
            });
            let takes =
                schedule.activations.change(&dependencies, Task { kind, stage: id, microbatch: MicrobatchId(0) });
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
        let job = Self::of_lanes(lanes, schedule.n_microbatches as usize, capacity);
        let fusions = job.backwards(
            |stage| costs.saved_by_fusing(stage) > Ticks::ZERO,
            |stage| scale.of(costs.of(TaskKind::Backward, stage)),
        );
        job.with_fusions(fusions)
    }

    /// The backwards of some stages as fusions.
    pub(super) fn backwards(
        &self,
        is_wanted: impl Fn(StageId) -> bool,
        duration: impl Fn(StageId) -> Time,
    ) -> Vec<Fusion> {
        let weights = self.lanes.iter().enumerate().filter(|(_, lane)| lane.kind == TaskKind::BackwardWeight);
        let wanted = weights.filter(|(_, lane)| is_wanted(lane.stage));
        let fusion = |(second, lane): (usize, &Lane)| {
            let (first, _) = *lane.needs.first()?;
            Some(Fusion { first, second, duration: duration(lane.stage) })
        };
        wanted.filter_map(fusion).collect()
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
        let job = Self {
            lanes,
            fusions: Vec::new(),
            parts: Vec::new(),
            least: Vec::new(),
            on_device,
            microbatches,
            most: capacity.clone(),
            capacity,
        };
        job.with_fusions(Vec::new())
    }

    /// The same with another number of microbatches.
    #[must_use]
    pub fn with_microbatches(&self, microbatches: usize) -> Self {
        Self { microbatches, ..self.clone() }
    }

    /// The same with as much memory as any schedule may use that is allowed.
    #[must_use]
    pub(super) fn relaxed(&self) -> Self {
        Self { capacity: self.most.clone(), ..self.clone() }
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
        let lanes = self.lanes.iter().rev().map(lane).collect();
        let turned = |fusion: &Fusion| Fusion { first: last - fusion.second, second: last - fusion.first, ..*fusion };
        let reversed = Self::of_lanes(lanes, self.microbatches, self.capacity.clone());
        let mut reversed = reversed.with_fusions(self.fusions.iter().map(turned).collect());
        // Shares of what both halves take at least are the same, whichever comes first.
        reversed.least = self.least.iter().rev().copied().collect();
        reversed
    }

    /// Orders of the reversed job as orders of this one.
    #[must_use]
    pub fn turned(&self, orders: &Orders) -> Orders {
        let turned = |mention: &usize| self.lanes.len().checked_sub(mention + 1).unwrap_or(*mention);
        orders.iter().map(|order| order.iter().rev().map(turned).collect()).collect()
    }

    /// Number of tasks.
    #[must_use]
    pub fn n_tasks(&self) -> usize {
        self.lanes.len() * self.microbatches
    }

    /// The most time that a device works on one microbatch: no period is shorter.
    #[must_use]
    pub fn work(&self) -> Time {
        let work = |lanes: &Vec<usize>| lanes.iter().map(|lane| self.least[*lane]).sum();
        self.on_device.iter().map(work).max().unwrap_or(0)
    }

    /// When the first task of each lane can start at the earliest.
    pub(super) fn heads(&self) -> Vec<Time> {
        let mut heads: Vec<Time> = Vec::with_capacity(self.lanes.len());
        for lane in &self.lanes {
            let ready = lane.needs.iter().map(|(need, latency)| heads[*need] + self.least[*need] + latency);
            heads.push(ready.max().unwrap_or(0));
        }
        heads
    }

    /// The longest way from the end of each lane's task to the end of its microbatch.
    #[must_use]
    pub fn tails(&self) -> Vec<Time> {
        let mut tails = vec![0; self.lanes.len()];
        for (index, lane) in self.lanes.iter().enumerate().rev() {
            let rest = lane.feeds.iter().map(|(next, latency)| latency + self.least[*next] + tails[*next]);
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
        order.into_iter().all(|mention| {
            held += self.takes(mention);
            held <= self.capacity[device]
        })
    }

    /// A schedule's tasks in their own order. Fused backwards become `B` and then `W` where that takes no longer. `None`
    /// where a lane is out of microbatch order, or a task is one of another job.
    #[must_use]
    pub fn orders(&self, schedule: &Schedule) -> Option<Orders> {
        let mut orders = vec![Vec::new(); self.capacity.len()];
        for (device, tasks) in schedule.orders.iter().enumerate() {
            // A task that occupies several devices is counted on each.
            let mut counts = Counts::new(self);
            for Task { kind, stage, microbatch } in tasks.iter().map(|scheduled| scheduled.task) {
                let find = |kind| {
                    let is_it = |lane: &&usize| (self.lanes[**lane].kind, self.lanes[**lane].stage) == (kind, stage);
                    self.on_device.get(device)?.iter().find(is_it).copied()
                };
                let kind = match kind {
                    TaskKind::BackwardInput if find(kind).is_none() => TaskKind::Backward,
                    TaskKind::BackwardWeight if find(kind).is_none() => continue,
                    _ => kind,
                };
                let (first, second) = if kind == TaskKind::Backward && find(kind).is_none() {
                    let (input, weight) = (find(TaskKind::BackwardInput)?, find(TaskKind::BackwardWeight)?);
                    self.mention(input).map_or((input, Some(weight)), |both| (both, None))
                } else {
                    (find(kind)?, None)
                };
                for mention in std::iter::once(first).chain(second) {
                    if counts.next(self, mention)? != microbatch.index() {
                        return None;
                    }
                    orders[device].push(mention);
                }
            }
            if !counts.are_all(self.on_device.get(device)?, self.microbatches) {
                return None;
            }
        }
        Some(orders)
    }

    /// The tasks that orders stand for.
    #[must_use]
    pub fn tasks(&self, orders: &Orders) -> Vec<Vec<ScheduledTask>> {
        let of_device = |order: &Vec<usize>| {
            let mut counts = Counts::new(self);
            let task = |mention: &usize| {
                let microbatch = MicrobatchId::from_index(counts.next(self, *mention)?);
                let (lane, second) = self.lanes_of(*mention);
                let Lane { kind, stage, .. } = self.lanes[lane];
                let kind = if second.is_some() { TaskKind::Backward } else { kind };
                Some(ScheduledTask { task: Task { kind, stage, microbatch }, origin: 0, with_next: false })
            };
            order.iter().filter_map(task).collect()
        };
        orders.iter().map(of_device).collect()
    }
}
