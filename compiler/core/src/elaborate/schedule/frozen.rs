//! `frozen` in a schedule: stages whose weights are not trained.

use super::Writer;
use pipe_ir::ids::StageId;
use pipe_schedule::policy::freeze::freeze;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::stage_graph::StageGraph;
use pipe_syntax::ast::{FrozenStages, Weights};
use pipe_syntax::diagnostic::{Code, Diagnostic};
use std::collections::BTreeMap;

/// Freezes stages of a schedule after its tasks were written out, and reports tasks that these stages do not have.
pub(super) fn apply<'a>(writer: &mut Writer<'a>, line: &'a FrozenStages, graph: &StageGraph, schedule: &mut Schedule) {
    if let Some((weights, span)) = writer.weights.filter(|(weights, _)| *weights != Weights::Flush) {
        let message = format!("`weights {}` updates every stage, and this schedule has frozen ones", weights.word());
        let error = Diagnostic::error(Code::WeightsNeedBlock, span, "updates all", message);
        writer.report.add(error.label(line.span, "these are never updated").help("choose `weights flush`"));
        return;
    }
    let Some(frozen) = stages(writer, line, schedule.n_whole_stages()) else { return };
    let tasks = schedule.orders.clone();
    let parts = schedule.parts.clone();
    freeze(schedule, graph, |row| frozen[parts.stage_of(row).index()]);
    let mut superfluous = BTreeMap::new();
    for scheduled in tasks.iter().flatten() {
        // What is on a lane says nothing about its stage.
        let is_of_lane = schedule.parts.lane(scheduled.task.stage).is_some();
        if !is_of_lane && schedule.frozen.kind(scheduled.task.kind, scheduled.task.stage).is_none() {
            superfluous.entry(scheduled.origin).or_insert(scheduled.task);
        }
    }
    for (origin, task) in superfluous {
        let (name, stage) = (schedule.kind_name(task.kind, task.stage), schedule.parts.stage_of(task.stage));
        let message = format!("`{name}` is written, but {stage} is frozen and needs no such task");
        let span = schedule.origins[usize::from(origin)];
        let error =
            Diagnostic::error(Code::FrozenTask, span, format!("`{}` of a frozen stage", task.kind.letters()), message);
        let help =
            "leave the task out, or move `frozen` to the pipeline: what frozen stages do not need then drops out";
        writer.report.add(error.label(line.span, format!("freezes {stage}")).help(help));
    }
}

/// Which stages the line freezes, by [`StageId`].
fn stages<'a>(writer: &mut Writer<'a>, line: &'a FrozenStages, n_stages: usize) -> Option<Vec<bool>> {
    let Some((stage, condition)) = &line.rule else { return Some(vec![true; n_stages]) };
    let slot = writer.variable(stage);
    let slot = writer.report.take(slot)?;
    let code = writer.scope.condition(condition);
    let code = writer.report.take(code)?;
    let each = (0..n_stages).map(StageId::from_index).map(|stage| {
        writer.machine.set(slot, i64::from(stage.0));
        Ok(writer.eval(&code)? == 1)
    });
    let each = each.collect();
    writer.report.take(each)
}
