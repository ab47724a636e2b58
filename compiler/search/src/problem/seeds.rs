//! What is known before the search begins: the target's own order, and standard schedules with the same placement.

use crate::driver::run::Prepared;
use pipe_compiler::elaborate::{self, elaborate};
use pipe_ir::ids::DeviceId;
use pipe_ir::task::{Task, TaskKind};
use pipe_schedule::check::check;
use pipe_schedule::dispatch::job::{Orders, SeriesId, Time};
use pipe_schedule::dispatch::reorder::reorder;
use pipe_schedule::parts::StageParts;
use pipe_schedule::policy::freeze::freeze;
use pipe_schedule::policy::recompute::{insert, recomputing};
use pipe_schedule::schedule::{Schedule, ScheduledTask};
use pipe_syntax::source::Source;
use pipe_syntax::{files, stdlib};

/// Orders to begin with, whether or not they fit in the memory.
pub trait Known: Sync {
    /// The target's own, in all forms of its backwards.
    fn own(&self) -> Vec<Orders>;

    /// How many others there may be.
    fn count(&self) -> usize;

    /// One of the others for so many microbatches, in all forms, also where it does not fit in the
    /// memory; none if there is none for this number.
    fn orders(&self, index: usize, microbatches: usize) -> Vec<Orders>;
}

/// Nothing.
impl Known for () {
    fn own(&self) -> Vec<Orders> {
        Vec::new()
    }

    fn count(&self) -> usize {
        0
    }

    fn orders(&self, _: usize, _: usize) -> Vec<Orders> {
        Vec::new()
    }
}

/// Parameters that standard schedules may have, and none.
const SHAPES: usize = 5;

impl Known for Prepared {
    fn own(&self) -> Vec<Orders> {
        self.in_all_forms(&self.problem.schedule)
    }

    fn count(&self) -> usize {
        stdlib::SCHEDULES.len() * SHAPES
    }

    fn orders(&self, index: usize, microbatches: usize) -> Vec<Orders> {
        let own = &self.problem.schedule;
        let chunks = own.n_stages() / own.n_devices().max(1);
        let shape = match index % SHAPES {
            0 => Vec::new(),
            1 => vec![("chunks", chunks)],
            2 => vec![("waves", chunks / 2)],
            3 => vec![("held", self.held())],
            _ => vec![("held", self.held()), ("hop", self.hop())],
        };
        let sizes = [("devices", own.n_devices()), ("microbatches", microbatches)];
        let settings = sizes.into_iter().chain(shape).map(|(name, value)| (name.to_owned(), value as i64)).collect();
        let found = stdlib::SCHEDULES.get(index / SHAPES).map(|(name, text)| self.standard(name, text, settings));
        found.into_iter().flatten().flat_map(|schedule| self.in_all_forms(&schedule)).collect()
    }
}

impl Prepared {
    /// How many activations of single stages fit on every device, if all of its stages hold equally
    /// many, or the first ones one more.
    fn held(&self) -> usize {
        let job = &self.problem.job;
        let of_device = |(own, capacity): (&Vec<SeriesId>, &i64)| {
            let takes: Vec<i64> =
                own.iter().map(|series| job.series[*series].takes).filter(|takes| *takes > 0).collect();
            let all = takes.iter().sum::<i64>();
            let rest = takes.iter().scan(capacity.checked_rem(all)?, |rest, takes| {
                *rest -= takes;
                Some(*rest)
            });
            let more = rest.take_while(|rest| *rest >= 0).count();
            usize::try_from(capacity / all).ok().map(|whole| whole.saturating_mul(takes.len()).saturating_add(more))
        };
        job.on_device.iter().zip(&job.capacity).filter_map(of_device).min().unwrap_or(0)
    }

    /// The longest transfer in mean durations of a task, at least 1: what leaves time for transfers
    /// leaves some for unequal tasks.
    fn hop(&self) -> usize {
        let all = &self.problem.job.series;
        let longest = all.iter().flat_map(|series| &series.needs).map(|(_, latency)| *latency).max().unwrap_or(0);
        let mean = all.iter().map(|series| series.duration).sum::<Time>() / all.len().max(1) as Time;
        usize::try_from((longest + mean / 2) / mean.max(1)).unwrap_or(0).max(1)
    }

    /// The orders of a schedule as they are, with all backwards in halves, with none, and with those of the cool-down.
    fn in_all_forms(&self, schedule: &Schedule) -> Vec<Orders> {
        let job = self.problem.job.with_microbatches(schedule.n_microbatches as usize);
        let Some(orders) = job.orders(schedule) else { return Vec::new() };
        let fused = job.fused(&orders, |_| true);
        let mut forms = vec![job.split(&orders), job.split_at_end(&fused), fused, orders];
        forms.sort();
        forms.dedup();
        forms
    }

    /// A schedule of the standard library with these settings, if it has the same placement and is sound. If stages
    /// have parts, also a variant in which the parts of each forward and the backward next to it alternate.
    fn standard(&self, name: &str, text: &str, settings: Vec<(String, i64)>) -> Vec<Schedule> {
        let root = Source { name: format!("std:{name}"), text: text.to_owned() };
        let files = files::load(&mut pipe_syntax::source::Sources::default(), root, &|_| Err(String::new()));
        let request = elaborate::Request { settings, ..elaborate::Request::default() };
        let elaborated = files.ok().and_then(|files| elaborate(&files, &request).ok());
        let Some(schedule) = elaborated.map(|elaborated| elaborated.schedule) else { return Vec::new() };
        let parts = &self.problem.schedule.parts;
        if parts.is_empty() || schedule.n_stages() != self.problem.schedule.n_whole_stages() {
            return self.like_own(schedule).into_iter().collect();
        }
        let orders = [parts.divided(schedule.orders.clone()), merged(parts, &schedule.orders)];
        let placement = parts.placement(&schedule.placement, schedule.n_devices());
        let schedule = Schedule { parts: parts.clone(), placement, block: None, reorder: None, ..schedule };
        orders.into_iter().filter_map(|orders| self.like_own(Schedule { orders, ..schedule.clone() })).collect()
    }

    /// A schedule with the graph, the frozen stages and the recomputation of the target, if it has the same placement
    /// and is sound.
    fn like_own(&self, mut schedule: Schedule) -> Option<Schedule> {
        let own = &self.problem.schedule;
        let same = schedule.placement == own.placement && schedule.slices == own.slices && schedule.window.is_none();
        same.then_some(())?;
        schedule.graph = own.graph.clone();
        if own.frozen.any() {
            freeze(&mut schedule, &own.graph, |stage| own.frozen.is_frozen(stage));
        }
        schedule.activations = own.activations.clone();
        let order = check(&schedule).ok()?;
        let mut better =
            if schedule.reorder.is_some() { reorder(schedule, order, &self.problem.costs, None).0 } else { schedule };
        let recomputing = recomputing(own);
        insert(&mut better, |stage, _| recomputing[stage.index()]);
        Some(better)
    }
}

/// Divides orders of whole stages into orders of queues. The parts of a forward and the backward next to it alternate.
fn merged(parts: &StageParts, orders: &[Vec<ScheduledTask>]) -> Vec<Vec<ScheduledTask>> {
    let is_backward = |kind| matches!(kind, TaskKind::Backward | TaskKind::BackwardInput);
    let is_pair = |one: Task, other: Task| {
        let other_kinds = one.kind == TaskKind::Forward && is_backward(other.kind)
            || is_backward(one.kind) && other.kind == TaskKind::Forward;
        other_kinds && (one.stage, one.microbatch) != (other.stage, other.microbatch)
    };
    let list = |(device, order): (DeviceId, &Vec<ScheduledTask>)| {
        let (mut list, mut rest) = (Vec::new(), &order[..]);
        loop {
            match *rest {
                [one, other, ..] if is_pair(one.task, other.task) => {
                    let both = [one, other].map(|whole| parts.tasks_of(whole, device).collect());
                    list.extend(parts.by_turns(both.to_vec()));
                    rest = &rest[2..];
                }
                [one, ..] => {
                    list.extend(parts.tasks_of(one, device));
                    rest = &rest[1..];
                }
                [] => break list,
            }
        }
    };
    parts.in_queues((0..).map(DeviceId).zip(orders).map(list).collect())
}
