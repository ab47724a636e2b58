//! Where PyTorch puts transfers into a schedule that has none, and where it moves receives with
//! `defer_pp_recv=True` (2.13 to 2.15: `_add_unshard_reshard`, `_add_reduce_grad`,
//! `_add_send_recv`, `_defer_recv_ops` of `torch.distributed.pipelining.schedules`).
//!
//! PyTorch goes through the ranks in turns and takes an action of each, and puts the receive of
//! what is sent into the other rank's row at once. So receives stand in the order of the sends.
//! Deferred, a receive moves to the task that needs it, or to the first send to its peer, where
//! that has a higher number; and with that past other receives.

use super::action::{Action, ActionKind};
use super::gatherings::gatherings;
use super::table::{Cell, Row, Table};
use super::transport::Transport;
use super::version::Version;
use super::{deadlock, transfers};
use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::source::Span;
use std::collections::{BTreeMap, BTreeSet};

/// What a schedule without transfers becomes where receives are deferred, as one note: PyTorch
/// defers them only if asked to.
pub(super) fn check(table: &Table, version: Version, transport: Option<Transport>) -> Option<Diagnostic> {
    let lowered = version.defers().then(|| lowered(table, version, true)).flatten()?;
    let wrong = transfers::check(&lowered);
    let stuck = if wrong.is_empty() { deadlock::check(&lowered, transport.unwrap_or_default()) } else { Vec::new() };
    let first = wrong.into_iter().chain(stuck).next()?;
    // Who named a transport does not ask for others.
    let others = if first.code == Code::Deadlock && transport.is_none() { first.notes.last().cloned() } else { None };
    let message = format!("do not load this schedule with `defer_pp_recv=True`: {}", first.message);
    let help = "leave out that option, or load the transfers that `--emit torch-csv-comms` writes";
    let notes = others.into_iter().collect();
    Some(Diagnostic { severity: Severity::Note, message, notes, help: Some(help.to_owned()), ..first })
}

/// The transports with which every rank comes to the end of a table whose transfers PyTorch inserted, and no numbers
/// are exchanged.
pub(super) fn runs_with(lowered: &Table) -> Vec<Transport> {
    if transfers::check(lowered).is_empty() { deadlock::runs_with(lowered) } else { Vec::new() }
}

/// The same with the transfers that PyTorch puts in, each with the place of its task; none where it finds no order.
pub fn lowered(table: &Table, version: Version, defers: bool) -> Option<Table> {
    let placement = table.placement();
    let rows = with_transfers(table, version, &placement)?;
    let rows = rows.into_iter().zip(&table.rows).enumerate().map(|(rank, (cells, row))| {
        let cells = if defers { deferred(rank, cells, &placement) } else { cells };
        Row { cells, span: row.span }
    });
    Some(Table { rows: rows.collect() })
}

/// What stands in a row before transfers are put in: cells, and `None` for what only takes a turn.
type Turns<'a> = std::vec::IntoIter<Option<&'a Cell>>;

/// Cells with the gatherings and reductions that PyTorch puts around them.
fn turns<'a>(row: &'a Row, n_microbatches: u32, version: Version) -> Turns<'a> {
    let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
    let mut turns = Vec::new();
    for (cell, before) in row.cells.iter().zip(gatherings(&row.cells)) {
        turns.extend(std::iter::repeat_n(None, before.len()));
        turns.push(Some(cell));
        for action in cell.actions().filter(|action| action.kind.has_weight_gradients()) {
            let count = counts.entry(action.stage).or_default();
            *count += 1;
            let ends = *count == n_microbatches;
            turns.extend(std::iter::repeat_n(
                None,
                if !ends {
                    0
                } else if version.waits() {
                    2
                } else {
                    1
                },
            ));
        }
    }
    turns.into_iter()
}

/// By rank: cells, sends and receives.
fn with_transfers(table: &Table, version: Version, placement: &BTreeMap<u32, usize>) -> Option<Vec<Vec<Cell>>> {
    let n_microbatches = table.n_microbatches();
    let mut rows: Vec<_> = table.rows.iter().map(|row| turns(row, n_microbatches, version).peekable()).collect();
    let needing = needing(table);
    let mut written: Vec<Vec<Cell>> = vec![Vec::new(); rows.len()];
    let mut done: Vec<BTreeSet<Action>> = vec![BTreeSet::new(); rows.len()];
    while rows.iter_mut().any(|row| row.peek().is_some()) {
        let mut progress = false;
        for (rank, row) in rows.iter_mut().enumerate() {
            let Some(turn) = row.peek().copied() else { continue };
            let here = |action| has_input(action, placement, rank, done.get(rank));
            if turn.is_some_and(|cell| !cell.actions().all(here)) {
                continue;
            }
            row.next();
            progress = true;
            let Some(cell) = turn else { continue };
            written.get_mut(rank)?.push(*cell);
            for action in cell.actions() {
                done.get_mut(rank)?.insert(action);
                let other = action.send().and_then(|send| Some((send, send.other_end()?)));
                let Some((send, receive)) = other else { continue };
                let Some(peer) = placement.get(&receive.stage).copied().filter(|peer| *peer != rank) else { continue };
                written.get_mut(rank)?.push(Cell { action: send, partner: None, span: cell.span });
                let span = needing.get(&receive).copied().unwrap_or(cell.span);
                written.get_mut(peer)?.push(Cell { action: receive, partner: None, span });
                done.get_mut(peer)?.insert(receive);
            }
        }
        if !progress {
            return None;
        }
    }
    Some(written)
}

/// By receive: where the task stands that needs it.
fn needing(table: &Table) -> BTreeMap<Action, Span> {
    let actions = table.actions();
    actions.filter_map(|(_, _, action, cell)| Some((action.receive()?, cell.span))).collect()
}

/// Whether what a task needs is there: it was received, or computed on this rank.
fn has_input(action: Action, placement: &BTreeMap<u32, usize>, rank: usize, done: Option<&BTreeSet<Action>>) -> bool {
    let Some(receive) = action.receive() else { return true };
    let Some(source) = receive.other_end() else { return true };
    let Some(done) = done else { return true };
    match placement.get(&source.stage) {
        None => true,
        Some(other) if *other != rank => done.contains(&receive),
        Some(_) if action.kind == ActionKind::Forward => done.contains(&Action { stage: source.stage, ..action }),
        Some(_) => [ActionKind::BackwardInput, ActionKind::FullBackward]
            .into_iter()
            .any(|kind| done.contains(&Action { stage: source.stage, kind, ..action })),
    }
}

/// Receives of a rank that wait, in their order, by peer; and where each is.
#[derive(Default)]
struct Pending {
    by_peer: BTreeMap<usize, BTreeMap<usize, Cell>>,
    places: BTreeMap<Action, (usize, usize)>,
}

/// A row whose receives are moved back.
fn deferred(rank: usize, cells: Vec<Cell>, placement: &BTreeMap<u32, usize>) -> Vec<Cell> {
    let peer_of = |action: Action| action.other_end().and_then(|other| placement.get(&other.stage)).copied();
    let (mut pending, mut moved) = (Pending::default(), Vec::with_capacity(cells.len()));
    for (number, cell) in cells.into_iter().enumerate() {
        if cell.action.is_receive() {
            let peer = peer_of(cell.action).unwrap_or(rank);
            pending.by_peer.entry(peer).or_default().insert(number, cell);
            pending.places.insert(cell.action, (peer, number));
            continue;
        }
        if cell.action.is_send()
            && let Some(peer) = peer_of(cell.action).filter(|peer| rank < *peer)
        {
            moved.extend(pending.by_peer.remove(&peer).unwrap_or_default().into_values());
        }
        for receive in cell.actions().filter_map(Action::receive) {
            let Some((peer, at)) = pending.places.remove(&receive) else { continue };
            moved.extend(pending.by_peer.get_mut(&peer).and_then(|waiting| waiting.remove(&at)));
        }
        moved.push(cell);
    }
    moved
}
