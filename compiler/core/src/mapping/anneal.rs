//! Annealing of orders: two nodes change places, one moves, or a run of them turns round
//! (Kirkpatrick, Gelatt and Vecchi, Science 220, 1983).

use super::{MappingResult, Objective, Options};
use pipe_schedule::dispatch::random::Random;
use pipe_schedule::units::Ticks;

/// The first temperature is this part of what the start takes, and the last one that part.
const PARTS: (u64, u64) = (20, 20_000);
/// Levels of temperature.
const LEVELS: u64 = 64;

/// Improves an order, and returns the best one that was seen.
pub(super) fn anneal(
    objective: &impl Objective,
    start: MappingResult,
    options: Options,
    go_on: &mut dyn FnMut() -> bool,
) -> MappingResult {
    let (n, n_filled) = (start.nodes.len(), objective.n_filled().min(start.nodes.len()));
    if n < 2 || n_filled == 0 {
        return start;
    }
    let mut random = Random::new(options.seed);
    let (mut nodes, mut time, mut found) = (start.nodes.clone(), start.time, start);
    for step in 0..options.moves {
        if !go_on() {
            break;
        }
        let mut other = nodes.clone();
        change(&mut other, n_filled, &mut random);
        let is_same = |place: usize| objective.class(other[place]) == objective.class(nodes[place]);
        if (0..n_filled).all(is_same) {
            continue;
        }
        let next = objective.time(&other);
        found.timed += 1;
        let heat = u128::from(temperature(found.before, step, options.moves).0);
        let longer = u128::from((next - time).0);
        if longer * 256 <= heat * u128::from(random.surprise()) {
            (nodes, time) = (other, next);
        }
        if time < found.time {
            (found.nodes, found.time) = (nodes.clone(), time);
        }
    }
    found
}

/// Falls by the same factor from level to level: halves are exact, what lies between them is on a line.
fn temperature(start: Ticks, step: u64, steps: u64) -> Ticks {
    let (first, last) = (start.0 / PARTS.0, start.0 / PARTS.1);
    let halvings = u64::from((PARTS.1 / PARTS.0).ilog2()) + 1;
    let level = step.saturating_mul(LEVELS) / steps.max(1) * halvings;
    let (whole, part) = (level / LEVELS, level % LEVELS);
    let above = first >> whole.min(63);
    Ticks((above - above / 2 * part / LEVELS).max(last).max(1))
}

/// Changes what is filled.
fn change(nodes: &mut [u32], n_filled: usize, random: &mut Random) {
    let (one, other) = (random.below(n_filled), random.below(nodes.len()));
    match random.below(3) {
        0 => nodes.swap(one, other),
        1 => nodes[one.min(other)..=one.max(other)].reverse(),
        _ if one < other => nodes[one..=other].rotate_left(1),
        _ => nodes[other..=one].rotate_right(1),
    }
}
