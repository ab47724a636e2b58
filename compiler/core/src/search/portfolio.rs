//! The portfolio: starts, rounds of improvement, and attempts at a proof.

use super::job::{Job, Orders, Time};
use super::plan::{Length, Plan};
use super::random::Random;
use super::work::{Context, Outcome, Start, Work, Workers};
use super::{Objective, Options};

/// What is known so far.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Progress {
    /// The round of improvement, from 1; 0 while starts are gathered.
    pub round: u32,
    /// The best length.
    pub length: Time,
    /// No schedule is shorter.
    pub bound: Time,
    /// The best orders.
    pub orders: Orders,
}

/// Tasks that all schedules of an annealing of the first round have together.
const EFFORT: u64 = 8_000_000;
/// Starts that each round improves.
const FINALISTS: usize = 4;
/// Starts that are kept.
const KEPT: usize = 16;
/// Steps with more tasks are searched with fewer microbatches first.
const SHORT_TASKS: usize = 420;
/// Partial blocks and lanes that a search for blocks looks at: at first, and four times as many in each of the next rounds.
const BLOCK_EFFORT: usize = 12_000;
const BLOCK_ROUNDS: u32 = 3;
/// Periods that are tried beyond the shortest, at once, and how many of those with blocks are enough.
const PERIODS: Time = 60;
const PERIODS_AT_ONCE: usize = 4;
const ENOUGH_PERIODS: usize = 2;
/// Partial schedules that building keeps at first.
const BUILD_WIDTH: usize = 64;
/// Steps with more tasks are not tried to be proved.
const PROVABLE_TASKS: usize = 1_000;
/// The same where only one or two devices count: rounds must not wait for proofs.
const RELAXED_TASKS: usize = 200;
/// Partial schedules that the first attempt at a proof keeps.
const PROOF_WIDTH: usize = 4_000;
/// Rounds in which devices are looked at alone only.
const PAIRLESS_ROUNDS: u32 = 2;

struct Portfolio<'a> {
    context: Context,
    random: Random,
    starts: Vec<Start>,
    best: Option<(Length, Orders)>,
    bound: Time,
    round: u32,
    workers: &'a dyn Workers,
    report: &'a mut dyn FnMut(&Progress),
}

/// The shortest orders that were found. `known` gives orders that are known for a number of microbatches; no schedule is
/// shorter than `bound`; `report` hears of every improvement. `None` if the workers stop before there is any.
pub fn search(
    job: &Job,
    bound: Time,
    known: &dyn Fn(usize) -> Vec<Orders>,
    options: Options,
    workers: &dyn Workers,
    report: &mut dyn FnMut(&Progress),
) -> Option<Progress> {
    let short = job.with_microbatches(short_step(job));
    let context = Context { long: job.clone(), short, objective: options.objective };
    let random = Random::new(options.seed);
    let mut portfolio = Portfolio { context, random, starts: Vec::new(), best: None, bound, round: 0, workers, report };
    portfolio.gather(known);
    while portfolio.round < options.rounds && portfolio.goes_on() {
        portfolio.round += 1;
        portfolio.improve();
    }
    portfolio.progress()
}

/// Microbatches of the short step: all, or enough for warm-up, a steady state and cool-down.
fn short_step(job: &Job) -> usize {
    let most = job.capacity.iter().copied().max().unwrap_or(0).max(0) as usize;
    let devices = job.capacity.len();
    let enough = (3 * devices.min(most) + 4).max(SHORT_TASKS / job.lanes.len().max(1));
    let spare = job.microbatches.saturating_sub(enough);
    enough.min(job.microbatches) + spare % 4
}

impl Portfolio<'_> {
    fn goes_on(&self) -> bool {
        let is_best = self.best.as_ref().is_some_and(|(best, _)| best.length <= self.bound);
        !is_best && self.workers.go_on()
    }

    fn progress(&self) -> Option<Progress> {
        let (length, orders) = self.best.clone()?;
        Some(Progress { round: self.round, length: length.length, bound: self.bound.min(length.length), orders })
    }

    fn is_short(&self) -> bool {
        self.context.short.microbatches < self.context.long.microbatches
    }

    /// Notes orders of the long step, if they are the best.
    fn note(&mut self, length: Length, orders: &Orders) {
        let best = self.best.as_ref().map(|(best, _)| *best);
        if best.is_some_and(|best| length >= best) || !self.context.long.fits(orders) {
            return;
        }
        self.best = Some((length, orders.clone()));
        if best.is_none_or(|best| length.length < best.length)
            && let Some(progress) = self.progress()
        {
            (self.report)(&progress);
        }
    }

    /// Does pieces of work and takes note of what came of them. Says how many starts there were.
    fn perform(&mut self, works: &[Work]) -> Vec<usize> {
        let mut counts = Vec::with_capacity(works.len());
        for outcome in self.context.all(works, self.workers) {
            let mut count = 0;
            match outcome {
                Outcome::Starts(starts) => {
                    count = starts.len();
                    for start in starts {
                        self.note(start.long, &start.stretched);
                        self.starts.push(start);
                    }
                }
                Outcome::Long(length, orders) => self.note(length, &orders),
                Outcome::Bound(bound, found) => {
                    self.bound = self.bound.max(bound);
                    found.into_iter().for_each(|(length, orders)| self.note(length, &orders));
                }
                Outcome::Nothing => {}
            }
            counts.push(count);
        }
        self.starts.sort_by(|one, other| (one.long, &one.orders).cmp(&(other.long, &other.orders)));
        self.starts.dedup_by(|one, other| one.orders == other.orders);
        self.starts.truncate(KEPT);
        counts
    }

    fn gather(&mut self, known: &dyn Fn(usize) -> Vec<Orders>) {
        let of_long = known(self.context.long.microbatches);
        for orders in &of_long {
            if let Some((_, length)) = Plan::new(&self.context.long, self.context.objective, orders) {
                self.note(length, orders);
            }
        }
        let of_short = if self.is_short() { known(self.context.short.microbatches) } else { of_long };
        let short = &self.context.short;
        // One microbatch after the other always fits.
        let in_turn = |lanes: &Vec<usize>| lanes.repeat(short.microbatches);
        let in_turn: Orders = short.on_device.iter().map(in_turn).collect();
        let works: Vec<Work> = of_short.into_iter().chain([in_turn]).map(Work::Measure).collect();
        self.perform(&works);
        let narrow = (BUILD_WIDTH * SHORT_TASKS / self.context.short.n_tasks().max(1)).clamp(1, BUILD_WIDTH);
        for split in self.forms() {
            let build = |width| [false, true].map(|backwards| Work::Build { width, backwards, split: *split });
            if self.goes_on() {
                self.perform(&[build(narrow.div_ceil(8)), build(narrow)].concat());
            }
        }
        self.add_blocks(BLOCK_EFFORT);
    }

    /// Whether backwards are wanted in halves: where they may run at once, schedules with and without are looked for.
    fn forms(&self) -> &'static [bool] {
        if self.context.short.fusions.is_empty() { &[false] } else { &[false, true] }
    }

    fn add_blocks(&mut self, effort: usize) {
        self.forms().iter().for_each(|split| self.add_blocks_of(*split, effort));
    }

    /// Building blocks with the shortest periods that have any.
    fn add_blocks_of(&mut self, split: bool, effort: usize) {
        let work = self.context.short_of(split).work();
        let width = (effort / self.context.short.lanes.len().max(1)).max(16);
        let step = (work / 40).max(1);
        let periods: Vec<Time> = (0..PERIODS).map(|more| work + more * step).collect();
        let mut found = 0;
        for periods in periods.chunks(PERIODS_AT_ONCE) {
            if found >= ENOUGH_PERIODS || !self.goes_on() {
                return;
            }
            let works: Vec<Work> =
                periods.iter().map(|period| Work::Blocks { period: *period, width, split }).collect();
            found += self.perform(&works).iter().filter(|count| **count > 0).count();
        }
    }

    /// A round: better starts, a better long step, and an attempt at a proof.
    fn improve(&mut self) {
        let doubled = (self.round - 1).min(20);
        if (2..=BLOCK_ROUNDS).contains(&self.round) {
            self.add_blocks(BLOCK_EFFORT << (2 * doubled));
        }
        let (context, effort) = (&self.context, EFFORT << doubled);
        let durations = || context.short.lanes.iter().map(|lane| lane.duration);
        let mean = durations().sum::<Time>() / context.short.lanes.len().max(1) as Time;
        let mut works = Vec::new();
        for (place, start) in self.starts.iter().take(FINALISTS).enumerate() {
            let heat = [mean / 2, mean / 4, mean, mean / 2][(place + self.round as usize) % 4].max(1);
            let tries = effort / context.short.n_tasks().max(1) as u64;
            works.push(Work::Anneal { start: start.clone(), tries, heat, seed: self.random.next() });
        }
        if let Some((best, orders)) = self.best.clone() {
            if self.is_short() {
                let tries = effort / context.long.n_tasks().max(1) as u64;
                let heat = durations().min().unwrap_or(0) / 4 + 1;
                works.push(Work::Polish { orders, tries, heat, seed: self.random.next() });
            }
            if context.objective == Objective::Makespan {
                works.extend(self.proofs(best.length));
            }
        }
        self.perform(&works);
    }

    /// Attempts at a proof that nothing is shorter. Devices alone are quickly done; in pairs, and all together, a part of
    /// the gap is more than nothing.
    fn proofs(&self, best: Time) -> Vec<Work> {
        let job = &self.context.long;
        let width = PROOF_WIDTH << (self.round - 1).min(8);
        let gap = (best - self.bound).max(1);
        let part = |parts: Time| self.bound + (gap * parts / 4).max(1);
        let below = if self.round.is_multiple_of(2) { best } else { part(1) };
        let mut works = Vec::new();
        let busiest = job.on_device.iter().map(Vec::len).max().unwrap_or(0);
        if busiest * job.microbatches <= RELAXED_TASKS {
            let in_pairs = self.round > PAIRLESS_ROUNDS;
            let mut belows = vec![best, part(2), part(1)];
            belows.dedup();
            works.extend(belows.into_iter().map(|below| Work::Refute { below, width, in_pairs }));
        }
        if job.n_tasks() <= PROVABLE_TASKS && self.round > 1 {
            works.push(Work::Prove { below, width });
        }
        works
    }
}
