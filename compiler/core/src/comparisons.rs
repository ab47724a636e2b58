//! Comparisons in bytes: what other schedules hold with the model of a pipeline.
//!
//! Rule: where a model is bound, `require peak <= 0.5 * 1f1b` compares bytes of activations, what
//! waits for `W` included. The other schedule is given the same model, devices, microbatches, costs
//! and settings, and is lowered like the pipeline's own: both sides are counted in programs.

use crate::Request;
use crate::analyze::{Analysis, analyze};
use crate::memory::alive::activations;
use pipe_ir::program::Program;
use pipe_ir::units::Bytes;
use pipe_lower::undivided;
use pipe_model::pipeline::Elaborated;
use pipe_model::stage_set;
use pipe_schedule::check::check;
use pipe_schedule::check::requirements::{InBytes, Other};
use pipe_schedule::requirement::{Limit, Requirement};
use pipe_schedule::schedule::Schedule;
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::expr::arguments::Values;
use pipe_syntax::files::Files;

/// The bytes that comparisons of a pipeline with other schedules are about, none where it has no
/// model or compares nothing; and every comparison with a schedule that this model cannot run
/// under.
pub(crate) fn in_bytes(
    files: &Files,
    (analysis, program): (&Analysis, &Program),
    parameters: &Values,
    request: &Request,
) -> (Option<InBytes>, Diagnostics) {
    let Some(pipeline) = analysis.pipeline.as_ref().filter(|pipeline| pipeline.has_model()) else {
        return (None, Vec::new());
    };
    let other = |requirement: &Requirement| match &requirement.limit {
        Limit::PartOf { schedule, .. } => schedule.clone(),
        Limit::Number(_) => None,
    };
    if pipeline.requirements.iter().all(|requirement| other(requirement).is_none()) {
        return (None, Vec::new());
    }
    let (mut others, mut failed) = (Vec::new(), Diagnostics::new());
    for requirement in &pipeline.requirements {
        let Some(other) = other(requirement) else {
            others.push(Other::None);
            continue;
        };
        let name = other.name.clone();
        match held(files, analysis, parameters, request, *other) {
            Ok(bytes) => others.push(Other::Holds(bytes)),
            Err(found) => {
                others.push(Other::Incomparable);
                failed.push(incomparable(requirement, &name, &found));
            }
        }
    }
    (Some(InBytes { own: activations(program), others }), failed)
}

/// What the fullest device holds under another schedule.
fn held(
    files: &Files,
    analysis: &Analysis,
    parameters: &Values,
    request: &Request,
    schedule: Schedule,
) -> Result<Bytes, Diagnostics> {
    let mut elaborated = Elaborated { schedule, pipeline: analysis.pipeline.clone(), parameters: parameters.clone() };
    let stages = stage_set(files, &elaborated)?;
    stages.tell(&mut elaborated.schedule);
    let order = check(&elaborated.schedule)?;
    if let Some(undivided) = undivided(&elaborated.schedule) {
        return Err(vec![undivided]);
    }
    let other = analyze(files, elaborated, order, &stages, request);
    let program = other.program(&stages, &other.lowering());
    Ok(activations(&program).into_iter().max().unwrap_or_default())
}

fn incomparable(requirement: &Requirement, name: &str, found: &Diagnostics) -> Diagnostic {
    let reason = found.first().map_or_else(String::new, |first| format!(": {}", first.message));
    let message = format!("`{name}` cannot be compared in bytes{reason}");
    let error = Diagnostic::error(Code::RequirementFailed, requirement.span, "this model cannot run so", message);
    error.help("compare with a schedule that this model can run under, or limit units: `require peak <= 3`")
}
