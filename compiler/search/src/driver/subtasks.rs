//! Pieces of the search that do not depend on each other, so that a caller may do them at the same time.

use crate::bounds::head_tail::refute;
use crate::exact::beam::{Beam, explore};
use crate::heuristics::anneal::{Course, anneal};
use crate::heuristics::block::{blocks, orders as orders_of_block};
use crate::heuristics::priority::{Effort, Origin, orders as orders_of_rule, prioritized};
use crate::heuristics::warmup_depth::{Depths, depths, orders as orders_of_depths};
use pipe_ir::ids::IndexVec;
use pipe_schedule::dispatch::Objective;
use pipe_schedule::dispatch::backfill::Fill;
use pipe_schedule::dispatch::job::{Job, Orders, Time};
use pipe_schedule::dispatch::plan::{Length, Plan};
use pipe_schedule::dispatch::random::Random;
use pipe_schedule::dispatch::round_robin::in_turns;
use pipe_schedule::dispatch::rule::Rule;
use pipe_schedule::dispatch::stretch::{Stretched, stretch};
use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};

/// Who does the work, and says when to stop. The compiler itself has no threads and no clock.
pub trait Workers: Sync {
    /// Whether there is time left. Asked often.
    fn go_on(&self) -> bool;

    /// Does work number 0, 1, .. `n - 1`, in any order, several at once or one after the other.
    fn each(&self, n: usize, work: &(dyn Fn(usize) + Sync));
}

/// Of the blocks with one period, how many are tried.
const BLOCKS: usize = 24;

/// Steps of so many tasks say which depths are good for longer ones.
const DEEP_TASKS: usize = 10_000;

/// What all pieces know.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// The step that is wanted.
    pub(crate) long: Job,
    /// The same with fewer microbatches, or as many.
    pub(crate) short: Job,
    pub objective: Objective,
}

/// A schedule of the short step.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub orders: Orders,
    pub(crate) long: Stretched,
}

/// A piece of work.
#[derive(Clone, Debug)]
pub(crate) enum Subtask {
    /// Measure orders of the short step.
    Measure(Orders),
    /// Building blocks with a period, if wanted with all backwards in halves.
    Blocks { period: Time, width: usize, split: bool },
    /// Schedules built task by task, from the first or from the last, if wanted with all backwards in halves.
    Build { width: usize, backwards: bool, split: bool },
    /// Change a schedule of the short step outside its window.
    Anneal { start: Start, tries: u64, heat: Time, seed: u64 },
    /// Look for priorities that lead to good schedules of the short step.
    Prioritize { origin: Origin, effort: Effort, seed: u64 },
    /// Run forwards and backwards in turn.
    TakeTurns { spare: i64 },
    /// Look for the forwards that devices run before their first backward.
    Deepen { tries: u64, seed: u64 },
    /// Change a schedule of the long step.
    Polish { orders: Orders, tries: u64, heat: Time, seed: u64 },
    /// Look at all schedules of the long step that are shorter, unless that takes too many questions whether to go on.
    Prove { below: Time, width: usize, questions: u64 },
    /// The same for devices alone and, if wanted, in pairs, where the others can do everything at once.
    Refute { below: Time, width: usize, questions: u64, in_pairs: bool },
}

/// What came of it.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// Schedules of the short step.
    Starts(Vec<Start>),
    /// A schedule of the long step.
    Long(Length, Orders),
    /// Schedules of the short and of the long step, and the priorities that lead to them, if any do.
    Both(Option<Rule>, Option<Start>, Option<(Length, Orders)>),
    /// No schedule of the long step is shorter. Of those that may be as short, one with the memory of a proof.
    Bound(Time, Option<(Length, Orders)>),
    /// Nothing.
    Nothing,
}

/// What came of each piece of some work, in their order.
pub(crate) fn collect<T: Send>(workers: &dyn Workers, n: usize, work: &(dyn Fn(usize) -> T + Sync)) -> Vec<Option<T>> {
    let all: Vec<Mutex<Option<T>>> = (0..n).map(|_| Mutex::new(None)).collect();
    workers.each(n, &|index| {
        let one = work(index);
        *all[index].lock().unwrap_or_else(PoisonError::into_inner) = Some(one);
    });
    all.into_iter().map(|one| one.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
}

/// Goes on for so many questions.
fn at_most(mut questions: u64, go_on: &mut dyn FnMut() -> bool) -> impl FnMut() -> bool {
    move || {
        questions = questions.saturating_sub(1);
        questions > 0 && go_on()
    }
}

impl Context {
    /// Does all pieces, and returns what came of each, in their order.
    pub(crate) fn all(&self, works: &[Subtask], workers: &dyn Workers) -> Vec<Outcome> {
        let outcomes = collect(workers, works.len(), &|index| self.perform(&works[index], &mut || workers.go_on()));
        outcomes.into_iter().map(|outcome| outcome.unwrap_or(Outcome::Nothing)).collect()
    }

    fn perform(&self, work: &Subtask, go_on: &mut dyn FnMut() -> bool) -> Outcome {
        match work {
            Subtask::Measure(orders) => Outcome::Starts(self.start(orders.clone(), go_on).into_iter().collect()),
            Subtask::Blocks { period, width, split } => {
                let job = self.short_of(*split);
                let found = blocks(&job, *period, *width, go_on);
                let blocks = found.iter().take(BLOCKS).map(|block| orders_of_block(&job, block));
                Outcome::Starts(blocks.filter_map(|orders| self.start(orders, go_on)).collect())
            }
            Subtask::Build { width, backwards, split } => self.build(*width, *backwards, &self.short_of(*split), go_on),
            Subtask::Anneal { start, tries, heat, seed } => {
                let course = Course { tries: *tries, heat: *heat, frozen: start.long.window.as_ref() };
                let found = self.changed(&self.short, &start.orders, &course, *seed, go_on);
                Outcome::Starts(found.and_then(|(_, orders)| self.start(orders, go_on)).into_iter().collect())
            }
            Subtask::Prioritize { origin, effort, seed } => self.prioritize(origin, *effort, *seed, go_on),
            Subtask::TakeTurns { spare } => {
                let orders = |job: &Job| {
                    let mut fill = Fill::new(job, self.objective)?;
                    let frame = in_turns(job, &fill, *spare)?;
                    if *spare > 0 && in_turns(job, &fill, spare - 1).as_ref() == Some(&frame) {
                        return None;
                    }
                    fill.best(&frame).map(|(_, orders)| orders)
                };
                self.both(None, orders, go_on)
            }
            Subtask::Deepen { tries, seed } => {
                let random = &mut Random::new(*seed);
                let enough = DEEP_TASKS / self.long.series.len().max(1);
                let job = self.long.with_microbatches(enough.clamp(self.short.microbatches, self.long.microbatches));
                let found = depths(&job, self.objective, *tries, random, go_on);
                let orders = |depths: &Depths, job: &Job| orders_of_depths(job, self.objective, depths);
                found.map_or(Outcome::Nothing, |depths| self.both(None, |job| orders(&depths, job), go_on))
            }
            Subtask::Polish { orders, tries, heat, seed } => {
                let course = Course { tries: *tries, heat: *heat, frozen: None };
                let found = self.changed(&self.long, orders, &course, *seed, go_on);
                found.map_or(Outcome::Nothing, |(length, orders)| Outcome::Long(length, orders))
            }
            Subtask::Prove { below, width, questions } => {
                let beam = Beam { width: *width, below: *below, exact: true };
                let explored = explore(&self.long.relaxed(), &beam, &mut at_most(*questions, go_on));
                let found = explored.found.and_then(|(_, orders)| self.measured(&self.long, orders));
                match found {
                    _ if explored.complete => {
                        let least = found.as_ref().map_or(*below, |(length, _)| length.length);
                        Outcome::Bound(least, found)
                    }
                    Some((length, orders)) => Outcome::Long(length, orders),
                    None => Outcome::Nothing,
                }
            }
            Subtask::Refute { below, width, questions, in_pairs } => {
                let beam = Beam { width: *width, below: *below, exact: true };
                let job = self.long.relaxed();
                Outcome::Bound(refute(&job, &job.reversed(), beam, *in_pairs, &mut at_most(*questions, go_on)), None)
            }
        }
    }

    /// Known orders, and the same with what nothing waits for where devices wait.
    pub(crate) fn with_refilled(&self, job: &Job, all: Vec<Orders>) -> Vec<(Length, Orders)> {
        let mut fill = Fill::new(job, self.objective);
        let measured = all.into_iter().filter_map(|orders| self.measured(job, orders));
        let again = |(length, orders): (Length, Orders)| {
            let filled = fill.as_mut().and_then(|fill| fill.best(&fill.frame(&orders)));
            std::iter::once((length, orders)).chain(filled)
        };
        measured.flat_map(again).collect()
    }

    pub(crate) fn measured(&self, job: &Job, orders: Orders) -> Option<(Length, Orders)> {
        let (_, length) = Plan::new(job, self.objective, &orders)?;
        Some((length, orders))
    }

    fn changed(
        &self,
        job: &Job,
        orders: &Orders,
        course: &Course<'_>,
        seed: u64,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Option<(Length, Orders)> {
        let (mut plan, first) = Plan::new(job, self.objective, orders)?;
        Some(anneal(&mut plan, first, course, &mut Random::new(seed), go_on))
    }

    /// The short step, if wanted with all backwards in halves.
    pub(crate) fn short_of(&self, split: bool) -> Cow<'_, Job> {
        if split {
            Cow::Owned(self.short.clone().with_fusions(IndexVec::default()))
        } else {
            Cow::Borrowed(&self.short)
        }
    }

    fn build(&self, width: usize, backwards: bool, job: &Job, go_on: &mut dyn FnMut() -> bool) -> Outcome {
        let beam = Beam { width, below: Time::MAX, exact: false };
        let turned = backwards.then(|| job.reversed());
        let found = explore(turned.as_ref().unwrap_or(job), &beam, go_on).found;
        let orders = found.map(|(_, orders)| turned.map_or(orders.clone(), |turned| turned.turned(&orders)));
        Outcome::Starts(orders.and_then(|orders| self.start(orders, go_on)).into_iter().collect())
    }

    fn prioritize(&self, origin: &Origin, effort: Effort, seed: u64, go_on: &mut dyn FnMut() -> bool) -> Outcome {
        let random = &mut Random::new(seed);
        let Some(rule) = prioritized(&self.short, self.objective, origin, effort, random, go_on) else {
            return Outcome::Nothing;
        };
        self.both(Some(rule.clone()), |job| orders_of_rule(job, self.objective, &rule), go_on)
    }

    /// What leads to a schedule of the short step leads to one of the long step as well.
    fn both(
        &self,
        rule: Option<Rule>,
        orders: impl Fn(&Job) -> Option<Orders>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Outcome {
        let start = orders(&self.short).and_then(|orders| self.start(orders, go_on));
        let is_short = self.short.microbatches < self.long.microbatches;
        let long = if is_short { orders(&self.long) } else { None };
        let long = long.and_then(|orders| self.measured(&self.long, orders));
        Outcome::Both(rule, start, long)
    }

    /// A schedule of the short step with the long one that it stands for, if it fits and can be made long.
    fn start(&self, orders: Orders, go_on: &mut dyn FnMut() -> bool) -> Option<Start> {
        let (_, length) = Plan::new(&self.short, self.objective, &orders).filter(|_| self.short.fits(&orders))?;
        let long = if self.short.microbatches == self.long.microbatches {
            Stretched { length, window: None, orders: orders.clone() }
        } else {
            stretch(&self.short, &self.long, self.objective, &orders, go_on)?
        };
        Some(Start { orders, long })
    }
}
