//! Jobs for the search that have no source: stages of unequal costs, and tasks that occupy several devices at once.

use pipe_compiler::search::job::{Job, Lane, Orders, Time};
use pipe_ir::ids::StageId;
use pipe_ir::task::TaskKind;

/// Lanes that are written down one after the other, each after those that it needs.
#[derive(Default)]
struct Lanes(Vec<Lane>);

impl Lanes {
    fn add(&mut self, kind: TaskKind, devices: &[usize], duration: Time, takes: i64, needs: &[usize]) -> usize {
        let stage = StageId::from_index(self.0.len());
        let needs = needs.iter().map(|need| (*need, 0)).collect();
        self.0.push(Lane { kind, stage, devices: devices.to_vec(), duration, takes, needs, feeds: Vec::new() });
        self.0.len() - 1
    }

    /// A forward of Tessel's on one device: it takes 1, and so much memory.
    fn forward(&mut self, device: usize, needs: &[usize]) -> usize {
        self.add(TaskKind::Forward, &[device], 1, 1, needs)
    }

    /// A fused backward of Tessel's: it takes 3, and gives the memory back.
    fn backward(&mut self, device: usize, needs: &[usize]) -> usize {
        self.add(TaskKind::Backward, &[device], 3, -1, needs)
    }

    /// A task of Tessel's on all four devices.
    fn on_all(&mut self, takes: i64, needs: &[usize]) -> usize {
        self.add(TaskKind::Forward, &[0, 1, 2, 3], 1, takes, needs)
    }

    /// Forwards and backwards, each after the one before.
    fn chain(&mut self, forwards: &[usize], backwards: &[usize], after: Option<usize>) -> Option<usize> {
        let mut last = after;
        for device in forwards {
            last = Some(self.forward(*device, last.as_slice()));
        }
        for device in backwards {
            last = Some(self.backward(*device, last.as_slice()));
        }
        last
    }
}

/// One of the placements of Tessel (HPCA 2024) on 4 devices, with 8 microbatches: `V`, `X`, `K`, `M` or `NN`.
#[must_use]
pub fn tessel(name: &str, memory: i64) -> Job {
    let mut lanes = Lanes::default();
    match name {
        "X" => {
            lanes.chain(&[0, 1, 2, 3], &[3, 2, 1, 0], None);
            lanes.chain(&[3, 2, 1, 0], &[0, 1, 2, 3], None);
        }
        "K" => {
            let branches = [lanes.chain(&[0, 1], &[], None), lanes.chain(&[2, 3], &[], None)];
            let meet = lanes.on_all(1, &branches.map(Option::unwrap_or_default));
            let part = lanes.on_all(-1, &[meet]);
            lanes.chain(&[], &[1, 0], Some(part));
            lanes.chain(&[], &[3, 2], Some(part));
        }
        "M" => {
            let embed = lanes.on_all(0, &[]);
            let last = lanes.chain(&[0, 1, 2, 3], &[3, 2, 1, 0], Some(embed));
            lanes.on_all(0, last.as_slice());
        }
        "NN" => {
            let embed = lanes.on_all(0, &[]);
            let first = lanes.chain(&[0, 1], &[], Some(embed));
            let middle = lanes.on_all(0, first.as_slice());
            let second = lanes.chain(&[2, 3], &[3, 2], Some(middle));
            let back = lanes.on_all(0, second.as_slice());
            let last = lanes.chain(&[], &[1, 0], Some(back));
            lanes.on_all(0, last.as_slice());
        }
        _ => {
            lanes.chain(&[0, 1, 2, 3], &[3, 2, 1, 0], None);
        }
    }
    Job::of_lanes(lanes.0, 8, vec![memory; 4])
}

/// Stages with split backwards, each with its device and the durations of its `F`, `B` and `W`.
#[must_use]
pub fn stages(stages: &[(usize, [Time; 3])], microbatches: usize, memory: i64) -> Job {
    let mut lanes = Lanes::default();
    let mut last: Vec<usize> = Vec::new();
    let mut forwards = Vec::new();
    for (device, [forward, ..]) in stages {
        last = vec![lanes.add(TaskKind::Forward, &[*device], *forward, 1, &last)];
        forwards.extend(&last);
    }
    last.clear();
    for ((device, [_, input, weight]), forward) in stages.iter().zip(&forwards).rev() {
        last.push(*forward);
        last = vec![lanes.add(TaskKind::BackwardInput, &[*device], *input, 0, &last)];
        lanes.add(TaskKind::BackwardWeight, &[*device], *weight, -1, &last);
    }
    let n_devices = stages.iter().map(|(device, _)| device + 1).max().unwrap_or(0);
    Job::of_lanes(lanes.0, microbatches, vec![memory; n_devices])
}

/// How long orders of a job take that were found for other durations.
#[must_use]
pub fn length(job: &Job, orders: &Orders) -> Option<Time> {
    let mut ends: Vec<Vec<Time>> = vec![Vec::new(); job.lanes.len()];
    let mut next = vec![0; orders.len()];
    let mut free = vec![0; orders.len()];
    for _ in 0..job.n_tasks() {
        let head = |device: usize| orders.get(device)?.get(*next.get(device)?).copied();
        let ready = |lane: usize| {
            let place = ends[lane].len();
            let stands = job.lanes[lane].devices.iter().all(|device| head(*device) == Some(lane));
            let needs = job.lanes[lane].needs.iter().map(|(need, latency)| Some(ends[*need].get(place)? + latency));
            let needs: Option<Vec<Time>> = needs.collect();
            let devices = job.lanes[lane].devices.iter().map(|device| free[*device]);
            needs.filter(|_| stands).map(|needs| needs.into_iter().chain(devices).max().unwrap_or(0))
        };
        let (lane, start) = (0..orders.len()).filter_map(head).find_map(|lane| Some((lane, ready(lane)?)))?;
        let end = start + job.lanes[lane].duration;
        ends[lane].push(end);
        for device in &job.lanes[lane].devices {
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
    let of_device = |lanes: &Vec<usize>| {
        let work: Time = lanes.iter().map(|lane| job.lanes[*lane].duration).sum();
        let head = lanes.iter().map(|lane| heads[heads.len() - 1 - lane]).min().unwrap_or(0);
        let tail = lanes.iter().map(|lane| tails[*lane]).min().unwrap_or(0);
        head + work * job.microbatches as Time + tail
    };
    job.on_device.iter().map(of_device).max().unwrap_or(0)
}
