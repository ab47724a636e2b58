//! The search for better orders: a portfolio of list schedules on a short step, made long again.

use super::lanes::{Lanes, Orders, Starts, Time};
use super::list_schedule::{Policy, list_schedule};
use crate::schedule::Schedule;
use pipe_ir::task::TaskKind;

/// How a list schedule departs from its guide. Times count periods.
struct Style {
    hasten_forward: Time,
    postpone_weights: Time,
    advance: Time,
    reserve: Reserve,
}

enum Reserve {
    One,
    Two,
    PeakLessOne,
    Peak,
}

const ALWAYS: Time = 1_000_000;

const fn style(hasten_forward: Time, postpone_weights: Time, advance: Time, reserve: Reserve) -> Style {
    Style { hasten_forward, postpone_weights, advance, reserve }
}

/// Found by greedy cover over V-Min, V-Half and V-ZB for 2 to 16 devices and four cost ratios.
const STYLES: [Style; 14] = [
    style(0, ALWAYS, ALWAYS, Reserve::Peak),
    style(1, ALWAYS, 2, Reserve::PeakLessOne),
    style(0, 1, 1, Reserve::One),
    style(1, 1, ALWAYS, Reserve::Two),
    style(0, ALWAYS, 0, Reserve::One),
    style(2, 1, ALWAYS, Reserve::Peak),
    style(0, ALWAYS, 2, Reserve::Two),
    style(1, ALWAYS, ALWAYS, Reserve::Two),
    style(0, 0, 1, Reserve::One),
    style(1, 1, 0, Reserve::One),
    style(1, ALWAYS, 2, Reserve::One),
    style(0, ALWAYS, ALWAYS, Reserve::One),
    style(0, ALWAYS, 1, Reserve::Peak),
    style(2, ALWAYS, ALWAYS, Reserve::One),
];

/// Candidates that are squeezed at full size, and rounds in which the best becomes the next guide.
const FINALISTS: usize = 2;
const ROUNDS: usize = 3;
/// Tasks that all list schedules together may place.
const EFFORT: usize = 3_000_000;
/// Lanes of a device with two stages; a task of a device with more costs more.
const USUAL_LANES: usize = 6;

/// A schedule of a short step, and how to make it long.
struct Found {
    makespan_when_long: Time,
    starts: Starts,
    cut: Cut,
}

/// What is to be ordered.
struct Problem<'a> {
    lanes: &'a Lanes,
    schedule: &'a Schedule,
    microbatches: usize,
    /// Parts of activations that each device may hold.
    limit: &'a [u64],
    /// Activations of each stage that the plain order holds.
    stage_peaks: Vec<usize>,
}

/// The finalists at full size. Where no short schedule can be cut, the full step itself is scheduled. `None` where the
/// plain order does not take microbatches in turn.
pub(super) fn candidates(lanes: &Lanes, schedule: &Schedule, limit: &[u64]) -> Option<Vec<Orders>> {
    let microbatches = schedule.n_microbatches as usize;
    let plain = lanes.orders_of_tasks(schedule, microbatches)?;
    let stage_peaks = lanes.stage_peaks(&plain, schedule.n_stages());
    let short = short_step(microbatches, stage_peaks.iter().copied().max()?);
    let problem = Problem { lanes, schedule, microbatches, limit, stage_peaks };
    let mut found = search(&problem, short)?;
    if found.is_empty() && short < microbatches {
        found = search(&problem, microbatches)?;
    }
    Some(found.iter().map(|found| found.cut.repeat(lanes, &found.starts)).collect())
}

/// The best list schedules of a short step that can be made long. Each round is guided by the best so far.
fn search(problem: &Problem<'_>, short: usize) -> Option<Vec<Found>> {
    let Problem { lanes, schedule, microbatches, limit, stage_peaks } = problem;
    let mut guide = lanes.squeeze(&lanes.orders_of_tasks(schedule, short)?)?;
    // Every choice looks at all pairs of a device's lanes.
    let crowd = lanes.on_device.iter().map(Vec::len).max()?.div_ceil(USUAL_LANES);
    let cost = short.saturating_mul(lanes.all.len()).saturating_mul(crowd * crowd);
    let mut effort = EFFORT;
    let mut found: Vec<Found> = Vec::new();
    for _ in 0..ROUNDS {
        for style in &STYLES {
            let Some(left) = effort.checked_sub(cost) else { break };
            effort = left;
            let reserve: Vec<usize> = stage_peaks.iter().map(|&peak| style.reserve(peak)).collect();
            let policy = style.policy(lanes, &guide, limit, &reserve);
            let Some(starts) = list_schedule(lanes, &policy, short) else { continue };
            let Some(cut) = Cut::find(lanes, &starts, *microbatches, short) else { continue };
            let makespan_when_long = lanes.makespan(&starts) + cut.repeats * cut.length;
            found.push(Found { makespan_when_long, starts, cut });
        }
        found.sort_by_key(|found| found.makespan_when_long);
        found.truncate(FINALISTS);
        let Some(best) = found.first() else { break };
        guide = best.starts.clone();
    }
    Some(found)
}

/// Long enough for warm-up, a steady state and cool-down; congruent to the full step for the cut.
fn short_step(microbatches: usize, stage_peak: usize) -> usize {
    let enough = 3 * stage_peak + 8;
    let spare = microbatches.saturating_sub(enough);
    enough.min(microbatches) + spare % WINDOW_MULTIPLE
}

impl Style {
    fn reserve(&self, stage_peak: usize) -> usize {
        match self.reserve {
            Reserve::One => 1,
            Reserve::Two => stage_peak.min(2),
            Reserve::PeakLessOne => stage_peak.saturating_sub(1).max(1),
            Reserve::Peak => stage_peak,
        }
    }

    fn policy<'a>(&self, lanes: &Lanes, guide: &'a Starts, limit: &'a [u64], reserve: &'a [usize]) -> Policy<'a> {
        let period = busiest(lanes).max(1);
        let delay = [-self.hasten_forward * period, 0, self.postpone_weights.saturating_mul(period), 0];
        Policy { guide, delay, advance: self.advance.saturating_mul(period), limit, reserve }
    }
}

/// The work of the busiest device on one microbatch: no period is shorter.
fn busiest(lanes: &Lanes) -> Time {
    let duration = |&lane: &usize| lanes.all.get(lane).map_or(0, |lane| lane.duration);
    let work = |device: &Vec<usize>| device.iter().map(duration).sum();
    lanes.on_device.iter().map(work).max().unwrap_or(0)
}

/// A window of a timeline that holds every lane `microbatches` times. Repeating it keeps every dependency
/// and every peak, because a lane that is ahead of another before the window stays ahead by as much.
struct Cut {
    from: Time,
    length: Time,
    repeats: Time,
}

/// Windows hold at most this many microbatches, or a divisor of it.
const WINDOW_MULTIPLE: usize = 4;

impl Cut {
    fn find(lanes: &Lanes, starts: &Starts, microbatches: usize, short: usize) -> Option<Cut> {
        let missing = microbatches.checked_sub(short)?;
        if missing == 0 {
            return Some(Cut { from: 0, length: 0, repeats: 0 });
        }
        let deepest = lanes.all.iter().rposition(|lane| lane.kind == TaskKind::Forward)?;
        let middle = starts.get(deepest)?.get(short / 4..short - short / 4)?;
        for held in [1, 2, WINDOW_MULTIPLE] {
            for pair in middle.windows(held + 1) {
                let (from, to) = (*pair.first()?, *pair.last()?);
                if starts.iter().all(|lane| count_before(lane, to) == count_before(lane, from) + held) {
                    return Some(Cut { from, length: to - from, repeats: (missing / held) as Time });
                }
            }
        }
        None
    }

    fn repeat(&self, lanes: &Lanes, starts: &Starts) -> Orders {
        let orders = lanes.orders_of_starts(starts);
        let repeated = |(order, on_device): (Vec<usize>, &Vec<usize>)| {
            let before = |time| -> usize {
                on_device.iter().filter_map(|&lane| starts.get(lane)).map(|lane| count_before(lane, time)).sum()
            };
            let (head, rest) = order.split_at(before(self.from).min(order.len()));
            let held = before(self.from + self.length).saturating_sub(head.len());
            let (window, tail) = rest.split_at(held.min(rest.len()));
            let mut long = head.to_vec();
            for _ in 0..=self.repeats {
                long.extend(window);
            }
            long.extend(tail);
            long
        };
        orders.into_iter().zip(&lanes.on_device).map(repeated).collect()
    }
}

fn count_before(starts: &[Time], time: Time) -> usize {
    starts.partition_point(|&start| start < time)
}
