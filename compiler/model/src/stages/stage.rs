//! One stage: the forward graphs of its layers joined to one tape, and what crosses its border.

use crate::graph::tape::{Leaf, Tape};
use crate::{Layer, Model, Weight, WeightId};
use pipe_ir::ids::NodeId;
use std::collections::BTreeMap;
use std::ops::Range;

/// The forward pass of a stage.
#[derive(Clone, Debug)]
pub(super) struct StageTape {
    /// Its nodes; [`Leaf::Weight`] counts `weights` and `tied`, [`Leaf::Activation`] counts `inputs`.
    pub tape: Tape,
    /// What flows in from other stages, in the order in which its layers first read it.
    pub inputs: Vec<Port>,
    /// What flows out to other stages, in the order of the layers, or the loss.
    pub outputs: Vec<Port>,
    /// What a slice carries over to the later ones, with names.
    pub carried: Vec<(NodeId, String)>,
    /// What it reads of earlier ones: the node, which of `carried` it is, and how many slices back.
    pub past: Vec<(NodeId, usize, u32)>,
    /// Its weights under their names in the program, each with its node.
    pub weights: Vec<(NodeId, Weight)>,
    /// Which weights of the model these are, likewise.
    pub owned: Vec<WeightId>,
    /// Weights of stages before that its layers use too, each with its node.
    pub tied: Vec<(NodeId, WeightId)>,
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
pub(super) fn join(model: &Model, layers: Range<usize>, leaves: impl Fn(usize) -> bool) -> StageTape {
    let mut stage = StageTape {
        tape: Tape::new(model.precision),
        inputs: Vec::new(),
        outputs: Vec::new(),
        carried: Vec::new(),
        past: Vec::new(),
        weights: Vec::new(),
        owned: Vec::new(),
        tied: Vec::new(),
        names: BTreeMap::new(),
    };
    // By layer: the node of its output.
    let mut flows: BTreeMap<usize, NodeId> = BTreeMap::new();
    for index in layers {
        let layer = &model.layers[index];
        for source in &layer.inputs {
            flows.entry(*source).or_insert_with(|| stage.add_input(model, *source));
        }
        let images = stage.append((index, layer), |port| flows[&layer.inputs[port]]);
        for (node, name) in &layer.names {
            stage.names.entry(images[node.index()]).or_insert_with(|| format!("{}.{name}", layer.name));
        }
        for (number, node) in layer.carried.iter().enumerate() {
            let name = layer.names.get(node).cloned().unwrap_or_else(|| format!("carried.{number}"));
            stage.carried.push((images[node.index()], format!("{}.{name}", layer.name)));
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

    fn append(&mut self, (index, layer): (usize, &Layer), flow: impl Fn(usize) -> NodeId) -> Vec<NodeId> {
        let weights = layer.weights.iter().enumerate().map(|(position, weight)| {
            let own = WeightId { layer: index, weight: position };
            self.weight(own, weight, &layer.name)
        });
        let weights: Vec<NodeId> = weights.collect();
        let (first_port, past) = (self.carried.len(), &mut self.past);
        self.tape.append(&layer.tape, |tape, leaf, ty| match leaf {
            Leaf::Weight(index) => weights[index],
            Leaf::Activation(port) => flow(port),
            Leaf::Past { port, behind } => {
                let port = first_port + port;
                let node = tape.leaf(Leaf::Past { port, behind }, ty.clone());
                past.push((node, port, behind));
                node
            }
            Leaf::Data(_) | Leaf::OutputGradient(_) => tape.leaf(leaf, ty.clone()),
        })
    }

    /// The node of a weight; the same one for all that are tied.
    fn weight(&mut self, own: WeightId, weight: &Weight, layer: &str) -> NodeId {
        let id = weight.owner.unwrap_or(own);
        let owned = self.owned.iter().position(|other| *other == id).map(|position| self.weights[position].0);
        let tied = || self.tied.iter().find(|(_, other)| *other == id).map(|(node, _)| *node);
        if let Some(node) = owned.or_else(tied) {
            return node;
        }
        let node = self.tape.leaf(Leaf::Weight(self.owned.len() + self.tied.len()), weight.ty.clone());
        if id == own {
            let name = format!("{layer}.{}", weight.name);
            self.weights.push((node, Weight { name, ..weight.clone() }));
            self.owned.push(id);
        } else {
            self.tied.push((node, id));
        }
        node
    }
}
