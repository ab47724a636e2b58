//! From a sound schedule to its timeline: reordered where it asks for that, under the durations
//! that go with its pipeline and machines, with what ends the step.

use crate::Request;
use crate::cluster::gradients::Exchange;
use crate::cluster::{durations, gradients, ways};
use crate::resolve_costs::costs;
use pipe_ir::ids::DeviceId;
use pipe_ir::program::Program;
use pipe_ir::units::Bytes;
use pipe_lower::offload::copied;
use pipe_lower::reductions::reductions;
use pipe_model::pipeline::Pipeline;
use pipe_model::saved_bytes::saved;
use pipe_model::stage_set::StageSet;
use pipe_schedule::dispatch::reorder::reorder;
use pipe_schedule::order::Order;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::step_tasks::Carried;
use pipe_schedule::timing::copies::Cost;
use pipe_schedule::timing::durations::Costs;
use pipe_schedule::timing::links;
use pipe_schedule::timing::timeline::{Timeline, Together, simulate};
use pipe_schedule::units::Ticks;

/// A schedule with its times.
pub struct Timed {
    /// In the order in which it runs.
    pub schedule: Schedule,
    /// The evidence that it runs to its end.
    pub order: Order,
    /// What its tasks and transfers take.
    pub costs: Costs,
    /// When each task runs.
    pub timeline: Timeline,
}

/// What a schedule is timed with.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    /// What tasks compute, and the bytes between them.
    pub stages: &'a StageSet,
    /// The pipeline that binds the schedule; none where it stands alone.
    pub pipeline: Option<&'a Pipeline>,
    /// Costs, profile and cluster of the caller.
    pub request: &'a Request,
}

impl Setting<'_> {
    /// Times a schedule, reordered where it asks for it.
    pub fn timed(&self, schedule: Schedule, order: Order) -> Timed {
        let Self { stages, pipeline, request } = *self;
        let costs = costs(request, pipeline, stages, &schedule);
        let (schedule, order) = if schedule.reorder.is_some() {
            let model = pipeline.filter(|pipeline| pipeline.has_model());
            let saved = model.map(|pipeline| saved(stages, schedule.n_stages(), pipeline.offload));
            reorder(schedule, order, &costs, saved.as_deref())
        } else {
            (schedule, order)
        };
        let target = durations::target(request, pipeline, stages, &schedule);
        let costs = target.as_ref().and_then(|target| ways::slowest(target, request, &order)).unwrap_or(costs);
        let mut timeline = simulate(&schedule, &order, &costs);
        self.conclude((&schedule, &order, &costs), &mut timeline);
        Timed { schedule, order, costs, timeline }
    }

    /// The timeline in which tasks also wait for the copies of their program and the weights that
    /// it gathers, and what copies cost each device.
    pub fn copied(
        &self,
        (schedule, order, costs): (&Schedule, &Order, &Costs),
        program: &Program,
    ) -> (Timeline, Vec<Cost>) {
        let conclude = |timeline: &mut Timeline| self.conclude((schedule, order, costs), timeline);
        let target = durations::target(self.request, self.pipeline, self.stages, schedule);
        let takes = |members: &[DeviceId], bytes: Bytes| {
            target.as_ref().map_or(Ticks::ZERO, |target| gradients::gathered(target, members, bytes))
        };
        copied::simulate((schedule, order, costs), program, &takes, &conclude)
    }

    /// Notes when gradients are added up between devices.
    fn conclude(&self, (schedule, order, costs): (&Schedule, &Order, &Costs), timeline: &mut Timeline) {
        let mut reductions = reductions(schedule, self.stages, timeline, &costs.latency);
        let target = durations::target(self.request, self.pipeline, self.stages, schedule);
        // What sums take on machines follows from their bytes, beside all else.
        let lane = schedule.carried.of(Carried::Reduce).filter(|_| target.is_none());
        if lane.is_some() {
            *timeline = links::simulate(schedule, order, costs, &mut reductions);
        }
        timeline.reduce(&reductions);
        if self.pipeline.is_some_and(|pipeline| pipeline.zero.any() && !pipeline.zero.parameters()) {
            timeline.exchange_shares(&reductions, &costs.latency);
        }
        timeline.gather(schedule, order, &costs.latency);
        match target {
            Some(target) => {
                let exchanges = gradients::exchanges(&target, timeline);
                timeline.exchange(gradients::last_of(&exchanges));
                // They take what machines say, sums and shares together.
                timeline.collectives.retain(|part| part.what == Together::Transfer);
                timeline.collectives.extend(exchanges.iter().flat_map(Exchange::parts));
            }
            None => timeline.join(&reductions, lane),
        }
    }
}
