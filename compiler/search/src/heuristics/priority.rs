//! Rules of list schedules under annealing. Few numbers say how urgent all tasks are, and any choice of them is a whole
//! schedule, so this leads to good warm-ups and cool-downs between which single tasks would have to move by the dozen.

use super::anneal::most;
use super::coarse::{Coarse, coarser};
use pipe_schedule::dispatch::Objective;
use pipe_schedule::dispatch::fusion::Fusion;
use pipe_schedule::dispatch::job::{Job, Orders, SeriesId, TaskSeries, Time};
use pipe_schedule::dispatch::list::{Dispatch, Reach};
use pipe_schedule::dispatch::random::Random;
use pipe_schedule::dispatch::rule::{FINE, Legs, Rule};
use std::borrow::Cow;

/// Binary digits of the time that all series take together.
const DIGITS: u32 = 30;
/// Tasks between two questions whether to go on.
const TASKS_AT_ONCE: usize = 40_000;
/// Of how many tries one goes to slopes.
const SLOPES: u64 = 6;
/// How much more often a pipeline with half the devices is tried: its steps are so much shorter.
const FINER: u64 = 4;
/// Rules that are annealed at the same time where slopes are looked for; twice as many in the next smaller job.
const RIVALS: usize = 4;
/// How often an annealing is heated again.
const REHEATS: u64 = 3;
/// By how much heat and scale change: parts of a mean duration.
const PARTS: Time = 256;
/// Changes at first, in mean durations.
const SCALE: Time = 8;
/// How much more the length counts than what devices take at the mean.
const LENGTH: Time = 10;
const ENDS: Time = 3;

/// Where rules come from.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// Slopes by chance, of a pipeline that is halved so many times if possible.
    Slopes(usize),
    /// A rule.
    Rule(Rule),
    /// A schedule.
    Orders(Orders),
}

/// How an annealing goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Schedules that are tried.
    pub(crate) tries: u64,
    /// At first a schedule may become longer by about this much, in halves of a mean duration.
    pub(crate) heat: Time,
}

/// The job with times of so few digits that sums and products of them never overflow. The same for
/// any number of microbatches, so that a rule for some is one for all.
fn rounded(job: &Job) -> Cow<'_, Job> {
    let latencies = |series: &TaskSeries| series.needs.iter().map(|(_, latency)| i128::from(*latency)).sum::<i128>();
    let of_series = |series: &TaskSeries| i128::from(series.duration) + latencies(series);
    let total: i128 = job.series.iter().map(of_series).sum();
    let Some(excess) = (i128::BITS - total.leading_zeros()).checked_sub(DIGITS).filter(|excess| *excess > 0) else {
        return Cow::Borrowed(job);
    };
    let round = |(series, latency): &(SeriesId, Time)| (*series, latency >> excess);
    let series = |series: &TaskSeries| TaskSeries {
        duration: series.duration >> excess,
        needs: series.needs.iter().map(round).collect(),
        feeds: Vec::new(),
        ..series.clone()
    };
    let fusion = |fusion: &Fusion| Fusion { duration: fusion.duration >> excess, ..*fusion };
    let all = job.series.iter().map(series).collect();
    let rounded = Job::of_series(all, job.microbatches, job.capacity.clone());
    Cow::Owned(rounded.with_fusions(job.fusions.iter().map(fusion).collect()))
}

/// The best rule that was found. Ends early when `go_on` says so; `None` if all get stuck for want of memory.
pub(crate) fn prioritized(
    job: &Job,
    objective: Objective,
    origin: &Origin,
    effort: Effort,
    random: &mut Random,
    go_on: &mut dyn FnMut() -> bool,
) -> Option<Rule> {
    let job = &*rounded(job);
    if let Origin::Slopes(times) = origin {
        let coarse: Vec<Coarse> =
            std::iter::successors(coarser(job), |coarse| coarser(&coarse.job)).take(*times).collect();
        let effort = Effort { tries: effort.tries / (1 + coarse.len() as u64), ..effort };
        return rivals(job, objective, &coarse, effort, 1, random, go_on).into_iter().next();
    }
    let mut search = Search::new(job, objective);
    let rule = match origin {
        Origin::Rule(rule) => Some(rule.clone()),
        Origin::Orders(orders) => search.best(Rule::behind(job, &search.legs, objective, orders)),
        Origin::Slopes(_) => None,
    }?;
    search.anneal(rule, effort, random, go_on).map(|(_, rule)| rule)
}

/// The best of some rivals. They begin as slopes by chance for the smallest of some jobs, each half
/// of the one before it, and are annealed in each: at first all of them, then longer the better
/// half, and so on, until `keep` are left for the next larger job. How good a rule can become is
/// decided early: many short attempts lead further than a long one.
fn rivals(
    job: &Job,
    objective: Objective,
    coarse: &[Coarse],
    effort: Effort,
    keep: usize,
    random: &mut Random,
    go_on: &mut dyn FnMut() -> bool,
) -> Vec<Rule> {
    let mut search = Search::new(job, objective);
    let begin = RIVALS.max(2 * keep);
    let mut rules: Vec<Rule> = match coarse.split_first() {
        Some((half, rest)) => {
            let more = Effort { tries: FINER * effort.tries, ..effort };
            let found = rivals(&half.job, objective, rest, more, begin, random, go_on);
            found.iter().map(|rule| half.finer(job, rule)).collect()
        }
        None => {
            let tries = effort.tries / SLOPES / begin as u64;
            (0..begin).filter_map(|_| search.slopes(tries, random, go_on)).collect()
        }
    };
    let halvings = u64::from((begin / keep).ilog2());
    for halving in 0..=halvings {
        let tries = (effort.tries / (halvings + 1) / rules.len().max(1) as u64).max(1);
        let heat = if halving == 0 { effort.heat } else { effort.heat / 2 };
        let left = (begin >> (halving + 1)).max(keep);
        rules = search.anneal_all(rules, left, Effort { tries, heat }, random, go_on);
    }
    rules
}

/// The orders of the schedule that a rule leads to.
pub(crate) fn orders(job: &Job, objective: Objective, rule: &Rule) -> Option<Orders> {
    Dispatch::new(&rounded(job), objective).orders(rule)
}

struct Search<'a> {
    job: &'a Job,
    objective: Objective,
    legs: Legs,
    dispatch: Dispatch<'a>,
}

impl<'a> Search<'a> {
    fn new(job: &'a Job, objective: Objective) -> Self {
        Self { job, objective, legs: Legs::new(job), dispatch: Dispatch::new(job, objective) }
    }

    /// Whether it is time to ask whether to go on.
    fn asks(&self, tried: u64) -> bool {
        tried.is_multiple_of((TASKS_AT_ONCE / self.job.n_tasks().max(1)).max(1) as u64)
    }

    /// The best of some rules.
    fn best(&mut self, rules: Vec<Rule>) -> Option<Rule> {
        let measured = rules.into_iter().filter_map(|rule| Some((self.dispatch.run(&rule, Time::MAX)?, rule)));
        measured.min_by_key(|(reach, _)| *reach).map(|(_, rule)| rule)
    }

    /// The best of so many slopes.
    fn slopes(&mut self, tries: u64, random: &mut Random, go_on: &mut dyn FnMut() -> bool) -> Option<Rule> {
        let mut best: Option<(Reach, Rule)> = None;
        for tried in 0..tries.max(1) {
            if self.asks(tried) && !go_on() {
                break;
            }
            let rule = Rule::random(self.job, &self.legs, random);
            let limit = best.as_ref().map_or(Time::MAX, |(reach, _)| self.limit(reach.0));
            let Some(reach) = self.dispatch.run(&rule, limit) else { continue };
            if best.as_ref().is_none_or(|(least, _)| reach < *least) {
                best = Some((reach, rule));
            }
        }
        best.map(|(_, rule)| rule)
    }

    /// Tasks that start later make a schedule longer than that.
    fn limit(&self, length: Time) -> Time {
        match self.objective {
            Objective::Makespan => length.saturating_add(1),
            Objective::LongestStage => Time::MAX,
        }
    }

    /// What is annealed: the length, and a little what all devices take.
    fn energy(&self, (length, ends): Reach) -> Time {
        LENGTH * self.job.capacity.len() as Time * length + ENDS * ends
    }

    /// The best of what changes of some rules lead to, from the best on.
    fn anneal_all(
        &mut self,
        rules: Vec<Rule>,
        keep: usize,
        effort: Effort,
        random: &mut Random,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Vec<Rule> {
        let mut found = Vec::with_capacity(rules.len());
        for rule in rules {
            // Without time, one is enough.
            if !found.is_empty() && !go_on() {
                break;
            }
            found.extend(self.anneal(rule, effort, random, go_on));
        }
        found.sort_by_key(|(reach, _)| *reach);
        found.into_iter().take(keep).map(|(_, rule)| rule).collect()
    }

    /// The best rule that changes of one lead to, with what it reaches.
    fn anneal(
        &mut self,
        rule: Rule,
        effort: Effort,
        random: &mut Random,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Option<(Reach, Rule)> {
        let mut now = (self.dispatch.run(&rule, Time::MAX)?, rule);
        let mut best = now.clone();
        let Effort { tries, heat } = effort;
        for tried in 0..tries {
            if self.asks(tried) && !go_on() {
                break;
            }
            let (hot, scale) = course(tried, tries);
            // Durations may be as short as 1: heat falls in parts of that.
            let parts = heat * self.legs.unit * hot / 2;
            let mut next = now.1.clone();
            for _ in 0..1 + usize::from(random.below(4) == 0) {
                next.change(self.job, &self.legs, (self.legs.unit * FINE * scale / PARTS).max(1), random);
            }
            let limit = self.limit(now.0.0 + SCALE * (parts / PARTS + 1));
            let Some(reach) = self.dispatch.run(&next, limit) else { continue };
            let most = most(parts * LENGTH * self.job.capacity.len() as Time / PARTS, random);
            if self.energy(reach) - self.energy(now.0) <= most {
                now = (reach, next);
                if now.0 < best.0 {
                    best = now.clone();
                }
            }
        }
        Some(best)
    }
}

/// Heat, as a part of the first, and scale, in mean durations: both fall and rise again, the heat less and less.
fn course(tried: u64, tries: u64) -> (Time, Time) {
    let parts = |number: u64, of: u64| Time::try_from(u128::from(number) * PARTS as u128 / u128::from(of)).unwrap_or(0);
    let whole = parts(tried, tries);
    let cycle = parts(tried * REHEATS % tries, tries);
    let heat = (PARTS - cycle) * (PARTS - whole * 6 / 10) / PARTS;
    (heat + PARTS / 50, SCALE * (PARTS - cycle * 7 / 10))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{fusing, v};
    use pipe_schedule::dispatch::plan::Plan;

    #[test]
    fn priorities_lead_to_schedules_that_fit_and_get_shorter() {
        for job in [v(4, 8, 6, [1, 1, 1], 0), v(3, 6, 4, [2, 3, 1], 1), fusing(3, 4, 2, [1, 2, 2, 3], 0)] {
            let in_turn = job.in_turn().swap_remove(0);
            let length = |orders: &Orders| Plan::new(&job, Objective::Makespan, orders).expect("no cycle").1.length;
            let after = |origin: &Origin, tries| {
                let effort = Effort { tries, heat: 3 };
                let rule = prioritized(&job, Objective::Makespan, origin, effort, &mut Random::new(1), &mut || true);
                let found = orders(&job, Objective::Makespan, &rule.expect("there is memory")).expect("the same");
                assert!(job.fits(&found));
                length(&found)
            };
            let origin = Origin::Orders(in_turn.clone());
            let (at_once, later) = (after(&origin, 1), after(&origin, 4_000));
            assert!(later < at_once && at_once < length(&in_turn), "{later} {at_once}");
            assert!(after(&Origin::Slopes(0), 4_000) < length(&in_turn));
        }
    }

    #[test]
    fn long_times_lead_to_the_same_schedules() {
        let long = 1_000_000_007 * 1_000_000;
        let found = [v(4, 8, 6, [1, 2, 1], 1), v(4, 8, 6, [long, 2 * long, long], long)].map(|job| {
            let effort = Effort { tries: 4_000, heat: 3 };
            let origin = Origin::Slopes(0);
            let rule = prioritized(&job, Objective::Makespan, &origin, effort, &mut Random::new(1), &mut || true);
            let found = orders(&job, Objective::Makespan, &rule.expect("there is memory")).expect("the same");
            (Plan::new(&job, Objective::Makespan, &found).expect("no cycle").1.length, job.heads()[SeriesId(1)])
        });
        let [(short, unit), (length, other)] = found;
        assert!(length / other <= short / unit * 21 / 20, "{length} {other} {short}");
    }
}
