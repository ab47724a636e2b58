//! Rules: every transfer has both ends where they belong, and the ranks of a pair receive in the
//! order in which they send.

use super::action::Action;
use super::table::{Cell, Table};
use crate::diagnostic::{Code, Diagnostic, Diagnostics};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Where an action stands.
#[derive(Clone, Copy)]
struct ActionPlace<'a> {
    rank: usize,
    position: usize,
    cell: &'a Cell,
}

/// The transfers of a table, and the tasks that they belong to.
struct Transfers<'a> {
    /// The first place of each end.
    ends: BTreeMap<Action, ActionPlace<'a>>,
    /// The tasks that compute what is sent, by that send, and those that need what is received, by that receive.
    tasks: BTreeMap<Action, (Action, ActionPlace<'a>)>,
    /// Ends that are there before.
    twice: Vec<(Action, ActionPlace<'a>)>,
    found: Diagnostics,
}

/// Every violation; the order only where every transfer has both ends.
pub(super) fn check(table: &Table) -> Diagnostics {
    let placement = table.placement();
    let (ends, tasks) = (BTreeMap::new(), BTreeMap::new());
    let mut all = Transfers { ends, tasks, twice: Vec::new(), found: Diagnostics::new() };
    for (rank, position, action, cell) in table.actions() {
        let place = ActionPlace { rank, position, cell };
        if action.is_transfer() {
            all.enter(action, place);
        }
        // An end is there where the other stage lives on another rank.
        let ends = [action.send(), action.receive()].into_iter().flatten();
        for end in ends {
            let other = end.other_end().and_then(|other| placement.get(&other.stage));
            if other.is_some_and(|other| *other != rank) {
                all.tasks.insert(end, (action, place));
            }
        }
    }
    if let Some(slip) = all.slip() {
        return vec![slip];
    }
    all.complete();
    if all.found.is_empty() {
        all.found = orders(table, &placement);
    }
    all.found
}

impl<'a> Transfers<'a> {
    fn enter(&mut self, end: Action, place: ActionPlace<'a>) {
        match self.ends.entry(end) {
            Entry::Vacant(free) => drop(free.insert(place)),
            Entry::Occupied(_) => self.twice.push((end, place)),
        }
    }

    /// An end in the place of the only one that is missing, on the same rank.
    fn slip(&self) -> Option<Diagnostic> {
        let mut missing = self.tasks.iter().filter(|(end, _)| !self.ends.contains_key(end));
        let idle =
            self.ends.iter().filter(|(end, _)| !self.tasks.contains_key(end)).map(|(end, place)| (end, *place, false));
        let twice = self.twice.iter().map(|(end, place)| (end, self.misplaced(*end, *place), true));
        let mut excess = twice.chain(idle);
        let ((meant, (_, at)), (end, place, is_twice)) = (missing.next()?, excess.next()?);
        if missing.next().is_some() || excess.next().is_some() || place.rank != at.rank {
            return None;
        }
        let (row, rank) = (place.rank + 1, place.rank);
        let message = match is_twice {
            true => format!("`{end}` stands twice, here in row {row} (rank {rank}), and `{meant}` nowhere"),
            false => format!("row {row} (rank {rank}) has `{end}`, and lacks `{meant}`"),
        };
        let error = Diagnostic::error(Code::MissingTransfer, place.cell.span, format!("instead of `{meant}`"), message);
        Some(error.help(format!("write `{meant}` here")).edit(place.cell.span, meant.to_string()))
    }

    /// Of an end and the same one before it, the one that is not where its task needs it.
    fn misplaced(&self, end: Action, place: ActionPlace<'a>) -> ActionPlace<'a> {
        let is_wrong = |first: &&ActionPlace<'_>| match self.tasks.get(&end) {
            Some((_, task)) => first.rank != task.rank || place.rank == task.rank && is_late(end, first, task),
            None => false,
        };
        self.ends.get(&end).filter(is_wrong).copied().unwrap_or(place)
    }

    /// Compares the ends that there are with those that tasks need.
    fn complete(&mut self) {
        for (end, place) in &self.twice {
            let message = format!("`{end}` appears twice");
            let error = Diagnostic::error(Code::MissingTransfer, place.cell.span, "once more", message);
            let first = self.ends.get(end);
            self.found
                .push(first.into_iter().fold(error, |error, first| error.label(first.cell.span, "the first one")));
        }
        for (end, (task, at)) in &self.tasks {
            let Some(place) = self.ends.get(end) else {
                self.found.push(lacks(*end, *task, at));
                continue;
            };
            let is_late = is_late(*end, place, at);
            let message = match (place.rank == at.rank, end.is_send()) {
                (false, _) => format!("`{end}` is on rank {}, and stage {} on rank {}", place.rank, end.stage, at.rank),
                (true, true) if is_late => format!("`{end}` comes before `{task}`, which computes what it sends"),
                (true, false) if is_late => format!("`{end}` comes after `{task}`, which needs what it receives"),
                _ => continue,
            };
            let label = if end.is_send() { "sends" } else { "receives" };
            let error = Diagnostic::error(Code::MissingTransfer, place.cell.span, label, message);
            self.found.push(error.label(at.cell.span, "the task").note("PyTorch stops with an error"));
        }
        for (end, place) in &self.ends {
            if !self.tasks.contains_key(end) {
                let message = format!("`{end}` moves nothing from rank to rank");
                let error =
                    Diagnostic::error(Code::MissingTransfer, place.cell.span, "no other rank takes part", message);
                self.found.push(
                    error.help("stages that follow each other on one rank hand over without a transfer; leave it out"),
                );
            }
        }
    }
}

/// Whether what is sent is not computed yet, or what is received was needed before.
fn is_late(end: Action, place: &ActionPlace<'_>, task: &ActionPlace<'_>) -> bool {
    if end.is_send() { place.position < task.position } else { place.position > task.position }
}

fn lacks(end: Action, task: Action, at: &ActionPlace<'_>) -> Diagnostic {
    let (message, note) = if end.is_send() {
        (
            format!("nothing sends what `{task}` computes: `{end}` is missing"),
            "the rank of the other stage waits for it forever",
        )
    } else {
        (format!("nothing receives what `{task}` needs: `{end}` is missing"), "PyTorch stops there with an error")
    };
    let error = Diagnostic::error(Code::MissingTransfer, at.cell.span, "this task", message).note(note);
    error.help(format!("put `{end}` {} it", if end.is_send() { "behind" } else { "before" }))
}

/// By sender and receiver: what leaves and what arrives, each in the order of its row.
type Pairs<'a> = BTreeMap<(usize, usize), [Vec<(Action, &'a Cell)>; 2]>;

/// The first receive of every pair of ranks that takes what is meant for another one.
fn orders(table: &Table, placement: &BTreeMap<u32, usize>) -> Diagnostics {
    let mut pairs = Pairs::new();
    for (rank, _, action, cell) in table.actions() {
        let Some(other) = action.other_end().and_then(|other| placement.get(&other.stage)) else { continue };
        if action.is_send() {
            pairs.entry((rank, *other)).or_default()[0].push((action, cell));
        } else if action.is_receive() {
            pairs.entry((*other, rank)).or_default()[1].push((action, cell));
        }
    }
    let mut found = Diagnostics::new();
    for ((from, to), [sends, receives]) in &pairs {
        let wrong = receives.iter().zip(sends).find(|((receive, _), (send, _))| send.other_end() != Some(*receive));
        let Some(((receive, at), (send, leaves))) = wrong else { continue };
        let meant = send.other_end().map(|other| other.to_string()).unwrap_or_default();
        let message = format!("`{receive}` gets what `{send}` sends, and the step goes on with the wrong numbers");
        let error = Diagnostic::error(Code::TransferOrder, at.span, "takes what comes first", message);
        let error = error.label(leaves.span, format!("comes first from rank {from} to rank {to}"));
        let error = error.note(format!(
            "transfers from rank {from} to rank {to} have no names: the first receive takes what was sent first. Where both have the same shape, the step goes on with wrong numbers"
        ));
        found.push(error.help(format!("put `{meant}` before `{receive}`")));
    }
    found
}
