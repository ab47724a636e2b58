//! Jobs for the search: stages of unequal costs, and the placements of Tessel from their sources.

use pipe_compiler::Request;
use pipe_ir::ids::{DeviceId, IndexVec, StageId};
use pipe_ir::task::TaskKind;
use pipe_schedule::dispatch::Objective;
use pipe_schedule::dispatch::job::{Job, SeriesId, TaskSeries, Time};
use pipe_search::driver::run::prepare;
use pipe_syntax::source::{Source, Sources};

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
pub fn stages(stages: &[(usize, [Time; 3])], microbatches: usize, memory: i64) -> Job {
    let mut all = IndexVec::default();
    let mut add = |kind, device, duration, takes, needs: &[SeriesId]| {
        let stage = StageId::from_index(all.len());
        let needs = needs.iter().map(|need| (*need, 0)).collect();
        all.push(TaskSeries { kind, stage, devices: vec![device], duration, takes, needs, feeds: Vec::new() })
    };
    let homes = || stages.iter().map(|(device, durations)| (DeviceId::from_index(*device), *durations));
    let mut last: Vec<SeriesId> = Vec::new();
    let mut forwards = Vec::new();
    for (device, [forward, ..]) in homes() {
        last = vec![add(TaskKind::Forward, device, forward, 1, &last)];
        forwards.extend(&last);
    }
    last.clear();
    for ((device, [_, input, weight]), forward) in homes().zip(&forwards).rev() {
        last.push(*forward);
        last = vec![add(TaskKind::BackwardInput, device, input, 0, &last)];
        add(TaskKind::BackwardWeight, device, weight, -1, &last);
    }
    let n_devices = stages.iter().map(|(device, _)| device + 1).max().unwrap_or(0);
    Job::of_series(all, microbatches, vec![memory; n_devices].into())
}

/// No schedule is shorter than this: a device works on all its tasks after the first of them can start, and something
/// follows after the last.
pub fn bound(job: &Job) -> Time {
    let (heads, tails) = (job.heads(), job.tails());
    let of_device = |all: &Vec<SeriesId>| {
        let work: Time = all.iter().map(|series| job.series[*series].duration).sum();
        let head = all.iter().map(|series| heads[*series]).min().unwrap_or(0);
        let tail = all.iter().map(|series| tails[*series]).min().unwrap_or(0);
        head + work * job.microbatches as Time + tail
    };
    job.on_device.iter().map(of_device).max().unwrap_or(0)
}
