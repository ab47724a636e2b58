//! Mapping: in which order the nodes of a cluster are filled, so that slow links lie where they hurt least.
//!
//! What an order is worth is the caller's business ([`Objective`]); for a pipeline it is its step
//! as the report has it ([`steps`]). Where there are few orders, all are looked at by branch and
//! bound ([`exact`]), so that none is better. Else, or where the caller ends that, the best of
//! those that were annealed is found ([`anneal`], as in Pipette, arXiv 2405.18093, section 5),
//! which proves nothing ([`MappingResult::is_best`]). Nodes that can change places without any difference
//! count as one, so that a cluster whose links are all alike has one order.

mod anneal;
mod exact;
pub mod steps;

use pipe_schedule::units::Ticks;

/// What is to be short.
pub trait Objective {
    /// Nodes that there are.
    fn n_nodes(&self) -> usize;

    /// How many of them are filled.
    fn n_filled(&self) -> usize;

    /// The order to start from.
    fn first(&self) -> Vec<u32> {
        (0..u32::try_from(self.n_nodes()).unwrap_or(u32::MAX)).collect()
    }

    /// What an order of all nodes takes. Only those count that are filled.
    fn time(&self, nodes: &[u32]) -> Ticks;

    /// What all orders that begin so take at least.
    fn least(&self, _begun: &[u32]) -> Ticks {
        Ticks::ZERO
    }

    /// A number for each node; two nodes with the same one can change places without any difference.
    fn class(&self, node: u32) -> u32 {
        node
    }
}

/// How to look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Where random choices come from.
    pub seed: u64,
    /// Orders that are tried while annealing.
    pub moves: u64,
    /// All orders are looked at if there are no more than these.
    pub most_orders: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { seed: 1, moves: 3_000, most_orders: 50_000 }
    }
}

/// An order of the nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MappingResult {
    /// Which node is filled first, second, ..
    pub nodes: Vec<u32>,
    /// What that takes.
    pub time: Ticks,
    /// What the order takes that the search started from.
    pub before: Ticks,
    /// Whether no order is shorter.
    pub is_best: bool,
    /// Orders that were timed.
    pub timed: u64,
}

/// The best order that is found, from the first one on, as long as `go_on` says so. More time never makes it longer.
pub fn best(objective: &impl Objective, options: Options, go_on: &mut dyn FnMut() -> bool) -> MappingResult {
    let nodes = objective.first();
    let before = objective.time(&nodes);
    let start = MappingResult { nodes, time: before, before, is_best: false, timed: 1 };
    let orders = exact::orders(objective);
    if orders < 2 {
        return MappingResult { is_best: true, ..start };
    }
    if orders > options.most_orders {
        return anneal::anneal(objective, start, options, go_on);
    }
    // A good order first: the better it is, the more of the others need no look.
    let few = Options { moves: options.moves.min(orders / 4), ..options };
    let found = anneal::anneal(objective, start, few, go_on);
    exact::exact(objective, found, go_on)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A chain whose neighbours should be next to each other, on nodes of some colours.
    struct Chain {
        rows: Vec<Vec<u64>>,
        n_filled: usize,
        prunes: bool,
    }

    impl Chain {
        fn random(n: usize, n_filled: usize, seed: u64, prunes: bool) -> Self {
            let mut random = pipe_schedule::dispatch::random::Random::new(seed);
            let rows = (0..n).map(|_| (0..n).map(|_| 1 + random.draw() % 50).collect()).collect();
            Self { rows, n_filled, prunes }
        }

        fn sum(&self, nodes: &[u32]) -> Ticks {
            let pairs = nodes.iter().zip(nodes.iter().skip(1)).take(self.n_filled - 1);
            Ticks(pairs.map(|(one, other)| self.rows[*one as usize][*other as usize]).sum())
        }
    }

    impl Objective for Chain {
        fn n_nodes(&self) -> usize {
            self.rows.len()
        }

        fn n_filled(&self) -> usize {
            self.n_filled
        }

        fn time(&self, nodes: &[u32]) -> Ticks {
            self.sum(nodes)
        }

        fn least(&self, begun: &[u32]) -> Ticks {
            if self.prunes { self.sum(begun) } else { Ticks::ZERO }
        }
    }

    #[test]
    fn looking_at_all_orders_finds_the_best_one_with_and_without_bounds() {
        for seed in 0..20 {
            for (n, n_filled) in [(2, 2), (5, 5), (6, 4), (7, 7)] {
                let found = [true, false].map(|prunes| {
                    let chain = Chain::random(n, n_filled, seed, prunes);
                    let found = best(&chain, Options::default(), &mut || true);
                    assert_eq!(chain.sum(&found.nodes), found.time);
                    assert!(found.is_best && found.time <= found.before);
                    found
                });
                assert_eq!(found[0].time, found[1].time, "{n} {n_filled} {seed}");
                let annealed = Options { most_orders: 0, ..Options::default() };
                let annealed = best(&Chain::random(n, n_filled, seed, true), annealed, &mut || true);
                assert!(!annealed.is_best && annealed.time >= found[0].time);
            }
        }
    }

    /// Nodes that are alike but for one.
    struct Odd(usize);

    impl Objective for Odd {
        fn n_nodes(&self) -> usize {
            self.0
        }

        fn n_filled(&self) -> usize {
            self.0
        }

        fn time(&self, nodes: &[u32]) -> Ticks {
            let place = nodes.iter().position(|node| *node == 3).unwrap_or_default();
            Ticks(1_000 * (5_u64.abs_diff(place as u64) + 1))
        }

        fn class(&self, node: u32) -> u32 {
            u32::from(node == 3)
        }
    }

    #[test]
    fn nodes_that_are_alike_count_as_one() {
        for n in [8, 40, 64] {
            let found = best(&Odd(n), Options::default(), &mut || true);
            assert!(found.is_best && found.time == Ticks(1_000) && found.timed < 100, "{found:?}");
        }
        // Of very many nodes, orders are not even counted.
        let found = best(&Odd(2_000), Options { moves: 100, ..Options::default() }, &mut || true);
        assert!(!found.is_best && found.time <= found.before);
    }

    #[test]
    fn the_caller_ends_the_search() {
        let chain = Chain::random(12, 12, 7, true);
        let mut left = 50;
        let mut go_on = || {
            left -= 1;
            left > 0
        };
        let found = best(&chain, Options::default(), &mut go_on);
        assert!(!found.is_best && found.timed <= 60, "{found:?}");
        let mut sorted = found.nodes.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..12).collect::<Vec<_>>());
        assert_eq!(best(&chain, Options::default(), &mut || true), best(&chain, Options::default(), &mut || true));
    }
}
