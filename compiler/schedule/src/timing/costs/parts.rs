//! Costs of parts: which parts of which stages an entry is about.
//!
//! `F` sets the cost of every part on compute, and `F.dispatch` of every part with that name. `F[2]` and
//! `F.dispatch[2]` set it for one stage. A part on a lane takes one unit unless an entry names it. `F.dispatch[2]` wins
//! over `F.dispatch`, that wins over `F[2]`, and that wins over `F`.

use super::{CostName, Entry, StageCosts};
use crate::parts::StageParts;
use crate::schedule::Schedule;
use crate::units::Ticks;
use pipe_ir::ids::StageId;
use pipe_ir::task::TaskKind;
use pipe_syntax::diagnostic::{Code, Diagnostic};
use std::ops::Range;
use std::sync::Arc;

/// The parts with a name, of all stages or of some.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartCost {
    /// The kind of task.
    pub kind: TaskKind,
    /// The name of the parts.
    pub part: Arc<str>,
    /// The stages. None means all.
    pub stages: Option<Range<u32>>,
}

/// The tasks that an entry is about, if it names stages or parts.
fn about(name: &CostName, parts: &StageParts) -> Vec<(TaskKind, StageId)> {
    let whole = 0..u32::try_from(parts.n_stages(0)).unwrap_or(u32::MAX);
    let (kind, stages, part) = match name {
        CostName::Stages(kind, stages) => (*kind, stages, None),
        CostName::Part(cost) => (cost.kind, cost.stages.as_ref().unwrap_or(&whole), Some(&*cost.part)),
        _ => return Vec::new(),
    };
    let stages = stages.start..stages.end.min(whole.end);
    let rows = stages.flat_map(|stage| parts.rows(StageId(stage))).map(StageId::from_index);
    let is_meant = |row: &StageId| match (parts.part(*row), part) {
        (Some(own), Some(name)) => &*own.name == name,
        (own, None) => own.is_none_or(|own| own.lane.is_none()),
        (None, Some(_)) => false,
    };
    let of_row = |row: StageId| {
        // On a lane, both backwards are the same.
        let same = match kind {
            TaskKind::BackwardInput => Some(TaskKind::Backward),
            TaskKind::Backward => Some(TaskKind::BackwardInput),
            _ => None,
        };
        let same = same.filter(|_| parts.lane(row).is_some());
        std::iter::once(kind).chain(same).map(move |kind| (kind, row))
    };
    rows.filter(is_meant).flat_map(of_row).collect()
}

impl StageCosts {
    /// The same costs by part: entries about stages and names become entries about the rows of tables.
    #[must_use]
    pub fn of_parts(self, parts: &StageParts) -> Self {
        if parts.is_empty() {
            return self;
        }
        let is_general = |entry: &&Entry| !matches!(entry.name, CostName::Stages(..) | CostName::Part(_));
        let mut entries: Vec<Entry> = self.entries.iter().filter(is_general).cloned().collect();
        let row_entry =
            |kind, row: StageId, entry: Entry| Entry { name: CostName::Stages(kind, row.0..row.0 + 1), ..entry };
        let lanes = (0..parts.len()).map(StageId::from_index).filter(|row| parts.lane(*row).is_some());
        for kind in TaskKind::ALL {
            let takes = match kind {
                TaskKind::Forward | TaskKind::BackwardInput | TaskKind::Backward => Ticks::UNIT,
                TaskKind::BackwardWeight | TaskKind::Recompute | TaskKind::Update => Ticks::ZERO,
            };
            entries.extend(lanes.clone().map(|row| row_entry(kind, row, Entry::new(CostName::Tasks(kind), takes))));
        }
        // The most exact ones come last: these hold.
        let exactness = |entry: &&Entry| match &entry.name {
            CostName::Part(PartCost { stages: Some(_), .. }) => 2,
            CostName::Part(_) => 1,
            _ => 0,
        };
        let mut exact: Vec<&Entry> = self.entries.iter().filter(|entry| !is_general(entry)).collect();
        exact.sort_by_key(exactness);
        for entry in exact {
            let rows = about(&entry.name, parts).into_iter();
            entries.extend(rows.map(|(kind, row)| row_entry(kind, row, entry.clone())));
        }
        Self { sharing: self.sharing, ..Self::of(entries) }
    }
}

/// What speaks against an entry in a schedule with its parts.
pub(super) fn absent(entry: &Entry, schedule: &Schedule) -> Option<Diagnostic> {
    let span = entry.span.unwrap_or(schedule.span);
    match &entry.name {
        CostName::Part(PartCost { part, .. }) if !schedule.parts.has(part) => {
            let message =
                format!("`{}` has a cost, but no stage of `{}` has a part `{part}`", entry.name, schedule.name);
            let error = Diagnostic::error(Code::WrongPart, span, "no such part", message);
            let names: Vec<String> = schedule.parts.names().iter().map(|name| format!("`{name}`")).collect();
            Some(match names.is_empty() {
                true => error.help("name the parts of stages: `parts s = attention, experts`"),
                false => error.help(format!("its parts are {}", names.join(", "))),
            })
        }
        CostName::Pair(_) if !schedule.parts.is_empty() => {
            let message = format!("`{}` has a cost, but the parts of a forward and a backward take turns", entry.name);
            let error = Diagnostic::error(Code::WrongPair, span, "not one task", message);
            Some(error.help("leave it out, and give each part a cost"))
        }
        _ => None,
    }
}

/// The kinds of tasks that each row of a schedule with parts has.
pub(super) struct Runs(Vec<[bool; TaskKind::ALL.len()]>);

impl Runs {
    pub(super) fn of(schedule: &Schedule) -> Self {
        let mut runs = vec![[false; TaskKind::ALL.len()]; schedule.n_stages()];
        let tasks = schedule.orders.iter().flatten().map(|one| one.task);
        tasks.for_each(|task| runs[task.stage.index()][task.kind.index()] = true);
        Self(runs)
    }

    /// Whether no task takes the time of an entry. `B` and `W` serve `BW` and the reverse, and `F` serves `R`.
    pub(super) fn leave_out(&self, entry: &Entry, schedule: &Schedule) -> bool {
        let serves = |kind: TaskKind, row: &[bool; TaskKind::ALL.len()]| {
            let others: &[TaskKind] = match kind {
                TaskKind::BackwardInput | TaskKind::BackwardWeight => &[TaskKind::Backward],
                TaskKind::Backward => &[TaskKind::BackwardInput, TaskKind::BackwardWeight],
                TaskKind::Forward => &[TaskKind::Recompute],
                TaskKind::Recompute | TaskKind::Update => &[],
            };
            others.iter().chain([&kind]).any(|kind| row[kind.index()])
        };
        match &entry.name {
            CostName::Tasks(kind) => *kind != TaskKind::Update && !self.0.iter().any(|row| serves(*kind, row)),
            CostName::Stages(..) | CostName::Part(_) => {
                let about = about(&entry.name, &schedule.parts);
                !about.into_iter().any(|(kind, row)| serves(kind, &self.0[row.index()]))
            }
            // Whole stages alone have activations that leave.
            CostName::Swap(_) => true,
            _ => false,
        }
    }
}
