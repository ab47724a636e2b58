//! `offload`: what a pipeline keeps in the memory of hosts, as far as there is any such thing.

use pipe_model::pipeline::Pipeline;
use pipe_schedule::policy::offload::Wanted;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::step_tasks::StepTaskKind;
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::limits::Report;
use pipe_syntax::source::Span;

/// What is asked for, at some place: the line of a pipeline, or the name of a target that is asked by the caller.
pub(super) type PlacedOffload = Option<(Wanted, Span)>;

/// Refuses to offload what is not there, or cannot leave the devices.
pub(super) fn check(
    asked: PlacedOffload,
    schedule: Option<&Schedule>,
    pipeline: Option<&Pipeline>,
    report: &mut Report,
) {
    let Some((wanted, span)) = asked.filter(|(wanted, _)| wanted.any()) else { return };
    let offload = wanted.named();
    let mut refuse = |label: &str, message: String, help: &str| {
        report.add(Diagnostic::error(Code::CannotOffload, span, label, message).help(help));
    };
    let Some(pipeline) = pipeline.filter(|pipeline| pipeline.has_model()) else {
        let message = format!("`offload {wanted}` needs a model, but there is none");
        return refuse("there is no model", message, "name a model, or leave it out");
    };
    if let Some(schedule) = schedule.filter(|schedule| schedule.parts.any_on_lanes()) {
        let message = format!("`{}` runs parts on lanes, and copies to hosts do not wait for lanes", schedule.name);
        return refuse("beside lanes", message, "leave `offload` out, or `on` in the line `parts`");
    }
    if let Some(schedule) = schedule.filter(|schedule| !schedule.carried.is_empty()) {
        let message =
            format!("transfers of `{}` take turns on lanes, and copies to hosts do not count that", schedule.name);
        return refuse("beside lanes", message, "leave `offload` out, or `send` and `reduce` in the line `lane`");
    }
    let update = schedule.and_then(|schedule| schedule.step_tasks.first(StepTaskKind::Update));
    if let Some((schedule, update)) = schedule.zip(update).filter(|_| offload.state()) {
        let (name, place) = (schedule.step_task_name(update), schedule.origins[usize::from(update.origin)]);
        let message =
            format!("`offload {wanted}` updates weights while they are copied, so that `{name}` cannot choose a place");
        let error = Diagnostic::error(Code::CannotOffload, span, "copies state", message).label(place, "has a place");
        return report.add(error.help("leave `update` out of the order, or `offload` out"));
    }
    if let Some(name) = pipeline.whole_matrices().filter(|_| offload.state()) {
        let message = format!("`{name}` updates whole matrices, but `offload {wanted}` copies state in chunks");
        refuse(
            "copies chunks",
            message,
            "use `adamw`, or leave `offload` out; `offload activations` works with all optimizers",
        );
    }
    let state = pipeline.training.as_ref().map(|training| training.optimizer.state_per_parameter());
    if offload.optimizer && pipeline.model.is_some() && state.unwrap_or(0) == 0 {
        let why = if state.is_some() { "its optimizer keeps no state" } else { "it does not say how to `train`" };
        let message = format!("pipeline `{}` has no state of an optimizer: {why}", pipeline.name);
        refuse("of nothing", message, "use `adamw` or `lion`, or `sgd` with momentum, or leave `optimizer` out");
    }
    if let Some(window) = schedule.and_then(|schedule| schedule.window.as_ref()).filter(|_| offload.state()) {
        let word = window.weights.word();
        let message =
            format!("under `weights {word}` several versions of the weights are in use at once, on the devices");
        refuse(
            "cannot leave the devices",
            message,
            "use a schedule with `weights flush`; `offload activations` goes with all",
        );
    }
}
