//! Rule: no rank waits forever.
//!
//! A rank handles the cells of its row in order; a task waits for what it receives, and a wait for
//! its send. The transfers of a rank form a second queue beside the row, that of its communicator:
//! in the order of the row, one at a time, each when both ranks have come to it and have nothing
//! before it (rendezvous). What NCCL does with a row is no worse than that.

use super::action::Action;
use super::table::{Cell, Table};
use crate::diagnostic::{Code, Diagnostic, Diagnostics, Label};
use pipe_ir::cycle::{Link, Need, cycles, window};
use std::collections::BTreeMap;

/// Waits of a cycle that are told; the rest of a longer one is counted.
const SHOWN: usize = 4;

/// Where a transfer's end stands.
#[derive(Clone, Copy)]
struct End {
    rank: usize,
    /// In the row.
    cell: usize,
    /// Among the transfers of the rank.
    turn: usize,
}

/// What an item of a queue waits for.
#[derive(Clone, Copy)]
struct Wait {
    need: Need,
    /// Whose coming that means.
    whose: Action,
}

/// An item of a queue: a cell of a row, or one of its transfers.
struct Item<'a> {
    cell: &'a Cell,
    waits: Vec<Wait>,
}

const fn row(rank: usize) -> usize {
    2 * rank
}

const fn wire(rank: usize) -> usize {
    2 * rank + 1
}

/// One diagnostic per knot of ranks that wait for each other. Expects that every transfer has both ends.
pub(super) fn check(table: &Table) -> Diagnostics {
    let queues = queues(table);
    let mut handled = vec![0; queues.len()];
    let is_met = |handled: &[usize], wait: &Wait| handled[wait.need.queue] >= wait.need.items;
    loop {
        let before = handled.clone();
        for (queue, items) in queues.iter().enumerate() {
            while items.get(handled[queue]).is_some_and(|item| item.waits.iter().all(|wait| is_met(&handled, wait))) {
                handled[queue] += 1;
            }
        }
        if handled == before {
            break;
        }
    }
    let most = window(queues.len());
    let rest = |(queue, items): (usize, &Vec<Item<'_>>)| {
        let own = items.iter().skip(handled[queue]).take(most);
        own.map(|item| item.waits.iter().map(|wait| wait.left(&handled)).collect()).collect()
    };
    let rest: Vec<Vec<Vec<Need>>> = queues.iter().enumerate().map(rest).collect();
    cycles(&rest).iter().map(|cycle| describe(&queues, &handled, cycle)).collect()
}

impl Wait {
    /// The same of what is left of the queues.
    fn left(&self, handled: &[usize]) -> Need {
        Need { items: self.need.items.saturating_sub(handled[self.need.queue]), ..self.need }
    }
}

/// By queue: the rows of all ranks, each with its transfers behind it.
fn queues(table: &Table) -> Vec<Vec<Item<'_>>> {
    let mut ends = BTreeMap::new();
    for (rank, line) in table.rows.iter().enumerate() {
        let transfers = line.cells.iter().enumerate().filter(|(_, cell)| cell.action.is_transfer());
        for (turn, (place, cell)) in transfers.enumerate() {
            ends.insert(cell.action, End { rank, cell: place, turn });
        }
    }
    let mut queues = Vec::new();
    for (rank, line) in table.rows.iter().enumerate() {
        let of_cell = |cell| Item { cell, waits: cell_waits(cell, rank, &ends) };
        queues.push(line.cells.iter().map(of_cell).collect());
        let transfers = line.cells.iter().filter(|cell| cell.action.is_transfer());
        queues.push(transfers.map(|cell| Item { cell, waits: transfer_waits(cell.action, &ends) }).collect());
    }
    queues
}

/// A task waits for what it receives, and a wait for what leaves.
fn cell_waits(cell: &Cell, rank: usize, ends: &BTreeMap<Action, End>) -> Vec<Wait> {
    let transfers = cell.actions().filter_map(|action| action.receive().or(action.awaited()));
    let wait = |transfer: Action| {
        let end = ends.get(&transfer).filter(|end| end.rank == rank)?;
        Some(Wait { need: Need { queue: wire(rank), items: end.turn + 1 }, whose: transfer })
    };
    transfers.filter_map(wait).collect()
}

/// A transfer waits until both ranks have come to it, and until the other one has done the transfers before it.
fn transfer_waits(action: Action, ends: &BTreeMap<Action, End>) -> Vec<Wait> {
    let Some((own, (partner, other))) =
        ends.get(&action).zip(action.other_end().and_then(|end| ends.get_key_value(&end)))
    else {
        return Vec::new();
    };
    let posted = |end: &End, whose| Wait { need: Need { queue: row(end.rank), items: end.cell + 1 }, whose };
    let before = Wait { need: Need { queue: wire(other.rank), items: other.turn }, whose: *partner };
    vec![posted(own, action), posted(other, *partner), before]
}

fn describe(queues: &[Vec<Item<'_>>], handled: &[usize], cycle: &[Link]) -> Diagnostic {
    let item = |link: &Link| &queues[link.queue][handled[link.queue] + link.item];
    let rank = |link: &Link| link.queue / 2;
    let mut ranks: Vec<usize> = cycle.iter().map(rank).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let message = match ranks.as_slice() {
        [only] => format!("rank {only} waits for itself"),
        [one, other] => format!("rank {one} and rank {other} wait for each other"),
        [first, .., last] => {
            format!("{} ranks wait for each other in a cycle, from rank {first} to rank {last}", ranks.len())
        }
        [] => unreachable!("a cycle has at least one wait"),
    };
    let followers = cycle.iter().cycle().skip(1);
    let mut labels: Vec<Label> = Vec::new();
    let mut notes = Vec::new();
    for (link, follower) in cycle.iter().zip(followers).take(SHOWN) {
        let (at, behind) = (item(link), item(follower));
        let whose = at.waits[link.need].whose;
        let where_to = format!("rank {}", rank(follower));
        let comes =
            if behind.cell.action == whose { String::new() } else { format!(", which is behind `{}`", behind.cell) };
        let begins = if at.cell.action == whose {
            "begins only when the rank comes to it".to_owned()
        } else {
            format!("waits for `{whose}` of {where_to}")
        };
        notes.push(format!("rank {}: `{}` {begins}{comes}", rank(link), at.cell));
        if labels.iter().all(|label| label.span != at.cell.span) {
            labels.push(Label { span: at.cell.span, text: format!("rank {} stands here", rank(link)) });
        }
    }
    if cycle.len() > SHOWN {
        notes.push(format!("and {} more waits, back to the first", cycle.len() - SHOWN));
    }
    notes.push("the transfers of a rank run one after the other, each when both ranks have come to it; only a backend that buffers gets through".to_owned());
    let span = item(&cycle[0]).cell.span;
    let found = Diagnostic { labels, notes, ..Diagnostic::error(Code::Deadlock, span, "", message) };
    found.help("send and receive in one order on both ranks, as `pipec build --emit torch-csv-comms` writes it")
}
