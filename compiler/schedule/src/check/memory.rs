//! Rule: every device can hold the activations that its order keeps alive.
//!
//! A stage's activation of a microbatch is taken when its `F` starts and given back when its `W`
//! (or `BW`) ends; a part of it when its `B` ends, where [`Schedule::activations`] says so. Where a
//! stage recomputes, it is taken when its `R` starts, and its `F` takes nothing: what it keeps, the
//! stage's input, is counted in bytes only. What is alive therefore follows from the order alone,
//! whatever tasks cost. What a device evicts is given back where `evict` stands, and taken again where
//! `fetch` does: whatever takes room waits for every `evict` before it (see [`crate::swaps`]). The
//! places that it keeps for the activations of others count all step long. For building blocks two
//! figures hold for every number of microbatches: the certificate Σ ceil(l / T) over the lifespans l
//! (arXiv 2405.15362, Equation 1), and the exact count over the phases of one period.

use crate::block::period::turn;
use crate::dependencies::Dependencies;
use crate::memory_limit::MemoryLimit;
use crate::schedule::{BlockTask, Schedule};
use crate::slices::Slices;
use crate::swaps::places::{self, Places, Reserve};
use crate::swaps::{Entry, SwapKind, list};
use crate::units::Units;
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use pipe_ir::task::TaskKind;
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use std::collections::{BTreeMap, BTreeSet};

/// The most that a device holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peak {
    /// Activations of single stages alive at once, in the parts of [`Schedule::activations`].
    pub activations: u64,
    /// Position of the first task in the device's order at which they are, or behind which they are fetched.
    pub position: usize,
    /// Position among the device's swaps of the `fetch` at which they are, if it is one.
    pub fetch: Option<usize>,
}

/// Counts what is alive on every device, by [`DeviceId`], and what it keeps for the activations of others.
pub fn peaks(schedule: &Schedule, dependencies: &Dependencies) -> Vec<Peak> {
    let places = Places::of(schedule);
    let peak = |device: DeviceId| {
        let mut alive = places.held_on(device);
        let mut peak = Peak { activations: alive, position: 0, fetch: None };
        let mut position = 0;
        for entry in list(schedule, device) {
            let (change, fetch) = match entry {
                Entry::Task(own) => {
                    position = own;
                    let task = schedule.orders[device.index()][own].task;
                    (schedule.activations.change(dependencies, task), None)
                }
                Entry::Swap(swap) => (places::change(schedule, device, swap), Some(swap)),
            };
            alive = alive.saturating_add_signed(change);
            if alive > peak.activations {
                peak = Peak { activations: alive, position, fetch };
            }
        }
        peak
    };
    (0..schedule.n_devices()).map(DeviceId::from_index).map(peak).collect()
}

/// What a building block keeps alive on a device, for every number of microbatches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Certificate {
    /// Σ ceil(l / T) over the device's stages; where `B` gives back a part, over the lifespans of
    /// both parts, each times what it counts.
    pub bound: u64,
    /// The exact count, at the fullest phase of a period.
    pub exact: u64,
    /// The smallest number of microbatches with which it is reached.
    pub from: u64,
}

/// The certificate of every device, by [`DeviceId`]; `None` where the schedule is not a building block, or a step ends
/// before the devices of its replicated stages repeat.
pub fn certificates(schedule: &Schedule) -> Option<Vec<Certificate>> {
    let block = schedule.block.as_ref()?;
    let turn = turn(block, &schedule.placement, (schedule.n_queues(), schedule.n_microbatches));
    let (period, dependencies) = (turn.period?, Dependencies::of_block(block, &schedule.graph));
    let of_device = |tasks: &Vec<BlockTask>| {
        let mut starts: BTreeMap<(StageId, MicrobatchId), u64> = BTreeMap::new();
        let saves = |task: &&BlockTask| task.kind == dependencies.first(task.stage);
        starts.extend(tasks.iter().filter(saves).map(|task| ((task.stage, task.microbatch), task.slot)));
        let lifespan = |task: &BlockTask| {
            let weight = schedule.activations.of(task.stage).given_back(task.kind);
            let start = *starts.get(&(task.stage, task.microbatch))?;
            (weight > 0).then(|| Lifespan { start, end: block.end(task), number: task.microbatch.0, weight })
        };
        certify(&tasks.iter().filter_map(lifespan).collect::<Vec<_>>(), period, turn.microbatches)
    };
    Some(turn.tasks.iter().take(schedule.n_devices()).map(of_device).collect())
}

/// When a stage's activation of one microbatch of a turn is alive, or a part of it, in slots.
#[derive(Clone, Copy, Debug)]
struct Lifespan {
    start: u64,
    end: u64,
    /// Which microbatch of the turn.
    number: u32,
    /// What it counts.
    weight: u64,
}

fn certify(lifespans: &[Lifespan], period: u64, microbatches: u64) -> Certificate {
    let bound = |one: &Lifespan| one.end.saturating_sub(one.start).div_ceil(period).saturating_mul(one.weight);
    let bound = lifespans.iter().map(bound).fold(0, u64::saturating_add);
    // At slot `phase` of a period late in a long step, the microbatches of turns first + 1 to last
    // are alive, where first and last count back and are one higher from the phases of the end and
    // of the start on. At equal phases the end comes first, because lifespans are half-open.
    let lap = |slot: u64| -i128::from(slot / period) - 1;
    let mut events: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * lifespans.len());
    let mut turns: Vec<(i128, i128)> = Vec::with_capacity(lifespans.len());
    let mut alive = Alive { microbatches, ..Alive::default() };
    for (index, one) in lifespans.iter().enumerate() {
        turns.push((lap(one.end), lap(one.start)));
        alive.add(one, turns[index]);
        events.push((one.start % period, true, index));
        events.push((one.end % period, false, index));
    }
    events.sort_unstable();
    let (mut exact, mut from) = (alive.count, alive.needed());
    for (_, is_start, index) in events {
        alive.remove(&lifespans[index], turns[index]);
        if is_start {
            turns[index].1 += 1;
        } else {
            turns[index].0 += 1;
        }
        alive.add(&lifespans[index], turns[index]);
        if alive.count > exact || is_start && alive.count == exact && exact > 0 {
            from = if alive.count > exact { alive.needed() } else { from.min(alive.needed()) };
            exact = alive.count;
        }
    }
    let number = |count: i128| u64::try_from(count).unwrap_or(0);
    Certificate { bound, exact: number(exact), from: number(from) }
}

/// What is alive at some slot of an endless step.
#[derive(Default)]
struct Alive {
    count: i128,
    /// Of a turn.
    microbatches: u64,
    /// First turns that are alive, each with how many lifespans begin with it.
    first: BTreeMap<i128, usize>,
    /// Last microbatches that are alive, likewise.
    last: BTreeMap<i128, usize>,
}

impl Alive {
    fn keys(&self, one: &Lifespan, (before, last): (i128, i128)) -> (i128, i128) {
        (before + 1, last * i128::from(self.microbatches) + i128::from(one.number))
    }

    fn add(&mut self, one: &Lifespan, turns: (i128, i128)) {
        self.count += (turns.1 - turns.0) * i128::from(one.weight);
        if turns.1 > turns.0 {
            let (first, last) = self.keys(one, turns);
            *self.first.entry(first).or_default() += 1;
            *self.last.entry(last).or_default() += 1;
        }
    }

    fn remove(&mut self, one: &Lifespan, turns: (i128, i128)) {
        self.count -= (turns.1 - turns.0) * i128::from(one.weight);
        if turns.1 > turns.0 {
            let (first, last) = self.keys(one, turns);
            drop_one(&mut self.first, first);
            drop_one(&mut self.last, last);
        }
    }

    /// Microbatches of a step in which all of these are alive at once: the first turn of them may be the step's first.
    fn needed(&self) -> i128 {
        match (self.first.first_key_value(), self.last.last_key_value()) {
            (Some((first, _)), Some((last, _))) => last - first * i128::from(self.microbatches) + 1,
            _ => 0,
        }
    }
}

fn drop_one(counts: &mut BTreeMap<i128, usize>, key: i128) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

/// Compares every device's peak with its limit.
///
/// # Errors
/// A diagnostic per device that needs more.
pub fn check(
    schedule: &Schedule,
    dependencies: &Dependencies,
    peaks: &[Peak],
    limit: &MemoryLimit,
) -> Result<(), Diagnostics> {
    let allowed = limit.activations(schedule);
    let mut found = Diagnostics::new();
    for device in (0..schedule.n_devices()).map(DeviceId::from_index) {
        let peak = peaks[device.index()];
        if peak.activations > allowed[device.index()] {
            let alive = alive(schedule, dependencies, (device, peak));
            found.push(exceeded(schedule, device, peak, limit.of(device), &alive));
        }
    }
    if found.is_empty() { Ok(()) } else { Err(found) }
}

/// What is alive on a device at its peak, beside what it keeps for others.
fn alive(
    schedule: &Schedule,
    dependencies: &Dependencies,
    (device, peak): (DeviceId, Peak),
) -> BTreeMap<StageId, Living> {
    let mut alive: BTreeMap<StageId, Living> = BTreeMap::new();
    for entry in list(schedule, device) {
        let task = match entry {
            Entry::Swap(index) => {
                let swap = schedule.swaps.of(device)[index];
                let whole = &mut alive.entry(swap.stage).or_default().whole;
                match swap.kind {
                    SwapKind::Evict => whole.remove(&swap.microbatch.0),
                    SwapKind::Fetch => whole.insert(swap.microbatch.0),
                };
                if peak.fetch == Some(index) {
                    break;
                }
                continue;
            }
            Entry::Task(position) => {
                if position > peak.position {
                    break;
                }
                schedule.orders[device.index()][position].task
            }
        };
        let is_last = matches!(entry, Entry::Task(position) if position == peak.position) && peak.fetch.is_none();
        let held = schedule.activations.of(task.stage);
        let Living { whole, waiting } = alive.entry(task.stage).or_default();
        if held.saved > 0 && dependencies.is_first(task) {
            whole.insert(task.microbatch.0);
        } else if held.given_back(task.kind) > 0 {
            whole.remove(&task.microbatch.0);
            if task.kind == TaskKind::BackwardInput {
                waiting.insert(task.microbatch.0);
            } else {
                waiting.remove(&task.microbatch.0);
            }
        }
        if is_last {
            break;
        }
    }
    alive
}

/// The microbatches of a stage that are alive.
#[derive(Default)]
struct Living {
    whole: BTreeSet<u32>,
    /// Those of which a part waits for `W`.
    waiting: BTreeSet<u32>,
}

fn exceeded(
    schedule: &Schedule,
    device: DeviceId,
    peak: Peak,
    limit: Units,
    alive: &BTreeMap<StageId, Living>,
) -> Diagnostic {
    let scheduled = schedule.orders[device.index()].get(peak.position);
    let fetch = peak.fetch.map(|fetch| schedule.swaps.of(device)[fetch]);
    let (name, origin) = match (fetch, scheduled) {
        (Some(swap), _) => (format!("`{}`", schedule.swap_name(&swap)), Some(swap.origin)),
        (None, Some(one)) => (format!("`{}`", schedule.task_name(one.task)), Some(one.origin)),
        // It only keeps places for others.
        (None, None) => ("the start of the step".to_owned(), None),
    };
    let units = schedule.units(peak.activations).words();
    let message = format!("{device} holds {units} of activations at {name}, but may hold {limit}");
    let span = origin.map_or(schedule.placement_span, |origin| schedule.origins[usize::from(origin)]);
    let label = format!("{name} takes {device} to {} stage activations", schedule.activations.words(peak.activations));
    let mut diagnostic = Diagnostic::error(Code::MemoryExceeded, span, label, message);
    for (stage, Living { whole, waiting }) in alive {
        let stage_name = schedule.stage_name(*stage);
        let part = schedule.activations.words(schedule.activations.of(*stage).waiting);
        let whole = (!whole.is_empty()).then(|| format!("{stage_name} of {}", ranges(whole, schedule.slices)));
        let waits = || format!("{part} of {stage_name} of {} until `W`", ranges(waiting, schedule.slices));
        let both: Vec<String> = whole.into_iter().chain((!waiting.is_empty() && part != "0").then(waits)).collect();
        if !both.is_empty() {
            diagnostic = diagnostic.note(format!("alive at this point: {}", both.join(", and ")));
        }
    }
    for Reserve { from, places, each, .. } in Places::of(schedule).on(device) {
        let parts = schedule.activations.words(places.saturating_mul(*each));
        diagnostic = diagnostic.note(format!("{device} keeps {parts} for activations of {from}, all step long"));
    }
    diagnostic.help(format!("run backward tasks on {device} earlier, or allow {units}"))
}

/// `m0 to m3, m5`.
fn ranges(microbatches: &BTreeSet<u32>, slices: Slices) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &microbatch in microbatches {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == microbatch => *last = microbatch,
            _ => ranges.push((microbatch, microbatch)),
        }
    }
    let name = |number: &u32| slices.name(MicrobatchId(*number));
    let texts = ranges
        .iter()
        .map(|(first, last)| if first == last { name(first) } else { format!("{} to {}", name(first), name(last)) });
    texts.collect::<Vec<_>>().join(", ")
}
