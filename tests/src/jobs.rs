//! Jobs for the search, and a replay of what it finds that shares nothing with it.

use crate::schedules::Dice;
use pipe_ir::ids::{DeviceId, IndexVec, StageId};
use pipe_ir::task::TaskKind;
use pipe_schedule::dispatch::fusion::Fusion;
use pipe_schedule::dispatch::job::{Job, Mention, Orders, SeriesId, TaskSeries, Time};

/// Stages with backwards that are split or not, by device: a chain of forwards, and back.
#[derive(Clone, Debug)]
pub struct Stages {
    /// Where each stage lives.
    pub devices: Vec<usize>,
    /// Durations of `F`, `B` and `W`, of these and `BW`, or of `F` and `BW` alone, by stage.
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
        let series = |kind, stage: usize, duration: usize, takes, needs| TaskSeries {
            kind,
            stage: StageId::from_index(stage),
            devices: vec![DeviceId::from_index(self.devices[stage])],
            duration: self.durations[stage][duration],
            takes,
            needs,
            feeds: Vec::new(),
        };
        let mut all = IndexVec::default();
        let mut fusions = IndexVec::default();
        let mut last = None;
        for stage in 0..n {
            let before = last.map(|before| (before, hop(stage - 1, stage)));
            last = Some(all.push(series(TaskKind::Forward, stage, 0, 1, before.into_iter().collect())));
        }
        last = None;
        for stage in (0..n).rev() {
            let after = last.map(|series| (series, hop(stage, stage + 1)));
            let needs = [(SeriesId::from_index(stage), 0)].into_iter().chain(after).collect();
            if self.durations[stage].len() == 2 {
                last = Some(all.push(series(TaskKind::Backward, stage, 1, -1, needs)));
                continue;
            }
            let first = all.push(series(TaskKind::BackwardInput, stage, 1, 0, needs));
            let second = all.push(series(TaskKind::BackwardWeight, stage, 2, -1, vec![(first, 0)]));
            if let Some(duration) = self.durations[stage].get(3) {
                fusions.push(Fusion { first, second, duration: *duration });
            }
            last = Some(first);
        }
        Job::of_series(all, self.microbatches, self.capacity.clone().into()).with_fusions(fusions)
    }

    /// The same with every backward of a form: at once, or in halves.
    #[must_use]
    pub fn of_form(&self, at_once: bool) -> Self {
        let of_stage = |durations: &Vec<Time>| match durations[..] {
            [forward, _, _, both] if at_once => vec![forward, both],
            [forward, input, weight, ..] if !at_once => vec![forward, input, weight],
            _ => durations.clone(),
        };
        Self { durations: self.durations.iter().map(of_stage).collect(), ..self.clone() }
    }
}

/// The series of which a mention in an order runs a task, and how long it takes.
pub(crate) fn parts(job: &Job, mention: Mention) -> (Vec<SeriesId>, Time) {
    match mention {
        Mention::Series(series) => (vec![series], job.series[series].duration),
        Mention::Fusion(fusion) => {
            let Fusion { first, second, duration } = job.fusions[fusion];
            (vec![first, second], duration)
        }
    }
}

/// A job of some chains of tasks, there and back, of which some occupy several devices at once.
#[must_use]
pub fn random_job(dice: &mut Dice) -> Job {
    let n_devices = 1 + dice.below(4);
    let mut all: IndexVec<SeriesId, TaskSeries> = IndexVec::default();
    for _ in 0..1 + dice.below(2) {
        let mut last = None;
        let n_stages = 1 + dice.below(4);
        let mut places: Vec<Vec<DeviceId>> = Vec::new();
        for _ in 0..n_stages {
            let from = dice.below(n_devices);
            let to = if dice.below(4) == 0 { n_devices - 1 } else { from };
            places.push((from..=to).map(DeviceId::from_index).collect());
        }
        let forward = places.iter().cloned().map(|devices| (TaskKind::Forward, 1, devices));
        let backward = places.iter().rev().cloned().map(|devices| (TaskKind::Backward, -1, devices));
        for (kind, takes, devices) in forward.chain(backward) {
            let needs = last.map(|last| (last, dice.below(4) as Time)).into_iter().collect();
            let (stage, duration) = (StageId::from_index(all.len()), dice.below(6) as Time);
            last = Some(all.push(TaskSeries { kind, stage, devices, duration, takes, needs, feeds: Vec::new() }));
        }
    }
    let room = |device| {
        let takes = all.iter().filter(|series| series.takes > 0 && series.devices.contains(&device)).count();
        (takes + dice.below(4)) as i64
    };
    let capacity = (0..n_devices).map(DeviceId::from_index).map(room).collect();
    Job::of_series(all, 1 + dice.below(9), capacity)
}

/// How long orders take, and the most that each device holds.
///
/// # Errors
/// If a task is missing or stands too early, devices wait for each other, or the memory is not enough.
pub fn replay(job: &Job, orders: &Orders) -> Result<(Time, IndexVec<DeviceId, i64>), String> {
    let mut ends = job.series.map(|_| Vec::new());
    let mut next = orders.map(|_| 0);
    let (mut free, mut held) = (orders.map(|_| 0), orders.map(|_| 0));
    let mut peaks = held.clone();
    let n_places: usize = orders.iter().map(Vec::len).sum();
    while next.iter().sum::<usize>() < n_places {
        let head = |device: DeviceId| orders[device].get(next[device]).copied();
        let mut begun = None;
        for mention in orders.ids().filter_map(head) {
            let (all, _) = parts(job, mention);
            let stands = job.series[all[0]].devices.iter().all(|device| head(*device) == Some(mention));
            if stands && ready(job, &ends, &all).is_some() {
                begun = Some(mention);
            }
        }
        let Some(mention) = begun else { return Err(format!("no device can go on after {next:?}")) };
        let (all, duration) = parts(job, mention);
        let (devices, takes) =
            (&job.series[all[0]].devices, all.iter().map(|series| job.series[*series].takes).sum::<i64>());
        let free_at = devices.iter().map(|device| free[*device]).max().unwrap_or(0);
        let start = free_at.max(ready(job, &ends, &all).unwrap_or(0));
        all.iter().for_each(|series| ends[*series].push(start + duration));
        for device in devices {
            (free[*device], next[*device]) = (start + duration, next[*device] + 1);
            held[*device] += takes;
            peaks[*device] = peaks[*device].max(held[*device]);
            if held[*device] > job.capacity[*device] {
                return Err(format!("{device} holds {} at {start}", held[*device]));
            }
        }
    }
    if let Some(series) = ends.ids().find(|series| ends[*series].len() != job.microbatches) {
        return Err(format!("{series} has {} tasks", ends[series].len()));
    }
    Ok((free.iter().copied().max().unwrap_or(0), peaks))
}

/// When the next task of series that run at once has all that it needs, unless that is still to come.
pub(crate) fn ready(job: &Job, ends: &IndexVec<SeriesId, Vec<Time>>, all: &[SeriesId]) -> Option<Time> {
    let of_series = |series: &SeriesId| {
        let needs = job.series[*series].needs.iter().filter(|(need, _)| !all.contains(need));
        let mut needs = needs.map(|(need, latency)| Some(ends[*need].get(ends[*series].len())? + latency));
        needs.try_fold(0, |ready, need| Some(need?.max(ready)))
    };
    all.iter().map(of_series).try_fold(0, |ready, series| Some(series?.max(ready)))
}
