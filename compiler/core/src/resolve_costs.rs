//! Which costs a target is timed with: those that were given, those of a profile, of a cluster, of
//! the pipeline, or of the model.

use crate::Request;
use crate::cluster::durations as cluster;
use pipe_model::costs as of_operations;
use pipe_model::pipeline::Pipeline;
use pipe_model::stage_set::StageSet;
use pipe_schedule::policy::freeze;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::timing::costs::halves::{Half, following};
use pipe_schedule::timing::costs::{StageCosts, of_stages};
use pipe_schedule::timing::durations::Costs;
use pipe_schedule::timing::speeds::Speeds;
use pipe_syntax::source::Span;

/// The costs of a schedule. The first source that exists counts: costs in the request or the pipeline, the cluster,
/// the model's floating-point operations, the defaults. Transfers are taken from the cluster before the profile, tasks
/// from the profile before the cluster. All costs are divided by the speed of the device.
///
/// Costs of the request or the pipeline describe stages that train, and are adapted to frozen stages. Measured costs,
/// and costs of the model, describe the tasks that exist.
pub fn costs(request: &Request, pipeline: Option<&Pipeline>, stages: &StageSet, schedule: &Schedule) -> Costs {
    let costs = match given(request, pipeline, stages, schedule) {
        None if pipeline.is_some_and(Pipeline::has_model) => {
            of_operations(stages, (!schedule.shares.is_empty()).then(|| schedule.microbatches_of_step()))
        }
        given if request.profile.is_some() || request.cluster.is_some() => {
            of_stages(&given.unwrap_or_default(), schedule.n_stages())
        }
        given => {
            let given = given.unwrap_or_else(|| StageCosts::default().of_parts(&schedule.parts));
            freeze::costs(schedule, of_stages(&given, schedule.n_stages()))
        }
    };
    match speeds(request, pipeline) {
        Some((speeds, _)) => speeds.applied(costs, schedule),
        None => costs,
    }
}

/// How fast the pipeline's devices are. A profile and a cluster are of the devices as they are.
pub(crate) fn speeds<'p>(request: &Request, pipeline: Option<&'p Pipeline>) -> Option<(&'p Speeds, Span)> {
    let (speeds, span) = pipeline?.speeds.as_ref()?;
    (request.profile.is_none() && request.cluster.is_none() && speeds.matter()).then_some((speeds, *span))
}

/// What a unit of the costs is called: milliseconds where they were measured or follow from a cluster, floating-point
/// operations where they are the model's; none where they were given, or are the usual ones.
pub(crate) fn unit(
    request: &Request,
    pipeline: Option<&Pipeline>,
    stages: &StageSet,
    schedule: &Schedule,
) -> Option<&'static str> {
    if request.profile.is_some() || request.cluster.is_some() {
        return Some("ms");
    }
    let are_operations =
        pipeline.is_some_and(Pipeline::has_model) && given(request, pipeline, stages, schedule).is_none();
    are_operations.then_some(if stages.flops_per_tick > 1 { "TFLOP" } else { "MFLOP" })
}

/// The costs that were given, and those of the cluster where they say nothing; none where there are neither.
pub(crate) fn given(
    request: &Request,
    pipeline: Option<&Pipeline>,
    stages: &StageSet,
    schedule: &Schedule,
) -> Option<StageCosts> {
    let given = match cluster::target(request, pipeline, stages, schedule) {
        Some(target) => Some(target.given(request, target.tasks(), target.links())),
        None => request.given(pipeline),
    };
    given.map(|given| given.of_parts(&schedule.parts))
}

/// The halves of backwards whose costs follow from `BW`, under the costs that go with a target.
pub(crate) fn halves(
    request: &Request,
    pipeline: Option<&Pipeline>,
    stages: &StageSet,
    schedule: &Schedule,
) -> Vec<Half> {
    let given = given(request, pipeline, stages, schedule);
    given.map_or_else(Vec::new, |given| following(&given, schedule.n_stages()))
}
