//! Parts and outputs of layers: a layer with `part` lines becomes several, which a schedule may run one by one, and so
//! does a layer with several outputs.
//!
//! Here, a layer has one output, but several tensors may flow out of the layer that the text has, and several may cross
//! from one part to the next. So a part becomes a layer for each tensor that flows out, for each that later parts read,
//! and for each that two of these are made from. They are in a row, part by part.

use crate::graph::extract::reached;
use crate::graph::tape::{Leaf, Tape};
use crate::{Layer, Weight, WeightId};
use pipe_ir::graph::Op;
use pipe_ir::ids::NodeId;
use pipe_syntax::ast;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Where a part begins.
pub(super) struct Boundary {
    /// What it is called.
    pub name: ast::Name,
    /// How many nodes of the tape were written before it.
    pub nodes: usize,
}

/// A layer in parts.
pub(super) struct Split {
    /// Those that it becomes.
    pub layers: Vec<Layer>,
    /// By weight of the layer: where it is now.
    pub weights: Vec<WeightId>,
    /// By tensor that flows out: the layer that computes it.
    pub outputs: Vec<usize>,
}

/// Nodes of the tape of a layer, and what becomes of them.
struct Cut<'a> {
    layer: &'a Layer,
    /// What flows out.
    roots: &'a [NodeId],
    boundaries: &'a [Boundary],
    /// By node: the output for which it is computed. None of leaves, constants, and what nobody reads.
    owner: Vec<Option<NodeId>>,
    /// The outputs of the layers to come, ascending.
    outputs: Vec<NodeId>,
}

/// Divides a layer into pieces. `roots` are its outputs, and `first` is the number of its first piece in the model.
///
/// # Errors
/// The position of a part that computes nothing which is read.
pub(super) fn split(layer: &Layer, roots: &[NodeId], boundaries: &[Boundary], first: usize) -> Result<Split, usize> {
    let cut = Cut::new(layer, roots, boundaries);
    let computes = |part: usize| cut.outputs.iter().any(|output| cut.part_of(*output) == part);
    if let Some(idle) = (0..boundaries.len()).find(|part| !computes(*part)) {
        return Err(idle);
    }
    let mut homes: Vec<Option<WeightId>> = vec![None; layer.weights.len()];
    let layers = cut.outputs.iter().enumerate();
    let layers: Vec<Layer> = layers.map(|(number, output)| cut.layer(*output, (first, number), &mut homes)).collect();
    // A weight that nobody reads was reported before.
    let weights = homes.into_iter().map(|home| home.unwrap_or(WeightId { layer: first, weight: 0 })).collect();
    let outputs = roots.iter().map(|root| first + cut.number(*root)).collect();
    Ok(Split { layers, weights, outputs })
}

impl<'a> Cut<'a> {
    fn new(layer: &'a Layer, roots: &'a [NodeId], boundaries: &'a [Boundary]) -> Self {
        let owner = vec![None; layer.tape.len()];
        let mut cut = Self { layer, roots, boundaries, owner, outputs: Vec::new() };
        let mut readers: Vec<Vec<NodeId>> = vec![Vec::new(); layer.tape.len()];
        for id in reached(&layer.tape, &BTreeMap::new(), roots.iter().copied()).into_iter().rev() {
            if cut.is_everywhere(id) {
                continue;
            }
            let own = &readers[id.index()];
            let crosses = cut.roots.contains(&id) || own.iter().any(|reader| cut.part_of(*reader) != cut.part_of(id));
            let only = own.first().and_then(|reader| cut.owner[reader.index()]);
            let is_shared = own.iter().any(|reader| cut.owner[reader.index()] != only);
            if crosses || is_shared {
                cut.outputs.push(id);
                cut.owner[id.index()] = Some(id);
            } else {
                cut.owner[id.index()] = only;
            }
            for input in &layer.tape.node(id).inputs {
                readers[input.index()].push(id);
            }
        }
        cut.outputs.reverse();
        cut
    }

    /// The layer to come that computes a node.
    fn number(&self, id: NodeId) -> usize {
        self.outputs.partition_point(|output| *output < id)
    }

    /// Whether a node is there in every part that reads it: leaves and constants.
    fn is_everywhere(&self, id: NodeId) -> bool {
        matches!(self.layer.tape.node(id).op, Op::Input { .. } | Op::Constant(_))
    }

    /// The part in which a node was written; what stands above the first `part` belongs to that.
    fn part_of(&self, id: NodeId) -> usize {
        self.boundaries.partition_point(|boundary| boundary.nodes <= id.index()).saturating_sub(1)
    }

    /// The layer for an output, which will be so many behind the first.
    fn layer(&self, output: NodeId, (first, number): (usize, usize), homes: &mut [Option<WeightId>]) -> Layer {
        let mut piece = Piece {
            cut: self,
            output,
            first,
            number,
            tape: Tape::new(self.layer.tape.storage()),
            inputs: Vec::new(),
            weights: Vec::new(),
            own: BTreeMap::new(),
            images: BTreeMap::new(),
        };
        let output = piece.copy(output, homes);
        let Piece { tape, inputs, weights, images, .. } = piece;
        let names = self.layer.names.iter();
        let names = names.filter_map(|(node, name)| Some((*images.get(node)?, name.clone()))).collect();
        let part = self.boundaries.get(self.part_of(self.outputs[number]));
        Layer {
            name: self.layer.name.clone(),
            part: part.map(|part| Arc::from(part.name.text.as_str())),
            span: self.layer.span,
            inputs,
            tape,
            output,
            weights,
            carried: Vec::new(),
            names,
        }
    }
}

/// A layer in the making.
struct Piece<'a> {
    cut: &'a Cut<'a>,
    output: NodeId,
    first: usize,
    number: usize,
    tape: Tape,
    inputs: Vec<usize>,
    weights: Vec<Weight>,
    /// By weight of the whole layer: that of this one.
    own: BTreeMap<usize, usize>,
    images: BTreeMap<NodeId, NodeId>,
}

impl Piece<'_> {
    /// Copies a node and what it is made from, in the order of the tape.
    fn copy(&mut self, id: NodeId, homes: &mut [Option<WeightId>]) -> NodeId {
        let layer = self.cut.layer;
        let mut needed = BTreeSet::from([id]);
        let mut open = vec![id];
        while let Some(node) = open.pop() {
            if self.cut.owner[node.index()] == Some(self.output) {
                open.extend(layer.tape.node(node).inputs.iter().filter(|input| needed.insert(**input)));
            }
        }
        for node in needed {
            let image = self.image(node, homes);
            self.images.insert(node, image);
        }
        self.images[&id]
    }

    fn image(&mut self, id: NodeId, homes: &mut [Option<WeightId>]) -> NodeId {
        let layer = self.cut.layer;
        let node = layer.tape.node(id);
        match (layer.tape.leaf_of(id), self.cut.owner[id.index()]) {
            (Some(Leaf::Weight(weight)), _) => {
                let own = self.weight(weight, homes);
                self.tape.leaf(Leaf::Weight(own), node.ty.clone())
            }
            (Some(Leaf::Activation(port)), _) => self.input(layer.inputs[port], id),
            (Some(leaf), _) => self.tape.leaf(leaf, node.ty.clone()),
            (None, Some(owner)) if owner != self.output => {
                let source = self.first + self.cut.number(id);
                self.input(source, id)
            }
            (None, _) => {
                let inputs = node.inputs.iter().map(|input| self.images[input]).collect();
                self.tape.push(node.op.clone(), inputs, node.ty.clone())
            }
        }
    }

    /// What flows in from another layer.
    fn input(&mut self, source: usize, id: NodeId) -> NodeId {
        let port = self.inputs.iter().position(|known| *known == source).unwrap_or_else(|| {
            self.inputs.push(source);
            self.inputs.len() - 1
        });
        self.tape.leaf(Leaf::Activation(port), self.cut.layer.tape.ty(id).clone())
    }

    /// A weight, which is that of the first layer that reads it.
    fn weight(&mut self, weight: usize, homes: &mut [Option<WeightId>]) -> usize {
        if let Some(own) = self.own.get(&weight) {
            return *own;
        }
        let own = self.weights.len();
        let home = homes[weight].replace(WeightId { layer: self.first + self.number, weight: own });
        let known = &self.cut.layer.weights[weight];
        self.weights.push(Weight { owner: known.owner.or(home), ..known.clone() });
        if let Some(home) = home {
            homes[weight] = Some(home);
        }
        self.own.insert(weight, own);
        own
    }
}
