//! Branch and bound over orders: one node after the other, without those that can only end in what
//! is no better than the best one known.

use super::{MappingResult, Objective};
use std::collections::BTreeMap;

/// The most nodes of which orders are counted: of more there are too many, unless all are alike.
const MOST_FILLED: usize = 64;

/// How many orders there are, nodes of a class counting as one; or more than anyone looks at.
pub(super) fn orders(objective: &impl Objective) -> u64 {
    let n = u32::try_from(objective.n_nodes()).unwrap_or(u32::MAX);
    let mut classes: BTreeMap<u32, usize> = BTreeMap::new();
    (0..n).for_each(|node| *classes.entry(objective.class(node)).or_default() += 1);
    // Orders of so many places with the classes so far.
    let n_filled = objective.n_filled();
    if classes.len() < 2 {
        return 1;
    }
    if n_filled > MOST_FILLED {
        return u64::MAX;
    }
    let mut ways = vec![0_u64; n_filled + 1];
    ways[0] = 1;
    for size in classes.into_values() {
        let with = |places: usize| {
            let taken = (0..=size.min(places)).map(|own| ways[places - own].saturating_mul(choices(places, own)));
            taken.fold(0, u64::saturating_add)
        };
        ways = (0..=n_filled).map(with).collect();
    }
    ways[n_filled]
}

/// In how many ways some of so many places can be chosen.
fn choices(all: usize, some: usize) -> u64 {
    let some = some.min(all - some) as u64;
    // Each product is a number of choices times a small one, so that each division is exact.
    let next = |ways: u128, chosen: u64| ways.saturating_mul(u128::from(all as u64 - chosen)) / u128::from(chosen + 1);
    let ways = (0..some).try_fold(1_u128, |ways, chosen| Some(next(ways, chosen)).filter(|ways| *ways < 1 << 100));
    ways.and_then(|ways| u64::try_from(ways).ok()).unwrap_or(u64::MAX)
}

/// Looks at all orders, from a good one on.
pub(super) fn exact(
    objective: &impl Objective,
    found: MappingResult,
    go_on: &mut dyn FnMut() -> bool,
) -> MappingResult {
    let n_filled = objective.n_filled().min(found.nodes.len());
    let rest = (0..u32::try_from(objective.n_nodes()).unwrap_or(u32::MAX)).collect();
    let mut search = Search { objective, n_filled, found, begun: Vec::new(), rest, go_on };
    let is_done = search.descend();
    MappingResult { is_best: is_done, ..search.found }
}

struct Search<'a, O> {
    objective: &'a O,
    n_filled: usize,
    found: MappingResult,
    begun: Vec<u32>,
    /// Nodes that are left, ascending.
    rest: Vec<u32>,
    go_on: &'a mut dyn FnMut() -> bool,
}

impl<O: Objective> Search<'_, O> {
    /// Looks at all orders that begin so; false where the caller ended it.
    fn descend(&mut self) -> bool {
        if !self.begun.is_empty() && self.objective.least(&self.begun) >= self.found.time {
            return true;
        }
        if self.begun.len() == self.n_filled {
            return self.complete();
        }
        for place in 0..self.rest.len() {
            let class = self.objective.class(self.rest[place]);
            // Of nodes that are alike, the first one stands for all.
            if self.rest[..place].iter().any(|other| self.objective.class(*other) == class) {
                continue;
            }
            let node = self.rest.remove(place);
            self.begun.push(node);
            let is_done = self.descend();
            self.begun.pop();
            self.rest.insert(place, node);
            if !is_done {
                return false;
            }
        }
        true
    }

    fn complete(&mut self) -> bool {
        if !(self.go_on)() {
            return false;
        }
        let nodes = [self.begun.as_slice(), &self.rest].concat();
        let time = self.objective.time(&nodes);
        self.found.timed += 1;
        if time < self.found.time {
            (self.found.nodes, self.found.time) = (nodes, time);
        }
        true
    }
}
