//! Activation memory over time, in parts of units: taken when the task starts that saves it, given
//! back when the one ends that reads it last.

use super::{Lifespan, Measure, Memory, MemoryTrack, TickScale};
use crate::tracks::rows;
use pipe_compiler::analyze::Analysis;
use pipe_compiler::report::Report;
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Counts what is alive as [`pipe_schedule::check::memory::peaks`] does, so that the peaks are the same.
pub(super) fn in_units(analysis: &Analysis, report: &Report, scale: &TickScale) -> Memory {
    let schedule = &analysis.schedule;
    let devices = rows(schedule).map(|device| {
        if device.index() >= schedule.n_devices() {
            return MemoryTrack::default();
        }
        let limit = report.per_device.get(device.index()).and_then(|own| own.limit_activation);
        MemoryTrack { limit, ..track(analysis, device, scale) }
    });
    let over = schedule.n_whole_stages() as u64 * u64::from(schedule.slices.count()) * schedule.activations.whole;
    let measure = Measure { unit: "units", times: schedule.n_devices() as u64, over: over.max(1) };
    Memory { measure, devices: devices.collect() }
}

/// What is alive of a microbatch of a stage: since when, and how many parts.
type Alive = BTreeMap<(StageId, MicrobatchId), (u64, u64)>;

fn track(analysis: &Analysis, device: DeviceId, scale: &TickScale) -> MemoryTrack {
    let (schedule, dependencies) = (&analysis.schedule, &analysis.order.dependencies);
    let index = device.index();
    let (starts, ends) = (&analysis.timeline.starts[index], &analysis.timeline.ends[index]);
    let fullest = analysis.peaks[index].position;
    let (mut levels, mut alive, mut at_peak) = (Levels::default(), Alive::new(), Alive::new());
    for (position, scheduled) in schedule.orders[index].iter().enumerate() {
        let key = (scheduled.task.stage, scheduled.task.microbatch);
        let change = schedule.activations.change(dependencies, scheduled.task);
        if change > 0 {
            let at = scale.ticks(starts[position]);
            alive.entry(key).or_insert((at, 0)).1 += change.unsigned_abs();
            levels.change(at, change);
        } else if change < 0 {
            let parts = alive.get(&key).map_or(0, |(_, parts)| parts.saturating_sub(change.unsigned_abs()));
            if parts == 0 {
                alive.remove(&key);
            } else if let Some(own) = alive.get_mut(&key) {
                own.1 = parts;
            }
            levels.change(scale.ticks(ends[position]), change);
        }
        if position == fullest {
            at_peak.clone_from(&alive);
        }
    }
    // Those alive at the peak end with the last task that reads them.
    let mut until: BTreeMap<(StageId, MicrobatchId), u64> = BTreeMap::new();
    let rest = schedule.orders[index].iter().zip(ends).skip(fullest);
    for (scheduled, end) in rest.filter(|(one, _)| dependencies.is_last(one.task)) {
        until.insert((scheduled.task.stage, scheduled.task.microbatch), scale.ticks(*end));
    }
    let lifespan = |((stage, microbatch), (since, parts)): ((StageId, MicrobatchId), (u64, u64))| Lifespan {
        what: "activations".to_owned(),
        stage: Some(stage.0),
        microbatch: Some(microbatch.0),
        since: Some(since),
        until: until.get(&(stage, microbatch)).copied(),
        parts,
    };
    levels.track(at_peak.into_iter().map(lifespan).collect())
}

/// What is alive, change by change.
#[derive(Default)]
pub(super) struct Levels {
    levels: Vec<(u64, u64)>,
    alive: u64,
    peak: (u64, u64),
}

impl Levels {
    /// At a moment, no earlier than the one before, something is taken or given back.
    pub(super) fn change(&mut self, at: u64, parts: i64) {
        self.alive = self.alive.saturating_add_signed(parts);
        let before = self.levels.len().checked_sub(2).map_or(0, |before| self.levels[before].1);
        match self.levels.last_mut() {
            // Changes of one moment are one step; but what came and went at once was there.
            Some((moment, level)) if *moment == at && *level <= before.max(self.alive) => *level = self.alive,
            _ => self.levels.push((at, self.alive)),
        }
        let n_levels = self.levels.len();
        if n_levels > 1 && self.levels[n_levels - 2].1 == self.alive {
            self.levels.pop();
        }
        if self.alive > self.peak.0 {
            self.peak = (self.alive, at);
        }
    }

    /// The track, with what is alive at its peak.
    pub(super) fn track(self, mut alive: Vec<Lifespan>) -> MemoryTrack {
        alive.sort_by_key(|one| (Reverse(one.parts), one.since));
        MemoryTrack { limit: None, peak: self.peak.0, at: self.peak.1, levels: self.levels, alive }
    }
}
