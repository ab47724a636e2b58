//! Emission: units of work become kernels on views; every temporary has bytes of its own until
//! [`super::scratch`] packs them.

mod attention;
mod elementwise;
mod gemm;
mod routed;

use super::destination::{self, Home};
use super::fusion::{self, Unit};
use super::scratch::Unpacked;
use super::{Kernel, Location, RowKernel, RowOp, Sum, View};
use crate::graph::{DType, Graph, Node, Op, TensorType};
use crate::ids::NodeId;

/// Who needs which node.
pub(super) struct Liveness {
    live: Vec<bool>,
    uses: Vec<usize>,
    read_and_stored: Vec<u32>,
}

impl Liveness {
    pub(super) fn of(graph: &Graph) -> Self {
        let (mut live, mut uses) = (vec![false; graph.nodes.len()], vec![0; graph.nodes.len()]);
        for store in &graph.stores {
            live[store.node.index()] = true;
            uses[store.node.index()] += 1;
        }
        let mut read = Vec::new();
        for id in (0..graph.nodes.len()).rev() {
            if !live[id] {
                continue;
            }
            if let Op::Input { operand, .. } = graph.nodes[id].op {
                read.push(operand);
            }
            for input in &graph.nodes[id].inputs {
                live[input.index()] = true;
                uses[input.index()] += 1;
            }
        }
        let stored = |operand: &u32| graph.stores.iter().any(|store| store.operand == *operand);
        read.retain(stored);
        Self { live, uses, read_and_stored: read }
    }

    /// Whether anything that is stored depends on it.
    pub(super) fn is_live(&self, id: usize) -> bool {
        self.live[id]
    }

    /// Number of live nodes and stores that read it.
    pub(super) fn uses(&self, id: usize) -> usize {
        self.uses[id]
    }

    /// Whether an operand's old contents are read too: its new contents must wait.
    pub(super) fn is_read_and_stored(&self, operand: u32) -> bool {
        self.read_and_stored.contains(&operand)
    }
}

pub(super) struct Emitter<'g> {
    pub(super) graph: &'g Graph,
    pub(super) liveness: Liveness,
    homes: Vec<Option<Home>>,
    /// Where each tensor is, once emitted.
    views: Vec<Option<View>>,
    /// Whether a tensor was added to its final place and exists nowhere else.
    accumulated: Vec<bool>,
    pub(super) out: Unpacked,
}

/// The kernels of all units.
pub(super) fn emit(graph: &Graph, units: &[Unit]) -> Unpacked {
    let (liveness, mut out) = (Liveness::of(graph), Unpacked::default());
    let homes = destination::homes(graph, &liveness, &mut out);
    let n = graph.nodes.len();
    let mut emitter = Emitter { graph, liveness, homes, views: vec![None; n], accumulated: vec![false; n], out };
    for unit in units {
        match unit {
            Unit::Single(id) => emitter.single(*id),
            Unit::Group(members) => emitter.group(members),
        }
        match unit {
            Unit::Single(id) => emitter.stores(*id, false),
            Unit::Group(members) => members.iter().for_each(|&id| emitter.stores(id, false)),
        }
    }
    for id in 0..n {
        emitter.stores(NodeId::from_index(id), true);
    }
    emitter.out
}

impl Emitter<'_> {
    /// Where a node's tensor is.
    pub(super) fn view(&self, id: NodeId) -> View {
        self.views[id.index()].clone().expect("units come in an order in which every input was emitted")
    }

    /// Where a node is to be computed: its home, or bytes of its own.
    pub(super) fn place(&mut self, id: NodeId) -> Home {
        let ty = &self.graph.node(id).ty;
        let home = self.homes[id.index()].clone().unwrap_or_else(|| destination::fresh(&mut self.out, ty));
        self.views[id.index()] = Some(home.view.clone());
        self.accumulated[id.index()] = home.accumulate;
        home
    }

    /// A copy of a tensor in row-major bytes.
    pub(super) fn materialized(&mut self, view: &View) -> View {
        let shape: Vec<u64> = view.dims.iter().map(|dim| dim.size).collect();
        let to = destination::fresh(&mut self.out, &TensorType::new(view.dtype, &shape)).view;
        self.out.kernels.push(Kernel::Copy { from: view.clone(), to: to.clone() });
        to
    }

    /// Where a tensor is in row-major bytes; a copy if need be.
    pub(super) fn contiguous(&mut self, id: NodeId) -> Location {
        let view = self.view(id);
        if view.is_contiguous() { view.at } else { self.materialized(&view).at }
    }

    fn single(&mut self, id: NodeId) {
        let node = self.graph.node(id);
        match &node.op {
            Op::Input { operand, offset } => {
                self.views[id.index()] = Some(View::of_operand(*operand, *offset, &node.ty));
            }
            Op::Reshape | Op::Transpose { .. } | Op::Slice { .. } => self.movement(id, node),
            Op::Concat { axis } => self.concat(id, node, *axis),
            Op::MatMul { transpose_a, transpose_b } => self.matmul(id, node, *transpose_a, *transpose_b),
            Op::RoutedMatMul { transpose } => self.routed(id, node, *transpose),
            Op::RoutedMatMulGrad => self.routed_gradient(id, node),
            Op::Attention { causal, window } | Op::AttentionGrad { causal, window } => {
                self.attention(id, node, *causal, *window);
            }
            Op::Sum { axis } => self.sum(id, node, *axis as usize),
            Op::Constant(_) if self.is_only_folded(id) => {}
            // The result was stored so.
            Op::Convert if fusion::rounds_result(self.graph, &self.liveness, id.index()) => {
                self.views[id.index()] = Some(self.view(node.inputs[0]));
            }
            Op::Constant(_) | Op::Unary(_) | Op::Binary(_) | Op::Convert => self.group(&[id]),
            Op::Gather
            | Op::ScatterAdd
            | Op::NormStatistics { .. }
            | Op::Normalize
            | Op::NormalizeGradInput { .. }
            | Op::NormalizeGradGain
            | Op::Softmax { .. }
            | Op::SoftmaxGrad
            | Op::CrossEntropy
            | Op::CrossEntropyGrad
            | Op::Positions
            | Op::Powers { .. }
            | Op::TopK
            | Op::TakeAlong
            | Op::AddAlong
            | Op::OwnIndices { .. } => self.rows(id, node),
            Op::OwnPart | Op::Vary | Op::AllReduce | Op::AllGather { .. } | Op::ReduceScatter | Op::AllToAll => {
                unreachable!("graphs of one member have slices, and exchanges stand between pieces of a task")
            }
        }
    }

    /// Whether a constant is read by element-wise nodes only: they hold it themselves.
    fn is_only_folded(&self, id: NodeId) -> bool {
        let live = |index: &usize| self.liveness.is_live(*index);
        let readers = (0..self.graph.nodes.len()).filter(live).map(|index| &self.graph.nodes[index]);
        let mut readers = readers.filter(|node| node.inputs.contains(&id));
        readers.all(|node| fusion::is_elementwise(&node.op)) && self.graph.stores.iter().all(|store| store.node != id)
    }

    fn movement(&mut self, id: NodeId, node: &Node) {
        // Derivatives of attention are where they are wanted already.
        if self.views[id.index()].is_some() {
            return;
        }
        let input = node.inputs[0];
        self.accumulated[id.index()] = self.accumulated[input.index()];
        let derived = destination::derived(node, |input| self.view(input));
        let Some(home) = self.homes[id.index()].clone() else {
            let view =
                derived.unwrap_or_else(|| View::contiguous(self.contiguous(input), node.ty.dtype, &node.ty.shape));
            self.views[id.index()] = Some(view);
            return;
        };
        let is_there = derived.as_ref().is_some_and(|view| view.is_same_as(&home.view));
        if !self.accumulated[id.index()] && !is_there {
            let from =
                derived.unwrap_or_else(|| View::contiguous(self.contiguous(input), node.ty.dtype, &node.ty.shape));
            self.deliver(&from, &home);
        }
        self.accumulated[id.index()] = home.accumulate;
        self.views[id.index()] = Some(home.view);
    }

    fn concat(&mut self, id: NodeId, node: &Node, axis: u32) {
        let home = self.place(id);
        for (input, piece) in destination::pieces(self.graph, node, axis, &home.view) {
            let from = self.view(input);
            if !from.is_same_as(&piece) || self.accumulated[input.index()] != home.accumulate {
                self.deliver(&from, &Home { view: piece, accumulate: home.accumulate });
            }
        }
    }

    /// Writes the stores of a node that its kernel did not write itself; `late` are those that must
    /// wait for all readers.
    fn stores(&mut self, id: NodeId, late: bool) {
        for store in self.graph.stores.iter().filter(|store| store.node == id) {
            if self.liveness.is_read_and_stored(store.operand) != late {
                continue;
            }
            let to = View::of_operand(store.operand, store.offset, &self.graph.node(id).ty);
            let from = self.view(id);
            if !from.is_same_as(&to) || self.accumulated[id.index()] != store.accumulate {
                self.deliver(&from, &Home { view: to, accumulate: store.accumulate });
            }
        }
    }

    /// Copies or adds a tensor to its home.
    fn deliver(&mut self, from: &View, home: &Home) {
        if home.accumulate {
            self.add(from, &home.view);
        } else {
            self.out.kernels.push(Kernel::Copy { from: from.clone(), to: home.view.clone() });
        }
    }

    fn sum(&mut self, id: NodeId, node: &Node, axis: usize) {
        let TensorType { shape, dtype: stored } = &self.graph.node(node.inputs[0]).ty;
        let x = self.contiguous(node.inputs[0]);
        let home = self.place(id);
        self.out.kernels.push(Kernel::Sum(Sum {
            dtype: home.view.dtype,
            stored: *stored,
            outer: shape[..axis].iter().product(),
            reduced: shape[axis],
            inner: shape[axis + 1..].iter().product(),
            x,
            out: home.view.at,
            accumulate: home.accumulate,
        }));
    }

    fn rows(&mut self, id: NodeId, node: &Node) {
        let op = RowOp::of(self.graph, node).expect("only nodes that work on rows come here");
        let large = op.large_inputs().next().map_or(&node.ty, |large| &self.graph.node(node.inputs[large]).ty);
        let width = large.shape.last().copied().unwrap_or(1);
        let (stored, rows) = (large.dtype, large.elements() / width);
        // Of what makes indices, the type of the numbers that it looks at, if it looks at any.
        let dtype = match stored.arithmetic() {
            _ if node.ty.dtype.is_number() => node.ty.dtype,
            DType::I32 => DType::F32,
            other => other,
        };
        let inputs = node.inputs.iter().map(|&input| self.contiguous(input)).collect();
        let home = self.place(id);
        self.out.kernels.push(Kernel::Rows(RowKernel {
            dtype,
            stored,
            result: home.view.dtype,
            op,
            rows,
            width,
            inputs,
            out: home.view.at,
            accumulate: home.accumulate,
        }));
    }
}
