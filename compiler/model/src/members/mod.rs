//! Members: the forward graphs of a model as one of several devices computes them that stand behind each device of a
//! schedule, with its own part of the weights that the text splits.
//!
//! Each tensor is in one of these states: whole on every member; split along an axis; or, on each, a summand of it.
//! Weights and `split(x, axis)` say where splitting begins. An operation that can work on parts does; for every other
//! one, and between layers where nothing is said, its inputs are made whole. Whatever changes the state of a tensor is
//! an operation of the graph with a derivative of its own: where members go on with one tensor but do different things
//! with it, its gradient is the sum of theirs (arXiv 1909.08053, section 3, where that is called `f`; for sequences
//! arXiv 2205.05198, section 4.2.2). So what `B` and `W` exchange follows by differentiation.

mod exchanges;
mod loss;
mod rules;

use crate::graph::tape::{Leaf, Tape};
use crate::{Layer, Model, Weight, WeightId};
use pipe_ir::graph::{Op, TensorType};
use pipe_ir::ids::NodeId;
use pipe_ir::value::Split;
use pipe_syntax::diagnostic::{Code, Diagnostic};
use rules::rule;

/// What a member has of a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// All of it.
    Whole,
    /// A part along an axis.
    Part(Along),
    /// A summand.
    Summand,
    /// Its own rows, those that the routes in this node of the member's tape send to it. Rows of others hold zeros, or
    /// what nobody is to look at.
    Rows { routes: NodeId, zero: bool },
}

/// Where the parts of a tensor lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Along {
    axis: usize,
    /// How many blocks of equal size the axis has, each of which is divided.
    blocks: u64,
    /// How many places members have at its end beyond those of the whole. What they hold there is finite, and is not to
    /// be looked at.
    padding: u64,
}

impl Along {
    const fn axis(axis: usize) -> Self {
        Self { axis, blocks: 1, padding: 0 }
    }
}

/// A tensor of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Own {
    node: NodeId,
    state: State,
}

/// The model of a member.
///
/// # Errors
/// A weight that cannot be divided as the text says.
pub(super) fn of_model(model: &Model, members: u64) -> Result<Model, Diagnostic> {
    let has_parts = |weight: &Weight| weight.split.is_some();
    if !model.layers.iter().flat_map(|layer| &layer.weights).any(has_parts) {
        let message = format!("no weight of `{}` says along which axis {members} devices divide it", model.name);
        let error = Diagnostic::error(Code::CannotSplit, model.span, "this model", message);
        return Err(error.help("write `split 1` behind the sizes of a weight, or leave `tensor` out"));
    }
    let mut own = Model { layers: Vec::with_capacity(model.layers.len()), ..model.clone() };
    let mut outputs: Vec<State> = Vec::with_capacity(model.layers.len());
    for (index, layer) in model.layers.iter().enumerate() {
        let weights = weights(&own, layer, members)?;
        let inputs = layer.inputs.iter().map(|input| outputs[*input]).collect();
        let tape = Tape::new(layer.tape.storage());
        let mut dividing = Dividing { whole: layer, members, inputs, weights, tape, images: Vec::new() };
        dividing.run()?;
        let is_loss = index + 1 == model.layers.len();
        let (layer, state) = dividing.finish(is_loss);
        outputs.push(state);
        own.layers.push(layer);
    }
    Ok(own)
}

const HELP: &str = "choose a `tensor` that divides it, or sizes that `tensor` divides";

/// The weights of a member. What is tied is divided as its owner is.
fn weights(model: &Model, layer: &Layer, members: u64) -> Result<Vec<Weight>, Diagnostic> {
    let weights = layer.weights.iter().map(|weight| {
        if let Some(WeightId { layer, weight: owner }) = weight.owner {
            let owner = &model.layers[layer].weights[owner];
            return Ok(Weight { ty: owner.ty.clone(), split: owner.split, ..weight.clone() });
        }
        let Some(Split { axis, blocks, .. }) = weight.split else { return Ok(weight.clone()) };
        let size = weight.ty.shape[axis as usize];
        // A table of words may have any size: it is padded, as in Megatron-LM.
        let is_table = axis == 0 && blocks == 1 && weight.ty.shape.len() == 2;
        let padding = if is_table { size.next_multiple_of(members) - size } else { 0 };
        if (size + padding) % (blocks * members) != 0 {
            let (name, each) = (format!("{}.{}", layer.name, weight.name), size / blocks);
            let sizes = if blocks > 1 { format!("{blocks} blocks of {each}") } else { format!("size {each}") };
            let message =
                format!("`{name}` is split along axis {axis}, of {sizes}, which {members} devices cannot do evenly");
            let error = Diagnostic::error(Code::CannotSplit, layer.span, "a weight of this layer", message);
            return Err(error.help(HELP));
        }
        let mut ty = weight.ty.clone();
        ty.shape[axis as usize] = (size + padding) / members;
        Ok(Weight { ty, split: Some(Split { axis, blocks, members, padding }), ..weight.clone() })
    });
    weights.collect()
}

/// A layer that is being divided.
struct Dividing<'a> {
    whole: &'a Layer,
    members: u64,
    /// By input of the layer.
    inputs: Vec<State>,
    weights: Vec<Weight>,
    tape: Tape,
    /// By node of the whole layer.
    images: Vec<Own>,
}

impl Dividing<'_> {
    fn run(&mut self) -> Result<(), Diagnostic> {
        for id in self.whole.tape.ids() {
            let node = self.whole.tape.node(id);
            let mut own = match self.whole.tape.leaf_of(id) {
                Some(leaf) => self.leaf(leaf, &node.ty),
                None => rule(self, node),
            };
            if let Some(axis) = self.whole.tape.split_of(id) {
                let (size, members) = (node.ty.shape[axis], self.members);
                if !size.is_multiple_of(members) {
                    let message = format!(
                        "`split` divides axis {axis}, of size {size}, which {members} devices cannot do evenly"
                    );
                    let error = Diagnostic::error(Code::CannotSplit, self.whole.span, "in this layer", message);
                    return Err(error.help(HELP));
                }
                own = self.part(own, Along::axis(axis), &node.ty.shape);
            }
            self.images.push(own);
        }
        Ok(())
    }

    fn leaf(&mut self, leaf: Leaf, ty: &TensorType) -> Own {
        let state = match leaf {
            Leaf::Weight(weight) => match self.weights[weight].split {
                Some(Split { axis, blocks, padding, .. }) => {
                    State::Part(Along { axis: axis as usize, blocks, padding })
                }
                None => State::Whole,
            },
            Leaf::Activation(input) => self.inputs[input],
            Leaf::Data(_) | Leaf::Past { .. } | Leaf::OutputGradient(_) => State::Whole,
        };
        Own { node: self.tape.leaf(leaf, self.of(ty, state)), state }
    }

    /// The type of a member's tensor, from that of the whole.
    fn of(&self, whole: &TensorType, state: State) -> TensorType {
        TensorType { dtype: whole.dtype, shape: self.shape(&whole.shape, state) }
    }

    fn shape(&self, whole: &[u64], state: State) -> Vec<u64> {
        let mut shape = whole.to_vec();
        if let State::Part(along) = state {
            shape[along.axis] = (shape[along.axis] + along.padding) / self.members;
        }
        shape
    }

    fn image(&self, id: NodeId) -> Own {
        self.images[id.index()]
    }

    /// The layer, and what members have of its output. Between layers a tensor is whole or split.
    fn finish(mut self, is_loss: bool) -> (Layer, State) {
        let whole = self.whole;
        let mut output = self.image(whole.output);
        let may_stay =
            matches!(output.state, State::Part(along) if along.blocks == 1 && along.padding == 0) && !is_loss;
        if output.state != State::Whole && !may_stay {
            output = self.whole(output, whole.tape.shape(whole.output));
        }
        let names = whole.names.iter().map(|(node, name)| (self.image(*node).node, name.clone())).collect();
        let layer = Layer { tape: self.tape, output: output.node, names, weights: self.weights, ..whole.clone() };
        (layer, output.state)
    }

    /// Appends an operation with these inputs to the member's tape; `whole` is what it makes without members.
    fn push(&mut self, op: &Op, inputs: Vec<NodeId>, whole: &TensorType, state: State) -> Own {
        let ty = self.of(whole, state);
        Own { node: self.tape.push(op.clone(), inputs, ty), state }
    }
}
