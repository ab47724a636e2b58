//! The shortest cycles among queues that wait for each other.
//!
//! A queue handles its items in order. Before an item some other queues must have come some way.
//! Items that are never handled form a graph: each needs the item before it in its queue, and the
//! last one of every way that it waits for. Where nothing can go on, a strongly connected component
//! of it is a knot. Every knot at which a queue stands is shown by its shortest cycle, wherever
//! that is, or by every queue that stands there and waits for itself; all other items wait for a
//! knot.

use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use std::collections::BTreeMap;

/// What an item waits for: the first items of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Need {
    /// Which queue.
    pub queue: usize,
    /// How many of its items.
    pub items: usize,
}

/// An item of a cycle. The next item of the cycle is among those that it waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// Its queue.
    pub queue: usize,
    /// Its position in the queue.
    pub item: usize,
    /// Which of its needs leads to the next item.
    pub need: usize,
}

/// Items that are looked at before the search for shorter cycles ends: enough for all but the largest knots.
const MOST_STEPS: usize = 1 << 24;

/// Items of all queues together that are looked at: knots are where queues stand, not millions of items behind.
const MOST_ITEMS: usize = 1 << 18;

/// By queue and item: what it needs. Only items that are never handled.
type Queues = [Vec<Vec<Need>>];

/// How many items of each queue to look at, the foremost ones, if there are so many queues.
pub fn window(n_queues: usize) -> usize {
    (MOST_ITEMS / n_queues.max(1)).max(1)
}

/// The shortest cycle of every knot at which a queue stands, from one of its foremost items on; no
/// queue is twice in one. Where queues wait for themselves, each of them is a cycle. A need for
/// more items than a queue has is one for all of them.
pub fn cycles(queues: &Queues) -> Vec<Vec<Link>> {
    let mut starts = vec![0];
    for queue in queues {
        starts.push(starts[starts.len() - 1] + queue.len());
    }
    let mut graph = DiGraph::<(), ()>::new();
    for _ in 0..starts[queues.len()] {
        graph.add_node(());
    }
    let node = |queue: usize, item: usize| NodeIndex::new(starts[queue] + item);
    for (queue, own) in queues.iter().enumerate() {
        for (item, needs) in own.iter().enumerate() {
            if let Some(before) = item.checked_sub(1) {
                graph.add_edge(node(queue, item), node(queue, before), ());
            }
            for need in needs {
                if let Some(last) = need.items.min(queues[need.queue].len()).checked_sub(1) {
                    graph.add_edge(node(queue, item), node(need.queue, last), ());
                }
            }
        }
    }
    let mut knots = Knots { queues, starts: &starts, component_of: vec![0; graph.node_count()], steps: 0 };
    let components = kosaraju_scc(&graph);
    for (number, component) in components.iter().enumerate() {
        component.iter().for_each(|node| knots.component_of[node.index()] = number);
    }
    let stand_at = |queue: usize| (!queues[queue].is_empty()).then(|| knots.component_of[starts[queue]]);
    let mut numbers: Vec<usize> = (0..queues.len()).filter_map(stand_at).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut cycles: Vec<Vec<Link>> = Vec::new();
    for number in numbers {
        let place = |node: &NodeIndex| {
            let queue = starts.partition_point(|start| *start <= node.index()) - 1;
            (node.index() - starts[queue], queue)
        };
        let mut members: Vec<(usize, usize)> = components[number].iter().map(place).collect();
        members.sort_unstable();
        cycles.extend(knots.shortest(&members));
    }
    cycles.sort_by_key(|cycle| cycle.first().map(|first| (first.item, first.queue)));
    cycles
}

struct Knots<'a> {
    queues: &'a Queues,
    /// By queue: the number of its first item.
    starts: &'a [usize],
    /// By item.
    component_of: Vec<usize>,
    /// Items that were looked at.
    steps: usize,
}

impl Knots<'_> {
    /// The shortest cycle through any of these items, given as position and queue; or all queues
    /// that wait for themselves.
    fn shortest(&mut self, members: &[(usize, usize)]) -> Vec<Vec<Link>> {
        let stand = members.iter().filter(|(item, _)| *item == 0);
        let own: Vec<Vec<Link>> = stand.filter_map(|(item, queue)| self.through(*queue, *item, 1)).collect();
        if !own.is_empty() {
            return own;
        }
        let mut best: Option<Vec<Link>> = None;
        for (item, queue) in members {
            let most = best.as_ref().map_or(usize::MAX, |best| best.len() - 1);
            if let Some(cycle) = self.through(*queue, *item, most) {
                best = Some(cycle);
            }
            if self.steps > MOST_STEPS && best.is_some() {
                break;
            }
        }
        best.into_iter().collect()
    }

    /// The shortest cycle through an item by breadth-first search; none if it has more than `most` links.
    fn through(&mut self, queue: usize, item: usize, most: usize) -> Option<Vec<Link>> {
        let knot = self.component_of[self.starts[queue] + item];
        let mut line = vec![Reached { link: Link { queue, item, need: 0 }, from: 0, length: 1 }];
        // By queue: how many of its first items were looked at.
        let mut seen: BTreeMap<usize, usize> = BTreeMap::new();
        let mut next = 0;
        while let Some(Reached { link, length, .. }) = line.get(next).filter(|one| one.length <= most) {
            let (link, length) = (*link, *length);
            for (number, need) in self.queues[link.queue][link.item].iter().enumerate() {
                if need.queue == queue && need.items > item {
                    return Some(back(&line, next, number));
                }
                let seen = seen.entry(need.queue).or_default();
                for item in *seen..need.items.min(self.queues[need.queue].len()) {
                    self.steps += 1;
                    if self.component_of[self.starts[need.queue] + item] == knot {
                        let link = Link { queue: need.queue, item, need: number };
                        line.push(Reached { link, from: next, length: length + 1 });
                    }
                }
                *seen = need.items.max(*seen);
            }
            next += 1;
        }
        None
    }
}

/// An item that was reached: by which need of which item, after how many links.
struct Reached {
    link: Link,
    from: usize,
    length: usize,
}

/// The way from the start to an item, and from there over this need back to the start.
fn back(line: &[Reached], mut last: usize, mut need: usize) -> Vec<Link> {
    let mut cycle = Vec::with_capacity(line[last].length);
    loop {
        let Reached { link, from, .. } = line[last];
        cycle.push(Link { need, ..link });
        if last == 0 {
            cycle.reverse();
            return cycle;
        }
        (last, need) = (from, link.need);
    }
}

#[cfg(test)]
mod tests {
    use super::{Link, Need, cycles, window};

    const fn need(queue: usize, items: usize) -> Need {
        Need { queue, items }
    }

    fn found(queues: &[Vec<Vec<Need>>]) -> Vec<Vec<(usize, usize)>> {
        let cycles = cycles(queues);
        let place = |link: &Link| (link.queue, link.item);
        cycles.iter().map(|cycle| cycle.iter().map(place).collect()).collect()
    }

    #[test]
    fn two_queues_that_wait_for_each_other() {
        assert_eq!(found(&[vec![vec![need(1, 1)]], vec![vec![need(0, 1)]]]), [[(0, 0), (1, 0)]]);
    }

    #[test]
    fn a_queue_that_waits_for_its_own_later_item() {
        assert_eq!(found(&[vec![vec![need(0, 2)], vec![]]]), [[(0, 0)]]);
        // Two of them, which wait for each other too.
        let both = vec![need(0, 2), need(1, 2)];
        let queues = [vec![both.clone(), vec![]], vec![both, vec![]]];
        assert_eq!(found(&queues), [[(0, 0)], [(1, 0)]]);
    }

    #[test]
    fn the_shortest_of_several_cycles_even_behind_the_longest() {
        // All stand in a cycle of three; behind, the queues 1 and 2 wait for each other, which 0
        // needs only the second time.
        let queues = |items| {
            let one = vec![vec![need(2, 1)], vec![need(2, 2)]];
            [vec![vec![need(1, items)]], one, vec![vec![need(0, 1)], vec![need(1, 2)]]]
        };
        assert_eq!(found(&queues(1)), [[(0, 0), (1, 0), (2, 0)]]);
        assert_eq!(found(&queues(2)), [[(1, 1), (2, 1)]]);
    }

    #[test]
    fn what_waits_for_a_knot_is_no_knot() {
        let queues = [vec![vec![need(1, 1)]], vec![vec![need(0, 1)]], vec![vec![need(0, 1)]], vec![vec![need(2, 1)]]];
        assert_eq!(found(&queues), [[(0, 0), (1, 0)]]);
    }

    #[test]
    fn a_knot_at_which_nobody_stands_is_left_out() {
        // The same once more behind: nothing that could be seen there is new.
        let queues = [vec![vec![need(1, 1)], vec![need(1, 2)]], vec![vec![need(0, 1)], vec![need(0, 2)]]];
        assert_eq!(found(&queues), [[(0, 0), (1, 0)]]);
    }

    #[test]
    fn queues_that_go_on_behind_the_window_are_cut() {
        assert_eq!(found(&[vec![vec![need(1, 9)]], vec![vec![need(0, 7)]]]), [[(0, 0), (1, 0)]]);
        assert_eq!((window(1), window(1 << 17), window(1 << 30)), (1 << 18, 2, 1));
    }

    #[test]
    fn every_knot_has_its_cycle() {
        let queues = [vec![vec![need(2, 1)]], vec![vec![need(3, 1)]], vec![vec![need(0, 1)]], vec![vec![need(1, 1)]]];
        assert_eq!(found(&queues), [[(0, 0), (2, 0)], [(1, 0), (3, 0)]]);
    }

    /// By item: whether a need of it leads to each other item, and in how many needs at least.
    /// Floyd and Warshall's algorithm.
    fn distances(queues: &[Vec<Vec<Need>>], items: &[(usize, usize)], in_order: bool) -> Vec<Vec<usize>> {
        let leads = |from: &(usize, usize), to: &(usize, usize)| {
            let needs = &queues[from.0][from.1];
            let before = in_order && from.0 == to.0 && from.1 > to.1;
            before || needs.iter().any(|need| need.queue == to.0 && need.items > to.1)
        };
        let far = 1 << 20;
        let row = |from| items.iter().map(|to| if leads(from, to) { 1 } else { far }).collect();
        let mut distances: Vec<Vec<usize>> = items.iter().map(row).collect();
        for by in 0..items.len() {
            for from in 0..items.len() {
                for to in 0..items.len() {
                    distances[from][to] = distances[from][to].min(distances[from][by] + distances[by][to]);
                }
            }
        }
        distances.iter_mut().flatten().for_each(|distance| *distance = (*distance).min(far));
        distances
    }

    #[test]
    fn no_cycle_is_shorter_than_the_one_that_is_found() {
        let mut state = 1_u64;
        let mut below = |n: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % n
        };
        let mut lengths = [0; 5];
        for _ in 0..3000 {
            let n_queues = 2 + below(6);
            let mut queues: Vec<Vec<Vec<Need>>> = (0..n_queues).map(|_| vec![Vec::new(); 1 + below(4)]).collect();
            for _ in 0..1 + below(2 * n_queues) {
                let (queue, to) = (below(n_queues), below(n_queues));
                let (item, items) = (below(queues[queue].len()), 1 + below(queues[to].len()));
                queues[queue][item].push(need(to, items));
            }
            let items: Vec<(usize, usize)> =
                (0..n_queues).flat_map(|queue| (0..queues[queue].len()).map(move |item| (queue, item))).collect();
            let (hops, ways) = (distances(&queues, &items, false), distances(&queues, &items, true));
            let far = 1 << 20;
            let number = |place: (usize, usize)| items.iter().position(|one| *one == place).expect("an item");
            let found = cycles(&queues);
            for queue in 0..n_queues {
                let first = number((queue, 0));
                let is_knotted = |one: &usize| ways[*one][first] < far && ways[first][*one] < far;
                let knot: Vec<usize> = (0..items.len()).filter(is_knotted).collect();
                let shortest = knot.iter().map(|one| hops[*one][*one]).min().filter(|length| *length < far);
                let of_knot = |cycle: &&Vec<Link>| knot.contains(&number((cycle[0].queue, cycle[0].item)));
                let shown: Vec<_> = found.iter().filter(of_knot).collect();
                let is_its_own = hops[first][first] == 1;
                assert!(shown.len() <= 1 || shown.iter().all(|cycle| cycle.len() == 1), "{queues:?} {found:?}");
                assert_eq!(shown.first().map(|cycle| cycle.len()), shortest, "{queues:?} {found:?}");
                assert!(!is_its_own || shown.iter().any(|cycle| cycle[0].queue == queue), "{queues:?} {found:?}");
                lengths[shortest.unwrap_or(0).min(4)] += 1;
            }
            for cycle in &found {
                for (link, follower) in cycle.iter().zip(cycle.iter().cycle().skip(1)) {
                    let need = queues[link.queue][link.item][link.need];
                    assert!(need.queue == follower.queue && need.items > follower.item, "{queues:?} {cycle:?}");
                }
            }
        }
        assert!(lengths.iter().all(|count| *count > 10), "too few of some length: {lengths:?}");
    }

    #[test]
    fn the_need_that_leads_on_is_named() {
        let queues = [vec![vec![need(2, 0), need(1, 1)]], vec![vec![need(0, 1)]], vec![]];
        assert_eq!(cycles(&queues)[0][0], Link { queue: 0, item: 0, need: 1 });
    }
}
