//! Where tasks of a device meet, and with how many microbatches first.
//!
//! Turn i runs the tasks of a turn `i * T` slots later (T is the turn's period), so two tasks meet
//! exactly if their slots overlap modulo T. If they overlap in laps q < q' of the period, the
//! earlier one must come from turn q' - q or later: so they meet first with `(q' - q) * L + m + 1`
//! microbatches, where L is the number of microbatches of a turn and m that of the earlier one.
//! Nothing here depends on how many microbatches a step has.

use crate::block::period::Turn;
use crate::schedule::{Block, BlockTask};
use std::collections::BTreeMap;

/// The most parts of tasks that are compared on a device: of tasks far longer than the period, no more are looked at.
const MOST_PIECES: usize = 1 << 20;

/// Two tasks of a device that need the same slots, or one that meets itself in the next turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Meeting {
    /// Positions in the turn's list of tasks, ascending.
    pub(super) tasks: (usize, usize),
    /// First slot of the period in which they meet, and the slot after the last one.
    pub(super) slots: (u64, u64),
    /// The smallest number of microbatches with which they meet.
    pub(super) from: u64,
}

/// Part of a task within one period.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Piece {
    start: u64,
    end: u64,
    /// Periods before the one that it lies in.
    lap: u64,
    index: usize,
}

/// Meetings of a device: neighbours in the order of the slots, tasks longer than the period, and
/// above all the meeting that needs the fewest microbatches, which comes first.
pub(super) fn meetings(block: &Block, turn: &Turn, tasks: &[BlockTask]) -> Vec<Meeting> {
    // Without a period there is one lap, and it never ends.
    let period = turn.period.unwrap_or(u64::MAX);
    let mut all = Vec::with_capacity(tasks.len());
    for (index, task) in tasks.iter().enumerate() {
        let (mut lap, mut start, end) = (task.slot / period, task.slot % period, block.duration(task));
        let mut rest = end;
        while rest > 0 && all.len() < MOST_PIECES.max(2 * tasks.len()) {
            let length = rest.min(period - start);
            all.push(Piece { start, end: start + length, lap, index });
            (rest, start, lap) = (rest - length, 0, lap + 1);
        }
    }
    all.sort_unstable();
    let Some(first) = first_meeting(turn, tasks, &all) else { return Vec::new() };
    let mut found: BTreeMap<(usize, usize), Meeting> = BTreeMap::new();
    let is_long = |index: usize| block.duration(&tasks[index]) > period;
    let mut last: Option<Piece> = None;
    for piece in all.into_iter().filter(|piece| !is_long(piece.index)) {
        if let Some(before) = last.filter(|last| piece.start < last.end) {
            let meeting = meet(turn, tasks, before, piece);
            let known = found.entry(meeting.tasks).or_insert(meeting);
            known.from = known.from.min(meeting.from);
        }
        last = last.filter(|last| last.end >= piece.end).or(Some(piece));
    }
    for index in (0..tasks.len()).filter(|index| is_long(*index)) {
        let from = turn.microbatches.saturating_add(u64::from(tasks[index].microbatch.0) + 1);
        found.insert((index, index), Meeting { tasks: (index, index), slots: (0, period), from });
    }
    found.remove(&first.tasks);
    let mut meetings = vec![first];
    meetings.extend(found.into_values());
    meetings
}

/// The meeting that needs the fewest microbatches. Of all pieces that cover a slot, only those in the same lap, in the
/// next one and in the previous one can be part of it.
fn first_meeting(turn: &Turn, tasks: &[BlockTask], pieces: &[Piece]) -> Option<Meeting> {
    let mut ends: Vec<usize> = (0..pieces.len()).collect();
    ends.sort_unstable_by_key(|index| pieces[*index].end);
    let mut ends = ends.into_iter().peekable();
    // By lap, microbatch and position of the task: the pieces that cover the slot at hand.
    let mut covering: BTreeMap<(u64, u32, usize), Piece> = BTreeMap::new();
    let key = |piece: &Piece| (piece.lap, tasks[piece.index].microbatch.0, piece.index);
    let mut best: Option<Meeting> = None;
    for piece in pieces {
        while let Some(ended) = ends.next_if(|index| pieces[*index].end <= piece.start) {
            covering.remove(&key(&pieces[ended]));
        }
        let first_of = |lap: u64| covering.range((lap, 0, 0)..).next().map(|(_, other)| *other);
        let before = covering.range(..(piece.lap, 0, 0)).next_back().and_then(|((lap, _, _), _)| first_of(*lap));
        let same = first_of(piece.lap).filter(|other| other.lap == piece.lap);
        let after = piece.lap.checked_add(1).and_then(first_of);
        for other in [same, before, after].into_iter().flatten() {
            let meeting = meet(turn, tasks, other, *piece);
            best = best.filter(|best| best.from <= meeting.from).or(Some(meeting));
        }
        covering.insert(key(piece), *piece);
    }
    best
}

fn meet(turn: &Turn, tasks: &[BlockTask], one: Piece, other: Piece) -> Meeting {
    let (early, late) = if one.lap <= other.lap { (one, other) } else { (other, one) };
    let number = |piece: Piece| u64::from(tasks[piece.index].microbatch.0) + 1;
    let from = match late.lap - early.lap {
        0 => number(early).max(number(late)),
        laps => laps.saturating_mul(turn.microbatches).saturating_add(number(early)),
    };
    let tasks = (one.index.min(other.index), one.index.max(other.index));
    Meeting { tasks, slots: (one.start.max(other.start), one.end.min(other.end)), from }
}
