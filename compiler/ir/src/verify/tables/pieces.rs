//! Rules about members: a task whose members exchange something runs in pieces, all of which there are, and which write
//! together what the task writes; a divided tensor has a part for each member.

use super::graphs;
use crate::ids::StageId;
use crate::program::{Access, Body, Edge, Exec, Piece, Program};
use crate::task::TaskKind;
use crate::value::{Split, TensorSlot, Value, ValueKind};
use crate::verify::Place;
use crate::verify::report::Report;
use std::collections::BTreeMap;

/// What all pieces of a task have in common.
pub(in crate::verify) type Task = (TaskKind, StageId, Option<u32>, Option<Edge>, bool);

/// The task of an executable.
pub(in crate::verify) const fn task(exec: &Exec) -> Task {
    (exec.kind, exec.stage, exec.slice, exec.edge, exec.is_repeated)
}

/// The most devices that stand behind one.
const MOST_MEMBERS: u32 = 1024;

/// Checks how many devices stand behind each device: more than one only where they exchange something.
pub(super) fn members(program: &Program) -> Result<(), String> {
    let members = program.members;
    if members == 0 || members > MOST_MEMBERS {
        return Err(format!("a device has 1 to {MOST_MEMBERS} members, not {members}"));
    }
    let exchanges = program.execs.iter().any(|exec| exec.piece.is_some_and(|piece| piece.count > 1));
    if members > 1 && !exchanges {
        return Err(format!("a device has {members} members, which exchange nothing"));
    }
    Ok(())
}

/// Checks the pieces of all tasks.
pub(super) fn check(program: &Program, report: &mut Report) {
    let mut tasks: BTreeMap<Task, Vec<(usize, Piece)>> = BTreeMap::new();
    for (index, exec) in program.execs.iter().enumerate() {
        let Some(piece) = exec.piece else { continue };
        tasks.entry(task(exec)).or_default().push((index, piece));
    }
    for pieces in tasks.values_mut() {
        pieces.sort_by_key(|(_, piece)| *piece);
        if let Err((index, message)) = of_task(program, pieces) {
            report.error(Place::Exec(u32::try_from(index).unwrap_or(u32::MAX)), message);
        }
    }
}

fn of_task(program: &Program, pieces: &[(usize, Piece)]) -> Result<(), (usize, String)> {
    let count = pieces.len();
    for (number, (index, piece)) in (0..).zip(pieces) {
        if piece.count as usize != count || piece.number != number {
            let message = format!("is piece {} of {}, but its task has {count}", piece.number, piece.count);
            return Err((*index, message));
        }
        if program.members < 2 || program.execs[*index].kind == TaskKind::Update {
            return Err((*index, "only tasks of devices with members run in pieces".to_owned()));
        }
    }
    // By value: what all pieces store of it, and the last of them.
    let mut stored: BTreeMap<_, (Vec<(u64, u64)>, usize)> = BTreeMap::new();
    for (index, _) in pieces {
        let exec = &program.execs[*index];
        let Body::Graph(graph) = &exec.body else { continue };
        for (position, operand) in exec.operands.iter().enumerate() {
            let value = program.value(operand.value);
            if operand.access != Access::Read && !value.kind.is_persistent() {
                let (ranges, last) = stored.entry(operand.value).or_default();
                ranges.extend(graphs::stored(graph, position));
                *last = *index;
            }
        }
    }
    for (value, (mut ranges, index)) in stored {
        ranges.sort_unstable();
        let value = program.value(value);
        if let Some(twice) = ranges.windows(2).find(|pair| pair[0].1 > pair[1].0) {
            return Err((index, format!("byte {} of `{}` is stored by two pieces", twice[1].0, value.name)));
        }
        graphs::complete(value, &ranges).map_err(|message| (index, message))?;
    }
    Ok(())
}

/// Checks a tensor that members may divide.
pub(super) fn slot(program: &Program, value: &Value, slot: &TensorSlot) -> Result<(), String> {
    let Some(Split { axis, blocks, members, padding }) = slot.split else { return Ok(()) };
    if !value.kind.is_persistent() || value.kind == ValueKind::Scratch {
        return Err("is divided, and only weights, their gradients and the state of the optimizer are".to_owned());
    }
    if members != u64::from(program.members) {
        return Err(format!("is divided among {members} members, but devices have {}", program.members));
    }
    let whole = slot.whole();
    let fits = whole.shape.get(axis as usize).is_some_and(|size| blocks > 0 && size % blocks == 0);
    let is_small = whole.shape.iter().try_fold(members, |product, size| product.checked_mul(*size)).is_some();
    if padding > 0 && (axis > 0 || blocks > 1 || padding >= members) {
        return Err(format!(
            "has {padding} rows of padding, and fewer than its {members} members may stand behind axis 0"
        ));
    }
    if fits && is_small { Ok(()) } else { Err(format!("has no {blocks} blocks along axis {axis} of {whole}")) }
}
