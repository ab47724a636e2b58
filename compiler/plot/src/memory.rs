//! Activation memory over time, in parts of units: taken when the task starts that saves it, given
//! back when the one ends that reads it last. What is evicted is given back when it has left, and taken
//! when its way back begins; places for the activations of others count all step long.

use super::{Lifespan, Measure, Memory, MemoryTrack, TickScale};
use crate::tracks::rows;
use pipe_compiler::analyze::Analysis;
use pipe_compiler::report::Report;
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use pipe_ir::instruction::Direction;
use pipe_schedule::swaps::places::{self, Places, Reserve};
use pipe_schedule::swaps::{Entry, list};
use pipe_schedule::timing::timeline::Copied;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Counts what is alive as [`pipe_schedule::check::memory::peaks`] does, so that the peaks are the same. Where copies
/// of activations wait for each other, they may be lower.
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

/// Something that is taken or given back at a moment.
struct Change {
    at: u64,
    key: (StageId, MicrobatchId),
    parts: i64,
}

/// What a device takes and gives back, in the order of its list.
fn changes(analysis: &Analysis, device: DeviceId, scale: &TickScale) -> Vec<Change> {
    let (schedule, dependencies) = (&analysis.schedule, &analysis.order.dependencies);
    let index = device.index();
    let (starts, ends) = (&analysis.timeline.starts[index], &analysis.timeline.ends[index]);
    let copies: Vec<&Copied> =
        analysis.timeline.copies.iter().filter(|copy| copy.device == device && copy.swap.is_some()).collect();
    let change = |entry| {
        let (key, parts, [start, end]) = match entry {
            Entry::Task(position) => {
                let task = schedule.orders[index][position].task;
                let parts = schedule.activations.change(dependencies, task);
                ((task.stage, task.microbatch), parts, [starts[position], ends[position]])
            }
            Entry::Swap(position) => {
                let swap = schedule.swaps.of(device)[position];
                let moments = copies.get(position).map_or_else(Default::default, |copy| [copy.start, copy.end]);
                ((swap.stage, swap.microbatch), places::change(schedule, device, position), moments)
            }
        };
        Change { at: scale.ticks(if parts > 0 { start } else { end }), key, parts }
    };
    let mut all: Vec<Change> = list(schedule, device).map(change).filter(|change| change.parts != 0).collect();
    // Copies end later than the tasks that stand beside them.
    all.sort_by_key(|change| change.at);
    all
}

fn track(analysis: &Analysis, device: DeviceId, scale: &TickScale) -> MemoryTrack {
    let (schedule, dependencies) = (&analysis.schedule, &analysis.order.dependencies);
    let changes = changes(analysis, device, scale);
    let places = Places::of(schedule);
    let (mut levels, mut alive, mut at_peak, mut fullest) = (Levels::default(), Alive::new(), Alive::new(), 0);
    let reserved = places.held_on(device);
    if reserved > 0 {
        levels.change(0, i64::try_from(reserved).unwrap_or(i64::MAX));
    }
    for Change { at, key, parts } in changes {
        let peak = levels.peak();
        levels.change(at, parts);
        if parts > 0 {
            alive.entry(key).or_insert((at, 0)).1 += parts.unsigned_abs();
        } else {
            let left = alive.get(&key).map_or(0, |(_, own)| own.saturating_sub(parts.unsigned_abs()));
            if left == 0 {
                alive.remove(&key);
            } else if let Some(own) = alive.get_mut(&key) {
                own.1 = left;
            }
        }
        if levels.peak() > peak {
            at_peak.clone_from(&alive);
            fullest = at;
        }
    }
    // Those alive at the peak end with the last task that reads them, or leave.
    let mut until: BTreeMap<(StageId, MicrobatchId), u64> = BTreeMap::new();
    let order = schedule.orders[device.index()].iter().zip(&analysis.timeline.ends[device.index()]);
    for (scheduled, end) in order.filter(|(one, _)| dependencies.is_last(one.task)) {
        until.insert((scheduled.task.stage, scheduled.task.microbatch), scale.ticks(*end));
    }
    for copy in analysis.timeline.copies.iter().filter(|copy| copy.device == device) {
        let end = scale.ticks(copy.end);
        if let (Some(key), Direction::DeviceToHost, true) = (copy.swap, copy.direction, end > fullest) {
            let known = until.entry(key).or_insert(end);
            *known = end.min(*known);
        }
    }
    let lifespan = |((stage, microbatch), (since, parts)): ((StageId, MicrobatchId), (u64, u64))| Lifespan {
        what: "activations".to_owned(),
        stage: Some(stage.0),
        microbatch: Some(microbatch.0),
        since: Some(since),
        until: until.get(&(stage, microbatch)).copied(),
        parts,
    };
    let reserve = |own: &Reserve| Lifespan {
        what: format!("places for activations of {}", own.from),
        stage: None,
        microbatch: None,
        since: None,
        until: None,
        parts: own.places.saturating_mul(own.each),
    };
    levels.track(at_peak.into_iter().map(lifespan).chain(places.on(device).map(reserve)).collect())
}

/// What is alive, change by change.
#[derive(Default)]
pub(super) struct Levels {
    levels: Vec<(u64, u64)>,
    alive: u64,
    peak: (u64, u64),
}

impl Levels {
    /// The most that was alive.
    fn peak(&self) -> u64 {
        self.peak.0
    }

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
