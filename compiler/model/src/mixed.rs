//! Mixed precision: where the numbers of a model are rounded that are stored as bfloat16.
//!
//! Rule: factors of products and of attention are rounded, and so are results of products, of
//! attention and of softmax, what is normalised, what is sliced, what flows from layer to layer,
//! and what slices of a sequence carry; all else is computed in single precision from numbers that
//! were rounded so. It is a matter of each layer's forward graph alone, before stages are cut and
//! differentiated. So a tensor that some pass keeps is no other number than the one that all passes
//! compute with, whatever a schedule keeps, sends, or computes again.
//!
//! Gradients follow: that of a rounded tensor is rounded too, except towards weights (see
//! [`crate::graph::differentiate`]).

use super::{Layer, Model};
use crate::graph::tape::{Leaf, Tape, is_number};
use pipe_ir::graph::{Class, DType, Node, Op, TensorType};
use pipe_ir::ids::NodeId;
use std::collections::BTreeSet;

/// The same model, rounding what is stored if that is less precise than what is computed with.
pub(super) fn stored(mut model: Model) -> Model {
    if model.precision == model.precision.arithmetic() {
        return model;
    }
    let last = model.layers.len().saturating_sub(1);
    for (index, layer) in model.layers.iter_mut().enumerate() {
        *layer = rounded(layer, index == last);
    }
    model
}

/// The last layer's output is the loss, which stays as it is.
fn rounded(layer: &Layer, is_last: bool) -> Layer {
    let mut tape = Tape::new(layer.tape.storage());
    let mut images: Vec<NodeId> = Vec::with_capacity(layer.tape.len());
    // What is sliced has several readers as a rule, each of a part: they read the same few bytes,
    // and their gradients are joined.
    let is_kept = |node: &&Node| matches!(node.op, Op::NormStatistics { .. } | Op::Slice { .. });
    let kept: BTreeSet<NodeId> = layer.tape.nodes().iter().filter(is_kept).map(|node| node.inputs[0]).collect();
    for id in layer.tape.ids() {
        let node = layer.tape.node(id);
        let image = match layer.tape.leaf_of(id) {
            Some(leaf) => tape.leaf(leaf, type_of(leaf, &node.ty, tape.storage())),
            None => self::node(&mut tape, node, node.inputs.iter().map(|input| images[input.index()]).collect()),
        };
        images.push(if kept.contains(&id) { tape.stored(image) } else { image });
    }
    let mut stored = |node: NodeId| tape.stored(images[node.index()]);
    let carried = layer.carried.iter().map(|node| stored(*node)).collect();
    let output = if is_last { images[layer.output.index()] } else { stored(layer.output) };
    let names = layer.names.iter().map(|(node, name)| (images[node.index()], name.clone())).collect();
    Layer { tape, output, carried, names, ..layer.clone() }
}

fn type_of(leaf: Leaf, ty: &TensorType, storage: DType) -> TensorType {
    let is_rounded = matches!(leaf, Leaf::Activation(_) | Leaf::Past { .. }) && is_number(ty);
    TensorType { dtype: if is_rounded { storage } else { ty.dtype }, shape: ty.shape.clone() }
}

/// The image of a node whose inputs have these.
fn node(tape: &mut Tape, node: &Node, inputs: Vec<NodeId>) -> NodeId {
    let is_alike = inputs.iter().all(|input| tape.ty(*input).dtype == tape.ty(inputs[0]).dtype);
    match node.op.class() {
        Class::Product => {
            let inputs = inputs.into_iter().map(|input| tape.stored(input)).collect();
            let result = tape.push(node.op.clone(), inputs, node.ty.clone());
            tape.stored(result)
        }
        Class::Rows if matches!(node.op, Op::Softmax { .. }) => {
            let x = tape.computed(inputs[0]);
            let result = tape.push(node.op.clone(), vec![x], node.ty.clone());
            tape.stored(result)
        }
        // What members have of a product is added up before it is rounded.
        Class::Exchange => {
            let x = tape.unrounded(inputs[0]);
            let result = tape.push(node.op.clone(), vec![x], node.ty.clone());
            if x == inputs[0] { result } else { tape.stored(result) }
        }
        Class::View | Class::Join if is_alike => {
            let ty = TensorType { dtype: tape.ty(inputs[0]).dtype, shape: node.ty.shape.clone() };
            tape.push(node.op.clone(), inputs, ty)
        }
        Class::Source | Class::Elementwise | Class::Sum | Class::View | Class::Join | Class::Rows | Class::Indexed => {
            let inputs = inputs.into_iter().map(|input| tape.computed(input)).collect();
            tape.push(node.op.clone(), inputs, node.ty.clone())
        }
    }
}

impl Tape {
    /// A tensor as it is kept, sent or multiplied.
    pub(super) fn stored(&mut self, x: NodeId) -> NodeId {
        self.converted(x, self.storage())
    }

    /// A tensor as it is computed with.
    pub(super) fn computed(&mut self, x: NodeId) -> NodeId {
        self.converted(x, self.precision())
    }

    /// A tensor as it was computed, where all that was done since is that it was rounded and seen otherwise; else as it
    /// is computed with.
    pub(super) fn unrounded(&mut self, x: NodeId) -> NodeId {
        let Node { op, inputs, ty } = self.node(x).clone();
        match op {
            Op::Convert if ty.dtype == self.storage() => self.computed(inputs[0]),
            op if op.class() == Class::View && ty.dtype == self.storage() => {
                let source = self.unrounded(inputs[0]);
                let ty = TensorType { dtype: self.precision(), shape: ty.shape };
                self.push(op, vec![source], ty)
            }
            _ => self.computed(x),
        }
    }

    /// A tensor of numbers as one of another type; indices stay indices. What was widened is not
    /// rounded again, and views are taken of what is rounded.
    pub(super) fn converted(&mut self, x: NodeId, to: DType) -> NodeId {
        let Node { op, inputs, ty } = self.node(x).clone();
        if ty.dtype == to || !is_number(&ty) {
            return x;
        }
        let ty = TensorType { dtype: to, shape: ty.shape };
        let narrows = to == self.storage();
        match op {
            Op::Convert if narrows => inputs[0],
            op if narrows && op.class() == Class::View => {
                let source = self.converted(inputs[0], to);
                self.push(op, vec![source], ty)
            }
            _ => self.push(Op::Convert, vec![x], ty),
        }
    }
}
