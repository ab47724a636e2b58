//! Jobs for the search: stages of unequal costs, and the placements of Tessel from their sources.

use pipe_compiler::Request;
use pipe_ir::ids::StageId;
use pipe_ir::task::TaskKind;
use pipe_schedule::dispatch::Objective;
use pipe_schedule::dispatch::job::{Job, Orders, TaskSeries, Time};
use pipe_search::driver::run::prepare;
use pipe_syntax::source::{Source, Sources};

/// Series that are written down one after the other, each after those that it needs.
#[derive(Default)]
struct SeriesList(Vec<TaskSeries>);

impl SeriesList {
    fn add(&mut self, kind: TaskKind, devices: &[usize], duration: Time, takes: i64, needs: &[usize]) -> usize {
        let stage = StageId::from_index(self.0.len());
        let needs = needs.iter().map(|need| (*need, 0)).collect();
        self.0.push(TaskSeries { kind, stage, devices: devices.to_vec(), duration, takes, needs, feeds: Vec::new() });
        self.0.len() - 1
    }
}

/// The placements of Tessel (HPCA 2024) on 4 devices, with 8 microbatches.
const TESSEL: [(&str, &str); 5] = [
    ("V", include_str!("../../tests/data/tessel/v.pipe")),
    ("X", include_str!("../../tests/data/tessel/x.pipe")),
    ("K", include_str!("../../tests/data/tessel/k.pipe")),
    ("M", include_str!("../../tests/data/tessel/m.pipe")),
    ("NN", include_str!("../../tests/data/tessel/nn.pipe")),
];

/// One of the placements of Tessel, with room for so many activations on each device. As in the
/// paper, embeddings that are on all devices take none of it.
///
/// # Panics
/// If there is none of that name, or its source is refused.
#[must_use]
pub fn tessel(name: &str, memory: i64) -> Job {
    let (_, text) = TESSEL.iter().find(|(known, _)| *known == name).expect("a placement of the paper");
    let root = Source { name: name.to_owned(), text: (*text).to_owned() };
    let (request, no_files) = (Request::default(), |path: &str| Err(path.to_owned()));
    let prepared = prepare(&mut Sources::default(), root, &no_files, &request, Objective::Makespan);
    let mut job = prepared.unwrap_or_else(|found| panic!("{name}: {:#?}", found.diagnostics)).problem.job;
    job.capacity.fill(memory);
    let is_embedding = |series: &TaskSeries| series.devices.len() > 1 && matches!(name, "M" | "NN");
    job.series.iter_mut().filter(|series| is_embedding(series)).for_each(|series| series.takes = 0);
    job
}

/// Stages with split backwards, each with its device and the durations of its `F`, `B` and `W`.
#[must_use]
pub fn stages(stages: &[(usize, [Time; 3])], microbatches: usize, memory: i64) -> Job {
    let mut all = SeriesList::default();
    let mut last: Vec<usize> = Vec::new();
    let mut forwards = Vec::new();
    for (device, [forward, ..]) in stages {
        last = vec![all.add(TaskKind::Forward, &[*device], *forward, 1, &last)];
        forwards.extend(&last);
    }
    last.clear();
    for ((device, [_, input, weight]), forward) in stages.iter().zip(&forwards).rev() {
        last.push(*forward);
        last = vec![all.add(TaskKind::BackwardInput, &[*device], *input, 0, &last)];
        all.add(TaskKind::BackwardWeight, &[*device], *weight, -1, &last);
    }
    let n_devices = stages.iter().map(|(device, _)| device + 1).max().unwrap_or(0);
    Job::of_series(all.0, microbatches, vec![memory; n_devices])
}

/// How long orders of a job take that were found for other durations.
#[must_use]
pub fn length(job: &Job, orders: &Orders) -> Option<Time> {
    let mut ends: Vec<Vec<Time>> = vec![Vec::new(); job.series.len()];
    let mut next = vec![0; orders.len()];
    let mut free = vec![0; orders.len()];
    for _ in 0..job.n_tasks() {
        let head = |device: usize| orders.get(device)?.get(*next.get(device)?).copied();
        let ready = |series: usize| {
            let place = ends[series].len();
            let stands = job.series[series].devices.iter().all(|device| head(*device) == Some(series));
            let needs = job.series[series].needs.iter().map(|(need, latency)| Some(ends[*need].get(place)? + latency));
            let needs: Option<Vec<Time>> = needs.collect();
            let devices = job.series[series].devices.iter().map(|device| free[*device]);
            needs.filter(|_| stands).map(|needs| needs.into_iter().chain(devices).max().unwrap_or(0))
        };
        let (series, start) = (0..orders.len()).filter_map(head).find_map(|series| Some((series, ready(series)?)))?;
        let end = start + job.series[series].duration;
        ends[series].push(end);
        for device in &job.series[series].devices {
            free[*device] = end;
            next[*device] += 1;
        }
    }
    free.into_iter().max()
}

/// No schedule is shorter than this: a device works on all its tasks after the first of them can start, and something
/// follows after the last.
#[must_use]
pub fn bound(job: &Job) -> Time {
    let heads = job.reversed().tails();
    let tails = job.tails();
    let of_device = |all: &Vec<usize>| {
        let work: Time = all.iter().map(|series| job.series[*series].duration).sum();
        let head = all.iter().map(|series| heads[heads.len() - 1 - series]).min().unwrap_or(0);
        let tail = all.iter().map(|series| tails[*series]).min().unwrap_or(0);
        head + work * job.microbatches as Time + tail
    };
    job.on_device.iter().map(of_device).max().unwrap_or(0)
}
