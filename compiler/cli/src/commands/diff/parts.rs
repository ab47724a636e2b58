//! Where the time between a plan and its run went: parts that add up to the difference, to the nanosecond.
//!
//! From the plan to what was measured there are three ways to go: the costs of each kind of task
//! and of transfers, the time that each task took beside the usual one of its kind and stage, and
//! how much later than it could each one started. On each way changes are made one after the other
//! and the timeline is placed anew every time; what a change adds to the makespan is its part.
//! Since that depends on what was changed before, it is the mean of two rounds, from the first
//! change to the last and from the last to the first.

use super::measured::Measured;
use super::refit::Refit;
use pipe_compiler::analyze::Analysis;
use pipe_ir::ids::DeviceId;
use pipe_ir::task::TaskKind;
use pipe_schedule::order::Position;
use pipe_schedule::timing::durations::Costs;
use pipe_schedule::timing::timeline::{Ready, Timeline, simulate, simulate_with};
use pipe_schedule::units::Ticks;
use std::collections::{BTreeMap, BTreeSet};

/// What a part is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Cause {
    /// The plan has another cost for tasks of this kind, of this stage if of one.
    Cost(TaskKind, Option<u32>),
    /// The plan has another cost for pairs of tasks that share their device.
    Pairs,
    /// The plan has another time for transfers.
    Transfers,
    /// In the plan devices share processors; measured times have that in them.
    Sharing,
    /// Tasks of this kind took more or less than usual.
    Variation(TaskKind),
    /// Inputs came to this device later, or earlier, than a transfer usually takes.
    LateInput(DeviceId),
    /// This device had everything, and did not begin.
    LateStart(DeviceId),
}

/// Nanoseconds that a cause adds to the makespan, in halves.
pub(crate) type Part = (Cause, i64);

/// The way from the plan to what was measured. Makespans are those of tasks, in nanoseconds.
pub(crate) struct Parts {
    pub(crate) plan: u64,
    pub(crate) refitted: u64,
    pub(crate) varied: u64,
    pub(crate) measured: u64,
    /// In the order in which they were changed.
    pub parts: Vec<Part>,
    /// By device: of each of its positions, what its task waited for, under the times of transfers that were fitted.
    pub(crate) lateness: Vec<Vec<Late>>,
}

/// How much later than it could a task started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Late {
    /// Whether an input from another device was what it waited for last.
    pub(crate) for_input: bool,
    /// Nanoseconds; an input may come earlier than usual.
    pub(crate) nanos: i64,
}

/// The most placements of tasks that are worth it to tell stages apart.
const ENOUGH: usize = 40_000_000;

/// Goes the way.
pub(crate) fn parts(analysis: &Analysis, plan: &Costs, refit: &Refit, measured: &Measured) -> Parts {
    let lateness = lateness(analysis, refit, measured);
    let way = Way { analysis, plan, refit, measured, lateness: &lateness };
    let mut parts = attribute(&way.costs(), |causes| way.with_costs(causes));
    let kinds: BTreeSet<TaskKind> = analysis.schedule.orders.iter().flatten().map(|one| one.task.kind).collect();
    let kinds: Vec<Cause> = kinds.into_iter().map(Cause::Variation).collect();
    parts.extend(attribute(&kinds, |causes| way.with_times(causes)));
    let devices = || (0..analysis.schedule.n_devices()).map(DeviceId::from_index);
    let late: Vec<Cause> = devices().flat_map(|device| [Cause::LateInput(device), Cause::LateStart(device)]).collect();
    parts.extend(attribute(&late, |causes| way.with_lateness(causes)));
    let all = |causes: &[Cause]| causes.iter().copied().collect::<BTreeSet<Cause>>();
    Parts {
        plan: length(&simulate(&analysis.schedule, &analysis.order, plan)),
        refitted: length(&simulate(&analysis.schedule, &analysis.order, &refit.costs)),
        varied: way.with_times(&all(&kinds)),
        measured: measured.makespan(),
        parts,
        lateness,
    }
}

/// From the first start to the end of the last task.
pub(crate) fn length(timeline: &Timeline) -> u64 {
    timeline.ends.iter().filter_map(|ends| ends.last()).map(|end| end.0).max().unwrap_or_default()
}

/// What each of some changes adds to a length, in halves: those of both rounds.
fn attribute(changes: &[Cause], length: impl Fn(&BTreeSet<Cause>) -> u64) -> Vec<Part> {
    let mut parts: BTreeMap<Cause, i64> = BTreeMap::new();
    let (forward, backward): (Vec<&Cause>, Vec<&Cause>) = (changes.iter().collect(), changes.iter().rev().collect());
    for round in [forward, backward] {
        let mut made = BTreeSet::new();
        let mut before = length(&made);
        for change in round {
            made.insert(*change);
            let after = length(&made);
            *parts.entry(*change).or_default() += difference(after, before);
            before = after;
        }
    }
    changes.iter().map(|change| (*change, parts[change])).collect()
}

/// How much more the first number is. Both are far below 2^63.
pub(super) fn difference(one: u64, other: u64) -> i64 {
    i64::try_from(one).unwrap_or(i64::MAX) - i64::try_from(other).unwrap_or(i64::MAX)
}

/// From the plan to what was measured.
struct Way<'a> {
    analysis: &'a Analysis,
    plan: &'a Costs,
    refit: &'a Refit,
    measured: &'a Measured,
    lateness: &'a [Vec<Late>],
}

impl Way<'_> {
    /// What costs differ: of each kind and stage, or of each kind where those are too many.
    fn costs(&self) -> Vec<Cause> {
        let differs = |kind: TaskKind, stage: usize| {
            self.plan.tasks[stage][kind.index()] != self.refit.costs.tasks[stage][kind.index()]
        };
        let ran = |kind: TaskKind, stage: u32| self.refit.tasks.contains_key(&(kind, stage));
        let stages = || (0..self.plan.tasks.len()).map(|stage| (stage, u32::try_from(stage).unwrap_or(u32::MAX)));
        let each = TaskKind::ALL.into_iter().flat_map(|kind| {
            let own = stages().filter(move |(stage, id)| ran(kind, *id) && differs(kind, *stage));
            own.map(move |(_, id)| Cause::Cost(kind, Some(id)))
        });
        let each: Vec<Cause> = each.collect();
        let n_tasks = self.analysis.schedule.n_tasks();
        let mut causes: Vec<Cause> = if each.len().saturating_mul(2 * n_tasks) > ENOUGH {
            let kinds = TaskKind::ALL.into_iter().map(|kind| Cause::Cost(kind, None));
            let is_there = |cause: &Cause| {
                each.iter().any(|one| matches!((one, cause), (Cause::Cost(a, _), Cause::Cost(b, _)) if a == b))
            };
            kinds.filter(is_there).collect()
        } else {
            each
        };
        if self.plan.pairs != self.refit.costs.pairs {
            causes.push(Cause::Pairs);
        }
        if self.plan.latency != self.refit.costs.latency {
            causes.push(Cause::Transfers);
        }
        if self.plan.sharing != self.refit.costs.sharing {
            causes.push(Cause::Sharing);
        }
        causes
    }

    fn with_costs(&self, causes: &BTreeSet<Cause>) -> u64 {
        let mut costs = self.plan.clone();
        for cause in causes {
            match *cause {
                Cause::Cost(kind, stage) => {
                    let rows = costs.tasks.iter_mut().zip(&self.refit.costs.tasks).enumerate();
                    let own = rows.filter(|(index, _)| stage.is_none_or(|stage| *index == stage as usize));
                    own.for_each(|(_, (row, refitted))| row[kind.index()] = refitted[kind.index()]);
                }
                Cause::Pairs => costs.pairs = self.refit.costs.pairs,
                Cause::Transfers => costs.latency.clone_from(&self.refit.costs.latency),
                Cause::Sharing => costs.sharing.clone_from(&self.refit.costs.sharing),
                Cause::Variation(_) | Cause::LateInput(_) | Cause::LateStart(_) => {}
            }
        }
        length(&simulate(&self.analysis.schedule, &self.analysis.order, &costs))
    }

    /// The time of what a device does at a position: as measured, if the kinds of its last task are among the causes.
    fn time(&self, slot: Position, causes: &BTreeSet<Cause>) -> Ticks {
        let node = self.analysis.schedule.node(slot.device, slot.position as usize);
        let varies = node.last().is_some_and(|last| causes.contains(&Cause::Variation(last.task.kind)));
        if !varies {
            return self.refit.costs.of_node(node);
        }
        let (start, end) = span(self.analysis, self.measured, slot);
        Ticks(end - start)
    }

    fn with_times(&self, causes: &BTreeSet<Cause>) -> u64 {
        let latency = &self.refit.costs.latency;
        length(&simulate_with(&self.analysis.schedule, &self.analysis.order, latency, |slot, ready| {
            let start = ready.free.max(ready.arrived);
            (start, start + self.time(slot, causes))
        }))
    }

    /// Under measured times. With all causes it is the measured timeline.
    fn with_lateness(&self, causes: &BTreeSet<Cause>) -> u64 {
        let latency = &self.refit.costs.latency;
        length(&simulate_with(&self.analysis.schedule, &self.analysis.order, latency, |slot, ready| {
            let Late { for_input, nanos } = self.lateness[slot.device.index()][slot.position as usize];
            let cause = if for_input { Cause::LateInput(slot.device) } else { Cause::LateStart(slot.device) };
            let nanos = if causes.contains(&cause) { nanos } else { 0 };
            let start = match for_input {
                true => ready.free.max(Ticks(ready.arrived.0.saturating_add_signed(nanos))),
                false => ready.arrived.max(Ticks(ready.free.0.saturating_add_signed(nanos))),
            };
            let (begin, end) = span(self.analysis, self.measured, slot);
            (start, start + Ticks(end - begin))
        }))
    }
}

/// When a device did what stands at a position: one task, or two that share it.
pub(super) fn span(analysis: &Analysis, measured: &Measured, slot: Position) -> (u64, u64) {
    let position = slot.position as usize;
    let n_tasks = analysis.schedule.node(slot.device, position).len();
    measured.span(slot.device, position..position + n_tasks)
}

/// How late each task was, by device and position; that of a pair stands with its first task.
fn lateness(analysis: &Analysis, refit: &Refit, measured: &Measured) -> Vec<Vec<Late>> {
    let schedule = &analysis.schedule;
    let late = std::cell::RefCell::new(
        schedule.orders.iter().map(|order| vec![Late::default(); order.len()]).collect::<Vec<_>>(),
    );
    // Placed at its measured moments, so that what each task waits for is what was measured, too.
    let placed = simulate_with(schedule, &analysis.order, &refit.costs.latency, |slot, Ready { free, arrived }| {
        let (start, end) = span(analysis, measured, slot);
        let for_input = arrived > free;
        let nanos = difference(start, free.max(arrived).0);
        late.borrow_mut()[slot.device.index()][slot.position as usize] = Late { for_input, nanos };
        (Ticks(start), Ticks(end))
    });
    debug_assert_eq!(length(&placed), measured.makespan(), "every task is placed once");
    late.into_inner()
}
