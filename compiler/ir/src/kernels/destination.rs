//! Destinations: where a node's tensor should be computed, so that nobody has to copy it afterwards.
//!
//! A store asks for its operand, a concatenation for a slice of itself, and a reshape that needs
//! row-major bytes for just those. Wishes travel backwards through reshapes and transposes to the
//! node that computes; attention computes each slice of its derivatives for itself.

use super::emit::Liveness;
use super::scratch::Unpacked;
use super::{Location, Storage, View, fusion};
use crate::graph::{Class, Graph, Node, Op, TensorType};
use crate::ids::NodeId;
use std::ops::Range;

/// Where a node's tensor goes.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Home {
    pub(super) view: View,
    /// Whether it is added to what is there; then nobody else reads the tensor.
    pub(super) accumulate: bool,
}

/// The homes of all nodes that were promised one.
pub(super) fn homes(graph: &Graph, liveness: &Liveness, scratch: &mut Unpacked) -> Vec<Option<Home>> {
    let scattered = scattered_reshapes(graph, liveness);
    let mut homes: Vec<Option<Home>> = vec![None; graph.nodes.len()];
    for id in (0..graph.nodes.len()).rev().filter(|&id| liveness.is_live(id)) {
        let node = &graph.nodes[id];
        let wish = stored(graph, liveness, id).or_else(|| homes[id].take());
        let wish = match &node.op {
            Op::Concat { .. } => Some(wish.unwrap_or_else(|| fresh(scratch, &node.ty))),
            Op::Convert if fusion::rounds_result(graph, liveness, id) => {
                let source = &graph.node(node.inputs[0]).op;
                Some(wish.filter(|wish| accepts(source, wish)).unwrap_or_else(|| fresh(scratch, &node.ty)))
            }
            Op::Slice { .. } if is_part(graph, liveness, id) => wish.filter(|wish| !wish.accumulate),
            Op::Reshape if scattered[id] => Some(wish.unwrap_or_else(|| fresh(scratch, &node.ty))),
            _ => wish.filter(|wish| accepts(&node.op, wish)),
        };
        if let Some(home) = &wish {
            if fusion::rounds_result(graph, liveness, id) {
                homes[node.inputs[0].index()] = Some(home.clone());
            }
            offer_to_inputs(graph, liveness, node, home, &mut homes);
        }
        homes[id] = wish;
    }
    homes
}

/// One of the derivatives of attention: some rows of a tensor that has those by queries, keys and values.
pub(super) struct Part {
    pub(super) rows: Range<u64>,
    /// The node that takes just these, where nothing reads the tensor but one such node for a part.
    pub(super) slice: Option<NodeId>,
}

/// The derivatives that a node makes.
pub(super) fn parts(graph: &Graph, liveness: &Liveness, id: NodeId) -> [Part; 3] {
    let Node { inputs, ty, .. } = graph.node(id);
    let axis = ty.shape.len() - 2;
    let [m, n] = [0, 1].map(|position: usize| graph.node(inputs[position]).ty.shape[axis]);
    let readers = |of: NodeId| {
        let live = (0..graph.nodes.len()).filter(|id| liveness.is_live(*id));
        live.filter(move |id| graph.nodes[*id].inputs.contains(&of))
    };
    let rounded = readers(id).find(|reader| fusion::rounds_result(graph, liveness, *reader));
    let whole = rounded.map_or(id, NodeId::from_index);
    let slice_of = |rows: &Range<u64>| {
        let is_slice = |reader: &usize| {
            let Node { op, ty, .. } = &graph.nodes[*reader];
            *op == Op::Slice { axis: axis as u32, start: rows.start } && rows.start + ty.shape[axis] == rows.end
        };
        readers(whole).find(is_slice).map(NodeId::from_index)
    };
    let all = [0..m, m..m + n, m + n..m + 2 * n].map(|rows| (slice_of(&rows), rows));
    let is_read_so = all.iter().filter(|(slice, _)| slice.is_some()).count() == liveness.uses(whole.index());
    all.map(|(slice, rows)| Part { rows, slice: slice.filter(|_| is_read_so) })
}

/// Whether a node is one of the derivatives of attention, which its kernel puts where that node is wanted.
fn is_part(graph: &Graph, liveness: &Liveness, id: usize) -> bool {
    let whole = graph.nodes[id].inputs[0];
    let is_rounded = fusion::rounds_result(graph, liveness, whole.index());
    let source = if is_rounded { graph.node(whole).inputs[0] } else { whole };
    let is_derivative = matches!(graph.node(source).op, Op::AttentionGrad { .. });
    is_derivative && parts(graph, liveness, source).iter().any(|part| part.slice == Some(NodeId::from_index(id)))
}

/// Bytes of its own in scratch.
pub(super) fn fresh(scratch: &mut Unpacked, ty: &TensorType) -> Home {
    let at = Location { place: Storage::Scratch, offset: scratch.reserve(ty.bytes()) };
    Home { view: View::contiguous(at, ty.dtype, &ty.shape), accumulate: false }
}

/// Reshapes that no view of their input can express.
fn scattered_reshapes(graph: &Graph, liveness: &Liveness) -> Vec<bool> {
    let anywhere = Location { place: Storage::Scratch, offset: crate::units::Bytes::ZERO };
    let mut views: Vec<View> = Vec::with_capacity(graph.nodes.len());
    let mut scattered = vec![false; graph.nodes.len()];
    for (id, node) in graph.nodes.iter().enumerate() {
        let contiguous = View::contiguous(anywhere, node.ty.dtype, &node.ty.shape);
        let view = derived(node, |input| views[input.index()].clone());
        scattered[id] = node.op == Op::Reshape && view.is_none() && liveness.is_live(id);
        views.push(view.unwrap_or(contiguous));
    }
    scattered
}

/// A reshape, transpose or slice as a view of its input, if it can be one.
pub(super) fn derived(node: &Node, view_of: impl Fn(NodeId) -> View) -> Option<View> {
    let input = *node.inputs.first()?;
    match &node.op {
        Op::Reshape => view_of(input).reshaped(&node.ty.shape),
        Op::Transpose { permutation } => Some(view_of(input).permuted(permutation)),
        Op::Slice { axis, start } => Some(view_of(input).sliced(*axis, *start, node.ty.shape[*axis as usize])),
        op if op.class() == Class::View => unreachable!("{op:?} has no view"),
        _ => None,
    }
}

/// The operand that a node is stored to and may be computed in.
fn stored(graph: &Graph, liveness: &Liveness, id: usize) -> Option<Home> {
    let mut stores = graph.stores.iter().filter(|store| store.node.index() == id);
    let store = stores
        .find(|store| !liveness.is_read_and_stored(store.operand) && (!store.accumulate || liveness.uses(id) == 1))?;
    let view = View::of_operand(store.operand, store.offset, &graph.nodes[id].ty);
    Some(Home { view, accumulate: store.accumulate })
}

/// Whether the kernel of a node can write such a tensor.
fn accepts(op: &Op, home: &Home) -> bool {
    match (op.class(), op) {
        (_, Op::Input { .. } | Op::Slice { .. }) => false,
        (_, Op::AttentionGrad { .. }) => !home.accumulate,
        (_, Op::RoutedMatMul { .. }) => home.view.is_contiguous() && !home.accumulate,
        (_, Op::RoutedMatMulGrad) => home.view.is_contiguous(),
        (Class::Product | Class::View | Class::Join, _) => true,
        (Class::Elementwise, _) => home.view.has_unit_rows(),
        (Class::Sum, _) | (_, Op::ScatterAdd | Op::NormalizeGradGain) => home.view.is_contiguous(),
        (Class::Exchange, _) => false,
        (Class::Source | Class::Rows | Class::Indexed, _) => home.view.is_contiguous() && !home.accumulate,
    }
}

/// Passes a node's home on to the nodes that could compute right there.
fn offer_to_inputs(graph: &Graph, liveness: &Liveness, node: &Node, home: &Home, homes: &mut [Option<Home>]) {
    let mut offer = |input: NodeId, view: Option<View>| {
        let alone = liveness.uses(input.index()) == 1;
        let in_operand = matches!(home.view.at.place, Storage::Operand(_)) && !home.accumulate;
        if let Some(view) = view.filter(|_| alone || in_operand) {
            homes[input.index()].get_or_insert(Home { view, accumulate: home.accumulate });
        }
    };
    match &node.op {
        Op::Reshape => offer(node.inputs[0], home.view.reshaped(&graph.node(node.inputs[0]).ty.shape)),
        Op::Transpose { permutation } => offer(node.inputs[0], Some(home.view.unpermuted(permutation))),
        Op::Concat { axis } => {
            for (input, piece) in pieces(graph, node, *axis, &home.view) {
                offer(input, Some(piece));
            }
        }
        _ => {}
    }
}

/// The inputs of a concatenation and their slices of it.
pub(super) fn pieces(graph: &Graph, node: &Node, axis: u32, whole: &View) -> Vec<(NodeId, View)> {
    let mut start = 0;
    let slices = node.inputs.iter().map(|&input| {
        let size = graph.node(input).ty.shape[axis as usize];
        start += size;
        (input, whole.sliced(axis, start - size, size))
    });
    slices.collect()
}
