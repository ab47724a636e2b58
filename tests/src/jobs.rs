//! Jobs for the search, and a replay of what it finds that shares nothing with it.

use crate::schedules::Dice;
use pipe_ir::ids::StageId;
use pipe_ir::task::TaskKind;
use pipe_schedule::dispatch::fusion::Fusion;
use pipe_schedule::dispatch::job::{Job, Orders, TaskSeries, Time};

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
            devices: vec![self.devices[stage]],
            duration: self.durations[stage][duration],
            takes,
            needs,
            feeds: Vec::new(),
        };
        let mut all = Vec::new();
        for stage in 0..n {
            let before = stage.checked_sub(1).map(|before| (before, hop(before, stage)));
            all.push(series(TaskKind::Forward, stage, 0, 1, before.into_iter().collect()));
        }
        let mut last = None;
        for stage in (0..n).rev() {
            let after = last.map(|series| (series, hop(stage, stage + 1)));
            let needs = [(stage, 0)].into_iter().chain(after).collect();
            last = Some(all.len());
            if self.durations[stage].len() == 2 {
                all.push(series(TaskKind::Backward, stage, 1, -1, needs));
            } else {
                all.push(series(TaskKind::BackwardInput, stage, 1, 0, needs));
                all.push(series(
                    TaskKind::BackwardWeight,
                    stage,
                    2,
                    -1,
                    last.map(|series| (series, 0)).into_iter().collect(),
                ));
            }
        }
        let weights = all.iter().enumerate().filter(|(_, series)| series.kind == TaskKind::BackwardWeight);
        let fusion = |(second, series): (usize, &TaskSeries)| {
            let duration = *self.durations[series.stage.index()].get(3)?;
            Some(Fusion { first: second - 1, second, duration })
        };
        let fusions = weights.filter_map(fusion).collect();
        Job::of_series(all, self.microbatches, self.capacity.clone()).with_fusions(fusions)
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
pub(crate) fn parts(job: &Job, mention: usize) -> (Vec<usize>, Time) {
    match mention.checked_sub(job.series.len()).map(|fusion| job.fusions[fusion]) {
        Some(Fusion { first, second, duration }) => (vec![first, second], duration),
        None => (vec![mention], job.series[mention].duration),
    }
}

/// A job of some chains of tasks, there and back, of which some occupy several devices at once.
#[must_use]
pub fn random_job(dice: &mut Dice) -> Job {
    let n_devices = 1 + dice.below(4);
    let mut all: Vec<TaskSeries> = Vec::new();
    for _ in 0..1 + dice.below(2) {
        let first = all.len();
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
            let needs = if all.len() > first { vec![(all.len() - 1, dice.below(4) as Time)] } else { Vec::new() };
            let (stage, duration) = (StageId::from_index(all.len()), dice.below(6) as Time);
            all.push(TaskSeries { kind, stage, devices, duration, takes, needs, feeds: Vec::new() });
        }
    }
    let room = |device| {
        let takes = all.iter().filter(|series| series.takes > 0 && series.devices.contains(&device)).count();
        (takes + dice.below(4)) as i64
    };
    let capacity = (0..n_devices).map(room).collect();
    Job::of_series(all, 1 + dice.below(9), capacity)
}

/// How long orders take, and the most that each device holds.
///
/// # Errors
/// If a task is missing or stands too early, devices wait for each other, or the memory is not enough.
pub fn replay(job: &Job, orders: &Orders) -> Result<(Time, Vec<i64>), String> {
    let mut ends: Vec<Vec<Time>> = vec![Vec::new(); job.series.len()];
    let mut next = vec![0; orders.len()];
    let (mut free, mut held) = (vec![0; orders.len()], vec![0; orders.len()]);
    let mut peaks = held.clone();
    let n_places: usize = orders.iter().map(Vec::len).sum();
    while next.iter().sum::<usize>() < n_places {
        let head = |device: usize| orders[device].get(next[device]).copied();
        let mut begun = None;
        for mention in (0..orders.len()).filter_map(head) {
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
                return Err(format!("device {device} holds {} at {start}", held[*device]));
            }
        }
    }
    if let Some(series) = ends.iter().position(|ends| ends.len() != job.microbatches) {
        return Err(format!("series {series} has {} tasks", ends[series].len()));
    }
    Ok((free.into_iter().max().unwrap_or(0), peaks))
}

/// When the next task of series that run at once has all that it needs, unless that is still to come.
pub(crate) fn ready(job: &Job, ends: &[Vec<Time>], all: &[usize]) -> Option<Time> {
    let of_series = |series: &usize| {
        let needs = job.series[*series].needs.iter().filter(|(need, _)| !all.contains(need));
        let mut needs = needs.map(|(need, latency)| Some(ends[*need].get(ends[*series].len())? + latency));
        needs.try_fold(0, |ready, need| Some(need?.max(ready)))
    };
    all.iter().map(of_series).try_fold(0, |ready, series| Some(series?.max(ready)))
}
