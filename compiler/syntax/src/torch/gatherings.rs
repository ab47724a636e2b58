//! When PyTorch gathers the weights of a stage, and gives them up, where ranks divide them
//! (`_add_unshard_reshard`): those of the stages that come next are there. Stages that are not
//! divided pass over these actions.

use super::action::{Action, ActionKind};
use super::table::{Cell, Row};

/// Stages of a rank whose weights are there at once (`max_active_stages`).
const ACTIVE: usize = 3;

/// By cell: what comes before it; only tasks need weights, so nothing before other cells, such as
/// the reduction that follows a stage's last task.
pub(super) fn gatherings(cells: &[Cell]) -> Vec<Vec<Action>> {
    let mut active: Vec<u32> = Vec::new();
    let of_cell = |(cell, next): (&Cell, Vec<u32>)| {
        if cell.actions().all(|action| action.kind.task().is_none()) {
            return Vec::new();
        }
        let action = |kind| move |stage: &u32| Action { stage: *stage, kind, microbatch: None };
        let gone = active.iter().filter(|stage| !next.contains(stage)).map(action(ActionKind::Reshard));
        let come = next.iter().filter(|stage| !active.contains(stage)).map(action(ActionKind::Unshard));
        let changes = gone.chain(come).collect();
        active = next;
        changes
    };
    cells.iter().zip(following(cells)).map(of_cell).collect()
}

/// A row with them, which all end with it.
pub fn gathered(row: Row) -> Row {
    let mut cells = Vec::with_capacity(row.cells.len());
    let mut active: Vec<Action> = Vec::new();
    for (cell, before) in row.cells.iter().zip(gatherings(&row.cells)) {
        for action in before {
            active.retain(|one| one.stage != action.stage);
            active.extend((action.kind == ActionKind::Unshard).then_some(action));
            cells.push(Cell { action, partner: None, span: cell.span });
        }
        cells.push(*cell);
    }
    let ends = active.into_iter().map(|action| Action { kind: ActionKind::Reshard, ..action });
    cells.extend(ends.map(|action| Cell { action, partner: None, span: row.span }));
    Row { cells, ..row }
}

/// By cell: the stages whose tasks come next, from that cell on, as far as `ACTIVE`; a pair comes
/// as a whole, and other cells change nothing.
fn following(cells: &[Cell]) -> Vec<Vec<u32>> {
    let mut next: Vec<(u32, usize)> = Vec::new();
    let mut found = Vec::with_capacity(cells.len());
    for (position, cell) in cells.iter().enumerate().rev() {
        let tasks = cell.actions().filter(|action| action.kind.task().is_some());
        let mut stages: Vec<u32> = tasks.map(|action| action.stage).collect();
        stages.dedup();
        next.retain(|(stage, _)| !stages.contains(stage));
        next.splice(0..0, stages.into_iter().map(|stage| (stage, position)));
        let last = next.get(ACTIVE - 1).map(|(_, at)| *at);
        let more = next.iter().skip(ACTIVE).take_while(|(_, at)| Some(*at) == last).count();
        found.push(next.iter().take(ACTIVE + more).map(|(stage, _)| *stage).collect());
    }
    found.reverse();
    found
}
