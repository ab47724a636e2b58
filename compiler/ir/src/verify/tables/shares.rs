//! Rules about what the members of a group divide among them: each updates its own share, and a
//! tensor's parts lie inside it. Of weights that are kept in shares, each member has its own, and
//! all of them only what was gathered.

use super::graphs;
use crate::ids::{DeviceId, GroupId, ValueId};
use crate::program::{Chunk, Exec, Operand, Program};
use crate::shares::{cut, share};
use crate::task::TaskKind;
use crate::units::Bytes;
use crate::value::{Share, TensorSlot, Value, ValueKind};
use crate::verify::Place;
use crate::verify::report::Report;
use std::collections::{BTreeMap, BTreeSet};

/// By weights: the group whose members update a share each, and which positions have one.
pub(in crate::verify) type Divided = BTreeMap<ValueId, GroupId>;

/// The weights that are divided, and whole on every member.
pub(in crate::verify) fn divided(program: &Program) -> Divided {
    let updates = program
        .execs
        .iter()
        .filter(|exec| !exec.is_squares())
        .filter_map(|exec| Some((exec.operands.first()?.value, exec.chunk?.group?)));
    updates.filter(|(weights, _)| program.value(*weights).share.is_none()).collect()
}

/// Checks the rows of shares, and returns the weights that are kept in them.
pub(super) fn kept(program: &Program, report: &mut Report) -> BTreeSet<ValueId> {
    // By weights: the group of their first share, and the members whose shares there are.
    let mut found: BTreeMap<ValueId, (GroupId, BTreeSet<u32>)> = BTreeMap::new();
    for (index, value) in program.values.iter().enumerate() {
        let Some(own) = value.share else { continue };
        let (group, members) = found.entry(own.whole).or_insert((own.group, BTreeSet::new()));
        let result = match row(program, index, value, own) {
            Ok(()) if own.group != *group => Err("the shares of its weights are not all those of one group".to_owned()),
            Ok(()) if !members.insert(own.member) => Err(format!("share {} of its weights appears twice", own.member)),
            other => other,
        };
        if let Err(message) = result {
            report.error(Place::Value(u32::try_from(index).unwrap_or(u32::MAX)), message);
        }
    }
    if !report.found() {
        for (whole, (group, members)) in &found {
            let lacks = (0..).zip(program.group(*group)).find(|(member, _)| !members.contains(member));
            if let Some((_, device)) = lacks {
                let message = format!("of `{}` there is no share of {device}", program.value(*whole).name);
                report.error(Place::Value(whole.0), message);
            }
        }
    }
    found.into_keys().collect()
}

fn row(program: &Program, index: usize, value: &Value, own: Share) -> Result<(), String> {
    let weights = |value: &Value| value.kind == ValueKind::Parameters;
    let whole = program.values.get(own.whole.index()).filter(|whole| weights(whole) && whole.share.is_none());
    let Some(whole) = whole.filter(|whole| weights(value) && value.stage == whole.stage) else {
        return Err("a share is one of weights, which are weights of the same stage and no share".to_owned());
    };
    if own.whole.index() >= index {
        return Err(format!("a share stands behind its weights, `{}`", whole.name));
    }
    let members = program.groups.get(own.group.index()).ok_or_else(|| format!("there is no group {}", own.group))?;
    let Some(device) = members.get(own.member as usize) else {
        return Err(format!("{} has {} members, and none for share {}", own.group, members.len(), own.member));
    };
    let bytes = share(whole.bytes, members.len(), own.member as usize);
    let (from, to) = (bytes.start.0, bytes.end.0);
    if value.bytes.0 != to - from {
        return Err(format!("the share of {device} in `{}` is bytes {from} to {to}", whole.name));
    }
    if value.tensors != cut(&whole.tensors, &bytes) {
        return Err(format!("its tensors are not what bytes {from} to {to} of `{}` hold", whole.name));
    }
    Ok(())
}

/// Checks an operand of an executable: weights that are kept in shares are read whole by tasks, and
/// updated share by share.
pub(super) fn operand(
    program: &Program,
    kept: &BTreeSet<ValueId>,
    exec: &Exec,
    operand: &Operand,
) -> Result<(), String> {
    let name = &program.value(operand.value).name;
    if exec.kind == TaskKind::Update && kept.contains(&operand.value) {
        return Err(format!("`{name}` is kept in shares, and each is updated by itself"));
    }
    let Some(own) = program.value(operand.value).share else { return Ok(()) };
    let is_its = |chunk: Chunk| chunk.number == own.member && chunk.group == Some(own.group);
    if exec.chunk.is_some_and(is_its) {
        return Ok(());
    }
    Err(format!("`{name}` is a share, which only an update of chunk {} of {} may touch", own.member, own.group))
}

/// Checks that a device may fill a buffer with a value: weights that are kept in shares never, a
/// share only by its member.
pub(super) fn fill(
    program: &Program,
    kept: &BTreeSet<ValueId>,
    device: DeviceId,
    value: ValueId,
) -> Result<(), String> {
    let row = program.value(value);
    if kept.contains(&value) {
        return Err(format!("`{}` is kept in shares, from which it is gathered", row.name));
    }
    let owner = row.share.and_then(|own| program.group(own.group).get(own.member as usize));
    match owner.filter(|owner| **owner != device) {
        Some(owner) => Err(format!("`{}` is the share of {owner}", row.name)),
        None => Ok(()),
    }
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
pub(super) fn slot(value: &Value, slot: &TensorSlot) -> Result<(), String> {
    let Some(part) = &slot.part else { return Ok(()) };
    if value.kind != ValueKind::OptimizerState && value.share.is_none() {
        return Err("is a part of one, and only the state of the optimizer and shares of weights are".to_owned());
    }
    graphs::tensor(&part.whole)?;
    let is_inside = slot.ty.elements().checked_add(part.from).is_some_and(|end| end <= part.whole.elements());
    if slot.ty.shape.len() == 1 && slot.ty.dtype == part.whole.dtype && is_inside {
        return Ok(());
    }
    Err(format!("is not a row of numbers of {} from number {} on", part.whole, part.from))
}

/// The share of a device in a buffer that the members of a group divide; empty where it is no member.
pub(in crate::verify) fn of_device(
    program: &Program,
    group: GroupId,
    device: DeviceId,
    bytes: Bytes,
) -> std::ops::Range<Bytes> {
    let members = program.group(group);
    let position = members.iter().position(|member| *member == device);
    position.map_or(Bytes::ZERO..Bytes::ZERO, |position| share(bytes, members.len(), position))
}
