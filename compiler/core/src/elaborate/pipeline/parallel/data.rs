//! `data`: how many pipelines hold the same weights and divide the batch.

use super::degrees::{Degree, Placed};
use pipe_model::transformer::Transformer;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::timing::costs::{CostName, StageCosts};
use pipe_syntax::ast::Call;
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::limits::{MAX_DEVICES, MAX_MICROBATCHES, Report};
use pipe_syntax::source::Span;

pub(in crate::elaborate::pipeline) const DATA: Degree =
    Degree { word: "data", counted: "pipelines side by side", most: MAX_DEVICES, code: Code::CannotReplicate };

/// What a pipeline says that may not go with several of it.
pub(in crate::elaborate::pipeline) struct Beside<'a> {
    pub(in crate::elaborate::pipeline) transformer: Option<&'a Transformer>,
    /// The line of its `config.json`, where `data` is a line, too.
    pub(in crate::elaborate::pipeline) config: Option<&'a Call>,
    pub(in crate::elaborate::pipeline) costs: Option<&'a StageCosts>,
    /// The line that says something of each device.
    pub(in crate::elaborate::pipeline) device: Option<Span>,
}

/// Writes out all pipelines, or says why that is not possible.
pub(in crate::elaborate::pipeline) fn apply(
    data: Placed,
    beside: &Beside<'_>,
    schedule: &mut Schedule,
    report: &mut Report,
) {
    let Some((pipelines, span)) = data.filter(|(pipelines, _)| *pipelines > 1) else { return };
    if let Some(transformer) = beside.transformer {
        return report.add(DATA.beside_sizes((pipelines, span), transformer, beside.config));
    }
    let refuse = |label: &str, message: String| Diagnostic::error(Code::CannotReplicate, span, label, message);
    let costs = beside.costs.into_iter().flat_map(|costs| &costs.entries);
    let of_one = costs.filter(|entry| entry.each.is_some() || matches!(entry.name, CostName::Link(..)));
    let lines = of_one.filter_map(|entry| entry.span).chain(beside.device);
    if let Some(line) = lines.min_by_key(|line| line.start) {
        let message = format!("`data {pipelines}` repeats a pipeline whose devices or microbatches differ");
        let error = refuse("several pipelines", message).label(line, "says what one of them takes or has");
        return report.add(error.help("say what holds for all devices and microbatches; or leave `data` out"));
    }
    let all = [
        ("devices", schedule.n_devices() as u64, MAX_DEVICES),
        ("microbatches", schedule.n_microbatches.into(), MAX_MICROBATCHES),
    ];
    for (what, own, most) in all {
        let number = own * u64::from(pipelines);
        if number > u64::from(most) {
            let message =
                format!("{pipelines} pipelines of {own} {what} are {number} {what}; at most {most} are accepted");
            return report.add(refuse("so many", message).help(format!("use fewer pipelines, or fewer {what}")));
        }
    }
    match schedule.side_by_side(pipelines) {
        Some(all) => *schedule = all,
        None => {
            let message = format!("`{}` cannot stand {pipelines} times side by side", schedule.name);
            let error = refuse("several pipelines", message);
            let reason = "it changes weights during a step, or gives sums, updates or activations a place";
            report.add(error.note(reason).help("take a schedule without these, or leave `data` out"));
        }
    }
}
