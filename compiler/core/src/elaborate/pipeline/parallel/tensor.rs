//! `tensor`: how many devices stand behind each device of the schedule, and divide the tensors of its stages.

use super::degrees::Degree;
use pipe_model::pipeline::Pipeline;
use pipe_schedule::schedule::Schedule;
use pipe_syntax::ast::Call;
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::limits::{MAX_DEVICES, Report};

pub(in crate::elaborate::pipeline) const TENSOR: Degree =
    Degree { word: "tensor", counted: "devices of a group", most: 1024, code: Code::CannotSplit };

/// Refuses to divide what is not there, or more devices than there may be. `model` is the line that names a model, and
/// `config` one that names its sizes.
pub(in crate::elaborate::pipeline) fn check(
    pipeline: &Pipeline,
    schedule: Option<&Schedule>,
    (model, config, is_line): (Option<&Call>, Option<&Call>, bool),
    report: &mut Report,
) {
    let Some((members, span)) = pipeline.tensor.filter(|(members, _)| *members > 1) else { return };
    let mut refuse = |label: &str, message: String, help: &str| {
        report.add(Diagnostic::error(Code::CannotSplit, span, label, message).help(help));
    };
    if let Some(transformer) = &pipeline.transformer {
        return report.add(TENSOR.beside_sizes((members, span), transformer, config.filter(|_| is_line)));
    }
    if pipeline.model.is_none() {
        if model.is_some() {
            // It was refused already.
            return;
        }
        let message = format!("`tensor {members}` divides the tensors of a model, but there is none");
        return refuse("there is no model", message, "name a model, or leave it out");
    }
    if let Some(name) = pipeline.whole_matrices() {
        let message = format!("`{name}` updates whole matrices, but groups of {members} devices divide them");
        return refuse("divides matrices", message, "use `adamw`, or run each stage on one device");
    }
    let Some(schedule) = schedule else { return };
    if schedule.parts.any_on_lanes() {
        let message = format!("`{}` runs parts of stages on lanes, where devices exchange nothing", schedule.name);
        return refuse("beside lanes", message, "leave it out, or take a schedule without lanes");
    }
    if let Some(stage) = schedule.placement.spread_stage() {
        let message = format!("`{}` places {} on several devices already", schedule.name, schedule.stage_name(stage));
        return refuse("one way to divide a stage", message, "take a schedule that places each stage on one device");
    }
    let all = schedule.n_devices() as u64 * u64::from(members);
    if all > u64::from(MAX_DEVICES) {
        let message = format!(
            "{} groups of {members} devices are {all} devices; at most {MAX_DEVICES} are accepted",
            schedule.n_devices()
        );
        refuse("the size of each group", message, "use smaller groups, or fewer devices");
    }
}
