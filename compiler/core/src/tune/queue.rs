//! The queue: what may be shortest is looked at first.
//!
//! Groups, single candidates and finished ones wait in one order, by what their step takes at least. A group at the front is opened into its
//! candidates, a candidate is bounded, then timed and counted; one that is finished and still at the front is the best that is left, because
//! everything behind it takes at least as long. Several are looked at at once, always the same ones, however many threads there are.

use super::candidate::{Candidate, Keeping, Layout};
use super::evaluate::{Taken, evaluate};
use super::families::Variant;
use super::problem::Problem;
use super::prospect::{Prospect, of_candidate, of_group};
use super::space::{Space, keepings};
use super::{Written, allowed};
use crate::search::Workers;
use crate::units::Ticks;
use pipe_ir::units::Bytes;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::{Mutex, PoisonError};

/// How many are looked at at once.
const WAVE: usize = 16;
/// Of what was not among the best, how many are kept.
const OTHERS: usize = 10;

/// Something that may become one of the best.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Stage {
    /// All candidates with a layout that keep the same.
    Group(Layout, Keeping),
    /// One that only its group's bound is known of.
    Named(Candidate),
    /// One that was bounded.
    Bounded(Candidate),
    /// One that was timed and fits.
    Finished(Candidate),
}

/// By what it takes at least, finished ones last.
type Entry = Reverse<(Ticks, Stage)>;

/// What became of one.
enum Outcome {
    /// It goes back in the queue, as these.
    Again(Vec<(Ticks, Stage)>),
    /// It was timed, and fits.
    Fits(Candidate, Taken),
    /// It does not fit.
    Misfit(Misfit),
    /// A group of which nothing fits: what is held at least, if the model can be divided so.
    NothingFits(Option<Bytes>),
    /// Its schedule does not go with its sizes.
    Refused(Candidate, String),
}

/// What was done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Counts {
    /// Layouts with what they keep.
    pub groups: usize,
    /// Of these, those of which nothing can fit.
    pub hopeless: usize,
    /// Candidates that were bounded.
    pub bounded: usize,
    /// Of these, those that do not fit, whatever their order.
    pub too_large: usize,
    /// Candidates whose schedule was written out and timed.
    pub timed: usize,
    /// Of these, those that do not fit.
    pub misfits: usize,
    /// Candidates whose schedule does not take their numbers of devices and microbatches.
    pub refused: usize,
}

/// What is known while the queue is worked off.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// What was done.
    pub counts: Counts,
    /// How many are finished for good.
    pub found: usize,
    /// The shortest step so far, if any fits.
    pub best: Option<(&'a Candidate, Ticks)>,
    /// No step is shorter.
    pub bound: Ticks,
}

/// A candidate that does not fit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Misfit {
    /// Which.
    pub candidate: Candidate,
    /// What it takes.
    pub taken: Taken,
    /// Whether it was timed, or takes at least this long.
    pub is_timed: bool,
}

/// What was found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// The best, shortest first.
    pub best: Vec<(Candidate, Taken)>,
    /// Others that fit and were timed, shortest first.
    pub slower: Vec<(Candidate, Taken)>,
    /// What would be shorter than the last of the best, but does not fit; of that, what is least too large.
    pub misfits: Vec<Misfit>,
    /// Of layouts of which nothing fits, the least that some device holds for its state and a single microbatch.
    pub least_held: Option<Bytes>,
    /// Candidates whose schedule does not go with its sizes: how many by name of the schedule and reason.
    pub refused: BTreeMap<(String, String), usize>,
    /// No schedule of any candidate that may fit is shorter.
    pub bound: Ticks,
    /// Whether nothing was left out.
    pub is_complete: bool,
    /// What was done.
    pub counts: Counts,
}

/// Finds so many of the best, each with another layout or schedule.
pub fn tune(
    problem: &Problem,
    space: &Space,
    n_best: usize,
    workers: &dyn Workers,
    report: &mut dyn FnMut(&Progress<'_>),
) -> Found {
    let written = Written::new(problem);
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
    found.misfits = misfits(problem, &written, &found, workers);
    found
}

/// Of what does not fit, what is least too large: timed, and counted to the byte.
fn misfits(problem: &Problem, written: &Written, found: &Found, workers: &dyn Workers) -> Vec<Misfit> {
    let last = found.best.last().map(|(_, taken)| taken.time);
    let is_faster = |one: &Misfit| last.is_none_or(|last| one.taken.time < last);
    let mut all: Vec<Misfit> = found.misfits.iter().filter(|one| is_faster(one)).cloned().collect();
    all.sort_by(|one, other| (one.taken.bytes, &one.candidate).cmp(&(other.taken.bytes, &other.candidate)));
    all.truncate(OTHERS);
    let slots: Vec<Mutex<Misfit>> = all.into_iter().map(Mutex::new).collect();
    workers.each(slots.len(), &|index| {
        let mut one = slots[index].lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(taken) = evaluate(problem, written, &one.candidate, true) {
            (one.taken, one.is_timed) = (taken, true);
        }
    });
    let mut all: Vec<Misfit> =
        slots.into_iter().map(|slot| slot.into_inner().unwrap_or_else(PoisonError::into_inner)).collect();
    all.retain(|one| one.is_timed && is_faster(one));
    all.sort_by(|one, other| (one.taken.bytes, &one.candidate).cmp(&(other.taken.bytes, &other.candidate)));
    all
}

/// Looks at one.
fn look(problem: &Problem, written: &Written, (least, stage): &(Ticks, Stage)) -> Outcome {
    match stage {
        Stage::Group(layout, keeping) => {
            let Some(group) = of_group(problem, written, layout, *keeping) else { return Outcome::NothingFits(None) };
            if group.bytes > problem.limit {
                return Outcome::NothingFits(Some(group.bytes));
            }
            let named = |variant| Stage::Named(Candidate { layout: *layout, variant, keeping: *keeping });
            Outcome::Again(allowed(problem, layout).map(|variant| (group.time, named(variant))).collect())
        }
        Stage::Named(candidate) => match of_candidate(problem, written, candidate) {
            Err(reason) => Outcome::Refused(candidate.clone(), reason),
            Ok(prospect) => {
                let time = prospect.time.max(*least);
                if prospect.bytes > problem.limit {
                    let Prospect { device, bytes, .. } = prospect;
                    let taken = Taken { time, device, bytes, is_exact: false };
                    return Outcome::Misfit(Misfit { candidate: candidate.clone(), taken, is_timed: false });
                }
                Outcome::Again(vec![(time, Stage::Bounded(candidate.clone()))])
            }
        },
        Stage::Bounded(candidate) => match evaluate(problem, written, candidate, false) {
            Err(reason) => Outcome::Refused(candidate.clone(), reason),
            Ok(taken) if taken.bytes <= problem.limit => Outcome::Fits(candidate.clone(), taken),
            Ok(taken) => Outcome::Misfit(Misfit { candidate: candidate.clone(), taken, is_timed: true }),
        },
        Stage::Finished(_) => Outcome::Again(vec![(*least, stage.clone())]),
    }
}

struct Queue {
    waiting: BinaryHeap<Entry>,
    /// What finished ones take.
    taken: BTreeMap<Candidate, Taken>,
    /// Layouts and schedules that are among the best.
    settled: BTreeSet<(Layout, Variant)>,
    /// The least bound of a candidate that may fit.
    least: Ticks,
    found: Found,
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
        let found = Found { counts, ..Found::default() };
        Self { waiting, taken: BTreeMap::new(), settled: BTreeSet::new(), least: Ticks::END, found }
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
                Stage::Named(candidate) | Stage::Bounded(candidate) if self.is_settled(candidate) => {
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

    /// What is looked at next: from the front, without what is finished or settled.
    fn wave(&mut self) -> Vec<(Ticks, Stage)> {
        let (mut wave, mut back) = (Vec::new(), Vec::new());
        while wave.len() < WAVE {
            let Some(Reverse((time, stage))) = self.waiting.pop() else { break };
            match &stage {
                Stage::Finished(_) => back.push(Reverse((time, stage))),
                Stage::Named(candidate) | Stage::Bounded(candidate) if self.is_settled(candidate) => {}
                _ => wave.push((time, stage)),
            }
        }
        self.waiting.extend(back);
        wave
    }

    fn take(&mut self, outcome: Outcome) {
        let counts = &mut self.found.counts;
        match outcome {
            Outcome::Again(stages) => {
                for (time, _) in stages.iter().filter(|(_, stage)| matches!(stage, Stage::Bounded(_))) {
                    (counts.bounded, self.least) = (counts.bounded + 1, self.least.min(*time));
                }
                self.waiting.extend(stages.into_iter().map(Reverse));
            }
            Outcome::Fits(candidate, taken) => {
                counts.timed += 1;
                self.waiting.push(Reverse((taken.time, Stage::Finished(candidate.clone()))));
                self.taken.insert(candidate, taken);
            }
            Outcome::Misfit(misfit) => {
                match misfit.is_timed {
                    true => (counts.timed, counts.misfits) = (counts.timed + 1, counts.misfits + 1),
                    false => (counts.bounded, counts.too_large) = (counts.bounded + 1, counts.too_large + 1),
                }
                self.found.misfits.push(misfit);
            }
            Outcome::NothingFits(bytes) => {
                counts.hopeless += 1;
                self.found.least_held = self.found.least_held.into_iter().chain(bytes).min();
            }
            Outcome::Refused(candidate, reason) => {
                counts.refused += 1;
                *self.found.refused.entry((candidate.variant.name.to_owned(), reason)).or_default() += 1;
            }
        }
    }

    fn progress(&self) -> Progress<'_> {
        let settled = self.found.best.first().map(|(candidate, taken)| (candidate, taken.time));
        let finished = self.taken.iter().map(|(candidate, taken)| (candidate, taken.time));
        Progress {
            counts: self.found.counts,
            found: self.found.best.len(),
            best: settled.or_else(|| finished.min_by_key(|(candidate, time)| (*time, *candidate))),
            bound: settled.map_or_else(|| self.front(), |(_, time)| time.min(self.front())),
        }
    }

    /// The least that anything takes that waits.
    fn front(&self) -> Ticks {
        self.waiting.peek().map_or(Ticks::END, |Reverse((time, _))| *time)
    }

    fn finish(mut self, n_best: usize, is_complete: bool) -> Found {
        let front = self.front();
        let mut rest: Vec<(Candidate, Taken)> = std::mem::take(&mut self.taken).into_iter().collect();
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
        self.found.slower.truncate(OTHERS);
        let best = self.found.best.first().map_or(Ticks::END, |(_, taken)| taken.time);
        self.found.bound = self.least.min(front).min(best);
        self.found.is_complete = is_complete;
        self.found
    }
}
