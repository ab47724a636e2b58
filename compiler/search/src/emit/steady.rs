//! The building block in the middle of a schedule: microbatches between warm-up and cool-down that do the same, each as
//! much later than the one before, under the costs at hand.

use super::words::word;
use crate::heuristics::block::Block;
use pipe_ir::ids::MicrobatchId;
use pipe_ir::task::TaskKind;
use pipe_schedule::dispatch::job::{Job, Mention, TaskId, TaskSeries, Time};
use pipe_schedule::dispatch::plan::Plan;
use pipe_schedule::policy::activation::Activations;
use pipe_schedule::schedule::Schedule;
use std::fmt::Write;

/// Microbatches of a block at most.
const MOST: usize = 4;

/// A steady state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Steady {
    /// What its first microbatches do, from the start of the first of them on.
    block: Block,
    /// How many microbatches that are.
    size: usize,
    /// The first microbatch, and the one after the last.
    microbatches: (usize, usize),
}

/// The longest part of a schedule in which microbatches repeat each other, if it is so long that a
/// device does nothing else at some time.
pub(crate) fn steady(plan: &Plan<'_>) -> Option<Steady> {
    (1..=MOST).find_map(|size| of_size(plan, size))
}

fn of_size(plan: &Plan<'_>, size: usize) -> Option<Steady> {
    let all = plan.job.microbatches;
    let later: Vec<Option<Time>> = (0..all.checked_sub(size)?).map(|first| later(plan, first, size)).collect();
    let (mut best, mut from) = ((0, 0), 0);
    for to in 1..=later.len() {
        if later.get(to) != Some(&later[from]) {
            if later[from].is_some() && to - from > best.1 - best.0 {
                best = (from, to);
            }
            from = to;
        }
    }
    let (from, to) = (best.0, best.1 + size);
    let period = later.get(from).copied().flatten().filter(|period| *period > 0 && best.1 > best.0)?;
    let tasks = || placed(plan, from..from + size);
    let first = tasks().map(|task| plan.starts[task]).min()?;
    let last = tasks().map(|task| plan.end(task)).max()?;
    // While the last task of the first microbatch runs, those of others run that began before it ended.
    let under_way = usize::try_from((last - first + period - 1) / period).ok()? * size;
    let origin = plan.starts[TaskId::from_index(from)];
    let mut starts: Vec<(Mention, Time)> =
        tasks().map(|task| (plan.mention(task), plan.starts[task] - origin)).collect();
    starts.sort_by_key(|(mention, start)| (start.rem_euclid(period), *mention));
    (to - from > under_way).then_some(Steady { block: Block { period, starts }, size, microbatches: (from, to) })
}

/// How much later each task of a microbatch runs some microbatches on, if all are by as much, in the same form.
fn later(plan: &Plan<'_>, microbatch: usize, size: usize) -> Option<Time> {
    let mut by = None;
    for series in plan.job.series.ids() {
        let [one, other] =
            [microbatch, microbatch + size].map(|index| plan.job.task(series, MicrobatchId::from_index(index)));
        let is_same = plan.mention(one) == plan.mention(other);
        let own = plan.starts[other] - plan.starts[one];
        if !is_same || *by.get_or_insert(own) != own {
            return None;
        }
    }
    by
}

/// The tasks of some microbatches that stand in an order.
fn placed(plan: &Plan<'_>, microbatches: std::ops::Range<usize>) -> impl Iterator<Item = TaskId> {
    let all = plan.job.series.ids().flat_map(move |series| {
        microbatches.clone().map(move |microbatch| plan.job.task(series, MicrobatchId::from_index(microbatch)))
    });
    all.filter(|task| plan.places_of(*task).next().is_some())
}

impl Steady {
    /// What people read: the period, what each device does in it, and how many activations it holds at most.
    pub(crate) fn words(&self, job: &Job, schedule: &Schedule, time: impl Fn(Time) -> String) -> String {
        let (from, to) = self.microbatches;
        let period = time(self.block.period);
        let each = match self.size {
            1 => format!("each does the same {period} later"),
            size => format!("each does what that {size} before it did, {period} later"),
        };
        let mut text = format!("Microbatches {from} to {} are a building block: {each}.\n", to - 1);
        let _ = writeln!(text, "Starts modulo {period}, and the most activations that a device holds:");
        let counts = counting(job, &schedule.activations);
        for device in job.capacity.ids() {
            let start_of = |(mention, start): (Mention, Time)| {
                let (series, second) = job.series_of(mention);
                let series = &job.series[series];
                let kind = if second.is_some() { TaskKind::Backward } else { series.kind };
                let start = start.rem_euclid(self.block.period);
                format!("{} {}", word(&schedule.parts, kind, series.stage), time(start))
            };
            let tasks: Vec<String> = self.block.on_device(job, device).map(start_of).collect();
            let _ = write!(text, "  {}: {}", schedule.device_name(device), tasks.join(", "));
            if device.index() < schedule.n_devices() {
                let _ =
                    write!(text, "; {}", schedule.activations.words(self.block.held(&counts, device).unsigned_abs()));
            }
            text.push('\n');
        }
        text
    }
}

/// The job with activations as its memory.
fn counting(job: &Job, activations: &Activations) -> Job {
    let mut counts = job.clone();
    for series in counts.series.iter_mut() {
        let recomputes = |own: &TaskSeries| own.kind == TaskKind::Recompute && own.stage == series.stage;
        let held = activations.of(series.stage);
        series.takes = match series.kind {
            TaskKind::Forward if job.series.iter().any(recomputes) => 0,
            TaskKind::Forward | TaskKind::Recompute => held.saved.cast_signed(),
            kind => -held.given_back(kind).cast_signed(),
        };
    }
    counts
}
