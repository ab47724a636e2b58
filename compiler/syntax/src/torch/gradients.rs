//! Rules: gradients are reduced once, behind the last backward of their stage, and what is begun is waited for.

use super::action::{Action, ActionKind};
use super::table::{Cell, Table};
use super::version::Version;
use crate::diagnostic::{Code, Diagnostic, Diagnostics};
use std::collections::BTreeMap;

/// The last action of a stage that computes gradients of weights, and its reduction.
#[derive(Default)]
struct Stage<'a> {
    last: Option<(usize, usize, &'a Cell)>,
    reduced: Option<(usize, usize, &'a Cell)>,
}

/// Everything that leaves gradients as they are, or that PyTorch refuses to load; a warning where
/// only newer versions need it.
pub(super) fn check(table: &Table, version: Version, is_asked: bool) -> Diagnostics {
    let mut stages: BTreeMap<u32, Stage<'_>> = BTreeMap::new();
    let mut found = Diagnostics::new();
    for (rank, position, action, cell) in table.actions() {
        let stage = stages.entry(action.stage).or_default();
        if action.kind.has_weight_gradients() {
            stage.last = Some((rank, position, cell));
        }
        if action.kind == ActionKind::ReduceGradient
            && let Some((.., first)) = stage.reduced.replace((rank, position, cell))
        {
            let message = format!("the gradients of stage {} are reduced twice, and so divided twice", action.stage);
            let error = Diagnostic::error(Code::MissingReduction, cell.span, "once more", message);
            found.push(error.label(first.span, "reduced here"));
        }
    }
    if !version.reduces() {
        let wants = !is_asked && found.is_empty() && stages.values().any(|stage| stage.last.is_some());
        found.extend(wants.then(|| of_newer(table)));
        found.extend(undivided(table, &stages, version));
        return found;
    }
    if !table.has_transfers() {
        return found;
    }
    for (number, stage) in &stages {
        let Some((_, at, last)) = stage.last else { continue };
        match stage.reduced {
            None => found.push(lacks(table, *number, last)),
            Some((_, position, cell)) if position < at => {
                let message = format!("stage {number} adds gradients behind `{cell}`, and those are not reduced");
                let error = Diagnostic::error(Code::MissingReduction, cell.span, "reduces what is there", message);
                let error = error.label(last.span, "adds to it");
                found.push(error.help(format!("move `{cell}` behind `{last}`")));
            }
            Some(_) => {}
        }
    }
    if version.waits() {
        found.extend(table.rows.iter().enumerate().flat_map(|(rank, row)| waits(rank, &row.cells, version)));
    }
    found
}

fn lacks(table: &Table, stage: u32, last: &Cell) -> Diagnostic {
    let n = table.n_microbatches();
    let message = format!("the gradients of stage {stage} stay the sum over {n} microbatches instead of their mean");
    let error = Diagnostic::error(Code::MissingReduction, last.span, "the last gradients of the stage", message);
    let error =
        error.note("PyTorch divides them, and adds them up over sharded data-parallel ranks, at `REDUCE_GRAD` only");
    error.help(format!("put `{stage}REDUCE_GRAD` behind it"))
}

/// What versions without reductions leave as it is: they divide gradients in the last backward of a
/// stage, if that is a full one.
fn undivided(table: &Table, stages: &BTreeMap<u32, Stage<'_>>, version: Version) -> Option<Diagnostic> {
    let lasts = stages.values().filter_map(|stage| stage.last);
    let halves: Vec<&Cell> =
        lasts.map(|(.., cell)| cell).filter(|cell| cell.action.kind == ActionKind::BackwardWeight).collect();
    let (first, n, count) = (halves.first()?, table.n_microbatches(), halves.len());
    let message = format!(
        "PyTorch {version} leaves the gradients of {count} of {} stages as sums over {n} microbatches",
        stages.len()
    );
    let warning = Diagnostic::warning(Code::MissingReduction, first.span, "the last gradients of a stage", message);
    let warning =
        warning.note("before 2.10 gradients are divided in the last backward of a stage, and only by a full one (`B`)");
    Some(warning.help(format!("say `scale_grads=False`, and let the loss function divide by {n}")))
}

/// What a form without reductions means for those that load it elsewhere.
fn of_newer(table: &Table) -> Diagnostic {
    let span = table.rows[0].span;
    let since = Version::PLAIN;
    let message = format!(
        "without `REDUCE_GRAD` this is a schedule for PyTorch {since} and older: newer ones leave gradients as sums"
    );
    let warning = Diagnostic::warning(Code::MissingReduction, span, "no rank has one", message);
    warning.help(format!("`--torch {since}` says that this is meant"))
}

/// Rule of 2.15: every send and every reduction is waited for once, and of reductions one at a time is under way.
fn waits(rank: usize, cells: &[Cell], version: Version) -> Diagnostics {
    let mut found = Diagnostics::new();
    let mut sends: BTreeMap<Action, &Cell> = BTreeMap::new();
    let mut reducing: Option<(u32, &Cell)> = None;
    let error = |cell: &Cell, label: &str, message: String| {
        let error = Diagnostic::error(Code::MissingWait, cell.span, label, message);
        error.note(format!("PyTorch {version} refuses to load it"))
    };
    for (action, cell) in cells.iter().flat_map(|cell| cell.actions().map(move |action| (action, cell))) {
        if action.is_send() {
            sends.insert(action, cell);
        } else if let Some(send) = action.awaited() {
            if sends.remove(&send).is_none() {
                found.push(error(
                    cell,
                    "waits for nothing",
                    format!("rank {rank} waits for `{send}`, which is not in flight"),
                ));
            }
        } else if action.kind == ActionKind::ReduceGradient {
            if let Some((other, first)) = reducing.replace((action.stage, cell)) {
                let message = format!("rank {rank} reduces stage {} while stage {other} is in flight", action.stage);
                found.push(error(cell, "begins", message).label(first.span, "not waited for"));
            }
        } else if action.kind == ActionKind::WaitReduceGradient
            && reducing.take().is_none_or(|(stage, _)| stage != action.stage)
        {
            found.push(error(
                cell,
                "waits for nothing",
                format!("rank {rank} waits for a reduction that is not in flight"),
            ));
        }
    }
    if let Some((stage, cell)) = reducing {
        let message = format!("nothing waits for the reduction of stage {stage}");
        found.push(error(cell, "begins here", message).help(format!("put `{stage}WAIT_REDUCE_GRAD` behind it")));
    }
    for (send, cell) in sends {
        let wait = if send.kind == ActionKind::SendForward {
            ActionKind::WaitSendForward
        } else {
            ActionKind::WaitSendBackward
        };
        let wait = Action { kind: wait, ..send };
        let message = format!("nothing waits for `{send}`");
        found.push(
            error(cell, "leaves here", message).help(format!("put `{wait}` behind it, where the other rank receives")),
        );
    }
    found
}
