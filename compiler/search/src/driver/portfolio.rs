//! The portfolio: starts, rounds of improvement, and attempts at a proof.

use crate::driver::subtasks::{Context, Outcome, Start, Subtask, Workers, collect};
use crate::{Known, Options};
use pipe_schedule::dispatch::job::{Job, Orders, Time};
use pipe_schedule::dispatch::plan::Length;
use pipe_schedule::dispatch::random::Random;
use pipe_schedule::dispatch::rule::Rule;

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
    /// Known orders that are as short.
    pub known: Vec<Orders>,
}

/// Known orders that do not fit, but whose priorities are of use.
const GUIDES: usize = 3;
/// Priorities that are kept.
const RULES: usize = 2;
/// Starts that are kept.
const KEPT: usize = 16;
/// Steps with more tasks are searched with fewer microbatches first.
const SHORT_TASKS: usize = 420;
/// Partial blocks and series that a search for blocks looks at: at first, and four times as many in
/// each of the next rounds.
pub(crate) const BLOCK_EFFORT: usize = 12_000;
/// Blocks of more series are searched with fewer at once, as each takes longer.
const BLOCK_SERIES: usize = 24;
/// Periods that are tried beyond the shortest, at once, and how many of those with blocks are enough.
const PERIODS: Time = 60;
const PERIODS_AT_ONCE: usize = 4;
const ENOUGH_PERIODS: usize = 2;
/// Known schedules, equally short, that are remembered.
const MOST_KNOWN: usize = 8;
/// Known schedules that are measured at once.
const KNOWN_AT_ONCE: usize = 4;
/// Tasks that all schedules together have in which the depths of devices are looked for.
const DEPTHS: u64 = 8_000_000;
const MOST_DEPTHS: u64 = 2_000;
/// How often that is tried at first.
const SEEDS: usize = 2;
/// Activations that forwards leave to later stages where devices run forwards and backwards in turn: fewer than that.
const SPARE: i64 = 3;
/// Partial schedules that building keeps at first.
const BUILD_WIDTH: usize = 64;

/// A search under way.
pub(crate) struct Portfolio<'a> {
    pub(crate) context: Context,
    pub(crate) random: Random,
    pub starts: Vec<Start>,
    pub(crate) best: Option<(Length, Orders)>,
    /// The shortest of those that were known, with how long they are.
    known: Vec<(Time, Orders)>,
    /// The shortest known orders of the short step that do not fit: their priorities may lead to some that do.
    pub(crate) guides: Vec<(Length, Orders)>,
    /// The best priorities, with what they lead to.
    pub(crate) rules: Vec<(Length, Rule)>,
    /// Whether changes of single tasks made any start shorter, when that was last tried.
    pub(crate) shifts_help: bool,
    pub(crate) bound: Time,
    pub(crate) round: u32,
    workers: &'a dyn Workers,
    report: &'a mut dyn FnMut(&Progress),
}

/// The shortest orders that were found. No schedule is shorter than `bound`; `report` hears of
/// every improvement. `None` if the workers stop before there is any.
pub fn search(
    job: &Job,
    bound: Time,
    known: &dyn Known,
    options: Options,
    workers: &dyn Workers,
    report: &mut dyn FnMut(&Progress),
) -> Option<Progress> {
    let short = job.with_microbatches(short_step(job));
    let context = Context { long: job.clone(), short, objective: options.objective };
    let random = Random::new(options.seed);
    let (starts, guides) = (Vec::new(), Vec::new());
    let (best, known_orders, round) = (None, Vec::new(), 0);
    let mut portfolio = Portfolio {
        context,
        random,
        starts,
        best,
        known: known_orders,
        guides,
        rules: Vec::new(),
        shifts_help: true,
        bound,
        round,
        workers,
        report,
    };
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
    let enough = (3 * devices.min(most) + 4).max(SHORT_TASKS / job.series.len().max(1));
    let spare = job.microbatches.saturating_sub(enough);
    enough.min(job.microbatches) + spare % 4
}

impl Portfolio<'_> {
    pub(crate) fn goes_on(&self) -> bool {
        let is_best = self.best.as_ref().is_some_and(|(best, _)| best.length <= self.bound);
        !is_best && self.workers.go_on()
    }

    fn progress(&self) -> Option<Progress> {
        let (Length { length, .. }, orders) = self.best.clone()?;
        let as_short = self.known.iter().filter(|(known, _)| *known == length);
        let known = as_short.map(|(_, orders)| orders.clone()).collect();
        debug_assert!(self.bound <= length, "a bound of {} passes for a proof of {length}", self.bound);
        Some(Progress { round: self.round, length, bound: self.bound.min(length), orders, known })
    }

    pub(crate) fn is_short(&self) -> bool {
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

    /// Notes known orders of the long step.
    fn note_known(&mut self, length: Length, orders: Orders) {
        if self.context.long.fits(&orders) {
            self.note(length, &orders);
            let shortest = self.known.first().map_or(Time::MAX, |(shortest, _)| *shortest);
            if length.length < shortest {
                self.known.clear();
            }
            if length.length <= shortest && self.known.len() < MOST_KNOWN {
                self.known.push((length.length, orders));
            }
        }
    }

    /// Does pieces of work and takes note of what came of them. Says how many starts there were.
    pub(crate) fn perform(&mut self, works: &[Subtask]) -> Vec<usize> {
        let mut counts = Vec::with_capacity(works.len());
        let mut help = None;
        for (work, outcome) in works.iter().zip(self.context.all(works, self.workers)) {
            let mut count = 0;
            if let (Subtask::Anneal { start, .. }, Outcome::Starts(found)) = (work, &outcome) {
                let is_shorter = found.iter().any(|found| found.long.length.length < start.long.length.length);
                help = Some(help.unwrap_or(false) || is_shorter);
            }
            match outcome {
                Outcome::Starts(starts) => {
                    count = starts.len();
                    for start in starts {
                        self.note(start.long.length, &start.long.orders);
                        self.starts.push(start);
                    }
                }
                Outcome::Long(length, orders) => self.note(length, &orders),
                Outcome::Both(rule, start, long) => self.note_both(rule, start, long),
                Outcome::Bound(bound, found) => {
                    self.bound = self.bound.max(bound);
                    found.into_iter().for_each(|(length, orders)| self.note(length, &orders));
                }
                Outcome::Nothing => {}
            }
            counts.push(count);
        }
        self.shifts_help = help.unwrap_or(self.shifts_help);
        self.starts.sort_by(|one, other| (one.long.length, &one.orders).cmp(&(other.long.length, &other.orders)));
        self.starts.dedup_by(|one, other| one.orders == other.orders);
        self.starts.truncate(KEPT);
        counts
    }

    fn gather(&mut self, known: &dyn Known) {
        // One microbatch after the other always fits.
        for orders in known.own().into_iter().chain(self.context.long.in_turn()) {
            let measured = self.context.measured(&self.context.long, orders);
            measured.into_iter().for_each(|(length, orders)| self.note_known(length, orders));
        }
        let of_short = self.add_known(known);
        let in_turn = self.context.short.in_turn();
        self.perform(&of_short.into_iter().chain(in_turn).map(Subtask::Measure).collect::<Vec<_>>());
        if self.goes_on() {
            let tries = (DEPTHS / self.context.short.n_tasks().max(1) as u64).min(MOST_DEPTHS);
            // The rest of the search draws the same numbers with and without these.
            let mut random = self.random.clone();
            let deepen = (0..SEEDS).map(|_| Subtask::Deepen { tries, seed: random.draw() });
            let works: Vec<Subtask> = deepen.chain((0..SPARE).map(|spare| Subtask::TakeTurns { spare })).collect();
            self.perform(&works);
        }
        let narrow = (BUILD_WIDTH * SHORT_TASKS / self.context.short.n_tasks().max(1)).clamp(1, BUILD_WIDTH);
        for split in self.forms() {
            let build = |width| [false, true].map(|backwards| Subtask::Build { width, backwards, split: *split });
            if self.goes_on() {
                self.perform(&[build(narrow.div_ceil(8)), build(narrow)].concat());
            }
        }
        self.add_blocks(BLOCK_EFFORT);
        self.prove_small();
    }

    /// Measures what else is known, as far as there is time: those first that are short for a short
    /// step. Returns the orders of that.
    fn add_known(&mut self, known: &dyn Known) -> Vec<Orders> {
        if !self.goes_on() {
            return Vec::new();
        }
        let (context, workers) = (self.context.clone(), self.workers);
        let measured = |job: &Job, index: usize| -> Vec<(Length, Orders)> {
            let all = if workers.go_on() { known.orders(index, job.microbatches) } else { Vec::new() };
            context.with_refilled(job, all)
        };
        let of_short = collect(workers, known.count(), &|index| measured(&context.short, index));
        let mut of_short: Vec<_> = of_short.into_iter().map(Option::unwrap_or_default).collect();
        for orders in &mut of_short {
            let fits = |(_, orders): &(Length, Orders)| context.short.fits(orders);
            let (fitting, others) = std::mem::take(orders).into_iter().partition(fits);
            *orders = fitting;
            self.guides.extend::<Vec<_>>(others);
        }
        self.guides.sort();
        self.guides.truncate(GUIDES);
        if !self.is_short() {
            of_short.iter().flatten().cloned().for_each(|(length, orders)| self.note_known(length, orders));
        }
        let mut ranked: Vec<usize> = if self.is_short() { (0..of_short.len()).collect() } else { Vec::new() };
        let shortest = |index: &usize| of_short[*index].iter().map(|(length, _)| *length).min();
        // Those that are not for so few microbatches come last.
        ranked.sort_by_key(|index| (shortest(index).is_none(), shortest(index), *index));
        for some in ranked.chunks(KNOWN_AT_ONCE) {
            if !self.goes_on() {
                break;
            }
            let of_long = collect(workers, some.len(), &|place| measured(&context.long, some[place]));
            for (length, orders) in of_long.into_iter().flatten().flatten() {
                self.note_known(length, orders);
            }
        }
        of_short.into_iter().flatten().map(|(_, orders)| orders).collect()
    }

    /// Whether backwards are wanted in halves: where they may run at once, schedules with and without are looked for.
    fn forms(&self) -> &'static [bool] {
        if self.context.short.fusions.is_empty() { &[false] } else { &[false, true] }
    }

    pub(crate) fn add_blocks(&mut self, effort: usize) {
        self.forms().iter().for_each(|split| self.add_blocks_of(*split, effort));
    }

    /// Building blocks with the shortest periods that have any.
    fn add_blocks_of(&mut self, split: bool, effort: usize) {
        let work = self.context.short_of(split).work();
        let n_series = self.context.short.series.len().max(1);
        let width = (effort * BLOCK_SERIES / (n_series * n_series.max(BLOCK_SERIES))).max(16);
        let step = (work / 40).max(1);
        let periods: Vec<Time> = (0..PERIODS).map(|more| work + more * step).collect();
        let mut found = 0;
        for periods in periods.chunks(PERIODS_AT_ONCE) {
            if found >= ENOUGH_PERIODS || !self.goes_on() {
                return;
            }
            let works: Vec<Subtask> =
                periods.iter().map(|period| Subtask::Blocks { period: *period, width, split }).collect();
            found += self.perform(&works).iter().filter(|count| **count > 0).count();
        }
    }

    /// Notes schedules, and the priorities that lead to them.
    fn note_both(&mut self, rule: Option<Rule>, start: Option<Start>, long: Option<(Length, Orders)>) {
        let lengths = start.iter().map(|start| start.long.length).chain(long.iter().map(|(length, _)| *length));
        if let Some((length, rule)) = lengths.min().zip(rule) {
            self.rules.push((length, rule));
            self.rules.sort_by_key(|(length, _)| *length);
            self.rules.dedup();
            self.rules.truncate(RULES);
        }
        long.into_iter().for_each(|(length, orders)| self.note(length, &orders));
        if let Some(start) = start {
            self.note(start.long.length, &start.long.orders);
            self.starts.push(start);
        }
    }
}
