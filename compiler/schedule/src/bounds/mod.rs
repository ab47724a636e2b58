//! Lower bounds: how short any schedule with this placement, these costs and this much memory can be.
//!
//! No bound assumes an order, equal stages or one stage per device, or that no forward shares the
//! device with a backward. For a device, the head of a task is the least time before it can start,
//! its tail the least time from its end to the end of the step; both follow from one microbatch.
//! Stages that recompute do so in all schedules that are compared, and backwards have the forms
//! that `dependencies` allows ([`of_either_form`]).

mod earlier;
mod lifespans;
mod memory;

use crate::dependencies::Dependencies;
use crate::parts::joins::Latest;
use crate::policy::activation::{Activations, Held};
use crate::schedule::Schedule;
use crate::stage_graph::{ListId, StageGraph};
use crate::timing::durations::{Costs, Times};
use crate::timing::latency::Latency;
use crate::units::Ticks;
use memory::{area, warmup};
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use pipe_ir::task::TaskKind;
use serde::Serialize;
use std::collections::BinaryHeap;

pipe_ir::words! {
    /// What limits the makespan.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum BoundKind {
        /// Some device's work, after the least time before it can begin and before the least time that must follow.
        Work "work of the busiest device"
        /// Some device's memory: warm-up and cool-down leave it idle, because it holds few microbatches.
        Warmup "warm-up and cool-down in this memory"
        /// Some device's memory over time: activations live too long for more of them.
        Area "memory times lifespans"
        /// The work of all devices that share a processor.
        Shared "work of all devices on one processor"
        /// A chain of tasks through many microbatches, where stages read earlier ones.
        Earlier "the longest chain through earlier microbatches"
    }
}

/// A proved lower bound on the makespan.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Bound {
    /// No schedule is shorter.
    pub makespan: Ticks,
    /// Because of what.
    pub kind: BoundKind,
    /// On which device.
    pub device: DeviceId,
}

/// The best bound for schedules in which stages hold at least so much of a microbatch, and devices
/// at most so much, by [`DeviceId`].
pub fn lower_bound(
    schedule: &Schedule,
    dependencies: &Dependencies,
    costs: &Costs,
    (activations, memory): (&Activations, &[u64]),
) -> Bound {
    let chain = Chain::new(schedule, dependencies, costs);
    let stages = shares(schedule, activations);
    let mut best = Bound { makespan: Ticks::ZERO, kind: BoundKind::Work, device: DeviceId(0) };
    for (device, stages) in stages.iter().enumerate().filter(|(_, stages)| !stages.is_empty()) {
        // What is evicted makes room for more.
        let memory = memory.get(device).copied().filter(|_| schedule.swaps.is_empty());
        let device = DeviceId::from_index(device);
        // Both hold nothing.
        let is_free = |stage| dependencies.recomputes(stage) || !schedule.frozen.has_backward(stage);
        let is_free = stages.iter().any(|share| is_free(share.stage));
        let candidates = [
            (BoundKind::Work, work(&chain, stages)),
            // Lanes hold nothing.
            (
                BoundKind::Warmup,
                memory.filter(|_| !is_free).map_or(Ticks::ZERO, |memory| warmup(&chain, stages, memory)),
            ),
            (BoundKind::Area, memory.map_or(Ticks::ZERO, |memory| area(&chain, stages, memory))),
        ];
        for (kind, makespan) in candidates {
            if makespan > best.makespan {
                best = Bound { makespan, kind, device };
            }
        }
    }
    let hops = Hops { schedule, graph: dependencies.graph(), latency: &costs.latency };
    if let Some((makespan, stage)) = earlier::longest(&chain, &hops).filter(|(makespan, _)| *makespan > best.makespan) {
        best = Bound { makespan, kind: BoundKind::Earlier, device: schedule.placement.device(stage, MicrobatchId(0)) };
    }
    for (devices, at_once) in costs.sharing.processors(schedule.n_devices()) {
        let shares = devices.iter().flat_map(|device| &stages[device.index()]);
        let each = shares.flat_map(|share| chain.steps(share.stage).map(|step| step.of_all(share.n_microbatches)));
        let work = each.fold(Ticks::ZERO, |sum, work| sum + work);
        let (makespan, device) = (Ticks(work.0 / at_once), devices.first().copied().unwrap_or(DeviceId(0)));
        if makespan > best.makespan {
            best = Bound { makespan, kind: BoundKind::Shared, device };
        }
    }
    best
}

pipe_ir::words! {
    /// The forms that the bound of a schedule allows: of each stage those that the schedule has.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Forms {
        /// All backwards run at once, as `BW`.
        Fused "with BW"
        /// All run in halves, as `B` and `W`.
        Split "with B and W"
        /// Both are there.
        Mixed "with these forms of backwards"
    }
}

impl Forms {
    /// Those of a schedule.
    pub fn of(schedule: &Schedule, dependencies: &Dependencies) -> Self {
        let stages = (0..schedule.n_stages()).map(StageId::from_index);
        let mut stages = stages.filter(|stage| !schedule.frozen.is_frozen(*stage));
        match () {
            () if stages.clone().all(|stage| !dependencies.is_split(stage)) => Self::Fused,
            () if stages.all(|stage| !dependencies.is_fused(stage)) => Self::Split,
            () => Self::Mixed,
        }
    }
}

/// The bound where each backward may have either form, whatever the schedule has. None where the
/// costs of a form are not known: those of a model are only known for the tasks that its schedule
/// asks for.
pub fn of_either_form(
    schedule: &Schedule,
    dependencies: &Dependencies,
    costs: &Costs,
    held: (&Activations, &[u64]),
) -> Option<Bound> {
    let stages = || (0..schedule.n_stages()).map(StageId::from_index);
    let is_known = |stage| {
        let both = costs.of(TaskKind::Backward, stage) > Ticks::ZERO;
        both == (costs.of(TaskKind::BackwardInput, stage) + costs.of(TaskKind::BackwardWeight, stage) > Ticks::ZERO)
    };
    let either = || Dependencies::of_either(&schedule.graph, 0, |_| true).with_recomputation_of(dependencies);
    stages().all(is_known).then(|| lower_bound(schedule, &either(), costs, held))
}

/// The most that a device works at least, where a forward may share it with each backward: no
/// device's time from its first start to its last end is shorter for all devices.
pub fn least_work(schedule: &Schedule, dependencies: &Dependencies, costs: &Costs) -> Ticks {
    let chain = Chain::new(schedule, dependencies, costs);
    let of_share = |share: &Share| {
        let steps = chain.steps(share.stage).map(|step| step.of_all(share.n_microbatches));
        steps.into_iter().fold(Ticks::ZERO, |sum, work| sum + work)
    };
    let of_device = |stages: &Vec<Share>| stages.iter().map(of_share).fold(Ticks::ZERO, |sum, work| sum + work);
    shares(schedule, &schedule.activations).iter().take(schedule.n_devices()).map(of_device).max().unwrap_or_default()
}

/// A stage on a device, and how many of its microbatches run there.
#[derive(Clone, Copy, Debug)]
struct Share {
    stage: StageId,
    /// What the shortest slice holds.
    held: Held,
    /// The most that a `B` gives back.
    part: u64,
    n_microbatches: u64,
}

/// What every device has to do.
fn shares(schedule: &Schedule, activations: &Activations) -> Vec<Vec<Share>> {
    let (placement, n_microbatches) = (&schedule.placement, u64::from(schedule.n_microbatches));
    let period = u64::from(placement.period());
    let mut shares: Vec<Vec<Share>> = vec![Vec::new(); schedule.n_queues()];
    for stage in placement.stages() {
        for phase in 0..placement.period() {
            let n_microbatches = n_microbatches.saturating_sub(u64::from(phase)).div_ceil(period);
            for device in placement.devices(stage, MicrobatchId(phase)) {
                let own = &mut shares[device.index()];
                match own.last_mut().filter(|last| last.stage == stage) {
                    Some(share) => share.n_microbatches += n_microbatches,
                    None => {
                        let [held, most] = activations.range(stage);
                        own.push(Share { stage, held, part: most.saved - most.waiting, n_microbatches });
                    }
                }
            }
        }
    }
    shares
}

/// One task of a stage, seen from one microbatch.
#[derive(Clone, Copy, Default)]
struct Step {
    head: Ticks,
    duration: Ticks,
    /// What it keeps the device busy at least, where tasks may share the device.
    work: Ticks,
    /// What is to be added for all microbatches together, where these differ.
    rest: Ticks,
    tail: Ticks,
}

impl Step {
    /// The least time at which it ends.
    fn end(self) -> Ticks {
        self.head + self.duration
    }

    /// The least time from its start to the end of the step.
    fn onward(self) -> Ticks {
        self.duration + self.tail
    }

    /// The least time that `n_microbatches` keep the device busy. If microbatches differ, pass all of the stage's.
    fn of_all(self, n_microbatches: u64) -> Ticks {
        times(self.work, n_microbatches) + self.rest
    }
}

/// The edges between stages, with the latency of each to the stage at hand, or from there.
struct Hops<'a> {
    schedule: &'a Schedule,
    graph: &'a StageGraph,
    latency: &'a Latency,
}

impl Hops<'_> {
    /// The latest of what arrives at a stage from those that it reads, which end at these moments. `known` keeps what
    /// stages in a row wait for.
    fn latest_before<T: Copy>(
        &self,
        stage: usize,
        known: &mut Option<Known<T>>,
        end: impl Fn(usize) -> Option<(Ticks, T)>,
    ) -> Option<(Ticks, T)> {
        let own = StageId::from_index(stage);
        let hop = |other: StageId| self.latency(other, own);
        self.latest(own, (self.graph.join_before(own), self.graph.before(own)), (known, &hop), end)
    }

    /// The latest of what arrives at a stage from those that read it.
    fn latest_after<T: Copy>(
        &self,
        stage: usize,
        known: &mut Option<Known<T>>,
        end: impl Fn(usize) -> Option<(Ticks, T)>,
    ) -> Option<(Ticks, T)> {
        let own = StageId::from_index(stage);
        let hop = |other: StageId| self.latency(other, own);
        self.latest(own, (self.graph.join_after(own), self.graph.after(own)), (known, &hop), end)
    }

    /// The longest time from a stage on through one that it reads, if these are the times from there on.
    fn longest_back(&self, stage: usize, known: &mut Option<Known<()>>, onward: impl Fn(usize) -> Ticks) -> Ticks {
        let own = StageId::from_index(stage);
        let hop = |other: StageId| self.latency(own, other);
        let has_backward = |other: usize| self.schedule.frozen.has_backward(StageId::from_index(other));
        let end = |other: usize| has_backward(other).then(|| (onward(other), ()));
        let found = self.latest(own, (self.graph.join_before(own), self.graph.before(own)), (known, &hop), end);
        found.map_or(Ticks::ZERO, |(time, ())| time)
    }

    /// The longest time from a stage on through one that reads it, likewise.
    fn longest_onward(&self, stage: usize, known: &mut Option<Known<()>>, onward: impl Fn(usize) -> Ticks) -> Ticks {
        let own = StageId::from_index(stage);
        let hop = |other: StageId| self.latency(own, other);
        let end = |other: usize| Some((onward(other), ()));
        let found = self.latest(own, (self.graph.join_after(own), self.graph.after(own)), (known, &hop), end);
        found.map_or(Ticks::ZERO, |(time, ())| time)
    }

    fn latest<T: Copy>(
        &self,
        own: StageId,
        (join, others): (Option<ListId>, &[StageId]),
        (known, hop): (&mut Option<Known<T>>, &dyn Fn(StageId) -> Ticks),
        end: impl Fn(usize) -> Option<(Ticks, T)>,
    ) -> Option<(Ticks, T)> {
        let later = |one: Option<(Ticks, T)>, other: (Ticks, T)| one.filter(|one| one.0 >= other.0).or(Some(other));
        let each = |others: &[StageId]| {
            let arrivals = others.iter().filter_map(|other| {
                let (end, what) = end(other.index())?;
                Some((end + hop(*other), what))
            });
            arrivals.fold(None, later)
        };
        let (Some(list), Some((far, device))) = (join, self.alone(own)) else { return each(others) };
        let known = match known {
            Some(known) if known.list == list => known,
            _ => {
                let (alone, together) =
                    others.iter().partition::<Vec<StageId>, _>(|other| self.alone(**other).is_some());
                let ends = alone.iter().filter_map(|other| {
                    let (end, what) = end(other.index())?;
                    Some((end, self.alone(*other)?.1, what))
                });
                known.insert(Known { list, alone: Latest::of(ends), together })
            }
        };
        let alone = known.alone.at(device, far);
        let together = each(&known.together);
        together.into_iter().fold(alone, later)
    }

    /// The only device of a stage, and how far all others are away, if they are equally far.
    fn alone(&self, stage: StageId) -> Option<(Ticks, DeviceId)> {
        let placement = &self.schedule.placement;
        let far = self.latency.of_all().filter(|_| placement.period() == 1)?;
        match placement.devices(stage, MicrobatchId(0)) {
            [only] => Some((far, self.schedule.parts.device(*only, self.schedule.n_devices()))),
            _ => None,
        }
    }

    fn latency(&self, from: StageId, to: StageId) -> Ticks {
        // Of replicated stages, what the luckiest microbatch takes.
        let placement = &self.schedule.placement;
        let microbatches = (0..placement.period()).map(MicrobatchId);
        let hop = |own| self.schedule.hop(self.latency, placement.devices(from, own), placement.devices(to, own));
        microbatches.map(hop).min().unwrap_or_default()
    }
}

/// What stages in a row wait for.
struct Known<T> {
    list: ListId,
    /// What single devices compute.
    alone: Latest<T>,
    /// Stages that several devices run together.
    together: Vec<StageId>,
}

/// The way of one microbatch through all stages, by [`StageId`].
struct Chain {
    forward: Vec<Step>,
    /// Takes no time where a stage does not recompute.
    recompute: Vec<Step>,
    /// `B` or `BW`.
    backward: Vec<Step>,
    /// `W`; takes no time where it is fused.
    weight: Vec<Step>,
    /// A forward: at most this long.
    most_forward: Vec<Ticks>,
    /// All of the backward: at most this long.
    most: Vec<Ticks>,
    /// All of `W`: at most this long; no time where it is fused.
    most_weight: Vec<Ticks>,
    /// From the start of the task that saves activations to the end of `B`, or `BW`: at least this long.
    lifespans: Vec<Ticks>,
}

/// What the backward tasks of a stage take, by [`TaskKind::index`].
struct Backwards([Ticks; TaskKind::ALL.len()]);

impl Backwards {
    fn of(&self, kind: TaskKind) -> Ticks {
        self.0[kind.index()]
    }

    /// The least that the gradient of the input takes, and then that of the weights. Of a stage that does both, the
    /// halves take what the quicker way takes.
    fn least(&self, (is_split, is_fused): (bool, bool)) -> [Ticks; 2] {
        let [input, weight, both] =
            [TaskKind::BackwardInput, TaskKind::BackwardWeight, TaskKind::Backward].map(|kind| self.of(kind));
        match (is_split, is_fused) {
            (true, false) => [input, weight],
            (true, true) => [input.min(both), weight.min(both - input.min(both))],
            (false, _) => [both, Ticks::ZERO],
        }
    }

    /// The most that both gradients take.
    fn most(&self, (is_split, is_fused): (bool, bool)) -> Ticks {
        let halves = self.of(TaskKind::BackwardInput) + self.of(TaskKind::BackwardWeight);
        let both = self.of(TaskKind::Backward);
        match (is_split, is_fused) {
            (true, false) => halves,
            (true, true) => halves.max(both),
            (false, _) => both,
        }
    }
}

impl Chain {
    fn new(schedule: &Schedule, dependencies: &Dependencies, costs: &Costs) -> Self {
        let stages = || (0..schedule.n_stages()).map(StageId::from_index);
        let longest_forward = stages().map(|stage| costs.most(TaskKind::Forward, stage)).max().unwrap_or_default();
        // If every device of a stage runs all microbatches, their work is added up. Otherwise each counts as the least.
        let is_whole = schedule.placement.period() == 1;
        let work = |stage: StageId, of: &dyn Fn(&Times) -> Ticks| {
            let (least, rows) = (std::slice::from_ref(&costs.tasks[stage.index()]), costs.rows(stage));
            let steps = u64::from(schedule.n_microbatches) / rows.len() as u64;
            let is_all = is_whole && u64::from(schedule.n_microbatches) == steps * rows.len() as u64;
            let rows = if is_all { rows } else { least };
            let sum: u128 = rows.iter().map(|row| u128::from(of(row).0)).sum();
            let n_rows = rows.len() as u128;
            // No more than the largest of them, and less than one for each of them.
            let [each, rest] = [sum / n_rows, sum % n_rows].map(|ticks| Ticks(ticks as u64));
            (each, times(rest, steps))
        };
        let step = |duration, (work, rest)| Step { duration, work, rest, ..Step::default() };
        let alone = |kind: TaskKind, stage| step(costs.of(kind, stage), work(stage, &|row| row[kind.index()]));
        // No single microbatch has to be recomputed, but all `R` together are work.
        let some = |stage| {
            let count = if is_whole { dependencies.n_recomputed(stage) } else { 0 };
            Step { rest: times(costs.of(TaskKind::Recompute, stage), count), ..Step::default() }
        };
        let again = |stage| match dependencies.recomputes(stage) {
            true if dependencies.recomputes_some(stage) => some(stage),
            true => alone(TaskKind::Recompute, stage),
            false => Step::default(),
        };
        let mut chain = Self {
            forward: stages().map(|stage| alone(TaskKind::Forward, stage)).collect(),
            recompute: stages().map(again).collect(),
            backward: Vec::new(),
            weight: Vec::new(),
            most_forward: stages().map(|stage| costs.most(TaskKind::Forward, stage)).collect(),
            most: Vec::new(),
            most_weight: Vec::new(),
            lifespans: Vec::new(),
        };
        for stage in stages() {
            let forms = (dependencies.is_split(stage), dependencies.is_fused(stage));
            let least = Backwards(costs.tasks[stage.index()]).least(forms);
            // All backwards may share the device with a forward: what such a pair takes beyond the longest forward.
            let shared = |kind: TaskKind| costs.pairs[kind.index()].map_or(Ticks::END, |pair| pair - longest_forward);
            let halves = |row: &Times| {
                let alone = Backwards(*row);
                let paired = Backwards(TaskKind::ALL.map(|kind| alone.of(kind).min(shared(kind)))).least(forms);
                // What a pair takes off `B` is not more for `W`, where both may also run at once.
                [paired[0], paired[1].min(alone.least(forms)[1])]
            };
            chain.backward.push(step(least[0], work(stage, &|row| halves(row)[0])));
            chain.weight.push(step(least[1], work(stage, &|row| halves(row)[1])));
            let longest = Backwards(TaskKind::ALL.map(|kind| costs.most(kind, stage)));
            chain.most.push(longest.most(forms));
            chain.most_weight.push(if forms.0 { longest.of(TaskKind::BackwardWeight) } else { Ticks::ZERO });
        }
        let hops = Hops { schedule, graph: dependencies.graph(), latency: &costs.latency };
        chain.heads(&hops);
        chain.tails(&hops, dependencies);
        let mut lifespans = lifespans::lifespans(&chain, &hops);
        for (stage, lifespan) in stages().zip(&mut lifespans) {
            if !schedule.frozen.has_backward(stage) {
                *lifespan = Ticks::ZERO;
            } else if dependencies.recomputes(stage) {
                // Nothing keeps a recomputation from ending right before the backward.
                *lifespan = chain.steps(stage)[1..3].iter().fold(Ticks::ZERO, |sum, step| sum + step.duration);
            }
        }
        chain.lifespans = lifespans;
        chain
    }

    /// Every task begins after those that it needs.
    fn heads(&mut self, hops: &Hops<'_>) {
        let n_stages = self.forward.len();
        let mut known = None;
        for stage in 0..n_stages {
            let inputs = hops.latest_before(stage, &mut known, |before| Some((self.forward[before].end(), ())));
            self.forward[stage].head = inputs.map_or(Ticks::ZERO, |(end, ())| end);
        }
        let mut known = None;
        for stage in (0..n_stages).rev() {
            let inputs = hops.latest_after(stage, &mut known, |after| Some((self.backward[after].end(), ())));
            self.recompute[stage].head = self.forward[stage].end();
            self.backward[stage].head = inputs.map_or(Ticks::ZERO, |(end, ())| end).max(self.recompute[stage].end());
            self.weight[stage].head = self.backward[stage].end();
        }
    }

    /// Every task ends before those that need it.
    fn tails(&mut self, hops: &Hops<'_>, dependencies: &Dependencies) {
        let n_stages = self.forward.len();
        let mut known = None;
        for stage in 0..n_stages {
            let onward = hops.longest_back(stage, &mut known, |before| self.backward[before].onward());
            self.backward[stage].tail = onward.max(self.weight[stage].duration);
            // Where both halves are fused, the activations are given back when `BW` ends.
            let is_split = dependencies.is_split(StageId::from_index(stage));
            self.weight[stage].tail = if is_split { Ticks::ZERO } else { self.backward[stage].tail };
        }
        let mut known = None;
        for stage in (0..n_stages).rev() {
            let onward = hops.longest_onward(stage, &mut known, |after| self.forward[after].onward());
            self.recompute[stage].tail = self.backward[stage].onward();
            self.forward[stage].tail = onward.max(self.recompute[stage].onward());
        }
    }

    fn steps(&self, stage: StageId) -> [Step; 4] {
        let stage = stage.index();
        [self.forward[stage], self.recompute[stage], self.backward[stage], self.weight[stage]]
    }

    fn least(stages: &[Share], of: impl Fn(StageId) -> Ticks) -> Ticks {
        stages.iter().map(|share| of(share.stage)).min().unwrap_or_default()
    }

    fn most(stages: &[Share], of: impl Fn(StageId) -> Ticks) -> Ticks {
        stages.iter().map(|share| of(share.stage)).max().unwrap_or_default()
    }
}

fn times(duration: Ticks, count: u64) -> Ticks {
    Ticks(duration.0.saturating_mul(count))
}

/// Head + work + tail, for the set of tasks of a device where that is most: the length of the preemptive schedule that
/// always runs the released work with the longest tail (Jackson's rule, see Carlier, EJOR 11, 1982). It contains both
/// the work bound and the chain bound of building-block schedules.
fn work(chain: &Chain, stages: &[Share]) -> Ticks {
    let of = |share: &Share| chain.steps(share.stage).map(|step| (step, share.n_microbatches));
    let mut steps: Vec<(Step, u64)> = stages.iter().flat_map(of).collect();
    steps.retain(|(step, _)| step.duration > Ticks::ZERO);
    steps.sort_by_key(|(step, _)| std::cmp::Reverse(step.head));
    let mut released: BinaryHeap<(Ticks, Ticks)> = BinaryHeap::new();
    let (mut now, mut bound) = (Ticks::ZERO, Ticks::ZERO);
    loop {
        if released.is_empty() {
            let Some((next, _)) = steps.last() else { return bound };
            now = now.max(next.head);
        }
        while let Some((step, n_microbatches)) = steps.pop_if(|(step, _)| step.head <= now) {
            released.push((step.tail, step.of_all(n_microbatches)));
        }
        let Some((tail, left)) = released.pop() else { continue };
        let until = steps.last().map_or(now + left, |(next, _)| next.head.min(now + left));
        if until < now + left {
            released.push((tail, left - (until - now)));
        } else {
            bound = bound.max(until + tail);
        }
        now = until;
    }
}

#[cfg(test)]
mod tests;
