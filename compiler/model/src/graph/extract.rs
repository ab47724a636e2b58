//! Extraction: a part of a tape becomes the graph of an executable, its leaves places in operands.

use super::bundle::ValueOffset;
use super::flops::flops;
use super::tape::Tape;
use pipe_ir::graph::{Graph, Op, Store};
use pipe_ir::ids::{NodeId, StageId};
use pipe_ir::program::{Access, Body, Exec, Operand};
use pipe_ir::task::TaskKind;
use pipe_ir::units::Bytes;
use std::collections::BTreeMap;

/// A tensor that leaves an executable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Outcome {
    /// Which node of the tape.
    pub node: NodeId,
    /// Where it is written.
    pub to: ValueOffset,
    /// Added to what is there.
    pub accumulate: bool,
}

/// A graph in the making.
struct Extraction<'a> {
    tape: &'a Tape,
    places: &'a BTreeMap<NodeId, ValueOffset>,
    images: BTreeMap<NodeId, NodeId>,
    operands: Vec<Operand>,
    graph: Graph,
}

/// The executable that computes `results` from the tensors in `places`. Nodes come in the order of the tape, except
/// that those for which `is_repeated` holds come just before their first use: so temporaries live shortly.
pub(crate) fn extract(
    tape: &Tape,
    places: &BTreeMap<NodeId, ValueOffset>,
    results: &[Outcome],
    is_repeated: impl Fn(NodeId) -> bool,
) -> (Vec<Operand>, Graph) {
    let mut extraction =
        Extraction { tape, places, images: BTreeMap::new(), operands: Vec::new(), graph: Graph::default() };
    for id in reached(tape, places, results.iter().map(|result| result.node)) {
        if !is_repeated(id) {
            extraction.emit(id);
        }
    }
    for result in results {
        extraction.emit(result.node);
        let access = if result.accumulate { Access::Update } else { Access::Write };
        let store = Store {
            node: extraction.images[&result.node],
            operand: extraction.operand(result.to, access),
            offset: result.to.offset,
            accumulate: result.accumulate,
            own: Bytes::ZERO,
        };
        extraction.graph.stores.push(store);
    }
    (extraction.operands, extraction.graph)
}

/// An executable with this graph.
pub(crate) fn exec(kind: TaskKind, stage: StageId, (operands, graph): (Vec<Operand>, Graph)) -> Exec {
    let flops = flops(&graph.nodes);
    Exec::new(kind, stage, operands, Body::Graph(graph), flops)
}

/// Every node that `roots` need, down to the places, in the order of the tape.
pub(crate) fn reached(
    tape: &Tape,
    places: &BTreeMap<NodeId, ValueOffset>,
    roots: impl IntoIterator<Item = NodeId>,
) -> Vec<NodeId> {
    let mut is_reached = vec![false; tape.len()];
    for root in roots {
        is_reached[root.index()] = true;
    }
    for id in tape.ids().rev() {
        if is_reached[id.index()] && !places.contains_key(&id) {
            for input in &tape.node(id).inputs {
                is_reached[input.index()] = true;
            }
        }
    }
    tape.ids().filter(|id| is_reached[id.index()]).collect()
}

impl Extraction<'_> {
    /// Appends a node after everything that it needs. Keeps its own stack: tapes are deep.
    fn emit(&mut self, root: NodeId) {
        let mut open = vec![root];
        while let Some(id) = open.last().copied() {
            if self.images.contains_key(&id) {
                open.pop();
                continue;
            }
            let place = self.places.get(&id).copied();
            let node = self.tape.node(id);
            let missing = node.inputs.iter().rev().filter(|input| place.is_none() && !self.images.contains_key(input));
            let before = open.len();
            open.extend(missing.copied());
            if open.len() > before {
                continue;
            }
            open.pop();
            let image = match place {
                Some(place) => self.input(place, id),
                // It is what it is of: gradients alone differ.
                None if node.op == Op::Vary => self.images[&node.inputs[0]],
                None => {
                    assert!(!matches!(node.op, Op::Input { .. }), "every leaf that is needed has a place");
                    let inputs = node.inputs.iter().map(|input| self.images[input]).collect();
                    self.graph.push(node.op.clone(), inputs, node.ty.clone())
                }
            };
            self.images.insert(id, image);
        }
    }

    fn input(&mut self, place: ValueOffset, id: NodeId) -> NodeId {
        let operand = self.operand(place, Access::Read);
        self.graph.push(Op::Input { operand, offset: place.offset }, Vec::new(), self.tape.ty(id).clone())
    }

    fn operand(&mut self, place: ValueOffset, access: Access) -> u32 {
        let is_known = |operand: &Operand| operand.value == place.value && operand.ahead == place.ahead;
        let position = self.operands.iter().position(is_known).unwrap_or_else(|| {
            self.operands.push(Operand { value: place.value, access, ahead: place.ahead });
            self.operands.len() - 1
        });
        u32::try_from(position).expect("an executable has few operands")
    }
}
