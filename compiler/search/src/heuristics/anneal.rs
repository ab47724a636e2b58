//! Simulated annealing on device orders: a task of a critical path moves to another place of its device's order. What
//! makes a schedule shorter must change its critical paths (van Laarhoven, Aarts and Lenstra, Operations Research 40,
//! 1992), so nothing else is tried.

use pipe_ir::ids::IndexVec;
use pipe_schedule::dispatch::estimate::Moved;
use pipe_schedule::dispatch::job::{Orders, TaskId, Time};
use pipe_schedule::dispatch::plan::{Length, Move, Plan};
use pipe_schedule::dispatch::random::Random;
use pipe_schedule::dispatch::stretch::Frozen;
use std::ops::Range;

/// How an annealing goes.
pub(crate) struct Course<'a> {
    /// Changes to be tried.
    pub(crate) tries: u64,
    /// At first a schedule may become longer by about this much.
    pub(crate) heat: Time,
    /// What must not change.
    pub(crate) frozen: Option<&'a Frozen>,
}

/// A length in parts of a unit, in which the sum of the ends counts a little.
fn parts(length: Length) -> Time {
    length.length.saturating_mul(PARTS).saturating_add(length.ends)
}

/// How many times more the length counts than the ends.
pub(crate) const PARTS: Time = 48;
/// Worse by one heat with probability 1/e, by two with 1/e^2, and so on: 256 / ln 2 of surprise are one heat.
const SURPRISE_OF_HEAT: Time = 369;
/// Between two questions whether to go on.
const TRIES_AT_ONCE: u64 = 256;

/// Of how many changes one is of the form of a backward, where there are two.
const SHIFTS: usize = 4;

/// An annealing under way.
struct Annealing<'a, 'b> {
    plan: &'a mut Plan<'b>,
    now: Length,
    best: (Length, Orders),
    path: Vec<TaskId>,
    saved: IndexVec<TaskId, Time>,
    moved: Moved,
    frozen: Option<Frozen>,
}

/// The best orders that were met, with their length. Ends early when `go_on` says so.
pub(crate) fn anneal(
    plan: &mut Plan<'_>,
    first: Length,
    course: &Course<'_>,
    random: &mut Random,
    go_on: &mut dyn FnMut() -> bool,
) -> (Length, Orders) {
    let (best, saved) = ((first, plan.orders()), plan.starts().clone());
    let (path, moved, frozen) = (Vec::new(), Moved::default(), course.frozen.cloned());
    let mut annealing = Annealing { plan, now: first, best, path, saved, moved, frozen };
    annealing.plan.critical(random, &mut annealing.path);
    annealing.plan.note_tails();
    let has_forms = !annealing.plan.job.fusions.is_empty();
    for tried in 0..course.tries {
        if tried % TRIES_AT_ONCE == 0 && !go_on() {
            break;
        }
        let heat = heat_left(course.heat, course.tries - tried, course.tries);
        if has_forms && random.below(SHIFTS) == 0 {
            annealing.change_form(heat, random);
        } else {
            annealing.shift(heat, random);
        }
    }
    annealing.best
}

/// The heat, in parts, after some of the tries.
pub(crate) fn heat_left(heat: Time, left: u64, tries: u64) -> Time {
    let parts = i128::from(heat) * i128::from(PARTS) * i128::from(left) / i128::from(tries) + 1;
    Time::try_from(parts).unwrap_or(Time::MAX)
}

/// What is worse than this is refused.
pub(crate) fn most(heat: Time, random: &mut Random) -> Time {
    let most = i128::from(random.surprise()) * i128::from(heat) / i128::from(SURPRISE_OF_HEAT);
    Time::try_from(most).unwrap_or(Time::MAX)
}

impl Annealing<'_, '_> {
    /// Tries to move a task.
    fn shift(&mut self, heat: Time, random: &mut Random) {
        let Some(change) = candidate(self.plan, &self.path, self.frozen.as_ref(), random) else { return };
        let most = most(heat, random);
        if (self.plan.estimate(change, &mut self.moved) - self.now.length) * PARTS > most {
            return;
        }
        self.saved.copy_from_slice(self.plan.starts());
        self.plan.shift(change);
        if !self.accepts(most, random) {
            self.plan.shift(change.undone());
            self.plan.restore(&mut self.saved);
        }
    }

    /// Tries to give a backward the other form.
    fn change_form(&mut self, heat: Time, random: &mut Random) {
        if self.path.is_empty() {
            return;
        }
        let (device, place) = self.plan.some_place(self.path[random.below(self.path.len())], random);
        let apart = match random.below(4) {
            0 => 0,
            1..3 => 1 + random.below(4),
            _ => random.below(24),
        };
        let n_tasks = self.plan.n_tasks(device);
        let frozen = self.frozen.as_ref().map_or(0..0, |frozen| frozen[device].clone());
        let within = match place {
            _ if frozen.contains(&place) => return,
            _ if self.frozen.is_some() && place < frozen.start => 0..frozen.start,
            _ => frozen.end..n_tasks,
        };
        self.saved.copy_from_slice(self.plan.starts());
        let Some(before) = self.plan.change_form((device, place), apart, within) else { return };
        if self.accepts(most(heat, random), random) {
            let more = self.plan.n_tasks(device) as isize - n_tasks as isize;
            if let Some(part) = self.frozen.as_mut().map(|frozen| &mut frozen[device]).filter(|part| place < part.start)
            {
                *part = part.start.saturating_add_signed(more)..part.end.saturating_add_signed(more);
            }
        } else {
            self.plan.undo(before);
            self.plan.restore(&mut self.saved);
        }
    }

    /// Times the schedule after a change, and takes note of it if it is not too long.
    fn accepts(&mut self, most: Time, random: &mut Random) -> bool {
        let Some(next) = self.plan.time().filter(|next| parts(*next) - parts(self.now) <= most) else { return false };
        self.now = next;
        self.plan.note_tails();
        if self.now < self.best.0 {
            self.best = (self.now, self.plan.orders());
        }
        self.plan.critical(random, &mut self.path);
        true
    }
}

/// A move of a task of the path, if the one that was drawn is allowed.
fn candidate(plan: &Plan<'_>, path: &[TaskId], frozen: Option<&Frozen>, random: &mut Random) -> Option<Move> {
    if path.is_empty() {
        return None;
    }
    let (device, from) = plan.some_place(path[random.below(path.len())], random);
    let step = match random.below(8) {
        0..5 => 1,
        5..7 => 2 + random.below(3),
        _ => 2 + random.below(12),
    };
    let to = if random.below(2) == 0 { from.checked_sub(step)? } else { from + step };
    let change = Move { device, from, to };
    // A frozen part is neither entered nor left, nor passed.
    let crosses =
        |part: &Range<usize>| part.contains(&from) || part.contains(&to) || (from < part.start) != (to < part.start);
    let allowed =
        to < plan.n_tasks(device) && frozen.is_none_or(|frozen| !crosses(&frozen[device])) && plan.may_move(change);
    allowed.then_some(change)
}
