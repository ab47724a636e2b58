//! What a model's backward takes, in time and memory, in the form that the target does not have it
//! in: at once where it is split, in halves where it is not.
//!
//! The search may choose either form, and the operations of a model are those of the tasks that its schedule asks for.

use pipe_compiler::Request;
use pipe_compiler::analyze::Analysis;
use pipe_compiler::elaborate::elaborate;
use pipe_compiler::resolve_costs::costs;
use pipe_ir::ids::StageId;
use pipe_ir::task::TaskKind;
use pipe_model::pipeline::Elaborated;
use pipe_model::stage_set::StageSet;
use pipe_model::{Kinds, stage_set_of};
use pipe_schedule::policy::recompute::recomputing;
use pipe_syntax::files::{self, Files, Loader};
use pipe_syntax::source::{Source, Sources};

/// Adds the durations of the kinds of backward tasks that the target does not have, where durations
/// are those of a model.
pub(crate) fn complete(analysis: &mut Analysis, root: &Source, loader: &Loader<'_>, request: &Request) {
    let says = request.given(analysis.pipeline.as_ref()).is_some();
    if says || analysis.pipeline.as_ref().is_none_or(|pipeline| pipeline.model.is_none()) {
        return;
    }
    let Ok(files) = files::load(&mut Sources::default(), root.clone(), loader) else { return };
    let Ok(elaborated) = elaborate(&files, &request.choice) else { return };
    let own = Kinds::of_schedule(&elaborated.schedule);
    for form in [&AT_ONCE[..], &HALVES] {
        let Ok(set) = stage_set_of(&files, &elaborated, &kinds(&elaborated, form)) else { return };
        let other = costs(request, analysis.pipeline.as_ref(), &set, &analysis.schedule);
        for (stage, own) in own.iter().enumerate() {
            for kind in form.iter().filter(|kind| !own.has(**kind)) {
                analysis.costs.tasks[stage][kind.index()] = other.of(*kind, StageId::from_index(stage));
            }
        }
    }
}

const AT_ONCE: [TaskKind; 1] = [TaskKind::Backward];
const HALVES: [TaskKind; 2] = [TaskKind::BackwardInput, TaskKind::BackwardWeight];

/// What the stages of a target compute where every backward is split: what a forward then keeps for
/// which half, and what is between them.
pub(crate) fn in_halves(files: &Files, elaborated: &Elaborated) -> Option<StageSet> {
    stage_set_of(files, elaborated, &kinds(elaborated, &HALVES)).ok()
}

/// The kinds of tasks of each stage, with backwards of this form. A frozen stage has only the tasks that it needs.
fn kinds(elaborated: &Elaborated, form: &[TaskKind]) -> Vec<Kinds> {
    let frozen = &elaborated.schedule.frozen;
    let of_stage = |(stage, recomputes): (StageId, bool)| {
        let forward = if recomputes { &[TaskKind::Forward, TaskKind::Recompute][..] } else { &[TaskKind::Forward] };
        let all = forward.iter().chain(form).filter_map(|kind| frozen.kind(*kind, stage));
        Kinds::of(&all.collect::<Vec<_>>())
    };
    (0..).map(StageId).zip(recomputing(&elaborated.schedule)).map(of_stage).collect()
}
