//! Chunks: an update whose optimizer state lives in the memory of the host is cut, so that only a
//! part of that state has to be on the device at once. One whose weights several devices hold may
//! be divided among them, so that each has a part of that state only.
//!
//! Chunks that come and go end where tensors begin. Shares are equal, so that they may end
//! anywhere: their state says which part of a tensor it is, and checkpoints name the same tensors
//! however weights are cut.

use pipe_ir::graph::TensorType;
use pipe_ir::ids::{GroupId, ValueId};
use pipe_ir::program::{Access, Chunk, Exec, Operand};
use pipe_ir::shares::{cut as cut_tensors, share as own_share};
use pipe_ir::units::{ALIGNMENT, Bytes};
use pipe_ir::value::{Part, Share, TensorSlot, Value, ValueKind};
use pipe_schedule::policy::zero::Zero;

/// About how many chunks the weights of a stage have: one is used while the next one comes and the
/// one before goes back.
const CHUNKS: u64 = 8;

/// The updates of all chunks of the weights that an update changes, and their states: the first one
/// takes the row of the whole state, the others are appended to the table of values. The update
/// itself, where it has no state or cannot be cut.
pub(super) fn cut(exec: Exec, values: &mut Vec<Value>) -> Vec<Exec> {
    let find = |kind: ValueKind| exec.operands.iter().position(|operand| values[operand.value.index()].kind == kind);
    let (Some(0), Some(state)) = (find(ValueKind::Parameters), find(ValueKind::OptimizerState)) else {
        return vec![exec];
    };
    let (weights, place) = (&values[exec.operands[0].value.index()], exec.operands[state].value);
    let whole = weights.bytes;
    let cuts = cuts(weights);
    if cuts.len() < 3 || exec.operands[0].access != Access::Update {
        return vec![exec];
    }
    let chunks =
        (0..).zip(cuts.windows(2)).map(|(number, ends)| Chunk { number, from: ends[0], to: ends[1], group: None });
    cut_at(&exec, (whole, Some((state, place))), chunks, values)
}

/// The group of shares before groups have numbers.
const UNNAMED: GroupId = GroupId(u32::MAX);

/// The updates of the shares that so many devices have of the weights that an update changes, and
/// their states, likewise. There are fewer of them where the weights are too small for all. Where
/// the weights themselves are kept in shares, each device has one, if need be without bytes: these
/// are appended, too.
pub(super) fn divide(exec: Exec, values: &mut Vec<Value>, members: usize, zero: Zero) -> Vec<Exec> {
    let kind = |operand: &Operand| values[operand.value.index()].kind;
    let weights = exec.operands.first().filter(|operand| kind(operand) == ValueKind::Parameters);
    let Some(weights) = weights.filter(|operand| operand.access == Access::Update) else { return vec![exec] };
    let (weights, whole) = (weights.value, values[weights.value.index()].bytes);
    let state = exec.operands.iter().position(|operand| kind(operand) == ValueKind::OptimizerState);
    let state = state.map(|state| (state, exec.operands[state].value));
    let shares = (0..members).map(|position| own_share(whole, members, position)).filter(|own| !own.is_empty());
    let chunks =
        (0..).zip(shares).map(|(number, own)| Chunk { number, from: own.start, to: own.end, group: Some(UNNAMED) });
    let mut updates = cut_at(&exec, (whole, state), chunks, values);
    if zero.parameters() {
        let first = values.len();
        (0..).take(members).for_each(|member| values.push(kept(values, weights, member, members)));
        for (position, update) in updates.iter_mut().enumerate() {
            update.operands[0].value = ValueId::from_index(first + position);
        }
    }
    updates
}

/// The share of some weights that a member keeps.
fn kept(values: &[Value], weights: ValueId, member: u32, members: usize) -> Value {
    let whole = &values[weights.index()];
    let bytes = own_share(whole.bytes, members, member as usize);
    Value {
        name: format!("{}.c{member}", whole.name),
        bytes: Bytes(bytes.end.0 - bytes.start.0),
        tensors: cut_tensors(&whole.tensors, &bytes),
        share: Some(Share { whole: weights, group: UNNAMED, member }),
        ..whole.clone()
    }
}

/// The updates of chunks of weights of so many bytes, and the states of these, if there is one:
/// which operand that is, and which row.
fn cut_at(
    exec: &Exec,
    (whole, state): (Bytes, Option<(usize, ValueId)>),
    chunks: impl Iterator<Item = Chunk>,
    values: &mut Vec<Value>,
) -> Vec<Exec> {
    let all = state.map(|(_, place)| values[place.index()].clone());
    let mut updates = Vec::new();
    for chunk in chunks {
        let mut update = exec.clone();
        if let (Some((state, place)), Some(all)) = (state, &all) {
            let row = state_of(all, whole, chunk);
            if chunk.number == 0 {
                values[place.index()] = row;
            } else {
                update.operands[state] = Operand::new(ValueId::from_index(values.len()), Access::Update);
                values.push(row);
            }
        }
        update.flops = share(exec.flops, chunk.to, whole) - share(exec.flops, chunk.from, whole);
        updates.push(Exec { chunk: Some(chunk), ..update });
    }
    updates
}

/// Where the chunks of weights begin, and the end of the last one.
fn cuts(weights: &Value) -> Vec<Bytes> {
    let whole = weights.bytes;
    let part = Bytes(whole.0.div_ceil(CHUNKS)).aligned();
    let even = || (0..CHUNKS).map(|number| Bytes(number * part.0));
    let ends: Vec<Bytes> = match weights.tensors.as_slice() {
        [] => even().collect(),
        tensors => {
            tensors.iter().map(|slot| slot.offset).filter(|offset| offset.0.is_multiple_of(ALIGNMENT.0)).collect()
        }
    };
    // As many tensors together as a chunk takes, and at least one.
    let mut cuts = vec![Bytes::ZERO];
    let mut last = Bytes::ZERO;
    for end in ends.into_iter().chain([whole]).filter(|end| *end <= whole) {
        let begin = cuts[cuts.len() - 1];
        if end.0 - begin.0 > part.0 && last > begin {
            cuts.push(last);
        }
        last = end;
    }
    cuts.push(whole);
    cuts
}

/// The part of a number that belongs to the first bytes of all.
fn share(number: u64, bytes: Bytes, whole: Bytes) -> u64 {
    let part = u128::from(number) * u128::from(bytes.0) / u128::from(whole.0.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}

/// The state of a chunk. The whole one has as many numbers per weight as it is times as large: all
/// first ones, then all second ones.
fn state_of(all: &Value, whole: Bytes, chunk: Chunk) -> Value {
    let length = chunk.to.0 - chunk.from.0;
    let within = |slot: &TensorSlot| {
        let (number, offset) = (slot.offset.0 / whole.0, slot.offset.0 % whole.0);
        let (from, to) = (offset.max(chunk.from.0), (offset + slot.ty.bytes().0).min(chunk.to.0));
        let place = Bytes(number * length + from.checked_sub(chunk.from.0)?);
        if from >= to {
            return None;
        }
        if to - from == slot.ty.bytes().0 {
            return Some(TensorSlot { offset: place, ..slot.clone() });
        }
        let element = slot.ty.dtype.bytes().0;
        let part = Part { whole: slot.ty.clone(), from: (from - offset) / element };
        let ty = TensorType::new(slot.ty.dtype, &[(to - from) / element]);
        Some(TensorSlot { ty, offset: place, part: Some(part), ..slot.clone() })
    };
    Value {
        name: format!("{}.c{}", all.name, chunk.number),
        bytes: Bytes(share(all.bytes.0, chunk.to, whole) - share(all.bytes.0, chunk.from, whole)),
        tensors: all.tensors.iter().filter_map(within).collect(),
        ..all.clone()
    }
}
