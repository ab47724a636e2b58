//! Lower bounds: how short any schedule with this placement, these costs and this much memory can be.
//!
//! No bound assumes an order, equal stages or one stage per device. For a device, the head of a task is the least time
//! before it can start, its tail the least time from its end to the end of the step; both follow from one microbatch.

use crate::dependencies::Dependencies;
use crate::schedule::{Costs, Schedule};
use crate::units::Ticks;
use pipe_ir::ids::{DeviceId, StageId};
use pipe_ir::task::TaskKind;
use std::collections::BinaryHeap;

/// What limits the makespan.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum BoundKind {
    /// Some device's work, after the least time before it can begin and before the least time that must follow.
    Work,
    /// Some device's memory: warm-up and cool-down leave it idle, because it holds few microbatches.
    Warmup,
    /// Some device's memory over time: activations live too long for more of them.
    Area,
}

impl BoundKind {
    /// A few words for people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Work => "work of the busiest device",
            Self::Warmup => "warm-up and cool-down in this memory",
            Self::Area => "memory times lifespans",
        }
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

/// The best bound for schedules that hold at most `activations` activations of single stages on any device.
#[must_use]
pub fn lower_bound(schedule: &Schedule, dependencies: &Dependencies, costs: &Costs, activations: u64) -> Bound {
    let chain = Chain::new(schedule, dependencies, costs);
    let n_microbatches = u64::from(schedule.n_microbatches);
    let mut stages: Vec<Vec<StageId>> = vec![Vec::new(); schedule.n_devices()];
    for stage in (0..schedule.n_stages()).map(StageId::from_index) {
        stages[schedule.device_of(stage).index()].push(stage);
    }
    let mut best = Bound { makespan: Ticks::ZERO, kind: BoundKind::Work, device: DeviceId(0) };
    for (device, stages) in stages.iter().enumerate().filter(|(_, stages)| !stages.is_empty()) {
        let device = DeviceId::from_index(device);
        let candidates = [
            (BoundKind::Work, work(&chain, stages, n_microbatches)),
            (BoundKind::Warmup, warmup(&chain, stages, n_microbatches, activations)),
            (BoundKind::Area, area(&chain, stages, n_microbatches, activations)),
        ];
        for (kind, makespan) in candidates {
            if makespan > best.makespan {
                best = Bound { makespan, kind, device };
            }
        }
    }
    best
}

/// One task of a stage, seen from one microbatch.
#[derive(Clone, Copy, Default)]
struct Step {
    head: Ticks,
    duration: Ticks,
    tail: Ticks,
}

/// The way of one microbatch through all stages, by [`StageId`].
struct Chain {
    forward: Vec<Step>,
    /// `B` or `BW`.
    backward: Vec<Step>,
    /// `W`; takes no time where it is fused.
    weight: Vec<Step>,
}

impl Chain {
    fn new(schedule: &Schedule, dependencies: &Dependencies, costs: &Costs) -> Self {
        let n_stages = schedule.n_stages();
        let hop = |from: usize, to: usize| {
            if schedule.placement[from] == schedule.placement[to] { Ticks::ZERO } else { costs.latency }
        };
        let step = |kind: TaskKind, stage: usize| Step {
            duration: costs.of(kind, StageId::from_index(stage)),
            ..Step::default()
        };
        let is_split = |stage: usize| dependencies.is_split(StageId::from_index(stage));
        let mut chain = Self {
            forward: (0..n_stages).map(|stage| step(TaskKind::Forward, stage)).collect(),
            backward: (0..n_stages)
                .map(|stage| step(dependencies.backward(StageId::from_index(stage)), stage))
                .collect(),
            weight: (0..n_stages)
                .map(|stage| if is_split(stage) { step(TaskKind::BackwardWeight, stage) } else { Step::default() })
                .collect(),
        };
        let mut now = Ticks::ZERO;
        for stage in 0..n_stages {
            now += if stage == 0 { Ticks::ZERO } else { hop(stage - 1, stage) };
            chain.forward[stage].head = now;
            now += chain.forward[stage].duration;
        }
        for stage in (0..n_stages).rev() {
            now += if stage + 1 == n_stages { Ticks::ZERO } else { hop(stage + 1, stage) };
            chain.backward[stage].head = now;
            now += chain.backward[stage].duration;
            chain.weight[stage].head = now;
        }
        for stage in 0..n_stages {
            let onward = stage.checked_sub(1).map_or(Ticks::ZERO, |before| {
                hop(stage, before) + chain.backward[before].duration + chain.backward[before].tail
            });
            chain.backward[stage].tail = onward.max(chain.weight[stage].duration);
            // Where both halves are fused, the activations are given back when `BW` ends.
            chain.weight[stage].tail = if is_split(stage) { Ticks::ZERO } else { chain.backward[stage].tail };
        }
        for stage in (0..n_stages).rev() {
            chain.forward[stage].tail = if stage + 1 == n_stages {
                chain.backward[stage].duration + chain.backward[stage].tail
            } else {
                hop(stage, stage + 1) + chain.forward[stage + 1].duration + chain.forward[stage + 1].tail
            };
        }
        chain
    }

    fn steps(&self, stage: StageId) -> [Step; 3] {
        let stage = stage.index();
        [self.forward[stage], self.backward[stage], self.weight[stage]]
    }

    /// From the start of the forward to the end of the last task that reads its activations: at least this long.
    fn lifespan(&self, stage: StageId) -> Ticks {
        let [forward, _, weight] = self.steps(stage);
        weight.head + weight.duration - forward.head
    }

    fn least(stages: &[StageId], of: impl Fn(StageId) -> Ticks) -> Ticks {
        stages.iter().map(|stage| of(*stage)).min().unwrap_or_default()
    }

    fn most(stages: &[StageId], of: impl Fn(StageId) -> Ticks) -> Ticks {
        stages.iter().map(|stage| of(*stage)).max().unwrap_or_default()
    }
}

fn times(duration: Ticks, count: u64) -> Ticks {
    Ticks(duration.0.saturating_mul(count))
}

/// Head + work + tail, for the set of tasks of a device where that is most: the length of the preemptive schedule that
/// always runs the released work with the longest tail (Jackson's rule, see Carlier, EJOR 11, 1982). It contains both
/// the work bound and the chain bound of building-block schedules.
fn work(chain: &Chain, stages: &[StageId], n_microbatches: u64) -> Ticks {
    let mut steps: Vec<Step> = stages.iter().flat_map(|stage| chain.steps(*stage)).collect();
    steps.retain(|step| step.duration > Ticks::ZERO);
    steps.sort_by_key(|step| std::cmp::Reverse(step.head));
    let mut released: BinaryHeap<(Ticks, Ticks)> = BinaryHeap::new();
    let (mut now, mut bound) = (Ticks::ZERO, Ticks::ZERO);
    loop {
        if released.is_empty() {
            let Some(next) = steps.last() else { return bound };
            now = now.max(next.head);
        }
        while let Some(step) = steps.pop_if(|step| step.head <= now) {
            released.push((step.tail, times(step.duration, n_microbatches)));
        }
        let Some((tail, left)) = released.pop() else { continue };
        let until = steps.last().map_or(now + left, |next| next.head.min(now + left));
        if until < now + left {
            released.push((tail, left - (until - now)));
        } else {
            bound = bound.max(until + tail);
        }
        now = until;
    }
}

/// With k activations, a device can run few tasks before the first activation can be given back, and few after the last
/// forward; the rest of that time is idle. For a V at unit cost this is 6m + 6p - 3k - 1.
fn warmup(chain: &Chain, stages: &[StageId], n_microbatches: u64, activations: u64) -> Ticks {
    let steps = |stage: StageId| chain.steps(stage);
    let held = activations.min(n_microbatches.saturating_mul(stages.len() as u64));
    // Before `released` no activation was given back, so at most `held` forwards have run, and no backward before its head.
    let released = Chain::least(stages, |stage| steps(stage)[2].head + steps(stage)[2].duration);
    let backwards = released - Chain::least(stages, |stage| steps(stage)[1].head);
    let forwards = times(Chain::most(stages, |stage| steps(stage)[0].duration), held);
    let begun = released - Chain::least(stages, |stage| steps(stage)[0].head);
    let idle_before = released - (forwards + backwards).min(begun);
    // In the last `drained` no forward runs, so all that runs belongs to at most `held` activations.
    let drained = Chain::least(stages, |stage| steps(stage)[0].tail);
    let rest = Chain::most(stages, |stage| steps(stage)[1].duration + steps(stage)[2].duration);
    let idle_after = drained - times(rest, held).min(drained);
    let total = |stage: StageId| steps(stage).iter().fold(Ticks::ZERO, |sum, step| sum + step.duration);
    let work = times(stages.iter().fold(Ticks::ZERO, |sum, stage| sum + total(*stage)), n_microbatches);
    // Both idle times count where the two windows cannot overlap.
    let one = (work + idle_before).max(work + idle_after);
    if one >= released + drained { work + idle_before + idle_after } else { one }
}

/// Activations times lifespans fit in the device's memory times the time from its first forward on.
fn area(chain: &Chain, stages: &[StageId], n_microbatches: u64, activations: u64) -> Ticks {
    let lifespans = stages.iter().fold(Ticks::ZERO, |sum, stage| sum + chain.lifespan(*stage));
    let area = times(lifespans, n_microbatches).0.div_ceil(activations.max(1));
    let first = Chain::least(stages, |stage| chain.forward[stage.index()].head);
    first + Ticks(area) + Chain::least(stages, |stage| chain.weight[stage.index()].tail)
}

#[cfg(test)]
mod tests;
