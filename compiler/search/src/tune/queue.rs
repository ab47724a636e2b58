//! The queue: what may be shortest is looked at first.
//!
//! Groups, single candidates and finished ones wait in one order, by what their step takes at
//! least. A group at the front is opened into its candidates, a candidate is bounded, then timed
//! and counted; one that is finished and still at the front is the best that is left, because
//! everything behind it takes at least as long. Several are looked at at once, always the same
//! ones, however many threads there are.

use super::candidate::{Candidate, Keeping, Layout};
use super::evaluate::{StepTime, evaluate};
use super::families::Variant;
use super::problem::Problem;
use super::space::{Space, away, keepings};
use super::{Instance, allowed};
use crate::Workers;
use crate::tune::bound::{Prospect, is_reordered, of_candidate, of_group};
use crate::tune::near_misses::misfits;
use crate::tune::node_order::{NodeOrder, with_node_order};
use crate::tune::result::{Counts, Misfit, TuneProgress, TuneResult};
use pipe_ir::units::Bytes;
use pipe_schedule::units::Ticks;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::{Mutex, PoisonError};

/// How many are looked at at once.
const WAVE: usize = 16;
/// Of what was not among the best, how many are kept.
pub(super) const OTHERS: usize = 10;
/// Until the best is known, of each of these so many are tried out of turn that will probably fit:
/// time may end before anything else does.
const DIVE: usize = 2;

/// Something that may become one of the best.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Stage {
    /// All candidates with a layout that keep the same.
    Group(Layout, Keeping),
    /// One that only its group's bound is known of.
    Named(Candidate),
    /// One that was bounded.
    Bounded(Candidate),
    /// One that was timed with nodes that are all as good as the best, and may fit: their order is not known yet.
    Unordered(Candidate),
    /// One that was timed and fits.
    Finished(Candidate),
}

/// By what it takes at least, finished ones last.
type Entry = Reverse<(Ticks, Stage)>;

/// What became of one.
enum Outcome {
    /// It goes back in the queue, as these; one of them will probably fit.
    Again(Vec<(Ticks, Stage)>, Option<Candidate>),
    /// It was timed with nodes that are all as good as the best, and takes at least this long in any order
    /// of its nodes; it fits, or perhaps only in some of them.
    Hoped(Ticks, Candidate, bool),
    /// It was timed, and fits.
    Fits(Candidate, StepTime),
    /// It does not fit; these may.
    Misfit(Misfit, Vec<(Ticks, Stage)>),
    /// The same of one whose nodes may have a better order, in which it takes at least this long.
    Doubtful(Ticks, Box<Outcome>),
    /// A group of which nothing fits: what is held at least, if the model can be divided so, and groups that may.
    NothingFits(Option<Bytes>, Vec<(Ticks, Stage)>),
    /// Its schedule does not go with its sizes.
    Refused(Candidate, String),
}

/// Finds so many of the best, each with another layout or schedule.
pub fn tune(
    problem: &Problem,
    space: &Space,
    n_best: usize,
    workers: &dyn Workers,
    report: &mut dyn FnMut(&TuneProgress<'_>),
) -> TuneResult {
    let written = Instance::new(problem);
    let (mut queue, mut is_complete) = (Queue::new(problem, space), true);
    while queue.found.best.len() < n_best && queue.settle(n_best) {
        if !workers.go_on() {
            is_complete = false;
            break;
        }
        let wave = queue.wave();
        let slots: Vec<Mutex<Option<Outcome>>> = wave.iter().map(|_| Mutex::new(None)).collect();
        workers.each(wave.len(), &|index| {
            let outcome = look(problem, &written, &wave[index]);
            *slots[index].lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        });
        for slot in slots {
            let outcome = slot.into_inner().unwrap_or_else(PoisonError::into_inner);
            outcome.into_iter().for_each(|outcome| queue.take(outcome));
        }
        report(&queue.progress());
    }
    let mut found = queue.finish(n_best, is_complete);
    (found.misfits, found.more_misfits) = misfits(problem, &written, &found, workers);
    found
}

/// Looks at one.
fn look(problem: &Problem, written: &Instance, (least, stage): &(Ticks, Stage)) -> Outcome {
    match stage {
        Stage::Group(layout, keeping) => {
            let Some(group) = of_group(problem, written, layout, *keeping) else {
                return Outcome::NothingFits(None, Vec::new());
            };
            if group.bytes > problem.limit {
                let others = away(problem, *keeping).into_iter();
                let others = others.map(|keeping| (group.time, Stage::Group(*layout, keeping)));
                return Outcome::NothingFits(Some(group.bytes), others.collect());
            }
            let (layout, keeping) = (*layout, *keeping);
            let candidate = |variant| Candidate { layout, variant, keeping, nodes: Vec::new() };
            let all: Vec<Candidate> = allowed(problem, &layout).map(candidate).collect();
            let likely = all.iter().find(|one| one.variant.name == "1f1b").or(all.first()).cloned();
            let likely = likely.filter(|_| group.usual <= problem.limit);
            Outcome::Again(all.into_iter().map(|one| (group.time, Stage::Named(one))).collect(), likely)
        }
        Stage::Named(candidate) => match of_candidate(problem, written, candidate) {
            Err(reason) => Outcome::Refused(candidate.clone(), reason),
            Ok(prospect) => {
                let time = prospect.time.max(*least);
                if prospect.bytes > problem.limit {
                    let Prospect { device, bytes, .. } = prospect;
                    let taken = StepTime { time, device, bytes, host: Bytes::ZERO, is_exact: false };
                    return misfit(problem, time, Misfit { candidate: candidate.clone(), taken, is_timed: false });
                }
                Outcome::Again(vec![(time, Stage::Bounded(candidate.clone()))], None)
            }
        },
        Stage::Bounded(candidate) => match evaluate(problem, (written, &written.request), candidate, false) {
            Err(reason) => Outcome::Refused(candidate.clone(), reason),
            Ok(taken) if problem.is_order_free() => {
                // Where links differ, a schedule may be reordered otherwise: only its bound holds for that.
                let is_reordered = is_reordered(problem, written, candidate);
                let time = if is_reordered { *least } else { taken.time };
                // What is under way between devices depends on times, what they keep of their tasks only on
                // the order of these.
                match taken.fits(problem) || taken.is_exact || is_reordered {
                    true => Outcome::Hoped(time, candidate.clone(), taken.fits(problem)),
                    false => timed(problem, *least, candidate.clone(), taken),
                }
            }
            Ok(taken) => timed(problem, *least, candidate.clone(), taken),
        },
        Stage::Unordered(candidate) => match with_node_order(problem, written, candidate) {
            Err(reason) => Outcome::Refused(candidate.clone(), reason),
            Ok(NodeOrder { candidate, taken, is_best, least: of_all }) => {
                let least = of_all.unwrap_or_default().max(*least);
                let outcome = timed(problem, least, candidate, taken);
                if is_best { outcome } else { Outcome::Doubtful(least, Box::new(outcome)) }
            }
        },
        Stage::Finished(_) => Outcome::Again(vec![(*least, stage.clone())], None),
    }
}

/// What became of one that was timed, and takes at least so long in any order of nodes.
fn timed(problem: &Problem, least: Ticks, candidate: Candidate, taken: StepTime) -> Outcome {
    match taken.fits(problem) {
        true => Outcome::Fits(candidate, taken),
        false => misfit(problem, least, Misfit { candidate, taken, is_timed: true }),
    }
}

/// What becomes of one that does not fit: it may with state that lives with the hosts, and then takes no less time.
fn misfit(problem: &Problem, least: Ticks, misfit: Misfit) -> Outcome {
    let others = away(problem, misfit.candidate.keeping).into_iter();
    let named = |keeping| Stage::Named(Candidate { keeping, ..misfit.candidate.clone() });
    let others = others.map(|keeping| (least, named(keeping))).collect();
    Outcome::Misfit(misfit, others)
}

struct Queue {
    waiting: BinaryHeap<Entry>,
    /// What will probably fit, and may be looked at out of turn.
    likely: BinaryHeap<Entry>,
    /// What was looked at out of turn.
    done: BTreeSet<Stage>,
    /// What finished ones take.
    taken: BTreeMap<Candidate, StepTime>,
    /// Layouts and schedules that are among the best.
    settled: BTreeSet<(Layout, Variant)>,
    /// The least bound of a candidate that may fit.
    least: Ticks,
    /// The least that a candidate takes in an order of its nodes that was not looked at.
    doubtful: Ticks,
    found: TuneResult,
}

impl Queue {
    fn new(problem: &Problem, space: &Space) -> Self {
        let of = |layout: &Layout| {
            let layout = *layout;
            keepings(problem, &layout).into_iter().map(move |keeping| Stage::Group(layout, keeping))
        };
        let waiting: BinaryHeap<Entry> =
            space.layouts.iter().flat_map(of).map(|stage| Reverse((Ticks::ZERO, stage))).collect();
        let counts = Counts { groups: waiting.len(), ..Counts::default() };
        let found = TuneResult { counts, ..TuneResult::default() };
        let (likely, taken) = (BinaryHeap::new(), BTreeMap::new());
        let (done, settled) = (BTreeSet::new(), BTreeSet::new());
        Self { waiting, likely, done, taken, settled, least: Ticks::END, doubtful: Ticks::END, found }
    }

    /// Takes finished ones from the front, up to so many in all. Whether something else is left.
    fn settle(&mut self, n_best: usize) -> bool {
        while let Some(Reverse((_, stage))) = self.waiting.peek() {
            if self.found.best.len() == n_best {
                return true;
            }
            match stage {
                Stage::Finished(candidate) => {
                    let candidate = candidate.clone();
                    self.waiting.pop();
                    self.accept(candidate);
                }
                stage if self.is_done(stage) => {
                    self.waiting.pop();
                }
                _ => return true,
            }
        }
        false
    }

    fn is_settled(&self, candidate: &Candidate) -> bool {
        self.settled.contains(&(candidate.layout, candidate.variant.clone()))
    }

    fn accept(&mut self, candidate: Candidate) {
        let Some(taken) = self.taken.remove(&candidate) else { return };
        if self.settled.insert((candidate.layout, candidate.variant.clone())) {
            self.found.best.push((candidate, taken));
        }
    }

    /// Whether something need not be looked at, because it is among the best, or was looked at out of turn.
    fn is_done(&self, stage: &Stage) -> bool {
        match stage {
            Stage::Group(..) | Stage::Finished(_) => false,
            Stage::Named(one) | Stage::Bounded(one) | Stage::Unordered(one) => {
                self.is_settled(one) || self.done.contains(stage)
            }
        }
    }

    /// What is looked at next: from the front, without what is finished or done, and at first
    /// something that will probably fit.
    fn wave(&mut self) -> Vec<(Ticks, Stage)> {
        let (mut wave, mut back) = (Vec::new(), Vec::new());
        while self.found.best.is_empty() && wave.len() < DIVE {
            let Some(Reverse((time, stage))) = self.likely.pop() else { break };
            if !self.is_done(&stage) {
                self.done.insert(stage.clone());
                wave.push((time, stage));
            }
        }
        while wave.len() < WAVE {
            let Some(Reverse((time, stage))) = self.waiting.pop() else { break };
            match &stage {
                Stage::Finished(_) => back.push(Reverse((time, stage))),
                stage if self.is_done(stage) => {}
                _ => wave.push((time, stage)),
            }
        }
        self.waiting.extend(back);
        wave
    }

    fn take(&mut self, outcome: Outcome) {
        let counts = &mut self.found.counts;
        match outcome {
            Outcome::Doubtful(least, outcome) => {
                self.doubtful = self.doubtful.min(least);
                self.take(*outcome);
            }
            Outcome::Again(stages, likely) => {
                let time = stages.first().map_or(Ticks::ZERO, |(time, _)| *time);
                self.likely.extend(likely.map(|one| Reverse((time, Stage::Named(one)))));
                let is_likely = |stage: &Stage| matches!(stage, Stage::Bounded(one) if self.done.contains(&Stage::Named(one.clone())));
                let next = stages.iter().filter(|(_, stage)| is_likely(stage)).cloned();
                self.likely.extend(next.map(Reverse));
                for (time, _) in stages.iter().filter(|(_, stage)| matches!(stage, Stage::Bounded(_))) {
                    (counts.bounded, self.least) = (counts.bounded + 1, self.least.min(*time));
                }
                self.waiting.extend(stages.into_iter().map(Reverse));
            }
            Outcome::Hoped(time, candidate, fits) => {
                counts.unseated += 1;
                self.likely.extend(fits.then(|| Reverse((time, Stage::Unordered(candidate.clone())))));
                self.waiting.push(Reverse((time, Stage::Unordered(candidate))));
            }
            Outcome::Fits(candidate, taken) => {
                counts.timed += 1;
                self.waiting.push(Reverse((taken.time, Stage::Finished(candidate.clone()))));
                self.taken.insert(candidate, taken);
            }
            Outcome::Misfit(misfit, others) => {
                match misfit.is_timed {
                    true => (counts.timed, counts.misfits) = (counts.timed + 1, counts.misfits + 1),
                    false => (counts.bounded, counts.too_large) = (counts.bounded + 1, counts.too_large + 1),
                }
                self.found.misfits.push(misfit);
                self.waiting.extend(others.into_iter().map(Reverse));
            }
            Outcome::NothingFits(bytes, others) => {
                (counts.hopeless, counts.groups) = (counts.hopeless + 1, counts.groups + others.len());
                self.waiting.extend(others.into_iter().map(Reverse));
                self.found.least_held = self.found.least_held.into_iter().chain(bytes).min();
            }
            Outcome::Refused(candidate, reason) => {
                counts.refused += 1;
                *self.found.refused.entry((candidate.variant.name.to_owned(), reason)).or_default() += 1;
            }
        }
    }

    fn progress(&self) -> TuneProgress<'_> {
        let settled = self.found.best.first().map(|(candidate, taken)| (candidate, taken.time));
        let finished = self.taken.iter().map(|(candidate, taken)| (candidate, taken.time));
        TuneProgress {
            counts: self.found.counts,
            found: self.found.best.len(),
            best: settled.or_else(|| finished.min_by_key(|(candidate, time)| (*time, *candidate))),
            bound: settled.map_or_else(|| self.front(), |(_, time)| time.min(self.front())).min(self.doubtful),
        }
    }

    /// The least that anything takes that waits.
    fn front(&self) -> Ticks {
        self.waiting.peek().map_or(Ticks::END, |Reverse((time, _))| *time)
    }

    fn finish(mut self, n_best: usize, is_complete: bool) -> TuneResult {
        let (front, n_final) = (self.front(), self.found.best.len());
        let mut rest: Vec<(Candidate, StepTime)> = std::mem::take(&mut self.taken).into_iter().collect();
        rest.sort_by(|one, other| (one.1.time, &one.0).cmp(&(other.1.time, &other.0)));
        for (candidate, taken) in rest {
            if self.is_settled(&candidate) {
                continue;
            }
            if self.found.best.len() < n_best {
                self.settled.insert((candidate.layout, candidate.variant.clone()));
                self.found.best.push((candidate, taken));
            } else if !self
                .found
                .slower
                .iter()
                .any(|(other, _)| (other.layout, &other.variant) == (candidate.layout, &candidate.variant))
            {
                self.found.slower.push((candidate, taken));
            }
        }
        self.found.more_slower = self.found.slower.len().saturating_sub(OTHERS);
        self.found.slower.truncate(OTHERS);
        let best = self.found.best.first().map_or(Ticks::END, |(_, taken)| taken.time);
        self.found.bound = self.least.min(front).min(best);
        let settled = if is_complete { self.found.best.len() } else { n_final };
        let is_sure = |(_, taken): &&(Candidate, StepTime)| taken.time <= self.doubtful;
        self.found.n_final = self.found.best.iter().take(settled).take_while(is_sure).count();
        let is_sure =
            if self.found.best.is_empty() { self.doubtful == Ticks::END } else { self.found.n_final == settled };
        self.found.are_orders_best = is_sure;
        self.found.is_complete = is_complete && self.found.are_orders_best;
        self.found
    }
}
