//! Tables: the rows of a schedule of PyTorch.

use super::action::{Action, ActionKind};
use super::version::Version;
use crate::source::Span;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

/// A schedule: what each rank does, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// By rank.
    pub rows: Vec<Row>,
}

/// What a rank does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// In order; empty cells of the text are left out.
    pub cells: Vec<Cell>,
    /// The line.
    pub span: Span,
}

/// An action, or a forward and a backward that share the rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    /// The action, or the first of two.
    pub action: Action,
    /// What shares the rank with it: `(0F1;2B0)OVERLAP_F_B`.
    pub partner: Option<Action>,
    /// Where it stands.
    pub span: Span,
}

impl Cell {
    /// Its action, or both.
    pub fn actions(&self) -> impl Iterator<Item = Action> + use<> {
        std::iter::once(self.action).chain(self.partner)
    }
}

impl Table {
    /// All actions with their ranks, positions in the row, and cells.
    pub fn actions(&self) -> impl Iterator<Item = (usize, usize, Action, &Cell)> {
        self.rows.iter().enumerate().flat_map(|(rank, row)| {
            let cells = row.cells.iter().enumerate();
            cells.flat_map(move |(position, cell)| cell.actions().map(move |action| (rank, position, action, cell)))
        })
    }

    /// Whether it says who sends what when; otherwise PyTorch decides that itself.
    pub fn has_transfers(&self) -> bool {
        self.actions().any(|(_, _, action, _)| action.kind.task().is_none())
    }

    /// The newest version whose form it has. Where it has no transfers, that of every version.
    pub fn version(&self) -> Version {
        let has = |kinds: &[ActionKind]| self.actions().any(|(_, _, action, _)| kinds.contains(&action.kind));
        use ActionKind::{ReduceGradient, WaitReduceGradient, WaitSendBackward, WaitSendForward};
        if !self.has_transfers() || has(&[WaitSendForward, WaitSendBackward, WaitReduceGradient]) {
            Version::NEWEST
        } else if has(&[ReduceGradient]) {
            Version::REDUCES
        } else {
            Version::PLAIN
        }
    }

    /// The tasks, as [`Self::actions`] gives them.
    fn tasks(&self) -> impl Iterator<Item = (usize, Action)> {
        self.actions().filter(|(.., action, _)| action.kind.task().is_some()).map(|(rank, _, action, _)| (rank, action))
    }

    /// The rank of each stage: where most of its tasks stand.
    pub fn placement(&self) -> BTreeMap<u32, usize> {
        let mut counts: BTreeMap<u32, BTreeMap<usize, usize>> = BTreeMap::new();
        for (rank, action) in self.tasks() {
            *counts.entry(action.stage).or_default().entry(rank).or_default() += 1;
        }
        let most =
            |ranks: BTreeMap<usize, usize>| ranks.into_iter().max_by_key(|(rank, count)| (*count, Reverse(*rank)));
        counts.into_iter().filter_map(|(stage, ranks)| Some((stage, most(ranks)?.0))).collect()
    }

    /// How many stages there are, if every one up to the last is there. A stage of a single cell on a rank of others
    /// is none: that cell is wrong.
    pub fn n_stages(&self) -> usize {
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        self.tasks().for_each(|(_, action)| *counts.entry(action.stage).or_default() += 1);
        let placement = self.placement();
        let has_others =
            |stage: &u32| placement.iter().any(|(other, rank)| other != stage && placement.get(stage) == Some(rank));
        counts.retain(|stage, count| *count > 1 || !has_others(stage));
        let last = counts.last_key_value().map(|(last, _)| *last);
        last.or_else(|| self.actions().map(|(_, _, action, _)| action.stage).max()).map_or(0, |last| last as usize + 1)
    }

    /// How many microbatches there are, if every one up to the last is there. One that a single cell names, where
    /// others have three or more, is none: that cell is wrong.
    pub fn n_microbatches(&self) -> u32 {
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        for microbatch in self.tasks().filter_map(|(_, action)| action.microbatch) {
            *counts.entry(microbatch).or_default() += 1;
        }
        let is_large = counts.values().any(|count| *count > 2);
        counts.retain(|_, count| *count > 1 || !is_large);
        let last = counts.last_key_value().map(|(last, _)| *last);
        let last = last.or_else(|| self.actions().filter_map(|(_, _, action, _)| action.microbatch).max());
        last.map_or(0, |last| last.saturating_add(1))
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.partner {
            Some(partner) => write!(f, "({};{partner})OVERLAP_F_B", self.action),
            None => self.action.fmt(f),
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.rows {
            for (position, cell) in row.cells.iter().enumerate() {
                let before = if position == 0 { "" } else { "," };
                write!(f, "{before}{cell}")?;
            }
            f.write_str("\n")?;
        }
        Ok(())
    }
}
