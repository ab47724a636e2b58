//! Chunks: an update whose optimizer state lives in the memory of the host is cut, so that only a part of that state has to be on the device
//! at once.
//!
//! A tensor is never cut: chunks end where tensors begin, so that checkpoints name the same tensors however weights are cut.

use pipe_ir::ids::ValueId;
use pipe_ir::program::{Access, Chunk, Exec, Operand};
use pipe_ir::units::{ALIGNMENT, Bytes};
use pipe_ir::value::{Value, ValueKind};

/// About how many chunks the weights of a stage have: one is used while the next one comes and the one before goes back.
const CHUNKS: u64 = 8;

/// The updates of all chunks of the weights that an update changes, and their states: the first one takes the row of the whole state, the
/// others are appended to the table of values. The update itself, where it has no state or cannot be cut.
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
    let all = values[place.index()].clone();
    let mut updates = Vec::new();
    for (number, ends) in (0..).zip(cuts.windows(2)) {
        let chunk = Chunk { number, from: ends[0], to: ends[1] };
        let row = state_of(&all, whole, chunk);
        let mut update = exec.clone();
        if number == 0 {
            values[place.index()] = row;
        } else {
            update.operands[state] = Operand::new(ValueId::from_index(values.len()), Access::Update);
            values.push(row);
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

/// The state of a chunk. The whole one has as many numbers per weight as it is times as large: all first ones, then all second ones.
fn state_of(all: &Value, whole: Bytes, chunk: Chunk) -> Value {
    let length = chunk.to.0 - chunk.from.0;
    let within = |slot: &pipe_ir::value::TensorSlot| {
        let (number, offset) = (slot.offset.0 / whole.0, slot.offset.0 % whole.0);
        let is_inside = (chunk.from.0..chunk.to.0).contains(&offset);
        is_inside.then(|| pipe_ir::value::TensorSlot {
            offset: Bytes(number * length + (offset - chunk.from.0)),
            ..slot.clone()
        })
    };
    Value {
        name: format!("{}.c{}", all.name, chunk.number),
        bytes: Bytes(share(all.bytes.0, chunk.to, whole) - share(all.bytes.0, chunk.from, whole)),
        tensors: all.tensors.iter().filter_map(within).collect(),
        ..all.clone()
    }
}
