//! A step as lanes. A lane holds the tasks of one kind and stage in the order of their microbatches, so an order per
//! device is a list of lanes, and the n-th mention of a lane is its microbatch n.

use crate::dependencies::Dependencies;
use crate::schedule::{Costs, Schedule, ScheduledTask};
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use pipe_ir::task::{Task, TaskKind};

/// Moments and durations of the search. They are scaled so that no sum of them overflows: what the search finds is
/// timed again, exactly.
pub(super) type Time = i64;
/// Start times, by lane and microbatch.
pub(super) type Starts = Vec<Vec<Time>>;
/// For each device, the lanes in the order of their tasks.
pub(super) type Orders = Vec<Vec<usize>>;

/// All tasks of one kind and stage.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    pub(super) kind: TaskKind,
    pub(super) stage: usize,
    pub(super) device: usize,
    pub(super) duration: Time,
    /// Parts of activations that a task takes when it starts, and gives back when it ends.
    pub(super) takes: u64,
    pub(super) gives_back: u64,
    /// The statement that asked for its tasks.
    pub(super) origin: u16,
    /// Lanes whose task of the same microbatch comes first, each with the latency from its device.
    pub(super) needs: Vec<(usize, Time)>,
    /// Other devices that wait for tasks of this lane.
    pub(super) wakes: Vec<usize>,
}

impl Lane {
    /// Whether the activations of a microbatch of its stage begin to be alive with a task of it.
    pub(super) fn begins(&self) -> bool {
        self.kind == TaskKind::Forward
    }

    /// Whether nothing of them is left when a task of it ends.
    pub(super) fn ends(&self) -> bool {
        matches!(self.kind, TaskKind::BackwardWeight | TaskKind::Backward)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Lanes {
    pub(super) all: Vec<Lane>,
    pub(super) on_device: Vec<Vec<usize>>,
}

impl Lanes {
    /// The lanes of a schedule.
    pub(super) fn new(schedule: &Schedule, dependencies: &Dependencies, costs: &Costs) -> Self {
        let scale = Scale::new(schedule, costs);
        let firsts = schedule.orders.iter().enumerate().flat_map(|(device, order)| {
            let firsts = order.iter().filter(|scheduled| scheduled.task.microbatch.0 == 0);
            firsts.map(move |scheduled| (scheduled.task.stage, scheduled.task.kind, scheduled.origin, device))
        });
        let mut keys: Vec<(StageId, TaskKind, u16, usize)> = firsts.collect();
        keys.sort_unstable();
        let find =
            |kind: TaskKind, stage: StageId| keys.binary_search_by_key(&(stage, kind), |key| (key.0, key.1)).ok();
        let lane = |&(stage, kind, origin, device): &(StageId, TaskKind, u16, usize)| {
            let needs = dependencies.input_kinds(kind, stage).filter_map(|(kind, stage)| {
                let from = schedule.placement.device(stage, MicrobatchId(0));
                Some((find(kind, stage)?, scale.of(costs.latency.between(from, DeviceId::from_index(device)))))
            });
            let held = schedule.activations.of(stage);
            Lane {
                kind,
                stage: stage.index(),
                device,
                duration: scale.of(costs.of(kind, stage)),
                takes: if kind == TaskKind::Forward { held.saved } else { 0 },
                gives_back: held.given_back(kind),
                origin,
                needs: needs.collect(),
                wakes: Vec::new(),
            }
        };
        let all = keys.iter().map(lane).collect();
        Self { all, on_device: vec![Vec::new(); schedule.n_devices()] }.linked()
    }

    fn linked(mut self) -> Self {
        for index in 0..self.all.len() {
            let device = self.all[index].device;
            self.on_device[device].push(index);
            for (need, _) in self.all[index].needs.clone() {
                let from = &mut self.all[need];
                if from.device != device && !from.wakes.contains(&device) {
                    from.wakes.push(device);
                }
            }
        }
        self
    }

    /// The schedule's first `microbatches` as lanes; `None` where a lane is out of microbatch order.
    pub(super) fn orders_of_tasks(&self, schedule: &Schedule, microbatches: usize) -> Option<Orders> {
        let mut next = vec![0; self.all.len()];
        let mut orders = Vec::with_capacity(schedule.n_devices());
        for (tasks, lanes) in schedule.orders.iter().zip(&self.on_device) {
            let mut order = Vec::with_capacity(lanes.len() * microbatches);
            for Task { kind, stage, microbatch } in tasks.iter().map(|scheduled| scheduled.task) {
                if microbatch.index() >= microbatches {
                    continue;
                }
                let key = (stage.index(), kind);
                let place =
                    lanes.binary_search_by_key(&key, |lane| (self.all[*lane].stage, self.all[*lane].kind)).ok()?;
                let lane = lanes[place];
                if next[lane] != microbatch.index() {
                    return None;
                }
                next[lane] += 1;
                order.push(lane);
            }
            orders.push(order);
        }
        next.iter().all(|count| *count == microbatches).then_some(orders)
    }

    /// The tasks that lane orders stand for.
    pub(super) fn tasks(&self, orders: &Orders) -> Vec<Vec<ScheduledTask>> {
        let mut next = vec![0; self.all.len()];
        let mut task = |index: &usize| {
            let lane = &self.all[*index];
            let microbatch = MicrobatchId::from_index(next[*index]);
            next[*index] += 1;
            let task = Task { kind: lane.kind, stage: StageId::from_index(lane.stage), microbatch };
            ScheduledTask { task, origin: lane.origin, with_next: false }
        };
        orders.iter().map(|order| order.iter().map(&mut task).collect()).collect()
    }

    /// Starts every task as soon as its inputs are there; `None` on a deadlock.
    pub(super) fn squeeze(&self, orders: &Orders) -> Option<Starts> {
        let mut starts: Starts = vec![Vec::new(); self.all.len()];
        let mut position = vec![0; orders.len()];
        let mut free: Vec<Time> = vec![0; orders.len()];
        let mut waiting: Vec<usize> = (0..orders.len()).collect();
        while let Some(device) = waiting.pop() {
            let (place, free) = (position.get_mut(device)?, free.get_mut(device)?);
            while let Some(&index) = orders.get(device)?.get(*place) {
                let lane = self.all.get(index)?;
                let Some(ready) = self.ready(&starts, lane, starts.get(index)?.len()) else {
                    break;
                };
                let start = ready.max(*free);
                starts.get_mut(index)?.push(start);
                *free = start + lane.duration;
                *place += 1;
                waiting.extend(&lane.wakes);
            }
        }
        position.iter().zip(orders).all(|(place, order)| *place == order.len()).then_some(starts)
    }

    /// When the inputs of a lane's task exist, if they have all been started.
    pub(super) fn ready(&self, starts: &Starts, lane: &Lane, microbatch: usize) -> Option<Time> {
        let mut ready = 0;
        for &(need, latency) in &lane.needs {
            let start = starts.get(need)?.get(microbatch)?;
            ready = ready.max(start + self.all.get(need)?.duration + latency);
        }
        Some(ready)
    }

    pub(super) fn makespan(&self, starts: &Starts) -> Time {
        let end = |(lane, starts): (&Lane, &Vec<Time>)| Some(starts.last()? + lane.duration);
        self.all.iter().zip(starts).filter_map(end).max().unwrap_or(0)
    }

    /// The most activations alive at once of each stage, from the order alone.
    pub(super) fn stage_peaks(&self, orders: &Orders, n_stages: usize) -> Vec<usize> {
        let (mut live, mut peaks) = (vec![0_usize; n_stages], vec![0; n_stages]);
        for lane in orders.iter().flatten().map(|index| &self.all[*index]) {
            live[lane.stage] += usize::from(lane.begins());
            peaks[lane.stage] = live[lane.stage].max(peaks[lane.stage]);
            live[lane.stage] = live[lane.stage].saturating_sub(usize::from(lane.ends()));
        }
        peaks
    }

    /// Each device's lanes by start time.
    pub(super) fn orders_of_starts(&self, starts: &Starts) -> Orders {
        let sorted = |lanes: &Vec<usize>| {
            let mut tasks = Vec::new();
            for &lane in lanes {
                tasks.extend(starts.get(lane).into_iter().flatten().map(|&start| (start, lane)));
            }
            tasks.sort_unstable();
            tasks.into_iter().map(|(_, lane)| lane).collect()
        };
        self.on_device.iter().map(sorted).collect()
    }
}

/// Divides durations so that a million tasks of the longest one stay far below the largest number.
struct Scale {
    divisor: u64,
}

impl Scale {
    fn new(schedule: &Schedule, costs: &Costs) -> Self {
        let longest = costs.tasks.iter().flatten().chain(costs.latency.times()).map(|ticks| ticks.0).max().unwrap_or(0);
        let total = u128::from(longest) * (schedule.n_tasks() as u128 + 1) * 4;
        let divisor = total.div_ceil(1 << 60).max(1);
        Self { divisor: u64::try_from(divisor).unwrap_or(u64::MAX) }
    }

    fn of(&self, ticks: crate::units::Ticks) -> Time {
        Time::try_from(ticks.0 / self.divisor).unwrap_or(Time::MAX)
    }
}
