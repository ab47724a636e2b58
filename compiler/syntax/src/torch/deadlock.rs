//! Rule: no rank waits forever.
//!
//! A rank handles the cells of its row in order; a task waits for what it receives, and a wait for
//! its send. The transfers of a rank form queues beside the row, one for each of its communicators
//! ([`Transport`]): in the order of the row, one at a time, each when both ranks have come to it and
//! have nothing before it (rendezvous). What NCCL and gloo do with a row is no worse than that.

use super::action::Action;
use super::table::{Cell, Table};
use super::transport::{Channel, Transport};
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
    /// The queue of its communicator.
    queue: usize,
    /// In that queue.
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

/// What runs in order: the rows of all ranks, each at its rank, then the queues of their communicators.
struct Queues<'a> {
    items: Vec<Vec<Item<'a>>>,
    /// By queue: whose it is.
    ranks: Vec<usize>,
}

/// The transports, of all there are, with which every rank comes to its end. Expects that every transfer has both
/// ends.
pub(super) fn runs_with(table: &Table) -> Vec<Transport> {
    Transport::ALL.into_iter().filter(|transport| Queues::new(table, *transport).stuck().is_none()).collect()
}

/// One diagnostic per knot of ranks that wait for each other. Expects that every transfer has both ends.
pub(super) fn check(table: &Table, transport: Transport) -> Diagnostics {
    let queues = Queues::new(table, transport);
    let Some(handled) = queues.stuck() else { return Diagnostics::new() };
    let most = window(queues.items.len());
    let rest = |(queue, items): (usize, &Vec<Item<'_>>)| {
        let own = items.iter().skip(handled[queue]).take(most);
        own.map(|item| item.waits.iter().map(|wait| wait.left(&handled)).collect()).collect()
    };
    let rest: Vec<Vec<Vec<Need>>> = queues.items.iter().enumerate().map(rest).collect();
    let notes = [cause(transport), others(&runs_with(table))];
    cycles(&rest).iter().map(|cycle| describe(&queues, &handled, cycle, &notes)).collect()
}

/// Why transfers wait for each other.
fn cause(transport: Transport) -> String {
    let (owner, backend) = (transport.owner(), transport.backend());
    format!(
        "{owner} ({backend}). Its transfers run one after the other, and each waits for both ranks. NCCL does this for \
         tensors that do not fit its buffers"
    )
}

/// With what the same table runs.
pub(super) fn others(transports: &[Transport]) -> String {
    let told = |one: &Transport| format!("`--transport {}` ({})", one.word(), one.backend());
    match transports {
        [] => "it waits forever with every `--transport`".to_owned(),
        [first, ..] => format!("it runs with {}", told(first)),
    }
}

impl Wait {
    /// The same of what is left of the queues.
    fn left(&self, handled: &[usize]) -> Need {
        Need { items: self.need.items.saturating_sub(handled[self.need.queue]), ..self.need }
    }
}

impl<'a> Queues<'a> {
    fn new(table: &'a Table, transport: Transport) -> Self {
        let placement = table.placement();
        let mut queues = Self { items: Vec::new(), ranks: (0..table.rows.len()).collect() };
        let (mut ends, mut channels, mut lengths) =
            (BTreeMap::new(), BTreeMap::<(usize, Channel), usize>::new(), vec![]);
        for (rank, line) in table.rows.iter().enumerate() {
            for (place, cell) in line.cells.iter().enumerate().filter(|(_, cell)| cell.action.is_transfer()) {
                let other = cell.action.other_end().and_then(|other| placement.get(&other.stage)).copied();
                let channel = transport.channel(other.unwrap_or(rank), cell.action.is_send());
                let channel = *channels.entry((rank, channel)).or_insert_with(|| {
                    queues.ranks.push(rank);
                    lengths.push(0);
                    lengths.len() - 1
                });
                let turn = lengths[channel];
                lengths[channel] += 1;
                ends.insert(cell.action, End { rank, cell: place, queue: table.rows.len() + channel, turn });
            }
        }
        for (rank, line) in table.rows.iter().enumerate() {
            queues
                .items
                .push(line.cells.iter().map(|cell| Item { cell, waits: cell_waits(cell, rank, &ends) }).collect());
        }
        queues.items.extend(lengths.into_iter().map(Vec::with_capacity));
        for cell in table.rows.iter().flat_map(|line| &line.cells) {
            let Some(end) = ends.get(&cell.action) else { continue };
            queues.items[end.queue].push(Item { cell, waits: transfer_waits(cell.action, &ends) });
        }
        queues
    }

    /// By queue: the items that were handled when nothing moves any more, unless all are.
    fn stuck(&self) -> Option<Vec<usize>> {
        let mut handled = vec![0; self.items.len()];
        let is_met = |handled: &[usize], wait: &Wait| handled[wait.need.queue] >= wait.need.items;
        loop {
            let before = handled.clone();
            for (queue, items) in self.items.iter().enumerate() {
                while items.get(handled[queue]).is_some_and(|item| item.waits.iter().all(|wait| is_met(&handled, wait)))
                {
                    handled[queue] += 1;
                }
            }
            if handled == before {
                break;
            }
        }
        self.items.iter().zip(&handled).any(|(items, handled)| *handled < items.len()).then_some(handled)
    }
}

/// A task waits for what it receives, and a wait for what leaves.
fn cell_waits(cell: &Cell, rank: usize, ends: &BTreeMap<Action, End>) -> Vec<Wait> {
    let transfers = cell.actions().filter_map(|action| action.receive().or(action.awaited()));
    let wait = |transfer: Action| {
        let end = ends.get(&transfer).filter(|end| end.rank == rank)?;
        Some(Wait { need: Need { queue: end.queue, items: end.turn + 1 }, whose: transfer })
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
    let posted = |end: &End, whose| Wait { need: Need { queue: end.rank, items: end.cell + 1 }, whose };
    let before = Wait { need: Need { queue: other.queue, items: other.turn }, whose: *partner };
    vec![posted(own, action), posted(other, *partner), before]
}

fn describe(queues: &Queues<'_>, handled: &[usize], cycle: &[Link], reasons: &[String]) -> Diagnostic {
    let item = |link: &Link| &queues.items[link.queue][handled[link.queue] + link.item];
    let rank = |link: &Link| queues.ranks[link.queue];
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
    notes.extend_from_slice(reasons);
    let span = item(&cycle[0]).cell.span;
    let found = Diagnostic { labels, notes, ..Diagnostic::error(Code::Deadlock, span, "", message) };
    found.help("send and receive in one order on both ranks, as `pipec build --emit torch-csv-comms` writes it")
}
