//! Schedules of one job, shorter and shorter: list schedules that follow known ones, from their end
//! and from their beginning.
//!
//! Read from its end, a schedule is one of the reversed job. A list schedule that follows it there runs
//! every task as late as it can, and one that follows that runs it as early as it can, so pauses close from
//! both ends (forward-backward improvement: Li and Willis, European Journal of Operational Research 56,
//! 1992). What nothing waits for then goes where devices wait ([`crate::dispatch::backfill`]). In scarce
//! memory, forwards that start long before their time block others, so each pass says how long before it
//! they may.

use crate::dispatch::Objective;
use crate::dispatch::backfill::{Aim, Fill, NEVER};
use crate::dispatch::job::{Job, Orders, TaskId, Time};
use crate::dispatch::list::{Dispatch, Guide};
use crate::dispatch::plan::Plan;
use crate::dispatch::rule::Rule;
use crate::dispatch::stretch::{Frozen, MOST, middle, repeated};
use std::ops::Range;

/// Schedules that are kept.
const KEPT: usize = 4;
/// Windows that are added to a short step to see what more of them take.
const WINDOWS: usize = 6;

/// How good a schedule is: how long, how long its longest span is, and the sum of what its devices take.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Merit {
    pub length: Time,
    pub(super) longest_stage: Time,
    pub ends: Time,
}

/// Which way a pass goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    FromEnd,
    FromBegin,
}

/// A schedule, with how good it is when it is long.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Kept {
    pub(super) merit: Merit,
    pub orders: Orders,
    /// What is repeated for a long step, and how often.
    window: Option<(Frozen, usize)>,
}

/// What schedules are looked for in.
pub(super) struct Step {
    /// Few microbatches.
    job: Job,
    reversed: Job,
    long: Job,
    /// By microbatches in a window: the same with [`WINDOWS`] more.
    longer: Vec<Job>,
    /// Microbatches of the long step that are missing.
    missing: usize,
}

impl Step {
    pub(super) fn new(long: &Job, microbatches: usize) -> Self {
        let job = long.with_microbatches(microbatches);
        let missing = long.microbatches.saturating_sub(microbatches);
        let more = |size: usize| long.with_microbatches(microbatches + WINDOWS * size);
        Self { reversed: job.reversed(), long: long.clone(), longer: (0..=MOST).map(more).collect(), job, missing }
    }
}

/// The best schedules so far.
pub(super) struct Passes<'a> {
    pub job: &'a Job,
    step: &'a Step,
    forwards: Dispatch<'a>,
    backwards: Dispatch<'a>,
    fill: Option<Fill<'a>>,
    /// The best ones, the best first.
    pub(super) kept: Vec<Kept>,
    /// Tasks that may still be placed.
    steps: u64,
}

impl<'a> Passes<'a> {
    /// None yet. All of them together place at most about so many tasks.
    pub(super) fn new(step: &'a Step, steps: u64) -> Self {
        let job = &step.job;
        Self {
            job,
            step,
            forwards: Dispatch::new(job, Objective::Makespan),
            backwards: Dispatch::new(&step.reversed, Objective::Makespan),
            fill: Fill::new(job, Objective::Makespan),
            kept: Vec::new(),
            steps,
        }
    }

    /// Whether there are steps left.
    pub(super) fn goes_on(&self) -> bool {
        self.steps > 0
    }

    /// Counts the tasks of so many schedules.
    fn spend(&mut self, schedules: u64) {
        self.steps = self.steps.saturating_sub(schedules * self.job.n_tasks() as u64);
    }

    /// Notes a schedule, if it is one of the best of those that can be made long.
    pub(super) fn note(&mut self, orders: Orders) {
        self.spend(1);
        let Some((plan, merit)) = timed(self.job, &orders) else { return };
        let missing = self.step.missing;
        // No repetition takes less than the work in it.
        let least = merit.length + self.job.work() * missing as Time;
        if self.limit().is_some_and(|limit| least > limit) || !self.job.fits(&orders) {
            return;
        }
        let (merit, window) = if missing == 0 {
            (merit, None)
        } else {
            self.spend(2);
            let Some((window, size)) = middle(&plan, merit.length, &orders, missing) else { return };
            let more = missing / size;
            let Some(merit) = self.when_long(&orders, &window, size, more) else { return };
            (merit, Some((window, more)))
        };
        let kept = Kept { merit, orders, window };
        let rank = |other: &Kept| (other.merit, &other.orders).cmp(&(kept.merit, &kept.orders));
        if let Err(place) = self.kept.binary_search_by(rank) {
            self.kept.insert(place, kept);
            self.kept.truncate(KEPT);
        }
    }

    /// How good a schedule is with so many windows more. At last all of it goes on as slowly as the slowest part.
    fn when_long(&self, orders: &Orders, window: &Frozen, size: usize, more: usize) -> Option<Merit> {
        if more <= WINDOWS {
            return Some(timed(&self.step.long, &repeated(orders, window, more))?.1);
        }
        let (plan, Merit { length, longest_stage, ends }) =
            timed(&self.step.longer[size], &repeated(orders, window, WINDOWS))?;
        let starts = plan.starts();
        let of_device = |(order, part): (&Vec<TaskId>, &Range<usize>)| {
            let start = |place: usize| starts[order[place]];
            let last = WINDOWS * part.len();
            part.clone().map(|place| start(place + last) - start(place + last - part.len())).max()
        };
        let by = plan.orders.iter().zip(window).filter_map(of_device).max()? * (more - WINDOWS) as Time;
        let n_devices = window.len() as Time;
        Some(Merit {
            length: length + by,
            longest_stage: longest_stage + by,
            ends: ends.saturating_add(n_devices.saturating_mul(by)),
        })
    }

    /// The best schedules, made long.
    pub(super) fn long(&self) -> impl Iterator<Item = Orders> + '_ {
        self.kept.iter().map(|kept| match &kept.window {
            Some((window, more)) => repeated(&kept.orders, window, *more),
            None => kept.orders.clone(),
        })
    }

    /// The length above which no schedule is kept.
    fn limit(&self) -> Option<Time> {
        self.kept.get(KEPT - 1).map(|kept| kept.merit.length)
    }

    /// Notes the same schedule with what nothing waits for where devices wait.
    pub(super) fn refill(&mut self, orders: &Orders) {
        let Some(frame) = self.fill.as_ref().map(|fill| fill.frame(orders)) else { return };
        for aim in [Aim::Fit, Aim::Level] {
            self.spend(1);
            let limit = self.limit().map_or(NEVER, |limit| limit - self.job.work() * self.step.missing as Time);
            let filled = self.fill.as_mut().and_then(|fill| fill.run(&frame, aim, limit).map(|_| fill.orders()));
            let Some(filled) = filled else { return };
            self.note(filled);
        }
    }

    /// Notes the best way to fill a frame that is made for the job.
    pub(super) fn fill_well(&mut self, frame: impl FnOnce(&Job, &Fill<'_>) -> Option<Orders>) {
        let Some(fill) = &mut self.fill else { return };
        let Some(frame) = frame(self.job, fill) else { return };
        let best = fill.best(&frame);
        self.spend(10);
        if let Some((_, orders)) = best {
            self.note(orders);
        }
    }

    /// Follows a schedule, with forwards at most so long before their time, and each series later by
    /// its rank in the rule. Records the result, and returns it.
    pub(super) fn follow(&mut self, orders: &Orders, way: Way, advance: Time, rule: &Rule) -> Option<Orders> {
        self.spend(2);
        let (job, list) = match way {
            Way::FromBegin => (self.job, &mut self.forwards),
            Way::FromEnd => (&self.step.reversed, &mut self.backwards),
        };
        let turned = match way {
            Way::FromBegin => None,
            Way::FromEnd => Some(self.step.reversed.turned(orders)),
        };
        let (plan, _) = Plan::new(job, Objective::Makespan, turned.as_ref().unwrap_or(orders))?;
        let found = list.guided(rule, Guide { starts: plan.starts, advance })?;
        let found = if way == Way::FromEnd { self.job.turned(&found) } else { found };
        // As early as it can be, it is hardly ever better than with what nothing waits for in other places.
        if way == Way::FromEnd || self.fill.is_none() {
            self.note(found.clone());
        }
        self.refill(&found);
        Some(found)
    }
}

/// How good a schedule is; `None` where devices wait for each other in a cycle.
pub(super) fn timed<'a>(job: &'a Job, orders: &Orders) -> Option<(Plan<'a>, Merit)> {
    let (plan, length) = Plan::new(job, Objective::Makespan, orders)?;
    let merit = Merit { length: length.length, longest_stage: plan.longest_stage(), ends: length.ends };
    Some((plan, merit))
}
