//! Rules about what the members of a group divide among them: each updates its own share, and a tensor's parts lie inside it.

use super::graphs;
use crate::ids::{DeviceId, GroupId, ValueId};
use crate::program::{Chunk, Exec, Program};
use crate::shares::share;
use crate::units::Bytes;
use crate::value::{TensorSlot, Value, ValueKind};
use std::collections::BTreeMap;

/// By weights: the group whose members update a share each, and which positions have one.
pub(super) type Divided = BTreeMap<ValueId, GroupId>;

/// The weights that are divided.
pub(super) fn divided(program: &Program) -> Divided {
    let updates = program.execs.iter().filter_map(|exec| Some((exec.operands.first()?.value, exec.chunk?.group?)));
    updates.collect()
}

/// Checks that a chunk which only one member of a group updates is that member's share.
pub(super) fn chunk(program: &Program, weights: &Value, chunk: Chunk) -> Result<(), String> {
    let Some(group) = chunk.group else { return Ok(()) };
    let members = program.groups.get(group.index()).ok_or_else(|| format!("there is no group {group}"))?;
    let position = chunk.number as usize;
    if position >= members.len() {
        return Err(format!("{group} has {} members, and none for chunk {position}", members.len()));
    }
    let own = share(weights.bytes, members.len(), position);
    if own == (chunk.from..chunk.to) {
        return Ok(());
    }
    let (from, to, device) = (own.start.0, own.end.0, members[position]);
    Err(format!("the share of {device} in `{}` is bytes {from} to {to}", weights.name))
}

/// Checks that a share is updated by the member to whom it belongs.
pub(super) fn run(program: &Program, exec: &Exec, device: DeviceId) -> Result<(), String> {
    let Some((chunk, group)) = exec.chunk.and_then(|chunk| Some((chunk, chunk.group?))) else { return Ok(()) };
    // A group that there is not is found where the executable is judged.
    match program.groups.get(group.index()).and_then(|members| members.get(chunk.number as usize)) {
        Some(owner) if *owner != device => Err(format!("updates the share of {owner}")),
        _ => Ok(()),
    }
}

/// Checks a tensor that may be a part of one.
pub(super) fn slot(kind: ValueKind, slot: &TensorSlot) -> Result<(), String> {
    let Some(part) = &slot.part else { return Ok(()) };
    if kind != ValueKind::OptimizerState {
        return Err("is a part of one, and only the state of the optimizer is divided".to_owned());
    }
    graphs::tensor(&part.whole)?;
    let is_inside = slot.ty.elements().checked_add(part.from).is_some_and(|end| end <= part.whole.elements());
    if slot.ty.shape.len() == 1 && slot.ty.dtype == part.whole.dtype && is_inside {
        return Ok(());
    }
    Err(format!("is no row of numbers of {} from number {} on", part.whole, part.from))
}

/// The share of a device in a buffer that the members of a group divide; empty where it is no member.
pub(super) fn of_device(program: &Program, group: GroupId, device: DeviceId, bytes: Bytes) -> std::ops::Range<Bytes> {
    let members = program.group(group);
    let position = members.iter().position(|member| *member == device);
    position.map_or(Bytes::ZERO..Bytes::ZERO, |position| share(bytes, members.len(), position))
}
