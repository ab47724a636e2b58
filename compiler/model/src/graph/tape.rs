//! Tapes: the graph of a layer or a stage while it is built, with symbolic leaves instead of operands.
//!
//! Nodes are those of [`pipe_ir::graph`]; `Op::Input` counts the tape's leaves. Equal nodes are made once. The builders
//! here trust their callers with shapes: [`crate::functions`] has checked what a user wrote, and derivatives of fitting
//! shapes fit.

use pipe_ir::graph::{Binary, DType, Node, Op, TensorType, Unary, broadcast};
use pipe_ir::ids::NodeId;
use pipe_ir::text;
use pipe_ir::units::Bytes;
use std::collections::BTreeMap;

/// Where a tape's inputs come from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Leaf {
    /// A weight, counted over the layer or the stage.
    Weight(usize),
    /// A tensor of the microbatch's data, counted over the model.
    Data(usize),
    /// A tensor that flows in, counted over those of the layer or the stage.
    Activation(usize),
    /// What an earlier slice of the microbatch carries over: which of the tensors that the layer or
    /// the stage carries, and how many slices back.
    Past {
        /// Which tensor.
        port: usize,
        /// Slices back.
        behind: u32,
    },
    /// A gradient of a tensor that flows out, counted over the stage.
    OutputGradient(usize),
}

/// Nodes in evaluation order, and what the leaves among them stand for.
#[derive(Clone, Debug)]
pub struct Tape {
    /// Type in which numbers are computed with.
    precision: DType,
    /// Type of numbers that are kept, sent or multiplied: the same, or bfloat16.
    storage: DType,
    nodes: Vec<Node>,
    leaves: Vec<Leaf>,
    known: BTreeMap<Key, NodeId>,
    /// Along which axis the members of a device divide a tensor, where the text says so.
    split: BTreeMap<NodeId, usize>,
}

/// What makes two nodes the same: operation with attributes, inputs, shape.
type Key = (String, Vec<NodeId>, Vec<u64>);

impl Tape {
    /// An empty tape of numbers in single or double precision, or of bfloat16 that is computed with
    /// in single precision.
    pub const fn new(storage: DType) -> Self {
        Self {
            precision: storage.arithmetic(),
            storage,
            nodes: Vec::new(),
            leaves: Vec::new(),
            known: BTreeMap::new(),
            split: BTreeMap::new(),
        }
    }

    /// Type in which numbers are computed with.
    pub const fn precision(&self) -> DType {
        self.precision
    }

    /// Type of numbers that are kept, sent or multiplied.
    pub const fn storage(&self) -> DType {
        self.storage
    }

    /// Lets the members of a device divide a tensor along an axis.
    pub(crate) fn split(&mut self, x: NodeId, axis: usize) {
        self.split.insert(x, axis);
    }

    /// Along which axis the members of a device divide a tensor, where the text says so.
    pub(crate) fn split_of(&self, x: NodeId) -> Option<usize> {
        self.split.get(&x).copied()
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// All nodes in evaluation order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The ids of all nodes in evaluation order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = NodeId> + use<> {
        (0..self.nodes.len()).map(NodeId::from_index)
    }

    /// The node with this id.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// Type of a node.
    pub fn ty(&self, id: NodeId) -> &TensorType {
        &self.node(id).ty
    }

    /// Shape of a node.
    pub fn shape(&self, id: NodeId) -> &[u64] {
        &self.ty(id).shape
    }

    /// What a node stands for, if it is a leaf.
    pub fn leaf_of(&self, id: NodeId) -> Option<Leaf> {
        match &self.node(id).op {
            Op::Input { operand, .. } => Some(self.leaves[*operand as usize]),
            _ => None,
        }
    }

    /// The node of a leaf; the same one for the same leaf.
    pub fn leaf(&mut self, leaf: Leaf, ty: TensorType) -> NodeId {
        let position = self.leaves.iter().position(|known| *known == leaf).unwrap_or_else(|| {
            self.leaves.push(leaf);
            self.leaves.len() - 1
        });
        let operand = u32::try_from(position).expect("a tape has far fewer than 2^32 leaves");
        self.push(Op::Input { operand, offset: Bytes::ZERO }, Vec::new(), ty)
    }

    /// Appends a node, or finds the equal one that is there already.
    pub fn push(&mut self, op: Op, inputs: Vec<NodeId>, ty: TensorType) -> NodeId {
        let node = Node { op, inputs, ty };
        let key = (text::operation(&node), node.inputs.clone(), node.ty.shape.clone());
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let id = NodeId::from_index(self.nodes.len());
        self.nodes.push(node);
        self.known.insert(key, id);
        id
    }

    /// The number of the tape's precision that is nearest to a number, repeated to a shape.
    pub fn constant(&mut self, value: f64, shape: &[u64]) -> NodeId {
        let value = self.precision.nearest(value);
        self.shaped(Op::Constant(value), &[], shape)
    }

    /// An element-wise function of one tensor.
    pub fn unary(&mut self, function: Unary, x: NodeId) -> NodeId {
        let ty = self.ty(x).clone();
        self.push(Op::Unary(function), vec![x], ty)
    }

    /// An element-wise function of two tensors whose shapes broadcast.
    pub fn binary(&mut self, function: Binary, a: NodeId, b: NodeId) -> NodeId {
        let shape = broadcast(self.shape(a), self.shape(b)).expect("callers have checked that the shapes broadcast");
        self.shaped(Op::Binary(function), &[a, b], &shape)
    }

    /// A tensor times a number.
    pub fn scale(&mut self, x: NodeId, factor: f64) -> NodeId {
        let factor = self.constant(factor, &[]);
        self.binary(Binary::Mul, x, factor)
    }

    /// A tensor plus a number.
    pub fn shift(&mut self, x: NodeId, by: f64) -> NodeId {
        let by = self.constant(by, &[]);
        self.binary(Binary::Add, x, by)
    }

    /// a · b, or with either transposed as in [`Op::MatMul`].
    pub fn matmul(&mut self, a: NodeId, transpose_a: bool, b: NodeId, transpose_b: bool) -> NodeId {
        let mut shape = self.shape(a).to_vec();
        let rank = shape.len();
        if transpose_a {
            shape.swap(rank - 2, rank - 1);
        }
        let columns = self.shape(b).len() - if transpose_b { 2 } else { 1 };
        shape[rank - 1] = self.shape(b)[columns];
        self.shaped(Op::MatMul { transpose_a, transpose_b }, &[a, b], &shape)
    }

    /// The sum over one axis, which keeps its place with size 1.
    pub fn sum(&mut self, x: NodeId, axis: usize) -> NodeId {
        let mut shape = self.shape(x).to_vec();
        shape[axis] = 1;
        self.shaped(Op::Sum { axis: to_u32(axis) }, &[x], &shape)
    }

    /// The same elements under another shape. Reshapes do not pile up.
    pub fn reshape(&mut self, x: NodeId, shape: &[u64]) -> NodeId {
        let source = match self.node(x) {
            Node { op: Op::Reshape, inputs, .. } => inputs[0],
            _ => x,
        };
        if self.shape(source) == shape {
            return source;
        }
        let ty = TensorType { dtype: self.ty(source).dtype, shape: shape.to_vec() };
        self.push(Op::Reshape, vec![source], ty)
    }

    /// Dimension i of the result is dimension `permutation[i]` of x.
    pub fn transpose(&mut self, x: NodeId, permutation: &[u32]) -> NodeId {
        if permutation.iter().enumerate().all(|(to, from)| to == *from as usize) {
            return x;
        }
        let shape = permutation.iter().map(|from| self.shape(x)[*from as usize]).collect();
        let ty = TensorType { dtype: self.ty(x).dtype, shape };
        self.push(Op::Transpose { permutation: permutation.to_vec() }, vec![x], ty)
    }

    /// `size` elements of one axis, from `start` on.
    pub fn slice(&mut self, x: NodeId, axis: usize, start: u64, size: u64) -> NodeId {
        if self.shape(x)[axis] == size {
            return x;
        }
        let mut ty = self.ty(x).clone();
        ty.shape[axis] = size;
        self.push(Op::Slice { axis: to_u32(axis), start }, vec![x], ty)
    }

    /// Tensors joined along one axis.
    pub fn concat(&mut self, parts: &[NodeId], axis: usize) -> NodeId {
        if let [only] = parts {
            return *only;
        }
        let mut ty = self.ty(parts[0]).clone();
        ty.shape[axis] = parts.iter().map(|part| self.shape(*part)[axis]).sum();
        self.push(Op::Concat { axis: to_u32(axis) }, parts.to_vec(), ty)
    }

    /// Rows of a table.
    pub fn gather(&mut self, table: NodeId, indices: NodeId) -> NodeId {
        let mut shape = self.shape(indices).to_vec();
        shape.push(self.shape(table)[1]);
        self.shaped(Op::Gather, &[table, indices], &shape)
    }

    /// Normalisation over the last dimension: layer normalisation with a bias, and by the root mean
    /// square without one.
    pub fn normalize(&mut self, x: NodeId, gain: NodeId, bias: Option<NodeId>, epsilon: f64) -> NodeId {
        let shape = self.shape(x).to_vec();
        let mut pair = shape.clone();
        pair[shape.len() - 1] = 2;
        let epsilon = self.precision.nearest(epsilon);
        let statistics = self.shaped(Op::NormStatistics { epsilon, rms: bias.is_none() }, &[x], &pair);
        let inputs: Vec<NodeId> = [x, statistics, gain].into_iter().chain(bias).collect();
        self.shaped(Op::Normalize, &inputs, &shape)
    }

    /// 1 where a tensor is more than 0, else 0.
    pub fn step(&mut self, x: NodeId) -> NodeId {
        self.unary(Unary::Step, x)
    }

    /// 1 less a tensor.
    pub fn complement(&mut self, x: NodeId) -> NodeId {
        let one = self.constant(1.0, &[]);
        self.binary(Binary::Sub, one, x)
    }

    /// The columns of the largest elements of each row, the largest first.
    pub fn top_k(&mut self, x: NodeId, k: u64) -> NodeId {
        let mut shape = self.shape(x).to_vec();
        let last = shape.len() - 1;
        shape[last] = k;
        self.push(Op::TopK, vec![x], TensorType::new(DType::I32, &shape))
    }

    /// Elements of each row, by their columns.
    pub fn take_along(&mut self, x: NodeId, columns: NodeId) -> NodeId {
        let shape = self.shape(columns).to_vec();
        self.shaped(Op::TakeAlong, &[x, columns], &shape)
    }

    /// The sum of a tensor over all members.
    pub fn all_reduce(&mut self, x: NodeId) -> NodeId {
        let x = self.computed(x);
        let shape = self.shape(x).to_vec();
        self.shaped(Op::AllReduce, &[x], &shape)
    }

    /// A tensor of every member, in their order along a new first axis.
    pub fn all_gather(&mut self, x: NodeId, members: u64, shared: bool) -> NodeId {
        let x = self.computed(x);
        let shape = [&[members], self.shape(x)].concat();
        self.shaped(Op::AllGather { members, shared }, &[x], &shape)
    }

    /// Each member's own part, along the first axis, of the sum over all members.
    pub fn reduce_scatter(&mut self, x: NodeId) -> NodeId {
        let x = self.computed(x);
        let shape = self.shape(x)[1..].to_vec();
        self.shaped(Op::ReduceScatter, &[x], &shape)
    }

    /// What each member has for this one, along the first axis.
    pub fn all_to_all(&mut self, x: NodeId) -> NodeId {
        let x = self.computed(x);
        let shape = self.shape(x).to_vec();
        self.shaped(Op::AllToAll, &[x], &shape)
    }

    /// The part of the member that runs, along the first axis, which then has size 1.
    pub fn own_part(&mut self, x: NodeId) -> NodeId {
        let mut ty = self.ty(x).clone();
        ty.shape[0] = 1;
        self.push(Op::OwnPart, vec![x], ty)
    }

    /// A tensor that every member has, where they go on with different ones.
    pub fn vary(&mut self, x: NodeId) -> NodeId {
        let ty = self.ty(x).clone();
        self.push(Op::Vary, vec![x], ty)
    }

    /// Numbers of a given shape, for operations that need no inference of their own.
    pub fn shaped(&mut self, op: Op, inputs: &[NodeId], shape: &[u64]) -> NodeId {
        self.push(op, inputs.to_vec(), TensorType::new(self.precision, shape))
    }

    /// Copies a tape to the end of this one and says what became of each node. `leaf` translates leaves.
    pub fn append(
        &mut self,
        other: &Self,
        mut leaf: impl FnMut(&mut Self, Leaf, &TensorType) -> NodeId,
    ) -> Vec<NodeId> {
        let mut images: Vec<NodeId> = Vec::with_capacity(other.len());
        for id in other.ids() {
            let node = other.node(id);
            let image = match other.leaf_of(id) {
                Some(found) => leaf(self, found, &node.ty),
                None => {
                    let inputs = node.inputs.iter().map(|input| images[input.index()]).collect();
                    self.push(node.op.clone(), inputs, node.ty.clone())
                }
            };
            images.push(image);
        }
        for (node, axis) in &other.split {
            self.split.insert(images[node.index()], *axis);
        }
        images
    }
}

/// Whether a type holds numbers that have gradients.
pub(crate) fn is_number(ty: &TensorType) -> bool {
    ty.dtype.is_number()
}

/// An axis as the IR writes it.
pub(crate) fn to_u32(axis: usize) -> u32 {
    u32::try_from(axis).expect("shapes have few dimensions")
}
