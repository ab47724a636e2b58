//! Simulated annealing on device orders: a task of a critical path moves to another place of its device's order. What
//! makes a schedule shorter must change its critical paths (van Laarhoven, Aarts and Lenstra, Operations Research 40,
//! 1992), so nothing else is tried.

use super::estimate::Moved;
use super::job::{Orders, Time};
use super::plan::{Length, Plan};
use super::random::Random;

/// Parts of the orders that stay as they are: by device, from one place to another.
pub(super) type Frozen = Vec<(usize, usize)>;

/// How an annealing goes.
pub(super) struct Course<'a> {
    /// Changes to be tried.
    pub(super) tries: u64,
    /// At first a schedule may become longer by about this much.
    pub(super) heat: Time,
    /// What must not change.
    pub(super) frozen: Option<&'a Frozen>,
}

/// A length in parts of a unit, in which the sum of the ends counts a little.
fn parts(length: Length) -> Time {
    length.length * PARTS + length.ends
}

/// How many times more the length counts than the ends.
const PARTS: Time = 48;
/// Worse by one heat with probability 1/e, by two with 1/e^2, and so on: 256 / ln 2 of surprise are one heat.
const SURPRISE_OF_HEAT: Time = 369;
/// Between two questions whether to go on.
const TRIES_AT_ONCE: u64 = 256;

/// The best orders that were met, with their length. Ends early when `go_on` says so.
pub(super) fn anneal(
    plan: &mut Plan<'_>,
    first: Length,
    course: &Course<'_>,
    random: &mut Random,
    go_on: &mut dyn FnMut() -> bool,
) -> (Length, Orders) {
    let (mut now, mut best) = (first, (first, plan.orders()));
    let (mut path, mut saved) = (Vec::new(), plan.starts().to_vec());
    plan.critical(random, &mut path);
    plan.note_tails();
    let mut moved = Moved::default();
    for tried in 0..course.tries {
        if tried % TRIES_AT_ONCE == 0 && !go_on() {
            break;
        }
        let Some((device, from, to)) = candidate(plan, &path, course, random) else { continue };
        let left = course.tries - tried;
        let heat = course.heat * PARTS * left as Time / course.tries as Time + 1;
        // What is worse than this is refused.
        let most = Time::try_from(random.surprise()).unwrap_or(Time::MAX) * heat / SURPRISE_OF_HEAT;
        if (plan.estimate(device, from, to, &mut moved) - now.length) * PARTS > most {
            continue;
        }
        saved.copy_from_slice(plan.starts());
        plan.shift(device, from, to);
        match plan.time() {
            Some(next) if parts(next) - parts(now) <= most => {
                now = next;
                plan.note_tails();
                if now < best.0 {
                    best = (now, plan.orders());
                }
                plan.critical(random, &mut path);
            }
            _ => {
                plan.shift(device, to, from);
                plan.restore(&mut saved);
            }
        }
    }
    best
}

/// A move of a task of the path, if the one that was drawn is allowed.
fn candidate(plan: &Plan<'_>, path: &[u32], course: &Course<'_>, random: &mut Random) -> Option<(usize, usize, usize)> {
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
    let is_still = |place: usize, (start, end): (usize, usize)| (start..end).contains(&place);
    // A frozen part is neither entered nor left, nor passed.
    let crosses = |part: (usize, usize)| is_still(from, part) || is_still(to, part) || (from < part.0) != (to < part.0);
    let allowed = to < plan.n_tasks(device)
        && course.frozen.is_none_or(|frozen| !crosses(frozen[device]))
        && plan.may_move(device, from, to);
    allowed.then_some((device, from, to))
}
