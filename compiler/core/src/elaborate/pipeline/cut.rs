//! `cut`: how many layers of the model each stage has.

use pipe_schedule::schedule::Schedule;
use pipe_syntax::ast::{Call, Expr};
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::expr::evaluate::list;
use pipe_syntax::expr::known::Known;
use pipe_syntax::limits::{MAX_STAGES, Report};
use pipe_syntax::source::Span;

/// The layers of each stage, and the line that says so.
pub(super) type Cut = (Vec<usize>, Span);

/// What a pipeline's line says; nothing for `auto`.
pub(super) fn cut((written, span): (Option<&Expr>, Span), parameters: &Known<'_>, report: &mut Report) -> Option<Cut> {
    let numbers = report.take(list(written?, parameters, MAX_STAGES))?;
    let mut layers = Vec::with_capacity(numbers.len());
    for (stage, (number, place)) in numbers.iter().enumerate() {
        // More than any model has, and their sum fits.
        match usize::try_from((*number).min(1 << 40)) {
            Ok(count @ 1..) => layers.push(count),
            _ => {
                let message = format!("s{stage} has {number} layers, and a stage has at least one");
                report.add(Diagnostic::error(Code::WrongCut, *place, format!("{number} for s{stage}"), message));
            }
        }
    }
    (layers.len() == numbers.len()).then_some((layers, span))
}

/// Rule: what is cut is a model of the language.
pub(super) fn beside(cut: Option<&Cut>, (model, config): (Option<&Call>, Option<&Call>), report: &mut Report) {
    let Some((_, span)) = cut.filter(|_| model.is_none()) else { return };
    let message = "there is no model whose layers could be cut";
    let error = Diagnostic::error(Code::MissingItem, *span, "cuts nothing", message);
    report.add(match config {
        Some(config) => error
            .label(config.span, "cut by its `layout`")
            .help("say how many layers each stage has with `--layout`, or leave the line out"),
        None => error.help("name a model, or leave the line out; `cost F[0] = 2` gives a stage a cost of its own"),
    });
}

/// Rule: there is a number for each stage of the schedule.
pub(super) fn check(cut: Option<&Cut>, schedule: &Schedule, report: &mut Report) {
    let n_stages = schedule.n_whole_stages();
    let Some((layers, span)) = cut.filter(|(layers, _)| layers.len() != n_stages) else { return };
    let (said, name) = (layers.len(), &schedule.name);
    let counted = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let (numbers, stages) = (counted(said, "number"), counted(n_stages, "stage"));
    let message = format!("the cut has {numbers}, but `{name}` has {stages}");
    let error = Diagnostic::error(Code::WrongCut, *span, numbers, message);
    report.add(error.label(schedule.span, stages).help("write a number of layers for each stage"));
}
