//! Pieces: a task in which the members of a device exchange something is cut where they do.
//!
//! Rule: what follows from no exchange runs as late as its first use asks, so that nothing waits that can be computed
//! when it is needed; all else runs as early as its exchanges allow. What a later piece reads lies where it is stored
//! anyway, or in a value that lives from piece to piece. Views are seen again through their sources.

use crate::graph::bundle::{Bundle, add_value};
use crate::graph::flops::of_member;
use pipe_ir::graph::{Class, Graph, Node, Op, Store, TensorType};
use pipe_ir::ids::{NodeId, ValueId};
use pipe_ir::instruction::Collective;
use pipe_ir::program::{Access, Body, Exec, Operand, Piece};
use pipe_ir::units::Bytes;
use pipe_ir::value::{TensorSlot, Value, ValueKind};
use std::collections::BTreeMap;

/// The pieces of a task, in their order.
#[derive(Clone, PartialEq, Debug)]
pub struct Pieces {
    /// What runs.
    pub execs: Vec<Exec>,
    /// By piece: the values that begin with it.
    pub made: Vec<Vec<ValueId>>,
    /// By piece: what members exchange behind it.
    pub exchanged: Vec<Vec<(ValueId, Collective)>>,
    /// By piece: the values that it reads as the last one.
    pub ended: Vec<Vec<ValueId>>,
}

/// Cuts a task. None where its members exchange nothing. `values` gets what lives from piece to piece.
pub fn pieces(exec: &Exec, members: u32, values: &mut Vec<Value>) -> Option<Pieces> {
    let Body::Graph(graph) = &exec.body else { return None };
    if !graph.nodes.iter().any(|node| node.op.class() == Class::Exchange) {
        return None;
    }
    let levels = Levels::of(graph);
    let mut cutting = Cutting { exec, graph, members: members.into(), levels, places: BTreeMap::new() };
    let made = cutting.place(values);
    let count = cutting.levels.count;
    let execs = (0..count).map(|level| cutting.piece(level, values)).collect();
    let of = |level: u32, which: fn(&Made) -> u32| {
        made.iter().filter(|one| which(one) == level).map(|one| one.value).collect::<Vec<_>>()
    };
    let exchanged = |level: u32| {
        let all = made.iter().filter(|one| one.begins == level);
        all.filter_map(|one| Some((one.value, one.collective?))).collect()
    };
    Some(Pieces {
        execs,
        made: (0..count).map(|level| of(level, |one| one.begins)).collect(),
        exchanged: (0..count).map(exchanged).collect(),
        ended: (0..count).map(|level| of(level, |one| one.ends)).collect(),
    })
}

/// A value that lives from piece to piece.
struct Made {
    value: ValueId,
    begins: u32,
    ends: u32,
    collective: Option<Collective>,
}

/// Which piece computes each node.
struct Levels {
    /// By node; of an exchange, the piece that computes what is exchanged.
    at: Vec<u32>,
    /// By node that is no view: the last piece that reads it.
    last: Vec<u32>,
    count: u32,
}

/// Whether every piece can have a node by itself.
fn is_free(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    node.op.class() == Class::Source || node.op.class() == Class::View && is_free(graph, node.inputs[0])
}

/// What a view, or a view of one, is seen through.
fn source(graph: &Graph, mut id: NodeId) -> NodeId {
    while graph.node(id).op.class() == Class::View {
        id = graph.node(id).inputs[0];
    }
    id
}

fn is_exchange(graph: &Graph, id: NodeId) -> bool {
    graph.node(id).op.class() == Class::Exchange
}

impl Levels {
    fn of(graph: &Graph) -> Self {
        let ids = || (0..graph.nodes.len()).map(NodeId::from_index);
        let mut at = vec![0; graph.nodes.len()];
        for id in ids() {
            let of_input = |input: &NodeId| at[input.index()] + u32::from(is_exchange(graph, *input));
            at[id.index()] = graph.node(id).inputs.iter().map(of_input).max().unwrap_or(0);
        }
        // Where a node is stored: once it is there.
        let stored = |at: &[u32], id: NodeId| at[id.index()] + u32::from(is_exchange(graph, id));
        let follows: Vec<bool> = at.iter().map(|level| *level > 0).collect();
        let mut used: Vec<Option<u32>> = vec![None; graph.nodes.len()];
        for id in ids().rev() {
            let has_store = graph.stores.iter().any(|store| source(graph, store.node) == id);
            // Views are seen wherever they are used.
            let is_view = graph.node(id).op.class() == Class::View;
            if let Some(first) = used[id.index()].filter(|_| is_view || !follows[id.index()] && !has_store) {
                // What is exchanged is there one piece later.
                at[id.index()] = first - u32::from(is_exchange(graph, id));
            }
            for input in &graph.node(id).inputs {
                let used = &mut used[input.index()];
                *used = Some(used.map_or(at[id.index()], |known| known.min(at[id.index()])));
            }
        }
        let mut last = vec![0; graph.nodes.len()];
        let mut read = |id: NodeId, level: u32| {
            let id = source(graph, id);
            last[id.index()] = last[id.index()].max(level);
        };
        for id in ids().filter(|id| graph.node(*id).op.class() != Class::View) {
            graph.node(id).inputs.iter().for_each(|input| read(*input, at[id.index()]));
        }
        for store in &graph.stores {
            read(store.node, stored(&at, source(graph, store.node)));
        }
        let count = last.iter().max().map_or(1, |last| last + 1);
        Self { at, last, count }
    }

    /// The piece from which on a node can be read.
    fn there(&self, graph: &Graph, id: NodeId) -> u32 {
        self.at[id.index()] + u32::from(is_exchange(graph, id))
    }
}

struct Cutting<'a> {
    exec: &'a Exec,
    graph: &'a Graph,
    members: u64,
    levels: Levels,
    /// By node that is read in later pieces than it is computed in: its value, and where it is in it.
    places: BTreeMap<NodeId, (ValueId, Bytes)>,
}

impl Cutting<'_> {
    /// Gives what crosses from piece to piece its values.
    fn place(&mut self, values: &mut Vec<Value>) -> Vec<Made> {
        let (graph, exec) = (self.graph, self.exec);
        let mut made = Vec::new();
        let mut held: BTreeMap<(u32, u32), Vec<NodeId>> = BTreeMap::new();
        for index in 0..graph.nodes.len() {
            let id = NodeId::from_index(index);
            let (at, last) = (self.levels.at[index], self.levels.last[index]);
            if is_free(graph, id) || graph.node(id).op.class() == Class::View {
                continue;
            }
            if is_exchange(graph, id) {
                let (value, collective) = self.exchange(values, id);
                self.places.insert(id, (value, Bytes::ZERO));
                made.push(Made { value, begins: at, ends: last.max(at + 1), collective: Some(collective) });
            } else if last > at {
                let stored = |store: &&Store| store.node == id && !store.accumulate;
                match graph.stores.iter().find(stored) {
                    Some(store) => {
                        let value = exec.operands[store.operand as usize].value;
                        self.places.insert(id, (value, store.offset));
                    }
                    None => held.entry((at, last)).or_default().push(id),
                }
            }
        }
        for ((begins, ends), nodes) in held {
            let mut bundle = Bundle::default();
            let offsets: Vec<Bytes> =
                nodes.iter().map(|id| bundle.add(id.to_string(), &graph.node(*id).ty, None)).collect();
            let name = format!("held.{}.{begins}to{ends}", exec.name());
            let value = add_value(values, bundle.into_value(name, ValueKind::Held, exec.stage));
            self.places.extend(nodes.iter().zip(offsets).map(|(id, offset)| (*id, (value, offset))));
            made.push(Made { value, begins, ends, collective: None });
        }
        made
    }

    /// The bytes from one member's part to the next one's, where a tensor has a part for each.
    fn stride(&self, id: NodeId) -> Bytes {
        let node = self.graph.node(id);
        match node.op {
            Op::AllGather { .. } => self.graph.node(node.inputs[0]).ty.bytes().aligned(),
            Op::ReduceScatter => node.ty.bytes().aligned(),
            Op::AllToAll => Bytes(node.ty.bytes().0 / self.members).aligned(),
            _ => Bytes::ZERO,
        }
    }

    /// The value that members exchange, and how.
    fn exchange(&self, values: &mut Vec<Value>, id: NodeId) -> (ValueId, Collective) {
        let node = self.graph.node(id);
        let ty = &self.graph.node(node.inputs[0]).ty;
        let (stride, members) = (self.stride(id), self.members);
        let slot = |ty: &TensorType, offset: Bytes, name: String| TensorSlot {
            name,
            ty: ty.clone(),
            offset,
            init: None,
            part: None,
            split: None,
        };
        let (collective, bytes, tensors) = match node.op {
            Op::AllGather { .. } => {
                (Collective::AllGather, Bytes(stride.0 * members), vec![slot(ty, Bytes::ZERO, "own".to_owned())])
            }
            Op::ReduceScatter if stride == node.ty.bytes() => {
                (Collective::ReduceScatter, ty.bytes(), vec![slot(ty, Bytes::ZERO, "summand".to_owned())])
            }
            Op::ReduceScatter => {
                let own = |member: u64| slot(&node.ty, Bytes(member * stride.0), format!("summand.{member}"));
                (Collective::ReduceScatter, Bytes(stride.0 * members), (0..members).map(own).collect())
            }
            Op::AllToAll => {
                let one = TensorType::new(ty.dtype, &[ty.elements() / members]);
                let to = |member: u64| slot(&one, Bytes(member * stride.0), format!("to.{member}"));
                (Collective::AllToAll, Bytes(2 * stride.0 * members), (0..members).map(to).collect())
            }
            _ => (Collective::AllReduce, ty.bytes(), vec![slot(ty, Bytes::ZERO, "summand".to_owned())]),
        };
        let name = format!("exchanged.{}.{id}", self.exec.name());
        let value = Value { tensors, ..Value::plain(name, ValueKind::Exchanged, self.exec.stage, bytes) };
        (add_value(values, value), collective)
    }

    fn piece(&self, level: u32, values: &[Value]) -> Exec {
        let mut writing =
            Writing { cutting: self, level, graph: Graph::default(), operands: Vec::new(), images: BTreeMap::new() };
        for index in 0..self.graph.nodes.len() {
            let id = NodeId::from_index(index);
            let is_here = self.levels.at[index] == level && !is_free(self.graph, id);
            if is_here && self.graph.node(id).op.class() != Class::View {
                writing.compute(id);
            }
        }
        for store in &self.graph.stores {
            // What crosses is stored when it is computed, so that it can be read from there.
            if self.levels.there(self.graph, source(self.graph, store.node)) == level {
                writing.store(store);
            }
        }
        let Writing { graph, operands, .. } = writing;
        let flops = of_member(values, &operands, &graph);
        let piece = Some(Piece { number: level, count: self.levels.count });
        Exec { piece, operands, body: Body::Graph(graph), flops, ..self.exec.clone() }
    }

    /// What an operand of the whole task is to a piece: what is written piece by piece is updated by later ones.
    fn access(&self, position: u32, level: u32) -> Access {
        let own = self.exec.operands[position as usize].access;
        if own != Access::Write {
            return own;
        }
        let stores = self.graph.stores.iter().filter(|store| store.operand == position);
        let first = stores.map(|store| self.levels.there(self.graph, source(self.graph, store.node))).min();
        if first.is_some_and(|first| first < level) { Access::Update } else { Access::Write }
    }
}

/// A piece in the making.
struct Writing<'a> {
    cutting: &'a Cutting<'a>,
    level: u32,
    graph: Graph,
    operands: Vec<Operand>,
    /// By node of the whole task: its image.
    images: BTreeMap<NodeId, NodeId>,
}

impl Writing<'_> {
    /// The image of a node, wherever it is computed.
    fn image(&mut self, id: NodeId) -> NodeId {
        if let Some(known) = self.images.get(&id) {
            return *known;
        }
        let whole = self.cutting.graph;
        let node = whole.node(id).clone();
        let image = match (&node.op, node.op.class()) {
            (Op::Input { operand, offset }, _) => {
                let own = self.cutting.exec.operands[*operand as usize];
                let operand = self.operand(own, Access::Read);
                self.graph.push(Op::Input { operand, offset: *offset }, Vec::new(), node.ty)
            }
            (_, Class::View | Class::Source) => {
                let inputs = node.inputs.iter().map(|input| self.image(*input)).collect();
                self.graph.push(node.op, inputs, node.ty)
            }
            (_, Class::Exchange) => self.exchanged(id, &node),
            _ => {
                let (value, offset) = self.cutting.places[&id];
                let operand = self.operand(Operand::new(value, Access::Read), Access::Read);
                self.graph.push(Op::Input { operand, offset }, Vec::new(), node.ty)
            }
        };
        self.images.insert(id, image);
        image
    }

    /// Computes a node, or what is exchanged, and stores what later pieces read.
    fn compute(&mut self, id: NodeId) {
        let cutting = self.cutting;
        let node = cutting.graph.node(id).clone();
        let inputs: Vec<NodeId> = node.inputs.iter().map(|input| self.image(*input)).collect();
        if node.op.class() == Class::Exchange {
            return self.hand_over(id, &node, inputs[0]);
        }
        let image = self.graph.push(node.op, inputs, node.ty);
        self.images.insert(id, image);
        let is_held = |value: ValueId| !cutting.exec.operands.iter().any(|operand| operand.value == value);
        if let Some((value, offset)) = cutting.places.get(&id).filter(|(value, _)| is_held(*value)) {
            self.add_store((image, *value, *offset), Bytes::ZERO);
        }
    }

    /// Stores what members exchange.
    fn hand_over(&mut self, id: NodeId, node: &Node, x: NodeId) {
        let (value, _) = self.cutting.places[&id];
        let stride = self.cutting.stride(id);
        let is_padded = match node.op {
            Op::ReduceScatter => stride != node.ty.bytes(),
            Op::AllToAll => stride.0 * self.cutting.members != node.ty.bytes().0,
            _ => false,
        };
        if !is_padded {
            let own = if matches!(node.op, Op::AllGather { .. }) { stride } else { Bytes::ZERO };
            return self.add_store((x, value, Bytes::ZERO), own);
        }
        let mut ty = self.graph.node(x).ty.clone();
        ty.shape[0] = 1;
        for member in 0..self.cutting.members {
            let part = self.graph.push(Op::Slice { axis: 0, start: member }, vec![x], ty.clone());
            self.add_store((part, value, Bytes(member * stride.0)), Bytes::ZERO);
        }
    }

    /// What members have exchanged.
    fn exchanged(&mut self, id: NodeId, node: &Node) -> NodeId {
        let (value, offset) = self.cutting.places[&id];
        let operand = self.operand(Operand::new(value, Access::Read), Access::Read);
        let members = self.cutting.members;
        let input = Op::Input { operand, offset };
        let dtype = node.ty.dtype;
        let number = dtype.bytes().0;
        let wide = TensorType::new(dtype, &[members, self.cutting.stride(id).0 / number]);
        let narrow = |graph: &mut Graph, x: NodeId, elements: u64| {
            let mut ty = graph.node(x).ty.clone();
            if ty.shape[1] == elements {
                return x;
            }
            ty.shape[1] = elements;
            graph.push(Op::Slice { axis: 1, start: 0 }, vec![x], ty)
        };
        let graph = &mut self.graph;
        match node.op {
            Op::AllGather { .. } => {
                let all = graph.push(input, Vec::new(), wide);
                let all = narrow(graph, all, node.ty.elements() / members);
                graph.push(Op::Reshape, vec![all], node.ty.clone())
            }
            Op::ReduceScatter => {
                let mut one = wide.clone();
                one.shape[0] = 1;
                let all = graph.push(input, Vec::new(), wide);
                let own = graph.push(Op::OwnPart, vec![all], one);
                let own = narrow(graph, own, node.ty.elements());
                graph.push(Op::Reshape, vec![own], node.ty.clone())
            }
            Op::AllToAll => {
                let second = Op::Input { operand, offset: Bytes(wide.bytes().0) };
                let all = graph.push(second, Vec::new(), wide);
                let all = narrow(graph, all, node.ty.elements() / members);
                graph.push(Op::Reshape, vec![all], node.ty.clone())
            }
            _ => graph.push(input, Vec::new(), node.ty.clone()),
        }
    }

    fn store(&mut self, store: &Store) {
        let node = self.image(store.node);
        let own = self.cutting.exec.operands[store.operand as usize];
        let access = self.cutting.access(store.operand, self.level);
        let operand = self.operand(own, access);
        self.graph.stores.push(Store { node, operand, ..store.clone() });
    }

    fn add_store(&mut self, (node, value, offset): (NodeId, ValueId, Bytes), own: Bytes) {
        let operand = self.operand(Operand::new(value, Access::Write), Access::Write);
        self.graph.stores.push(Store { node, operand, offset, accumulate: false, own });
    }

    /// The position of an operand. One that is read and written is updated.
    fn operand(&mut self, own: Operand, access: Access) -> u32 {
        let is_known = |operand: &Operand| operand.value == own.value && operand.ahead == own.ahead;
        let position = self.operands.iter().position(is_known).unwrap_or_else(|| {
            self.operands.push(Operand { access, ..own });
            self.operands.len() - 1
        });
        let known = &mut self.operands[position].access;
        if *known != access {
            *known = Access::Update;
        }
        u32::try_from(position).expect("an executable has few operands")
    }
}

#[cfg(test)]
mod tests {
    use super::{Levels, is_free};
    use pipe_ir::graph::{Graph, Op, TensorType, Unary};
    use pipe_ir::units::Bytes;

    /// What follows from no exchange waits for its first use.
    #[test]
    fn nodes_run_where_they_are_needed() {
        let ty = TensorType::f32(&[4]);
        let mut graph = Graph::default();
        let x = graph.push(Op::Input { operand: 0, offset: Bytes::ZERO }, vec![], ty.clone());
        let early = graph.push(Op::Unary(Unary::Exp), vec![x], ty.clone());
        let late = graph.push(Op::Unary(Unary::Log), vec![x], ty.clone());
        let sum = graph.push(Op::AllReduce, vec![early], ty.clone());
        let both = graph.push(Op::Binary(pipe_ir::graph::Binary::Add), vec![sum, late], ty.clone());
        let again = graph.push(Op::AllReduce, vec![both], ty);
        graph.stores.push(pipe_ir::graph::Store {
            node: again,
            operand: 1,
            offset: Bytes::ZERO,
            accumulate: false,
            own: Bytes::ZERO,
        });
        let levels = Levels::of(&graph);
        assert_eq!((levels.count, &levels.at[1..]), (3, &[0, 1, 0, 1, 1][..]));
        assert!(is_free(&graph, x) && !is_free(&graph, late));
    }
}
