//! Reverse-mode differentiation of a stage, and to which half of the backward pass each new node belongs.
//!
//! Rule of the halves: a node belongs to `W` if it takes part in the derivative by a tensor that
//! depends on weights alone; every other node of the backward pass carries a gradient towards the
//! stage's input and belongs to `B` (arXiv 2401.10241, section 2). Gradients of one tensor are
//! added from its last use to its first, always. The sum has the type of the tensor, but where
//! weights were rounded to be multiplied, their gradients are not.

use super::derivative::{Contribution, derivative};
use super::tape::{Leaf, Tape};
use pipe_ir::graph::{Binary, DType};
use pipe_ir::ids::NodeId;

/// Which pass computes a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Half {
    /// The forward pass.
    Forward,
    /// The backward pass for the input.
    Input,
    /// The backward pass for the weights.
    Weight,
}

/// A stage's forward nodes followed by those of its backward pass.
#[derive(Clone, Debug)]
pub(crate) struct Differentiated {
    /// All nodes.
    pub tape: Tape,
    /// Which pass each belongs to.
    pub halves: Vec<Half>,
    /// The gradient of each forward node, where it has one.
    pub gradients: Vec<Option<NodeId>>,
}

/// What a forward node depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Dependence {
    weight: bool,
    activation: bool,
    data: bool,
}

impl Dependence {
    fn has_gradient(self) -> bool {
        self.weight || self.activation
    }

    fn half_of_gradient(self) -> Half {
        if self.activation || self.data { Half::Input } else { Half::Weight }
    }
}

/// Where the backward pass begins: a gradient of an output, made by another stage or by the loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seed {
    /// The forward node.
    pub of: NodeId,
    /// A summand of its gradient.
    pub gradient: NodeId,
}

/// Differentiates a stage by its inputs and its weights. `seeds` makes the gradients of its
/// outputs; those of one output are added in their order, before the gradients of its uses in the
/// stage.
pub(crate) fn differentiate(mut tape: Tape, seeds: impl FnOnce(&mut Tape) -> Vec<Seed>) -> Differentiated {
    let dependences = dependences(&tape);
    let n_forward = tape.len();
    let seeds = seeds(&mut tape);
    let (halves, gradients) = (vec![Half::Forward; n_forward], vec![None; n_forward]);
    let mut result = Differentiated { tape, halves, gradients };
    result.claim(Half::Input);
    let mut contributions: Vec<Vec<Contribution>> = vec![Vec::new(); n_forward];
    for seed in seeds {
        contributions[seed.of.index()].push(Contribution::whole(seed.gradient));
    }
    for index in (0..n_forward).rev() {
        let received = std::mem::take(&mut contributions[index]);
        if received.is_empty() || !dependences[index].has_gradient() {
            continue;
        }
        let id = NodeId::from_index(index);
        let half = dependences[index].half_of_gradient();
        let ty = result.tape.ty(id).dtype;
        let ty = if half == Half::Weight { ty.arithmetic() } else { ty };
        let gradient = combine(&mut result.tape, id, ty, &received);
        result.claim(half);
        result.require(gradient, half);
        result.gradients[index] = Some(gradient);
        let inputs = result.tape.node(id).inputs.clone();
        for (position, input) in inputs.into_iter().enumerate() {
            let dependence = dependences[input.index()];
            if dependence.has_gradient() {
                let contribution = derivative(&mut result.tape, id, position, gradient);
                result.claim(dependence.half_of_gradient());
                if let Some(contribution) = contribution {
                    result.require(contribution.node, dependence.half_of_gradient());
                    contributions[input.index()].push(contribution);
                }
            }
        }
    }
    result.settle();
    result
}

impl Differentiated {
    /// Number of forward nodes; the backward ones follow.
    pub(crate) fn n_forward(&self) -> usize {
        self.gradients.len()
    }

    /// Which pass a node belongs to.
    pub(crate) fn half(&self, id: NodeId) -> Half {
        self.halves[id.index()]
    }

    /// Appends zeros of the shape of a node, for a tensor that the output does not depend on.
    pub(crate) fn add_zeros_like(&mut self, id: NodeId) -> NodeId {
        let shape = self.tape.shape(id).to_vec();
        let zeros = self.tape.constant(0.0, &shape);
        let zeros = self.tape.converted(zeros, self.tape.ty(id).dtype);
        self.claim(Half::Input);
        zeros
    }

    /// Says which half the nodes belong to that were added since the last call.
    fn claim(&mut self, half: Half) {
        self.halves.resize(self.tape.len(), half);
    }

    /// Makes sure that a node, which may be shared with the other half, is there when this half needs it.
    fn require(&mut self, id: NodeId, half: Half) {
        let known = &mut self.halves[id.index()];
        *known = (*known).min(half);
    }

    /// What `B` computes with must not wait for `W`.
    fn settle(&mut self) {
        for id in self.tape.ids().rev() {
            if self.half(id) == Half::Input {
                for input in self.tape.node(id).inputs.clone() {
                    self.require(input, Half::Input);
                }
            }
        }
    }
}

fn dependences(tape: &Tape) -> Vec<Dependence> {
    let mut all: Vec<Dependence> = Vec::with_capacity(tape.len());
    for id in tape.ids() {
        let mut own = Dependence::default();
        match tape.leaf_of(id) {
            Some(Leaf::Weight(_)) => own.weight = true,
            Some(Leaf::Activation(_) | Leaf::Past { .. }) => own.activation = true,
            Some(Leaf::Data(_)) => own.data = true,
            Some(Leaf::OutputGradient(_)) | None => {}
        }
        for input in &tape.node(id).inputs {
            let other = all[input.index()];
            own.weight |= other.weight;
            own.activation |= other.activation;
            own.data |= other.data;
        }
        all.push(own);
    }
    all
}

/// The sum of what the uses of a tensor contribute to its gradient, as a tensor of type `to`.
fn combine(tape: &mut Tape, of: NodeId, to: DType, received: &[Contribution]) -> NodeId {
    if let Some(joined) = join_parts(tape, of, to, received) {
        return joined;
    }
    let whole: Vec<NodeId> = received
        .iter()
        .map(|contribution| {
            let all = join_parts(tape, of, to.arithmetic(), std::slice::from_ref(contribution));
            all.unwrap_or_else(|| tape.computed(contribution.node))
        })
        .collect();
    let sum = whole.into_iter().reduce(|sum, next| tape.binary(Binary::Add, sum, next));
    tape.converted(sum.expect("a gradient has contributions"), to)
}

/// Gradients of disjoint slices along one axis become one tensor without any addition; gaps are zero.
fn join_parts(tape: &mut Tape, of: NodeId, to: DType, received: &[Contribution]) -> Option<NodeId> {
    let shape = tape.shape(of).to_vec();
    let axis = received.first()?.part?.axis;
    let mut parts: Vec<(u64, u64, NodeId)> = Vec::with_capacity(received.len());
    for contribution in received {
        let part = contribution.part.filter(|part| part.axis == axis)?;
        parts.push((part.start, tape.shape(contribution.node)[axis], contribution.node));
    }
    parts.sort_unstable();
    let mut pieces = Vec::with_capacity(parts.len());
    let mut reached = 0;
    for (start, size, node) in parts {
        let gap = start.checked_sub(reached)?;
        push_zeros(tape, &mut pieces, &shape, axis, gap);
        pieces.push(node);
        reached = start + size;
    }
    push_zeros(tape, &mut pieces, &shape, axis, shape[axis] - reached);
    pieces.iter_mut().for_each(|piece| *piece = tape.converted(*piece, to));
    Some(tape.concat(&pieces, axis))
}

fn push_zeros(tape: &mut Tape, pieces: &mut Vec<NodeId>, shape: &[u64], axis: usize, size: u64) {
    if size > 0 {
        let mut gap = shape.to_vec();
        gap[axis] = size;
        pieces.push(tape.constant(0.0, &gap));
    }
}
