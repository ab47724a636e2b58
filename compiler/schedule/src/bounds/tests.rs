//! Bounds against known optima, random schedules, and every order of small ones.

use super::*;
use crate::check::check;
use crate::check::memory::peaks;
use crate::examples::{block, one_f_one_b, v_half};
use crate::policy::activation::{Held, Shares};
use crate::schedule::ScheduledTask;
use crate::timing::costs::{StageCosts, of_stages};
use crate::timing::durations::Times;
use crate::timing::sharing::Sharing;
use crate::timing::timeline::simulate;
use pipe_ir::task::Task;
use proptest::prelude::*;

/// Makespan and lower bound, in units.
fn analyze(schedule: &Schedule, costs: &Costs) -> (Ticks, Bound) {
    let order = check(schedule).expect("the schedule is sound");
    let peaks = peaks(schedule, &order.dependencies);
    let most = peaks.iter().map(|peak| peak.activations).max().unwrap_or_default();
    (
        simulate(schedule, &order, costs).makespan(),
        lower_bound(schedule, &order.dependencies, costs, (&schedule.activations, &vec![most; schedule.n_devices()])),
    )
}

#[test]
fn one_f_one_b_is_optimal_without_latency() {
    for (devices, microbatches) in [(1, 1), (2, 3), (4, 8), (7, 5)] {
        let schedule = one_f_one_b(devices, microbatches);
        let costs = of_stages(&StageCosts::default(), schedule.n_stages());
        let (makespan, bound) = analyze(&schedule, &costs);
        assert_eq!(makespan, times(Ticks::UNIT, u64::from(3 * (microbatches + devices - 1))));
        assert_eq!(bound.makespan, makespan);
    }
}

#[test]
fn a_v_at_unit_cost_has_the_published_bound() {
    for (p, m) in [(4u64, 8u64), (4, 16), (8, 16), (8, 32)] {
        let schedule = v_half(u32::try_from(p).expect("small"), u32::try_from(m).expect("small"));
        let costs = of_stages(&StageCosts::default(), schedule.n_stages());
        let k = 2 * p.div_ceil(2) + 2;
        assert_eq!(analyze(&schedule, &costs).1.makespan, times(Ticks::UNIT, 6 * m + 6 * p - 3 * k - 1), "{p} {m}");
    }
}

#[test]
fn long_lifespans_in_little_memory_are_bounded_by_their_area() {
    // One microbatch at a time through three devices: 9 slots each, of which every device works 3.
    let schedule = block(&[0, 1, 2], 4, 9, "F0@0 F1@1 F2@2 BW2@3 BW1@5 BW0@7");
    let costs = of_stages(&StageCosts::default(), 3);
    let (makespan, bound) = analyze(&schedule, &costs);
    assert_eq!((makespan, bound.makespan), (Ticks(36_000_000), Ticks(36_000_000)));
    assert_eq!((bound.kind, bound.device), (BoundKind::Area, DeviceId(0)));
}

/// On 4 devices a microbatch comes back to device 0 after 12 slots. If that holds 2 of 8, it is
/// full for 8 * 12 / 2 slots at least; if device 2 holds 1, that takes 8 * 6 slots, behind 2
/// forwards and before 2 backwards.
#[test]
fn every_device_has_its_own_memory() {
    let schedule = one_f_one_b(4, 8);
    let costs = of_stages(&StageCosts::default(), 4);
    let dependencies = Dependencies::of(&schedule);
    let cases = [([4, 3, 2, 1], 33, 0), ([9, 9, 9, 9], 33, 3), ([2, 3, 2, 1], 48, 0), ([4, 3, 1, 1], 54, 2)];
    for (activations, makespan, device) in cases {
        let bound = lower_bound(&schedule, &dependencies, &costs, (&schedule.activations, &activations));
        assert_eq!((bound.makespan.0 / Ticks::UNIT.0, bound.device), (makespan, DeviceId(device)), "{activations:?}");
    }
}

/// Any graph, placement and costs. In some stages the costs differ by microbatch. Stages are split, fused or mixed, and
/// some recompute. The order picks greedily by random priorities, and some forwards share the device with a
/// backward beside them.
fn random() -> impl Strategy<Value = (Schedule, Costs)> {
    let sizes = (1usize..5, 1usize..7, 1u32..6, [0u64..4, 0u64..4, 0u64..4]);
    sizes.prop_flat_map(|(devices, stages, microbatches, latency)| {
        let placement = prop::collection::vec(0..u32::try_from(devices).expect("small"), stages);
        let forms = [(); 2].map(|()| prop::collection::vec(any::<bool>(), stages));
        let costs = prop::collection::vec([0u64..5, 0u64..5, 0u64..5, 0u64..5, 0u64..5, 0u64..1], stages);
        let priorities = prop::collection::vec(any::<u16>(), 4 * stages * microbatches as usize);
        let pairs = (any::<bool>(), 0u64..4, prop::collection::vec(any::<bool>(), 7));
        let counts = prop::sample::select(COUNTS);
        let more = prop::collection::vec(prop::option::of(prop::collection::vec(0u64..4, 5)), stages);
        (placement, forms, (costs, more), priorities, graph(stages), pairs, counts).prop_map(
            move |(placement, [split, again], (costs, more), priorities, graph, (halves, longer, shares), counts)| {
                let tasks = (&split[..], &again[..], &priorities[..]);
                let schedule = crate::examples::greedy(&graph, &placement, microbatches, tasks);
                let schedule = if halves { with_halves(schedule, &shares) } else { schedule };
                let schedule = counted(with_pairs(schedule, &shares), counts);
                let each: Vec<_> = costs
                    .iter()
                    .zip(&more)
                    .map(|(row, more)| more.as_ref().map(|more| by(row, more, microbatches)))
                    .collect();
                let most = more.iter().flatten().flatten().max().copied().unwrap_or_default();
                let longest =
                    |kind: TaskKind| most + costs.iter().map(|row| row[kind.index()]).max().unwrap_or_default();
                let pair = |kind| Some(Ticks(longest(TaskKind::Forward).max(longest(kind)) + longer));
                let tasks = costs.iter().map(|row| row.map(Ticks)).collect();
                let pairs = [None, pair(TaskKind::BackwardInput), None, pair(TaskKind::Backward), None, None];
                let [usual, near, far] = latency.map(Ticks);
                let links = [(DeviceId(0), DeviceId(1), near), (DeviceId(2), DeviceId(0), far)];
                (
                    schedule,
                    Costs {
                        tasks,
                        each,
                        pairs,
                        latency: Latency::with_links(usual, links.into_iter()),
                        copy: Ticks::ZERO,
                        swaps: Default::default(),
                        sharing: Sharing::default(),
                    },
                )
            },
        )
    })
}

/// Costs of a stage by microbatch: the least ones, and as much more as is said. Neighbouring kinds take turns at it,
/// and the last microbatch takes the least.
fn by(least: &[u64; TaskKind::ALL.len()], more: &[u64], microbatches: u32) -> std::sync::Arc<[Times]> {
    let row = |at: usize| {
        let mut row = *least;
        row.iter_mut().enumerate().for_each(|(kind, time)| *time += more[(at + kind) % more.len()]);
        row.map(Ticks)
    };
    let mut rows: Vec<Times> = (1..microbatches as usize).map(row).collect();
    rows.push(least.map(Ticks));
    rows.into()
}

/// What activations may count.
const COUNTS: &[&str] = &["", "W=1/3", "W=0,F[0]=2", "W[0]=0.5,W=0.75"];

fn counted(schedule: Schedule, counts: &str) -> Schedule {
    let activations =
        counts.parse::<Shares>().expect("well-formed").of(schedule.n_stages(), &schedule.parts).expect("few parts");
    Schedule { activations, ..schedule }
}

/// Splits some of the backwards that run at once.
fn with_halves(mut schedule: Schedule, shares: &[bool]) -> Schedule {
    for order in &mut schedule.orders {
        let tasks = order.iter().enumerate().flat_map(|(position, one)| {
            let half = |kind| ScheduledTask { task: Task { kind, ..one.task }, ..*one };
            match one.task.kind {
                TaskKind::Backward if shares[position % shares.len()] => {
                    vec![half(TaskKind::BackwardInput), half(TaskKind::BackwardWeight)]
                }
                _ => vec![*one],
            }
        });
        *order = tasks.collect();
    }
    schedule
}

/// Joins some neighbours, where the schedule can still run.
fn with_pairs(mut schedule: Schedule, shares: &[bool]) -> Schedule {
    for device in 0..schedule.n_devices() {
        let mut position = 0;
        while position + 1 < schedule.orders[device].len() {
            let before = schedule.clone();
            let [one, other] = &mut schedule.orders[device][position..position + 2] else { break };
            if other.task.kind == TaskKind::Forward {
                std::mem::swap(one, other);
            }
            let is_backward = matches!(other.task.kind, TaskKind::BackwardInput | TaskKind::Backward);
            one.with_next = one.task.kind == TaskKind::Forward && is_backward;
            if shares[position % shares.len()] && one.with_next && check(&schedule).is_ok() {
                position += 1;
            } else {
                schedule = before;
            }
            position += 1;
        }
    }
    schedule
}

/// A chain, or any edges.
fn graph(stages: usize) -> impl Strategy<Value = StageGraph> {
    let edges = prop::collection::vec(any::<bool>(), stages * stages);
    prop_oneof![
        Just(StageGraph::chain(stages)),
        edges.prop_map(move |drawn| {
            let pairs = (0..stages).flat_map(|from| (from + 1..stages).map(move |to| (from, to)));
            let pairs = pairs.filter(|(from, to)| drawn[from * stages + to]);
            StageGraph::new(stages, pairs.map(|(from, to)| (StageId::from_index(from), StageId::from_index(to))))
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn no_bound_exceeds_a_makespan((schedule, costs) in random()) {
        let (makespan, bound) = analyze(&schedule, &costs);
        prop_assert!(bound.makespan <= makespan, "{bound:?} {makespan}");
        let dependencies = Dependencies::of(&schedule);
        let own: Vec<u64> = peaks(&schedule, &dependencies).iter().map(|peak| peak.activations).collect();
        let of_own = lower_bound(&schedule, &dependencies, &costs, (&schedule.activations, &own));
        prop_assert!(bound.makespan <= of_own.makespan && of_own.makespan <= makespan, "{of_own:?} {own:?} {makespan}");
    }
}
/// The shortest makespans of all orders of a schedule's tasks, by the activations that they hold at most.
struct Exhaustive<'a> {
    schedule: &'a Schedule,
    dependencies: Dependencies,
    costs: &'a Costs,
    tasks: Vec<Task>,
    ends: Vec<Option<Ticks>>,
    free: Vec<Ticks>,
    alive: Vec<u64>,
    best: Vec<Ticks>,
}

impl Exhaustive<'_> {
    /// Appends every task that can run to its device's order, in turn.
    fn search(&mut self, done: usize, makespan: Ticks, peak: usize) {
        if makespan >= self.best[peak] {
            return;
        }
        if done == self.tasks.len() {
            self.best[peak] = makespan;
            return;
        }
        for index in 0..self.tasks.len() {
            let task = self.tasks[index];
            let Some(start) = self.start(index) else { continue };
            let device = self.schedule.device_of(task).index();
            let (free, alive) = (self.free[device], self.alive[device]);
            let end = start + self.costs.of_task(task);
            let held = alive + self.taken(task);
            (self.ends[index], self.free[device]) = (Some(end), end);
            self.alive[device] = held - self.given_back(task);
            let peak = peak.max(usize::try_from(held).expect("few activations"));
            self.search(done + 1, makespan.max(end), peak);
            if task.kind == TaskKind::Forward {
                (self.ends[index], self.free[device], self.alive[device]) = (None, free, held);
                self.pairs(done, makespan, peak, (index, start));
            }
            (self.ends[index], self.free[device], self.alive[device]) = (None, free, alive);
        }
    }

    /// Appends a forward together with every backward that can share its device, in turn.
    fn pairs(&mut self, done: usize, makespan: Ticks, peak: usize, (forward, start): (usize, Ticks)) {
        let device = self.schedule.device_of(self.tasks[forward]).index();
        let (free, alive) = (self.free[device], self.alive[device]);
        for index in 0..self.tasks.len() {
            let task = self.tasks[index];
            let Some(pair) = self.costs.pairs[task.kind.index()] else { continue };
            let Some(other) = self.start(index) else { continue };
            if self.schedule.device_of(task).index() != device {
                continue;
            }
            let end = start.max(other) + pair;
            (self.ends[forward], self.ends[index], self.free[device]) = (Some(end), Some(end), end);
            self.alive[device] = alive - self.given_back(task);
            self.search(done + 2, makespan.max(end), peak);
            (self.ends[forward], self.ends[index], self.free[device], self.alive[device]) = (None, None, free, alive);
        }
    }

    fn taken(&self, task: Task) -> u64 {
        if self.dependencies.is_first(task) { self.schedule.activations.of(task.stage).saved } else { 0 }
    }

    fn given_back(&self, task: Task) -> u64 {
        let Held { saved, waiting } = self.schedule.activations.of(task.stage);
        match task.kind {
            TaskKind::BackwardInput => saved - waiting,
            TaskKind::BackwardWeight => waiting,
            TaskKind::Backward => saved,
            TaskKind::Forward | TaskKind::Recompute | TaskKind::Update => 0,
        }
    }

    /// When a task that has not run can start; `None` where it has, or lacks an input.
    fn start(&self, index: usize) -> Option<Ticks> {
        let task = self.tasks[index];
        if self.ends[index].is_some() {
            return None;
        }
        let device = self.schedule.device_of(task);
        self.dependencies.inputs(task).try_fold(self.free[device.index()], |start, input| {
            let position = self.tasks.iter().position(|other| *other == input)?;
            let latency = self.costs.latency.between(self.schedule.device_of(input), device);
            Some(start.max(self.ends[position]? + latency))
        })
    }
}

#[test]
fn no_order_of_a_small_step_is_shorter_than_its_bound() {
    let branches = StageGraph::new(3, [(0, 2), (1, 2)].map(|(from, to)| (StageId(from), StageId(to))));
    let chain = StageGraph::chain;
    // Stages from this one on recompute.
    let cases: [(&[u32], u32, bool, StageGraph, usize); 10] = [
        (&[0, 1], 2, true, chain(2), 2),
        (&[0, 1], 2, false, chain(2), 2),
        (&[0, 1], 2, false, chain(2), 0),
        (&[0, 1], 1, true, chain(2), 0),
        (&[0, 0], 2, false, chain(2), 1),
        (&[0, 1, 0], 2, false, chain(3), 3),
        (&[0, 1, 0], 1, false, chain(3), 1),
        (&[0, 0, 1], 1, true, chain(3), 3),
        (&[0, 1, 0], 2, false, branches.clone(), 3),
        (&[0, 1, 2], 1, true, branches, 3),
    ];
    for ((placement, microbatches, split, graph, first), counts) in
        cases.iter().flat_map(|case| COUNTS.iter().map(move |counts| (case, counts)))
    {
        let rows = [[1, 1, 1, 2, 1, 0], [3, 1, 2, 3, 2, 0], [1, 4, 1, 5, 3, 0]];
        for (row, more) in rows.iter().flat_map(|row| [(row, None), (row, Some([3, 0]))]) {
            let again: Vec<bool> = (0..placement.len()).map(|stage| stage >= *first).collect();
            let tasks = (&vec![*split; placement.len()][..], &again[..], &[0][..]);
            let schedule = counted(crate::examples::greedy(graph, placement, *microbatches, tasks), counts);
            let most = if more.is_some() { 3 } else { 0 };
            let [with_half, whole] =
                [row[0].max(row[1]) + 1 + most, row[0].max(row[3]) + most].map(|time| Some(Ticks(time)));
            let pairs = [None, with_half, None, whole, None, None];
            let latency = Latency::with_links(Ticks(1), [(DeviceId(1), DeviceId(2), Ticks(3))].into_iter());
            let costs = Costs {
                each: vec![more.map(|more| by(row, &more, *microbatches)); placement.len()],
                tasks: vec![row.map(Ticks); placement.len()],
                pairs,
                latency,
                copy: Ticks::ZERO,
                swaps: Default::default(),
                sharing: Sharing::default(),
            };
            let tasks: Vec<Task> = schedule.orders.iter().flatten().map(|scheduled| scheduled.task).collect();
            let n_devices = schedule.n_devices();
            let most = tasks.len() * usize::try_from(schedule.activations.most()).expect("few parts");
            let mut all = Exhaustive {
                dependencies: Dependencies::of(&schedule),
                ends: vec![None; tasks.len()],
                free: vec![Ticks::ZERO; n_devices],
                alive: vec![0; n_devices],
                best: vec![Ticks(u64::MAX); most + 1],
                schedule: &schedule,
                costs: &costs,
                tasks,
            };
            all.search(0, Ticks::ZERO, 0);
            for (peak, best) in (0u64..).zip(&all.best).filter(|(_, best)| **best < Ticks(u64::MAX)) {
                let bound =
                    lower_bound(&schedule, &all.dependencies, &costs, (&schedule.activations, &vec![peak; n_devices]));
                assert!(
                    bound.makespan <= *best,
                    "{placement:?} {row:?} {more:?} holding {peak}: {bound:?} exceeds {best:?}"
                );
            }
        }
    }
}
