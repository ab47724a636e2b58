//! Jobs for the search, and judges of what it finds that share nothing with it: a replay, and all schedules of small jobs.

use crate::schedules::Dice;
use pipe_compiler::search::job::{Job, Lane, Orders, Time};
use pipe_ir::ids::StageId;
use pipe_ir::task::TaskKind;
use std::collections::HashSet;

/// Stages with backwards that are split or not, by device: a chain of forwards, and back.
#[derive(Clone, Debug)]
pub struct Stages {
    /// Where each stage lives.
    pub devices: Vec<usize>,
    /// Durations of `F`, `B` and `W`, or of `F` and `BW`, by stage.
    pub durations: Vec<Vec<Time>>,
    /// Between two devices.
    pub latency: Time,
    /// Number of microbatches.
    pub microbatches: usize,
    /// Activations that each device may hold.
    pub capacity: Vec<i64>,
}

impl Stages {
    /// Alike stages on devices with equal memory.
    #[must_use]
    pub fn alike(devices: &[usize], durations: &[Time], latency: Time, microbatches: usize, memory: i64) -> Self {
        let n_devices = devices.iter().max().map_or(0, |last| last + 1);
        let durations = vec![durations.to_vec(); devices.len()];
        Self { devices: devices.to_vec(), durations, latency, microbatches, capacity: vec![memory; n_devices] }
    }

    /// The job.
    #[must_use]
    pub fn job(&self) -> Job {
        let n = self.devices.len();
        let hop = |one: usize, other: usize| if self.devices[one] == self.devices[other] { 0 } else { self.latency };
        let lane = |kind, stage: usize, duration: usize, takes, needs| Lane {
            kind,
            stage: StageId::from_index(stage),
            devices: vec![self.devices[stage]],
            duration: self.durations[stage][duration],
            takes,
            needs,
            feeds: Vec::new(),
        };
        let mut lanes = Vec::new();
        for stage in 0..n {
            let before = stage.checked_sub(1).map(|before| (before, hop(before, stage)));
            lanes.push(lane(TaskKind::Forward, stage, 0, 1, before.into_iter().collect()));
        }
        let mut last = None;
        for stage in (0..n).rev() {
            let after = last.map(|lane| (lane, hop(stage, stage + 1)));
            let needs = [(stage, 0)].into_iter().chain(after).collect();
            last = Some(lanes.len());
            if self.durations[stage].len() == 2 {
                lanes.push(lane(TaskKind::Backward, stage, 1, -1, needs));
            } else {
                lanes.push(lane(TaskKind::BackwardInput, stage, 1, 0, needs));
                lanes.push(lane(
                    TaskKind::BackwardWeight,
                    stage,
                    2,
                    -1,
                    last.map(|lane| (lane, 0)).into_iter().collect(),
                ));
            }
        }
        Job::of_lanes(lanes, self.microbatches, self.capacity.clone())
    }
}

/// A job of some chains of tasks, there and back, of which some occupy several devices at once.
#[must_use]
pub fn random_job(dice: &mut Dice) -> Job {
    let n_devices = 1 + dice.below(4);
    let mut lanes: Vec<Lane> = Vec::new();
    for _ in 0..1 + dice.below(2) {
        let first = lanes.len();
        let n_stages = 1 + dice.below(4);
        let mut places: Vec<Vec<usize>> = Vec::new();
        for _ in 0..n_stages {
            let from = dice.below(n_devices);
            let to = if dice.below(4) == 0 { n_devices - 1 } else { from };
            places.push((from..=to).collect());
        }
        let forward = places.iter().cloned().map(|devices| (TaskKind::Forward, 1, devices));
        let backward = places.iter().rev().cloned().map(|devices| (TaskKind::Backward, -1, devices));
        for (kind, takes, devices) in forward.chain(backward) {
            let needs = if lanes.len() > first { vec![(lanes.len() - 1, dice.below(4) as Time)] } else { Vec::new() };
            let (stage, duration) = (StageId::from_index(lanes.len()), dice.below(6) as Time);
            lanes.push(Lane { kind, stage, devices, duration, takes, needs, feeds: Vec::new() });
        }
    }
    let room = |device| {
        let takes = lanes.iter().filter(|lane| lane.takes > 0 && lane.devices.contains(&device)).count();
        (takes + dice.below(4)) as i64
    };
    let capacity = (0..n_devices).map(room).collect();
    Job::of_lanes(lanes, 1 + dice.below(9), capacity)
}

/// How long orders take, and the most that each device holds.
///
/// # Errors
/// If a task is missing or stands too early, devices wait for each other, or the memory is not enough.
pub fn replay(job: &Job, orders: &Orders) -> Result<(Time, Vec<i64>), String> {
    let mut ends: Vec<Vec<Time>> = vec![Vec::new(); job.lanes.len()];
    let mut next = vec![0; orders.len()];
    let (mut free, mut held) = (vec![0; orders.len()], vec![0; orders.len()]);
    let mut peaks = held.clone();
    let n_places: usize = orders.iter().map(Vec::len).sum();
    while next.iter().sum::<usize>() < n_places {
        let head = |device: usize| orders[device].get(next[device]).copied();
        let mut begun = None;
        for lane in (0..orders.len()).filter_map(head) {
            let Lane { devices, needs, .. } = &job.lanes[lane];
            let m = ends[lane].len();
            let stands = devices.iter().all(|device| head(*device) == Some(lane));
            if stands && needs.iter().all(|(need, _)| ends[*need].len() > m) {
                begun = Some((lane, m));
            }
        }
        let Some((lane, m)) = begun else { return Err(format!("no device can go on after {next:?}")) };
        let Lane { devices, needs, duration, takes, .. } = &job.lanes[lane];
        let ready = needs.iter().map(|(need, latency)| ends[*need][m] + latency);
        let start = ready.chain(devices.iter().map(|device| free[*device])).max().unwrap_or(0);
        ends[lane].push(start + duration);
        for device in devices {
            (free[*device], next[*device]) = (start + duration, next[*device] + 1);
            held[*device] += takes;
            peaks[*device] = peaks[*device].max(held[*device]);
            if held[*device] > job.capacity[*device] {
                return Err(format!("device {device} holds {} at {start}", held[*device]));
            }
        }
    }
    if let Some(lane) = ends.iter().position(|ends| ends.len() != job.microbatches) {
        return Err(format!("lane {lane} has {} tasks", ends[lane].len()));
    }
    Ok((free.into_iter().max().unwrap_or(0), peaks))
}

/// The length of the shortest schedule that is shorter than a limit: tries all of them, in the order of their starts.
#[must_use]
pub fn shortest_below(job: &Job, limit: Time) -> Option<Time> {
    let mut tails = vec![0; job.lanes.len()];
    for lane in (0..job.lanes.len()).rev() {
        for (need, latency) in &job.lanes[lane].needs {
            tails[*need] = tails[*need].max(latency + job.lanes[lane].duration + tails[lane]);
        }
    }
    let state = Partial {
        ends: vec![Vec::new(); job.lanes.len()],
        free: vec![0; job.capacity.len()],
        held: vec![0; job.capacity.len()],
        last: 0,
    };
    let mut all = All { job, tails, best: limit, seen: HashSet::new() };
    all.visit(&state);
    (all.best < limit).then_some(all.best)
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Partial {
    ends: Vec<Vec<Time>>,
    free: Vec<Time>,
    held: Vec<i64>,
    /// When the last task started.
    last: Time,
}

struct All<'a> {
    job: &'a Job,
    tails: Vec<Time>,
    best: Time,
    seen: HashSet<(Vec<usize>, Partial)>,
}

impl All<'_> {
    fn visit(&mut self, state: &Partial) {
        let job = self.job;
        let m = job.microbatches;
        if state.ends.iter().all(|ends| ends.len() == m) {
            self.best = self.best.min(state.free.iter().copied().max().unwrap_or(0));
            return;
        }
        // Nothing starts before the last task did.
        let work_left = |device: usize| -> Time {
            let left = |lane: &usize| job.lanes[*lane].duration * (m - state.ends[*lane].len()) as Time;
            job.on_device[device].iter().map(left).sum()
        };
        if (0..job.capacity.len()).any(|device| state.free[device].max(state.last) + work_left(device) >= self.best) {
            return;
        }
        if !self.seen.insert(self.key(state)) {
            return;
        }
        let mut nexts: Vec<(Time, usize)> = Vec::new();
        for (index, lane) in job.lanes.iter().enumerate() {
            let microbatch = state.ends[index].len();
            let is_ready = lane.needs.iter().all(|(need, _)| state.ends[*need].len() > microbatch);
            let has_room = lane.devices.iter().all(|device| state.held[*device] + lane.takes <= job.capacity[*device]);
            if microbatch == m || !is_ready || !has_room {
                continue;
            }
            let ready = lane.needs.iter().map(|(need, latency)| state.ends[*need][microbatch] + latency);
            let start = ready.chain(lane.devices.iter().map(|device| state.free[*device])).max().unwrap_or(0);
            if start >= state.last && start + lane.duration + self.tails[index] < self.best {
                nexts.push((start, index));
            }
        }
        nexts.sort_unstable();
        for (start, index) in nexts {
            let (lane, mut next) = (&job.lanes[index], state.clone());
            next.ends[index].push(start + lane.duration);
            next.last = start;
            for device in &lane.devices {
                next.free[*device] = start + lane.duration;
                next.held[*device] += lane.takes;
            }
            self.visit(&next);
        }
    }

    /// What the rest depends on: ends that are still needed, and how far each lane is.
    fn key(&self, state: &Partial) -> (Vec<usize>, Partial) {
        let mut rest = state.clone();
        for (index, ends) in rest.ends.iter_mut().enumerate() {
            let used = self.job.lanes[index].feeds.iter().map(|(next, _)| state.ends[*next].len()).min();
            for end in ends.iter_mut().take(used.unwrap_or(usize::MAX)) {
                *end = 0;
            }
        }
        rest.free.iter_mut().for_each(|free| *free = (*free).max(state.last));
        (state.ends.iter().map(Vec::len).collect(), rest)
    }
}
