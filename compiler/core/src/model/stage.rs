//! One stage: the forward graphs of its layers joined to one tape.

use super::tape::{Leaf, Tape};
use super::{Layer, Model, Weight};
use pipe_ir::graph::TensorType;
use pipe_ir::ids::NodeId;
use std::collections::BTreeMap;
use std::ops::Range;

/// The forward pass of a stage.
#[derive(Clone, Debug)]
pub(super) struct StageTape {
    /// Its nodes; [`Leaf::Weight`] counts `weights`.
    pub tape: Tape,
    /// The node of what flows in. The first stage has none.
    pub input: Option<NodeId>,
    /// What flows out, or the loss.
    pub output: NodeId,
    /// Its weights under their names in the program, each with its node.
    pub weights: Vec<(NodeId, Weight)>,
    /// What nodes are called in bundles, where they have a name.
    pub names: BTreeMap<NodeId, String>,
}

/// Joins the layers of a stage. `input` is the type of what the stage before hands over.
#[must_use]
pub(super) fn join(model: &Model, layers: Range<usize>, input: Option<&TensorType>) -> StageTape {
    let mut tape = Tape::default();
    let input = input.map(|ty| tape.leaf(Leaf::Activation, ty.clone()));
    let mut flow = input;
    let mut weights: Vec<(NodeId, Weight)> = Vec::new();
    let mut names = BTreeMap::new();
    for layer in &model.layers[layers] {
        let images = append(&mut tape, layer, flow, &mut weights);
        for (node, name) in &layer.names {
            names.entry(images[node.index()]).or_insert_with(|| format!("{}.{name}", layer.name));
        }
        flow = Some(images[layer.output.index()]);
    }
    let output = flow.expect("no stage is empty");
    StageTape { tape, input, output, weights, names }
}

fn append(tape: &mut Tape, layer: &Layer, flow: Option<NodeId>, weights: &mut Vec<(NodeId, Weight)>) -> Vec<NodeId> {
    let first = weights.len();
    for (index, weight) in layer.weights.iter().enumerate() {
        let node = tape.leaf(Leaf::Weight(first + index), weight.ty.clone());
        let name = format!("{}.{}", layer.name, weight.name);
        weights.push((node, Weight { name, ..weight.clone() }));
    }
    tape.append(&layer.tape, |tape, leaf, ty| match leaf {
        Leaf::Weight(index) => weights[first + index].0,
        Leaf::Activation => flow.expect("the first layer has no input"),
        Leaf::Data(_) | Leaf::OutputGradient => tape.leaf(leaf, ty.clone()),
    })
}
