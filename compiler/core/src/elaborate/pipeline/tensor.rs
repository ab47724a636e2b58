//! `tensor`: how many devices stand behind each device of the schedule, and divide the tensors of its stages.

use crate::elaborate::Request;
use crate::elaborate::parameters::setting;
use pipe_model::pipeline::Pipeline;
use pipe_schedule::schedule::Schedule;
use pipe_syntax::ast::{Call, Expr};
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::edits;
use pipe_syntax::expr::evaluate::exact;
use pipe_syntax::expr::known::Known;
use pipe_syntax::limits::{MAX_DEVICES, Report, within};
use pipe_syntax::source::Span;

/// The most devices that stand behind one.
const MOST: u32 = 1024;

/// How many, and where that was said.
type Placed = Option<(u32, Span)>;

/// What the caller sets, or else the line says, or else the brackets of a `config.json` that is trained.
pub(super) fn tensor(
    (written, of_config, is_by_sizes): (Option<(&Expr, Span)>, Placed, bool),
    (span, request, known): (Span, &Request, &Known<'_>),
    report: &mut Report,
) -> Placed {
    // Of a `config.json` that is known by its sizes, the value is a setting of the model.
    let set = setting(request, "tensor").filter(|_| !is_by_sizes);
    let (value, span) = match (set, written) {
        (Some(value), _) => (value, written.map_or(span, |(_, span)| span)),
        (None, Some((expr, span))) => (report.take(exact(expr, known))?, span),
        (None, None) => return of_config,
    };
    if let (Some((_, first)), Some((_, second))) = (of_config, written) {
        let error = Diagnostic::error(Code::RepeatedItem, second, "given again", "`tensor` is given twice");
        report.add(error.label(first, "given first").help("leave one of them out"));
    }
    Some((report.take(within("devices of a group", value, 1..=MOST, span))?, span))
}

/// Refuses to divide what is not there, or more devices than there may be.
pub(super) fn check(
    pipeline: &Pipeline,
    schedule: Option<&Schedule>,
    (config, is_line): (Option<&Call>, bool),
    report: &mut Report,
) {
    let Some((members, span)) = pipeline.tensor.filter(|(members, _)| *members > 1) else { return };
    let mut refuse = |label: &str, message: String, help: &str| {
        report.add(Diagnostic::error(Code::CannotSplit, span, label, message).help(help));
    };
    if let Some(transformer) = &pipeline.transformer {
        let message = format!("how `{}` is divided is a setting of the model", transformer.config.path);
        let help = format!("say `tensor = {members}` in the brackets behind it");
        let error = Diagnostic::error(Code::CannotSplit, span, "stands here for nothing", message).help(help);
        let more = config.filter(|_| is_line).and_then(|call| edits::one_more(call, &format!("tensor = {members}")));
        let moved = more.map(|more| error.clone().edit(span, "").edit(more.span, more.text));
        return report.add(moved.unwrap_or(error));
    }
    if pipeline.model.is_none() {
        let message = format!("`tensor {members}` divides the tensors of a model, but there is none");
        return refuse("there is no model", message, "name a model, or leave it out");
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
