//! `reads` of a schedule beside a model, whose layers say which stages read which.

use pipe_syntax::ast::{Call, ScheduleItem};
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::files::Files;
use pipe_syntax::limits::Report;

/// Rule: a schedule that says which stages read which is for pipelines without a model.
pub(super) fn beside_model(files: &Files, schedule: Option<&Call>, model: Option<&Call>, report: &mut Report) {
    let (Some(called), Some(model)) = (schedule, model) else { return };
    let items = files.schedule(&called.name.text).into_iter().flat_map(|declared| &declared.items);
    let mut reads = items.filter_map(|item| match item {
        ScheduleItem::Reads(reads) => Some(reads.span),
        _ => None,
    });
    let Some(span) = reads.next() else { return };
    let message = "which stages read which follows from the model".to_owned();
    let error = Diagnostic::error(Code::RepeatedItem, span, "said again", message);
    report.add(error.label(model.span, "said by this model").help("leave `reads` out, or the model"));
}
