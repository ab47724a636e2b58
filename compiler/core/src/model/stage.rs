//! One stage: the forward graphs of its layers joined to one tape, and what crosses its border.

use super::tape::{Leaf, Tape};
use super::{Layer, Model, Weight};
use pipe_ir::ids::NodeId;
use std::collections::BTreeMap;
use std::ops::Range;

/// The forward pass of a stage.
#[derive(Clone, Debug)]
pub(super) struct StageTape {
    /// Its nodes; [`Leaf::Weight`] counts `weights`, [`Leaf::Activation`] counts `inputs`.
    pub tape: Tape,
    /// What flows in from other stages, in the order in which its layers first read it.
    pub inputs: Vec<Port>,
    /// What flows out to other stages, in the order of the layers, or the loss.
    pub outputs: Vec<Port>,
    /// Its weights under their names in the program, each with its node.
    pub weights: Vec<(NodeId, Weight)>,
    /// What nodes are called in bundles, where they have a name.
    pub names: BTreeMap<NodeId, String>,
}

/// A tensor that crosses the border of a stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Port {
    /// Its node on the tape.
    pub node: NodeId,
    /// The layer of the model that computes it.
    pub layer: usize,
}

/// Joins the layers of a stage. `leaves` says which of their outputs flow out.
#[must_use]
pub(super) fn join(model: &Model, layers: Range<usize>, leaves: impl Fn(usize) -> bool) -> StageTape {
    let mut stage = StageTape {
        tape: Tape::default(),
        inputs: Vec::new(),
        outputs: Vec::new(),
        weights: Vec::new(),
        names: BTreeMap::new(),
    };
    // By layer: the node of its output.
    let mut flows: BTreeMap<usize, NodeId> = BTreeMap::new();
    for index in layers {
        let layer = &model.layers[index];
        for source in &layer.inputs {
            flows.entry(*source).or_insert_with(|| stage.add_input(model, *source));
        }
        let images = stage.append(layer, |port| flows[&layer.inputs[port]]);
        for (node, name) in &layer.names {
            stage.names.entry(images[node.index()]).or_insert_with(|| format!("{}.{name}", layer.name));
        }
        let output = images[layer.output.index()];
        flows.insert(index, output);
        if leaves(index) {
            stage.outputs.push(Port { node: output, layer: index });
        }
    }
    stage
}

impl StageTape {
    fn add_input(&mut self, model: &Model, layer: usize) -> NodeId {
        let node = self.tape.leaf(Leaf::Activation(self.inputs.len()), model.layers[layer].ty().clone());
        self.inputs.push(Port { node, layer });
        node
    }

    fn append(&mut self, layer: &Layer, flow: impl Fn(usize) -> NodeId) -> Vec<NodeId> {
        let first = self.weights.len();
        for (index, weight) in layer.weights.iter().enumerate() {
            let node = self.tape.leaf(Leaf::Weight(first + index), weight.ty.clone());
            let name = format!("{}.{}", layer.name, weight.name);
            self.weights.push((node, Weight { name, ..weight.clone() }));
        }
        let weights = &self.weights;
        self.tape.append(&layer.tape, |tape, leaf, ty| match leaf {
            Leaf::Weight(index) => weights[first + index].0,
            Leaf::Activation(port) => flow(port),
            Leaf::Data(_) | Leaf::OutputGradient(_) => tape.leaf(leaf, ty.clone()),
        })
    }
}
