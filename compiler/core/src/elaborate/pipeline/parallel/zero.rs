//! `zero`: what devices with the same weights divide among them, as far as there is any such thing.

use pipe_model::pipeline::Pipeline;
use pipe_schedule::policy::zero::Zero;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::step_tasks::StepTaskKind;
use pipe_syntax::ast::{Call, Expr};
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::edits;
use pipe_syntax::expr::evaluate::exact;
use pipe_syntax::expr::known::Known;
use pipe_syntax::expr::scope::Fault;
use pipe_syntax::limits::Report;
use pipe_syntax::source::Span;

/// What is asked for, at some place: the line of a pipeline, or the name of a target that is asked by the caller.
pub(in crate::elaborate::pipeline) type PlacedZero = Option<(Zero, Span)>;

/// The stage of ZeRO that a line says.
pub(in crate::elaborate::pipeline) fn stage(expr: &Expr, values: &Known<'_>) -> Result<Zero, Fault> {
    let value = exact(expr, values)?;
    Zero::new(value).ok_or_else(|| {
        let message = format!("`zero` is {value}, but the stages of ZeRO are 0 to {}", Zero::LAST);
        Box::new(Diagnostic::error(Code::OutOfRange, expr.span, format!("this is {value}"), message))
    })
}

/// Refuses to divide what is not there, or is not divided.
pub(in crate::elaborate::pipeline) fn check(
    asked: PlacedZero,
    schedule: Option<&Schedule>,
    (pipeline, config): (Option<&Pipeline>, Option<&Call>),
    report: &mut Report,
) {
    let Some((zero, span)) = asked.filter(|(zero, _)| zero.any()) else { return };
    let mut refuse = |label: &str, message: String, help: &str| {
        report.add(Diagnostic::error(Code::CannotShard, span, label, message).help(help));
    };
    let Some(pipeline) = pipeline.filter(|pipeline| pipeline.has_model()) else {
        let message = format!("`zero {zero}` needs a model, but there is none");
        return refuse("there is no model", message, "name a model, or leave it out");
    };
    if let Some(transformer) = &pipeline.transformer {
        let message = format!("what is divided of `{}` is a setting of the model", transformer.config.path);
        let help = format!("say `zero = {zero}` in the brackets behind it, or `--set zero={zero}`");
        let error = Diagnostic::error(Code::CannotShard, span, "stands here for nothing", message).help(help);
        let more = config.and_then(|call| edits::one_more(call, &format!("zero = {zero}")));
        let moved = more.map(|more| error.clone().edit(span, "").edit(more.span, more.text));
        return report.add(moved.unwrap_or(error));
    }
    if pipeline.training.is_none() {
        let message = format!("pipeline `{}` has no updates to divide: it does not say how to `train`", pipeline.name);
        refuse("of nothing", message, "say how to `train`, or leave it out");
    }
    if let Some(name) = pipeline.whole_matrices() {
        let message =
            format!("`{name}` updates whole matrices, but a share of `zero {zero}` can end in the middle of one");
        refuse("cuts matrices", message, "use `adamw`, or leave `zero` out");
    }
    if !zero.goes_with(pipeline.offload) {
        let message = format!("`offload {}` and `zero {zero}` both move the state of the model", pipeline.offload);
        refuse("not together", message, "`zero 1` goes with `offload optimizer`; else take one of them");
    }
    let Some(schedule) = schedule else { return };
    if zero.parameters() && schedule.parts.any_on_lanes() {
        let message =
            format!("`{}` runs parts on lanes, and weights in shares are not gathered for these", schedule.name);
        return refuse("beside lanes", message, "use `zero 2`, or leave `on` out of the line `parts`");
    }
    if zero.parameters() && !schedule.carried.is_empty() {
        let message =
            format!("transfers of `{}` take turns on lanes, and gathered weights do not count that", schedule.name);
        return refuse("beside lanes", message, "use `zero 2`, or leave `send` and `reduce` out of the line `lane`");
    }
    if let Some(update) = schedule.step_tasks.first(StepTaskKind::Update).filter(|_| zero.gradients()) {
        let (name, place) = (schedule.step_task_name(update), schedule.origins[usize::from(update.origin)]);
        let message = format!(
            "`zero {zero}` updates weights as soon as their gradients are summed up, so that `{name}` cannot choose a place"
        );
        let error = Diagnostic::error(Code::CannotShard, span, "divides gradients", message);
        let error = error.label(place, "has a place");
        return report.add(error.help("use `zero 1`, or leave `update` out of the order"));
    }
    if let Some(window) = &schedule.window {
        let word = window.weights.word();
        let message =
            format!("under `weights {word}` sums of gradients travel, and every device updates all of its weights");
        refuse("nothing is divided", message, "use a schedule with `weights flush`");
    } else if !schedule.placement.stages().any(|stage| schedule.placement.has_replicas(stage)) {
        let message =
            format!("no stage of `{}` lives on several devices, so there is nothing to divide", schedule.name);
        refuse(
            "among one",
            message,
            "write `data 2`, or use a schedule with replicas, such as `chimera`; or leave it out",
        );
    }
}
