//! Schedules as jobs, and back.

use super::fusion::Counts;
use super::scale::Scale;
use super::{Job, Mention, Orders, SeriesId, TaskSeries};
use crate::dependencies::{Dependencies, SCHEDULED};
use crate::policy::recompute::recomputing;
use crate::schedule::{Schedule, ScheduledTask};
use crate::timing::durations::Costs;
use crate::units::Ticks;
use pipe_ir::ids::{DeviceId, IndexVec, MicrobatchId, StageId};
use pipe_ir::task::{Task, TaskKind};

/// Whether a backward in two halves may be of use: not where all of `W` takes no time, and `BW` no more than `B`.
fn may_split(costs: &Costs) -> bool {
    let of = |stage: &[Ticks; TaskKind::ALL.len()], kind: TaskKind| stage[kind.index()];
    costs.tasks.iter().any(|stage| {
        let takes_time = of(stage, TaskKind::BackwardWeight) > Ticks::ZERO;
        takes_time || of(stage, TaskKind::Backward) > of(stage, TaskKind::BackwardInput)
    })
}

impl Job {
    /// Creates the job of a schedule without replicas: its tasks, without their order. `capacity` is the number of
    /// parts of activations that each device may hold.
    ///
    /// Backwards are split into `B` and `W`. If `BW` takes less time than both, a backward may also be `BW`. The
    /// backward of a frozen stage is `B`. The same stages recompute. If stages have parts, each part is a stage of the
    /// job, and each lane is a device with no memory.
    pub fn new(schedule: &Schedule, costs: &Costs, scale: &Scale, mut capacity: IndexVec<DeviceId, i64>) -> Self {
        capacity.resize(schedule.n_queues(), 0);
        let dependencies = Dependencies::uniform(&schedule.graph, may_split(costs))
            .with_recomputation(recomputing(schedule))
            .with_frozen(&schedule.frozen);
        let job = Self::as_it_is(schedule, &dependencies, costs, scale, capacity);
        let fusions = job.backwards(
            |stage| costs.saved_by_fusing(stage) > Ticks::ZERO,
            |stage| scale.of(costs.of(TaskKind::Backward, stage)),
        );
        job.with_fusions(fusions)
    }

    /// The same with backwards in the form that they have in the schedule, and no other tasks.
    pub fn as_it_is(
        schedule: &Schedule,
        dependencies: &Dependencies,
        costs: &Costs,
        scale: &Scale,
        capacity: IndexVec<DeviceId, i64>,
    ) -> Self {
        let stages = || (0..schedule.n_stages()).map(StageId::from_index);
        let forward = stages().map(|stage| (TaskKind::Forward, stage));
        let backward = stages().rev().flat_map(|stage| {
            let halves = if dependencies.is_split(stage) { &SCHEDULED[1..3] } else { &SCHEDULED[3..4] };
            let again = dependencies.recomputes(stage).then_some(TaskKind::Recompute);
            again.into_iter().chain(halves.iter().copied()).map(move |kind| (kind, stage))
        });
        let is_there = |(kind, stage): &(TaskKind, StageId)| schedule.frozen.needs(*kind, *stage);
        let keys: Vec<(TaskKind, StageId)> = forward.chain(backward).filter(is_there).collect();
        let devices = |stage| schedule.placement.devices(stage, MicrobatchId(0));
        let find = |key| keys.iter().position(|own| *own == key).map(SeriesId::from_index);
        let series = |&(kind, stage): &(TaskKind, StageId)| {
            let own = devices(stage);
            // A fused backward comes after its forward anyway, through the stages that read it;
            // needs that say so twice would only mislead.
            let is_implied = |from: TaskKind| {
                kind == TaskKind::Backward && from == TaskKind::Forward && !schedule.graph.after(stage).is_empty()
            };
            let needs = dependencies.input_kinds(kind, stage).filter(|input| !is_implied(input.kind));
            let needs = needs.filter_map(|input| {
                let latency = schedule.hop(&costs.latency, devices(input.stage), own);
                Some((find((input.kind, input.stage))?, scale.of(latency)))
            });
            // Orders run the `W` of parts with one name from the last part to the first.
            let before = Some(kind).filter(|kind| *kind == TaskKind::BackwardWeight);
            let before = before.and_then(|kind| find((kind, schedule.parts.next_of_name(stage)?)));
            let needs = needs.chain(before.map(|before| (before, 0)));
            TaskSeries {
                kind,
                stage,
                devices: own.to_vec(),
                duration: scale.of(costs.of(kind, stage)),
                takes: schedule.activations.change(dependencies, Task { kind, stage, microbatch: MicrobatchId(0) }),
                needs: needs.collect(),
                feeds: Vec::new(),
            }
        };
        let all = keys.iter().map(series).collect();
        Self::of_series(all, schedule.n_microbatches as usize, capacity)
    }

    /// A schedule's tasks in their own order. Fused backwards become `B` and then `W` where that
    /// takes no longer. `None` where a series is out of microbatch order, or a task is one of another
    /// job.
    pub fn orders(&self, schedule: &Schedule) -> Option<Orders> {
        let mut orders: Orders = self.capacity.map(|_| Vec::new());
        for (device, tasks) in (0..).map(DeviceId).zip(&schedule.orders) {
            let own = self.on_device.get(device.index())?;
            // A task that occupies several devices is counted on each.
            let mut counts = Counts::new(self);
            for Task { kind, stage, microbatch } in tasks.iter().map(|scheduled| scheduled.task) {
                let find = |kind| {
                    let key = |series: &TaskSeries| (series.kind, series.stage);
                    own.iter().copied().find(|series| key(&self.series[*series]) == (kind, stage))
                };
                let kind = match kind {
                    TaskKind::BackwardInput if find(kind).is_none() => TaskKind::Backward,
                    TaskKind::BackwardWeight if find(kind).is_none() => continue,
                    _ => kind,
                };
                let mentions = if kind == TaskKind::Backward && find(kind).is_none() {
                    let (input, weight) = (find(TaskKind::BackwardInput)?, find(TaskKind::BackwardWeight)?);
                    let halves = || vec![Mention::Series(input), Mention::Series(weight)];
                    self.fusion_from(input).map_or_else(halves, |both| vec![Mention::Fusion(both)])
                } else {
                    vec![Mention::Series(find(kind)?)]
                };
                for mention in mentions {
                    if counts.next(self, mention)? != microbatch {
                        return None;
                    }
                    orders[device].push(mention);
                }
            }
            if !counts.are_all(own, self.microbatches) {
                return None;
            }
        }
        Some(orders)
    }

    /// The tasks that orders stand for.
    pub fn tasks(&self, orders: &Orders) -> Vec<Vec<ScheduledTask>> {
        let of_device = |order: &Vec<Mention>| {
            let mut counts = Counts::new(self);
            let task = |mention: &Mention| {
                let microbatch = counts.next(self, *mention)?;
                let (series, second) = self.series_of(*mention);
                let TaskSeries { kind, stage, .. } = self.series[series];
                let kind = if second.is_some() { TaskKind::Backward } else { kind };
                Some(ScheduledTask::new(Task { kind, stage, microbatch }, 0))
            };
            order.iter().filter_map(task).collect()
        };
        orders.iter().map(of_device).collect()
    }
}
