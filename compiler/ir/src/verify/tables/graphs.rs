//! Rules about the graph of an executable: order, shapes, and what is loaded from and stored to its operands.

use super::shapes;
use crate::graph::{Graph, Node, Op, Store, TensorType};
use crate::program::{Access, Exec, Program};
use crate::value::{TensorSlot, Value, ValueKind};

/// Tensors with more elements than this could not be computed with.
const MOST_ELEMENTS: u64 = 1 << 48;

/// Checks that a tensor type has elements, and not absurdly many.
pub(super) fn tensor(ty: &TensorType) -> Result<(), String> {
    let elements = ty.shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size));
    match elements {
        Some(0) => Err(format!("{ty} has no elements")),
        Some(elements) if elements <= MOST_ELEMENTS => Ok(()),
        _ => Err(format!("{ty} has more than {MOST_ELEMENTS} elements")),
    }
}

/// Checks that a tensor starts at a multiple of the size of its elements.
pub(super) fn aligned(ty: &TensorType, offset: u64) -> Result<(), String> {
    let element = ty.dtype.bytes().0;
    if offset.is_multiple_of(element) {
        return Ok(());
    }
    Err(format!("starts at {offset}, which is not a multiple of {element} bytes"))
}

/// Checks the graph of an executable whose operands are known to exist.
pub(super) fn check(program: &Program, exec: &Exec, graph: &Graph) -> Result<(), String> {
    for (index, node) in graph.nodes.iter().enumerate() {
        let checked = self::node(program, exec, &graph.nodes[..index], node);
        checked.map_err(|message| format!("n{index}: {message}"))?;
    }
    for store in &graph.stores {
        let node = graph.nodes.get(store.node.index()).ok_or_else(|| format!("there is no {} to store", store.node))?;
        self::store(program, exec, node, store).map_err(|message| format!("store of {}: {message}", store.node))?;
    }
    for (position, operand) in exec.operands.iter().enumerate() {
        let value = program.value(operand.value);
        let ranges = stored(graph, position);
        if let Some(twice) = ranges.windows(2).find(|pair| pair[0].1 > pair[1].0) {
            return Err(format!("byte {} of `{}` is stored twice", twice[1].0, value.name));
        }
        // What the pieces of a task write is complete together.
        if operand.access == Access::Write && exec.piece.is_none() {
            complete(value, &ranges)?;
        }
    }
    Ok(())
}

fn node(program: &Program, exec: &Exec, earlier: &[Node], node: &Node) -> Result<(), String> {
    tensor(&node.ty)?;
    let mut inputs = Vec::with_capacity(node.inputs.len());
    for input in &node.inputs {
        let input = earlier.get(input.index()).ok_or_else(|| format!("{input} does not come before it"))?;
        inputs.push(&input.ty);
    }
    if let Op::Input { operand, offset } = node.op {
        let (value, access) = self::operand(program, exec, operand)?;
        if access == Access::Write {
            return Err(format!("`{}` is written, not read", value.name));
        }
        inside(value, offset.0, &node.ty)?;
    }
    shapes::check(&node.op, &inputs, &node.ty)
}

fn store(program: &Program, exec: &Exec, node: &Node, store: &Store) -> Result<(), String> {
    let (value, access) = operand(program, exec, store.operand)?;
    match (access, store.accumulate) {
        (Access::Read, _) => return Err(format!("`{}` is read, not written", value.name)),
        (Access::Write, true) => return Err(format!("`{}` is written, so nothing can be added to it", value.name)),
        (_, true) if !node.ty.dtype.is_float() => {
            return Err(format!("nothing can be added to {} in `{}`", node.ty.dtype, value.name));
        }
        _ => {}
    }
    let last = store.own.0.checked_mul(u64::from(program.members.saturating_sub(1)));
    let last = last.and_then(|last| store.offset.0.checked_add(last)).ok_or("its own part lies nowhere")?;
    if store.own.0 > 0 && value.kind != ValueKind::Exchanged {
        return Err(format!("`{}` has no parts of members", value.name));
    }
    inside(value, last, &node.ty)?;
    inside(value, store.offset.0, &node.ty)
}

fn operand<'a>(program: &'a Program, exec: &Exec, position: u32) -> Result<(&'a Value, Access), String> {
    let operand = exec.operands.get(position as usize);
    let operand = operand.ok_or_else(|| format!("there is no operand {position}"))?;
    let value = program.value(operand.value);
    if value.kind == ValueKind::Scratch {
        return Err(format!("`{}` has temporaries, which are loaded and stored by nobody else", value.name));
    }
    Ok((value, operand.access))
}

fn inside(value: &Value, offset: u64, ty: &TensorType) -> Result<(), String> {
    aligned(ty, offset).map_err(|message| format!("it {message}"))?;
    if offset.checked_add(ty.bytes().0).is_none_or(|end| end > value.bytes.0) {
        return Err(format!("{ty} at {offset} is not inside the {} bytes of `{}`", value.bytes.0, value.name));
    }
    let overlaps = |slot: &&TensorSlot| {
        slot.offset.0 < offset + ty.bytes().0 && offset < slot.offset.0.saturating_add(slot.ty.bytes().0)
    };
    match value.tensors.iter().filter(overlaps).find(|slot| slot.ty.dtype != ty.dtype) {
        Some(slot) => Err(format!("{ty} at {offset} does not fit `{}` of `{}`, {}", slot.name, value.name, slot.ty)),
        None => Ok(()),
    }
}

/// The bytes of an operand that are stored, in their order.
pub(super) fn stored(graph: &Graph, position: usize) -> Vec<(u64, u64)> {
    let stores = graph.stores.iter().filter(|store| store.operand as usize == position);
    let range = |store: &Store| (store.offset.0, store.offset.0 + graph.node(store.node).ty.bytes().0);
    let mut ranges: Vec<(u64, u64)> = stores.map(range).collect();
    ranges.sort_unstable();
    ranges
}

/// Checks that every tensor of a value is stored as a whole.
pub(super) fn complete(value: &Value, ranges: &[(u64, u64)]) -> Result<(), String> {
    let mut joined: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.1 == range.0 => last.1 = range.1,
            _ => joined.push(*range),
        }
    }
    for slot in &value.tensors {
        let (start, end) = (slot.offset.0, slot.offset.0 + slot.ty.bytes().0);
        let before = joined.partition_point(|range| range.0 <= start);
        if before == 0 || joined[before - 1].1 < end {
            return Err(format!("tensor `{}` of `{}` is not written", slot.name, value.name));
        }
    }
    Ok(())
}
