//! From a sound schedule to its timeline: reordered where it asks for that, under the durations that go with its pipeline and machines, with
//! what ends the step.

use crate::Request;
use crate::check::dependencies::Order;
use crate::cluster::gradients::Exchange;
use crate::cluster::{durations, gradients, ways};
use crate::costs::costs;
use crate::model::stage_set::StageSet;
use crate::offload::copied;
use crate::offload::timing::Cost;
use crate::pipeline::Pipeline;
use crate::reductions::reductions;
use crate::reorder::reorder;
use crate::saved_bytes::saved;
use crate::schedule::{Costs, Schedule};
use crate::timeline::{Timeline, place};
use crate::units::Ticks;
use pipe_ir::ids::DeviceId;
use pipe_ir::program::Program;
use pipe_ir::units::Bytes;

/// A schedule with its times.
pub(crate) struct Timed {
    pub schedule: Schedule,
    pub order: Order,
    pub costs: Costs,
    pub timeline: Timeline,
}

/// What a schedule is timed with.
#[derive(Clone, Copy)]
pub(crate) struct Setting<'a> {
    pub stages: &'a StageSet,
    pub pipeline: Option<&'a Pipeline>,
    pub request: &'a Request,
}

impl Setting<'_> {
    /// Times a schedule, reordered where it asks for it.
    pub(crate) fn timed(&self, schedule: Schedule, order: Order) -> Timed {
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
        let mut timeline = place(&schedule, &order, &costs);
        self.conclude((&schedule, &order, &costs), &mut timeline);
        Timed { schedule, order, costs, timeline }
    }

    /// The timeline in which tasks also wait for the copies of their program and the weights that it gathers, and what copies cost each device.
    pub(crate) fn copied(
        &self,
        (schedule, order, costs): (&Schedule, &Order, &Costs),
        program: &Program,
    ) -> (Timeline, Vec<Cost>) {
        let conclude = |timeline: &mut Timeline| self.conclude((schedule, order, costs), timeline);
        let target = durations::target(self.request, self.pipeline, self.stages, schedule);
        let takes = |members: &[DeviceId], bytes: Bytes| {
            target.as_ref().map_or(Ticks::ZERO, |target| gradients::gathered(target, members, bytes))
        };
        copied::place((schedule, order, costs), program, &takes, &conclude)
    }

    /// Notes when gradients are added up between devices.
    fn conclude(&self, (schedule, order, costs): (&Schedule, &Order, &Costs), timeline: &mut Timeline) {
        let reductions = reductions(schedule, self.stages, timeline, &costs.latency);
        timeline.reduce(&reductions);
        if self.pipeline.is_some_and(|pipeline| pipeline.zero.any() && !pipeline.zero.parameters()) {
            timeline.exchange_shares(&reductions, &costs.latency);
        }
        timeline.gather(schedule, order, &costs.latency);
        match durations::target(self.request, self.pipeline, self.stages, schedule) {
            Some(target) => {
                let exchanges = gradients::exchanges(&target, timeline);
                timeline.exchange(gradients::last_of(&exchanges));
                // They take what machines say, sums and shares together.
                timeline.collectives = exchanges.iter().flat_map(Exchange::parts).collect();
            }
            None => timeline.join(&reductions),
        }
    }
}
