//! `frozen` in a pipeline: stages whose weights are not trained.

use super::number::in_schedule;
use pipe_ir::ids::StageId;
use pipe_schedule::policy::freeze::freeze;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::stage_graph::StageGraph;
use pipe_schedule::window::Window;
use pipe_syntax::ast::FrozenStages;
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::expr::evaluate::Rule;
use pipe_syntax::expr::known::Known;
use pipe_syntax::limits::Report;

/// Freezes the stages that the line `frozen` of a pipeline names, and stages whose weights are all frozen in the model.
pub(super) fn apply(
    line: Option<&FrozenStages>,
    (schedule, graph): (&mut Schedule, &StageGraph),
    (untrained, known): (Vec<bool>, &Known<'_>),
    report: &mut Report,
) {
    let n_stages = schedule.n_stages();
    let frozen = match (line, &schedule.window) {
        // Steps that follow each other without a flush keep all tasks of their block.
        (None, Some(_)) => return,
        (Some(line), Some(window)) => return report.add(in_window(line, window)),
        (None, None) => untrained,
        (Some(line), None) => {
            let Some(said) = said(line, schedule, known, report) else { return };
            let said = |row| said[schedule.parts.stage_of(StageId::from_index(row)).index()];
            (0..n_stages).map(|row| said(row) || untrained.get(row) == Some(&true)).collect()
        }
    };
    if frozen.contains(&true) {
        freeze(schedule, graph, |stage: StageId| frozen[stage.index()]);
    }
}

/// Which stages a line freezes, by [`StageId`].
fn said(line: &FrozenStages, schedule: &Schedule, known: &Known<'_>, report: &mut Report) -> Option<Vec<bool>> {
    let n_stages = schedule.n_whole_stages();
    let Some((stage, condition)) = &line.rule else { return Some(vec![true; n_stages]) };
    let known = in_schedule(known, schedule);
    let rule = Rule::condition(condition, std::slice::from_ref(stage), &known);
    let mut rule = report.take(rule)?;
    report.take((0..n_stages).map(|stage| rule.holds(&[stage as i64])).collect())
}

fn in_window(line: &FrozenStages, window: &Window) -> Diagnostic {
    let word = window.weights.word();
    let message = format!("stages are frozen, and `weights {word}` updates every stage between its microbatches");
    let error = Diagnostic::error(Code::WeightsNeedBlock, line.span, "these are never updated", message);
    let error = error.label(window.span, "updates all");
    error.help("choose a schedule with `weights flush`, or write `frozen` behind weights and layers of the model")
}
