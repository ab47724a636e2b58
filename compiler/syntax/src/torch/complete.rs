//! Rule: each stage runs each microbatch forward once and backward once, whole or in halves, all on one rank.
//!
//! Said of cells, as a table has them. A cell that is written wrongly leaves one too many and one too few: where a rank
//! has one of each and nothing else is wrong, that is one finding, which says what the cell should be. A kind of task
//! that a stage never runs is left to the checks of schedules.

use super::action::{Action, ActionKind};
use super::table::{Cell, Table};
use crate::diagnostic::{Code, Diagnostic, Diagnostics};
use std::collections::BTreeMap;

/// Actions of a kind that a rank lacks, which are named; the rest is counted.
const MOST_NAMED: usize = 4;

/// Of larger steps, only what is one too many is told; whoever counts tasks refuses them.
const MOST_LOOKED_AT: u64 = 1 << 22;

/// Where an action stands.
#[derive(Clone, Copy)]
struct Place<'a> {
    rank: usize,
    position: usize,
    action: Action,
    cell: &'a Cell,
}

/// Why an action is one too many.
#[derive(Clone, Copy)]
enum Excess<'a> {
    /// It stands here before.
    Twice(Place<'a>),
    /// There is no such stage.
    Stage,
    /// There is no such microbatch.
    Microbatch,
    /// The stage is on another rank.
    Rank(usize),
    /// The backward runs whole and in halves.
    Form,
}

struct Tasks<'a> {
    table: &'a Table,
    placement: BTreeMap<u32, usize>,
    n_stages: u32,
    n_microbatches: u32,
    /// The first place of each task that belongs to the step.
    places: BTreeMap<Action, Place<'a>>,
    excess: Vec<(Place<'a>, Excess<'a>)>,
}

/// Every task that is missing or one too many.
pub(super) fn check(table: &Table) -> Diagnostics {
    let mut tasks = Tasks {
        table,
        placement: table.placement(),
        n_stages: u32::try_from(table.n_stages()).unwrap_or(u32::MAX),
        n_microbatches: table.n_microbatches(),
        places: BTreeMap::new(),
        excess: Vec::new(),
    };
    for (rank, position, action, cell) in table.actions().filter(|(.., action, _)| action.kind.task().is_some()) {
        tasks.enter(Place { rank, position, action, cell });
    }
    let mut missing = tasks.missing();
    // What stands elsewhere is told there.
    missing.retain(|missing| tasks.excess.iter().all(|(place, _)| place.action != *missing));
    if let ([(place, excess)], [missing]) = (tasks.excess.as_slice(), missing.as_slice())
        && tasks.placement.get(&missing.stage) == Some(&place.rank)
    {
        return vec![tasks.slip(*place, *excess, *missing)];
    }
    let mut found: Diagnostics =
        tasks.excess.iter().map(|(place, excess)| tasks.one_too_many(*place, *excess)).collect();
    found.extend(tasks.lacking(&missing));
    found
}

impl<'a> Tasks<'a> {
    fn enter(&mut self, place: Place<'a>) {
        let Action { stage, microbatch, .. } = place.action;
        let excess = match (self.placement.get(&stage), self.places.get(&place.action)) {
            _ if stage >= self.n_stages => Excess::Stage,
            _ if microbatch.is_some_and(|microbatch| microbatch >= self.n_microbatches) => Excess::Microbatch,
            (Some(home), _) if *home != place.rank => Excess::Rank(*home),
            (_, Some(first)) => Excess::Twice(*first),
            _ => {
                self.places.insert(place.action, place);
                return;
            }
        };
        self.excess.push((place, excess));
    }

    /// The places of the tasks of a stage that are of a kind.
    fn of_kind(&self, stage: u32, kind: ActionKind) -> impl Iterator<Item = &Place<'a>> {
        let at = |microbatch| Action { stage, kind, microbatch: Some(microbatch) };
        self.places.range(at(0)..=at(u32::MAX)).map(|(_, place)| place)
    }

    /// What is missing of each stage and microbatch. Halves beside a whole backward are too many, or the whole is.
    fn missing(&mut self) -> Vec<Action> {
        use ActionKind::{BackwardInput, BackwardWeight, Forward, FullBackward};
        let mut missing = Vec::new();
        if u64::from(self.n_stages) * u64::from(self.n_microbatches) > MOST_LOOKED_AT {
            return missing;
        }
        for stage in 0..self.n_stages {
            let count = |kind| self.of_kind(stage, kind).count();
            let [forwards, wholes, inputs, weights] = [Forward, FullBackward, BackwardInput, BackwardWeight].map(count);
            for microbatch in 0..self.n_microbatches {
                let action = |kind| Action { stage, kind, microbatch: Some(microbatch) };
                let has = |kind| self.places.contains_key(&action(kind));
                if forwards > 0 && !has(Forward) {
                    missing.push(action(Forward));
                }
                let [whole, input, weight] = [FullBackward, BackwardInput, BackwardWeight].map(has);
                if whole && (input || weight) {
                    let few: &[_] = if wholes > inputs { &[BackwardInput, BackwardWeight] } else { &[FullBackward] };
                    let places = few.iter().filter_map(|kind| self.places.get(&action(*kind)));
                    self.excess.extend(places.map(|place| (*place, Excess::Form)));
                    continue;
                }
                // In the form that most of the stage has.
                let wanted: &[ActionKind] = match (whole, input, weight) {
                    (true, ..) | (_, true, true) => &[],
                    (_, true, false) if weights > 0 => &[BackwardWeight],
                    (_, false, true) if inputs > 0 => &[BackwardInput],
                    (false, false, false) if wholes > 0 && wholes >= inputs => &[FullBackward],
                    (false, false, false) if inputs > 0 && weights > 0 => &[BackwardInput, BackwardWeight],
                    _ => &[],
                };
                missing.extend(wanted.iter().map(|kind| action(*kind)));
            }
        }
        missing
    }

    /// A cell that should be another one.
    fn slip(&self, place: Place<'a>, excess: Excess<'a>, missing: Action) -> Diagnostic {
        let (row, rank) = (place.rank + 1, place.rank);
        // Of two that are alike, the one that is out of turn.
        let (place, other) = match excess {
            Excess::Twice(first) if self.suits(first, missing) => (first, Some(place)),
            Excess::Twice(first) => (place, Some(first)),
            Excess::Stage | Excess::Microbatch | Excess::Rank(_) | Excess::Form => (place, None),
        };
        let wrong = place.action;
        let (code, message) = match other {
            Some(_) => (
                Code::DuplicateTask,
                format!("`{wrong}` stands twice in row {row} (rank {rank}), and `{missing}` nowhere"),
            ),
            None => (Code::MissingTask, format!("row {row} (rank {rank}) has `{wrong}`, and lacks `{missing}`")),
        };
        let meant = |one: Action| if one == wrong { missing } else { one };
        let meant =
            Cell { action: meant(place.cell.action), partner: place.cell.partner.map(meant), span: place.cell.span };
        let error = Diagnostic::error(code, place.cell.span, format!("instead of `{missing}`"), message);
        let error = other.into_iter().fold(error, |error, other| error.label(other.cell.span, "the other one"));
        error.help(format!("write `{meant}` here")).edit(place.cell.span, meant.to_string())
    }

    /// Whether microbatches of a kind and stage are in ascending order if `action` stands at a place.
    fn suits(&self, place: Place<'_>, action: Action) -> bool {
        let own = |one: &Action| one.stage == action.stage && one.kind == action.kind;
        let cells = self.table.rows.get(place.rank).map_or(&[][..], |row| row.cells.as_slice());
        let (before, behind) = cells.split_at(place.position.min(cells.len()));
        let last = before.iter().rev().flat_map(Cell::actions).find(own);
        let next = behind.iter().skip(1).flat_map(Cell::actions).find(own);
        last.is_none_or(|last| last.microbatch < action.microbatch)
            && next.is_none_or(|next| next.microbatch > action.microbatch)
    }

    fn one_too_many(&self, place: Place<'a>, excess: Excess<'a>) -> Diagnostic {
        let (action, span, row, rank) = (place.action, place.cell.span, place.rank + 1, place.rank);
        let stage = action.stage;
        match excess {
            Excess::Twice(first) => {
                let message = format!("`{action}` stands more than once in row {row} (rank {rank})");
                let error = Diagnostic::error(Code::DuplicateTask, span, "once more", message);
                let error = if first.cell.span == span { error } else { error.label(first.cell.span, "first here") };
                error.help(format!("leave one `{action}`"))
            }
            Excess::Stage => {
                let message =
                    format!("`{action}` is of stage {stage}, and stages count from 0 to {}", self.n_stages - 1);
                let error = Diagnostic::error(Code::WrongDevice, span, "no such stage", message);
                error.help("leave the cell out, or correct its stage")
            }
            Excess::Microbatch => {
                let message =
                    format!("`{action}` is of a microbatch that nothing else runs: a step has {}", self.n_microbatches);
                let error = Diagnostic::error(Code::TaskOutside, span, "not part of a step", message);
                error.help("leave the cell out, or let every stage run this microbatch")
            }
            Excess::Rank(home) => {
                let message =
                    format!("`{action}` stands in row {row} (rank {rank}), but stage {stage} is on rank {home}");
                let error = Diagnostic::error(Code::WrongDevice, span, "on another rank", message);
                error.help(format!(
                    "a stage has one rank: move the cell to row {} (rank {home}), or correct its stage",
                    home + 1
                ))
            }
            Excess::Form => {
                let microbatch = action.microbatch.unwrap_or_default();
                let message = format!(
                    "stage {stage} runs the backward of microbatch {microbatch} both whole (`B`) and in halves"
                );
                let error = Diagnostic::error(Code::MixedBackward, span, "one too many", message);
                error
                    .help(format!("write `{stage}B{microbatch}`, or `{stage}I{microbatch}` and `{stage}W{microbatch}`"))
            }
        }
    }

    /// What rows lack, by stage and kind.
    fn lacking(&self, missing: &[Action]) -> Diagnostics {
        let mut kinds: BTreeMap<(u32, ActionKind), Vec<Action>> = BTreeMap::new();
        for action in missing {
            kinds.entry((action.stage, action.kind)).or_default().push(*action);
        }
        let mut found = Diagnostics::new();
        for ((stage, kind), actions) in kinds {
            let there = self.of_kind(stage, kind).count();
            let Some(first) = self.of_kind(stage, kind).min_by_key(|one| one.position) else { continue };
            let named: Vec<String> = actions.iter().take(MOST_NAMED).map(|one| format!("`{one}`")).collect();
            let more = actions.len().saturating_sub(MOST_NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let (row, rank) = (first.rank + 1, first.rank);
            let message = format!("row {row} (rank {rank}) lacks {}{more}", named.join(", "));
            let label = format!("{there} of {} microbatches are there", self.n_microbatches);
            let error = Diagnostic::error(Code::MissingTask, first.cell.span, label, message);
            found.push(error.help("add the missing cells: every microbatch needs each task once"));
        }
        found
    }
}
