//! What is wrong with a task whose stage, microbatch or slice does not exist, and what was probably meant.

use super::order::Line;
use pipe_ir::ids::DeviceId;
use pipe_ir::task::TaskKind;
use pipe_schedule::slices::Slices;
use pipe_syntax::ast::{BinaryOp, Expr, ExprKind};
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::source::Span;

/// A `for` loop around a task.
#[derive(Clone, Copy)]
pub(super) struct Loop<'a> {
    /// Its variable.
    pub(super) name: &'a str,
    pub(super) start: &'a Expr,
    pub(super) end: &'a Expr,
}

pub(super) fn no_such_stage(stage: i64, n_stages: usize, line: &Line<'_>, device: DeviceId) -> Diagnostic {
    let last = n_stages - 1;
    let message = format!("`{}` names stage {stage}, but stages are s0 to s{last}", line.kind.letters());
    Diagnostic::error(Code::TaskOutside, line.stage.expr.span, format!("this is {stage} on {device}"), message)
}

pub(super) fn no_such_microbatch(line: &Line<'_>, stage: &str, microbatch: i64, n_microbatches: u32) -> Diagnostic {
    let (kind, last) = (line.kind.letters(), n_microbatches - 1);
    let message = format!("`{kind}` of {stage} names microbatch {microbatch}, but microbatches are m0 to m{last}");
    match &line.microbatch {
        Some(code) => Diagnostic::error(Code::TaskOutside, code.expr.span, format!("this is {microbatch}"), message),
        None => {
            let label = format!("number {} of its kind for {stage}", microbatch + 1);
            Diagnostic::error(Code::TaskOutside, line.span, label, message)
                .help("without a microbatch, a task takes the one after the last of its kind and stage")
        }
    }
}

pub(super) fn none_left_here(line: &Line<'_>, stage: &str, device: DeviceId) -> Diagnostic {
    let kind = line.kind.letters();
    let message = format!("`{kind}` of {stage} is on {device} once more than {stage} has microbatches there");
    Diagnostic::error(Code::TaskOutside, line.span, format!("none is left on {device}"), message)
        .help("`place` says which microbatches of a stage run on which device; others run on other replicas")
}

pub(super) fn no_such_slice(line: &Line<'_>, stage: &str, slice: i64, slices: Slices) -> Diagnostic {
    let (kind, last) = (line.kind.letters(), slices.count() - 1);
    let message = format!("`{kind}` of {stage} names slice {slice}, but slices are q0 to q{last}");
    let span = line.slice.as_ref().map_or(line.span, |code| code.expr.span);
    let error = Diagnostic::error(Code::TaskOutside, span, format!("this is {slice}"), message);
    if last == 0 { error.help("say in how many slices microbatches are cut, for example `slices 2`") } else { error }
}

/// Adds a help to an error about a microbatch beyond the last one, if the range of its loop ends above `M`.
pub(super) fn with_range(line: &Line<'_>, loops: &[Loop<'_>], error: Diagnostic) -> Diagnostic {
    let Some(ExprKind::Name(name)) = line.microbatch.as_ref().map(|code| &code.expr.kind) else { return error };
    let Some(range) = loops.iter().rev().find(|one| one.name == name) else { return error };
    if !is_beyond_count(range.end) {
        return error;
    }
    let (start, span) = match &range.start.kind {
        // A range from 1 also leaves out microbatch 0.
        ExprKind::Integer(0 | 1) => ("0", Span { end: range.end.span.end, ..range.start.span }),
        _ => ("", range.end.span),
    };
    let error = error.help(format!("write `{start}..M`: the end is not included"));
    error.edit(span, if start.is_empty() { "M".to_owned() } else { format!("{start}..M") })
}

/// Whether this is `M + 1`, or `M` and another number.
fn is_beyond_count(end: &Expr) -> bool {
    let ExprKind::Binary(BinaryOp::Add, left, right) = &end.kind else { return false };
    let is_count = |expr: &Expr| matches!(&expr.kind, ExprKind::Name(name) if name == "M");
    let is_number = |expr: &Expr| matches!(expr.kind, ExprKind::Integer(_));
    is_count(left) && is_number(right) || is_number(left) && is_count(right)
}

/// Whether a task has the variable of a loop as its stage, and the device as its microbatch.
pub(super) fn is_swapped(line: &Line<'_>, device: &str, loops: &[Loop<'_>]) -> bool {
    names(line).is_some_and(|(stage, microbatch)| microbatch == device && loops.iter().any(|one| one.name == stage))
}

/// The names in the places of stage and microbatch.
fn names<'l>(line: &'l Line<'_>) -> Option<(&'l str, &'l str)> {
    match (&line.stage.expr.kind, &line.microbatch.as_ref()?.expr.kind) {
        (ExprKind::Name(stage), ExprKind::Name(microbatch)) => Some((stage, microbatch)),
        _ => None,
    }
}

/// Adds a help to an error about a task with stage and microbatch swapped.
pub(super) fn with_swap(line: &Line<'_>, error: Diagnostic) -> Diagnostic {
    let (Some((stage, microbatch)), Some(code)) = (names(line), &line.microbatch) else { return error };
    let error = error.help(format!("the stage comes first: write `{}[{microbatch}, {stage}]`", line.kind.letters()));
    error.edit(line.stage.expr.span, microbatch).edit(code.expr.span, stage)
}

/// The error about a stage with `BW` and one of its halves.
pub(super) fn twice_backward(half: TaskKind, one: Span, both: Span) -> Diagnostic {
    let message = format!("`BW` already contains `{}`: leave one out", half.letters());
    Diagnostic::error(Code::MixedBackward, one, "one half", message).label(both, "both halves")
}
