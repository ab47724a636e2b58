//! Slicing: the forward graph of a layer for one slice of the sequence.
//!
//! The second axis of every data tensor is the sequence; from there it is followed through the
//! graph. Positions may mix only causally, in `causal_attention`, or as it is written out: a
//! product that contracts or spreads the sequence of its second factor reads it of all slices up to
//! its own, those of earlier ones carried over, and what such a product spreads over must pass
//! through `causal_softmax`, so that no position sees a later one. Sums over the sequence are
//! allowed on the way to the loss, of which a slice has its share: the loss is the mean over
//! slices, weighted by their lengths.

mod several;

use crate::graph::composed::scaled_sum;
use crate::graph::tape::{Leaf, Tape};
use crate::{Layer, Model};
use pipe_ir::graph::{Binary, Class, Node, Op, TensorType, Unary};
use pipe_ir::ids::NodeId;
use pipe_ir::reference;
use pipe_schedule::ratio::gcd;
use pipe_schedule::schedule::Schedule;
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use std::collections::BTreeMap;

/// Where the sequence lies in a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Along {
    /// The axis of the slice's own positions.
    axis: usize,
    /// An axis of the positions of all slices up to this one, and whether positions after a row's own are zero.
    columns: Option<(usize, bool)>,
}

impl Along {
    /// The same with so many more axes before it.
    fn shifted(self, by: isize) -> Self {
        let to = |axis: usize| axis.saturating_add_signed(by);
        Self { axis: to(self.axis), columns: self.columns.map(|(columns, masked)| (to(columns), masked)) }
    }

    /// The same, where positions after a row's own are no longer zero unless `keeps`.
    fn masked_if(self, keeps: bool) -> Self {
        Self { columns: self.columns.map(|(columns, masked)| (columns, masked && keeps)), ..self }
    }
}

/// How a tensor depends on the sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The same for every slice.
    Same,
    /// Each slice has its own positions.
    Cut(Along),
    /// The whole is the mean of what the slices have.
    Mean,
}

/// Which slice of a sequence.
#[derive(Clone, Copy, Debug)]
struct Slice<'a> {
    /// The number of positions of each slice.
    sizes: &'a [u64],
    index: usize,
}

impl Slice<'_> {
    /// Its positions.
    fn size(self) -> u64 {
        self.sizes[self.index]
    }

    /// Its first position.
    fn start(self) -> u64 {
        self.sizes[..self.index].iter().sum()
    }

    /// Positions of all slices up to this one.
    fn seen(self) -> u64 {
        self.start() + self.size()
    }

    /// Positions of the whole sequence.
    fn length(self) -> u64 {
        self.sizes.iter().sum()
    }

    /// How many slices there are.
    fn count(self) -> u64 {
        self.sizes.len() as u64
    }

    /// The shape of a slice's tensor, from that of the whole.
    fn shape(self, whole: &[u64], along: Along) -> Vec<u64> {
        let mut shape = whole.to_vec();
        shape[along.axis] = self.size();
        if let Some((columns, _)) = along.columns {
            shape[columns] = self.seen();
        }
        shape
    }
}

/// The model of each slice.
///
/// # Errors
/// Data without a sequence, or one that cannot be cut; layers whose positions mix other than causally.
pub(super) fn slices(model: &Model, schedule: &Schedule) -> Result<Vec<Model>, Diagnostics> {
    let sizes = sizes(model, schedule).map_err(|error| vec![*error])?;
    let all = (0..sizes.len()).map(|index| of_model(model, Slice { sizes: &sizes, index }));
    all.collect::<Result<_, _>>().map_err(|error| vec![*error])
}

/// The number of positions of each slice.
fn sizes(model: &Model, schedule: &Schedule) -> Result<Vec<u64>, Box<Diagnostic>> {
    let (count, shares) = (schedule.slices.count(), &schedule.shares);
    let error = |message: String| {
        let error = Diagnostic::error(Code::UncutSequence, model.span, "this model", message);
        Box::new(error.label(schedule.span, format!("{count} slices")))
    };
    let mut length = None;
    for tensor in model.data.iter().filter(|tensor| !tensor.is_key()) {
        let (name, Some(size)) = (&tensor.name, tensor.ty.shape.get(1)) else {
            return Err(error(format!("data `{}` has no second axis, which slices would cut", tensor.name)));
        };
        if *length.get_or_insert(*size) != *size {
            return Err(error(format!("the second axis of data `{name}` has {size} elements, that of others differs")));
        }
    }
    let Some(length) = length else {
        return Err(error("the model has no data, so there is no sequence to cut".into()));
    };
    if shares.is_empty() {
        if length % u64::from(count) != 0 {
            return Err(error(format!(
                "a sequence of {length} positions cannot be cut into {count} slices of equal length"
            )));
        }
        return Ok(vec![length / u64::from(count); count as usize]);
    }
    // Shares add up to at most 10^8.
    let total: u64 = shares.iter().map(|share| u64::from(*share)).sum();
    let parts = |share: &u32| length.saturating_mul(u64::from(*share));
    if shares.iter().any(|share| parts(share) % total != 0) {
        let words: Vec<String> = shares.iter().map(u32::to_string).collect();
        let unit = total / shares.iter().fold(total, |common, share| gcd(common, u64::from(*share)));
        let message = format!("a sequence of {length} positions cannot be cut in proportion to {}", words.join(", "));
        let help = format!("use a length that is a multiple of {unit}, or shares that add up to {length}");
        return Err(Box::new(error(message).help(help)));
    }
    Ok(shares.iter().map(|share| parts(share) / total).collect())
}

fn of_model(model: &Model, slice: Slice<'_>) -> Result<Model, Box<Diagnostic>> {
    let mut cut = Model { layers: Vec::with_capacity(model.layers.len()), ..model.clone() };
    for tensor in cut.data.iter_mut().filter(|tensor| !tensor.is_key()) {
        tensor.ty.shape[1] = slice.size();
    }
    let mut outputs: Vec<State> = Vec::with_capacity(model.layers.len());
    for (index, layer) in model.layers.iter().enumerate() {
        let inputs = layer.inputs.iter().map(|input| outputs[*input]).collect();
        let mut cutting = Cutting { whole: layer, slice, inputs, ..Cutting::new(layer, slice) };
        cutting.run()?;
        let state = cutting.states[layer.output.index()];
        let is_loss = index + 1 == model.layers.len();
        match state {
            State::Mean if !is_loss => return Err(cutting.refuse(layer.output, "a sum over the sequence flows on")),
            State::Cut(along) if is_loss || along.columns.is_some() => {
                return Err(cutting.refuse(layer.output, "the sequence flows out other than as one axis"));
            }
            _ => outputs.push(state),
        }
        cut.layers.push(cutting.finish());
    }
    Ok(cut)
}

/// A layer that is being cut.
struct Cutting<'a> {
    whole: &'a Layer,
    slice: Slice<'a>,
    /// By input of the layer.
    inputs: Vec<State>,
    tape: Tape,
    /// By node of the whole layer: its image, and how it depends on the sequence.
    images: Vec<NodeId>,
    states: Vec<State>,
    /// Images that later slices read, and what they are with all earlier slices before them, by
    /// node of the whole layer.
    carried: Vec<NodeId>,
    joined: BTreeMap<NodeId, NodeId>,
}

type Cut<T> = Result<T, Box<Diagnostic>>;

impl<'a> Cutting<'a> {
    fn new(whole: &'a Layer, slice: Slice<'a>) -> Self {
        let (images, states, carried) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            whole,
            slice,
            inputs: Vec::new(),
            tape: Tape::new(whole.tape.storage()),
            images,
            states,
            carried,
            joined: BTreeMap::new(),
        }
    }

    fn run(&mut self) -> Cut<()> {
        let whole = self.whole;
        for id in whole.tape.ids() {
            let node = whole.tape.node(id);
            let (image, state) = match whole.tape.leaf_of(id) {
                Some(leaf) => self.leaf(leaf, &node.ty),
                None => self.node(id, node)?,
            };
            self.images.push(image);
            self.states.push(state);
        }
        Ok(())
    }

    fn finish(self) -> Layer {
        let names = self.whole.names.iter().map(|(node, name)| (self.images[node.index()], name.clone())).collect();
        let output = self.images[self.whole.output.index()];
        Layer { tape: self.tape, output, names, carried: self.carried, ..self.whole.clone() }
    }

    fn refuse(&self, id: NodeId, reason: &str) -> Box<Diagnostic> {
        let name = self.whole.names.get(&id).map(|name| format!(" at `{name}`")).unwrap_or_default();
        let message = format!("`{}` cannot be cut into slices{name}: {reason}", self.whole.name);
        let error = Diagnostic::error(Code::UncutSequence, self.whole.span, "of this layer", message);
        Box::new(error.help(
            "let positions of the sequence meet only in `causal_attention` (or `causal_softmax`), or use no slices",
        ))
    }

    fn leaf(&mut self, leaf: Leaf, ty: &TensorType) -> (NodeId, State) {
        let state = match leaf {
            // A key of dropouts is the same for all slices.
            Leaf::Data(_) if ty.shape.len() < 2 => State::Same,
            Leaf::Data(_) => State::Cut(Along { axis: 1, columns: None }),
            Leaf::Activation(input) => self.inputs[input],
            Leaf::Weight(_) | Leaf::OutputGradient(_) | Leaf::Past { .. } => State::Same,
        };
        (self.tape.leaf(leaf, self.of(ty, state)), state)
    }

    /// The type of a slice's tensor, from that of the whole.
    fn of(&self, whole: &TensorType, state: State) -> TensorType {
        match state {
            State::Cut(along) => TensorType { dtype: whole.dtype, shape: self.slice.shape(&whole.shape, along) },
            State::Same | State::Mean => whole.clone(),
        }
    }

    fn image(&self, id: NodeId) -> NodeId {
        self.images[id.index()]
    }

    fn state(&self, id: NodeId) -> State {
        self.states[id.index()]
    }

    fn rank(&self, id: NodeId) -> usize {
        self.whole.tape.shape(id).len()
    }

    fn node(&mut self, id: NodeId, node: &Node) -> Cut<(NodeId, State)> {
        let states: Vec<State> = node.inputs.iter().map(|input| self.state(*input)).collect();
        if states.iter().all(|state| *state == State::Same) {
            let inputs = node.inputs.iter().map(|input| self.image(*input)).collect();
            return Ok((self.tape.push(node.op.clone(), inputs, node.ty.clone()), State::Same));
        }
        if states.contains(&State::Mean) {
            return self.mean(id, node, &states);
        }
        match &node.op {
            Op::Binary(function) => self.binary(id, node, *function),
            Op::MatMul { transpose_a, transpose_b } => self.product(id, node, (*transpose_a, *transpose_b)),
            Op::Attention { causal, .. } => self.attention(id, node, &states, *causal),
            Op::CrossEntropy => self.cross_entropy(id, node, &states),
            Op::Concat { axis } => self.concat(id, node, *axis as usize),
            Op::Gather => self.gather(id, node, &states),
            Op::TopK | Op::TakeAlong | Op::AddAlong => self.along(id, node, &states),
            Op::RoutedMatMul { .. } => self.routed(id, node, &states),
            _ => match states[0] {
                State::Cut(along) => self.of_one(id, node, along),
                State::Same | State::Mean => Err(self.refuse(id, "it mixes positions of the sequence")),
            },
        }
    }

    fn push(&mut self, node: &Node, inputs: Vec<NodeId>, along: Along) -> (NodeId, State) {
        let ty = self.of(&node.ty, State::Cut(along));
        (self.tape.push(node.op.clone(), inputs, ty), State::Cut(along))
    }

    /// What is linear in means over slices is such a mean itself.
    fn mean(&mut self, id: NodeId, node: &Node, states: &[State]) -> Cut<(NodeId, State)> {
        let is_linear = match (node.op.class(), &node.op) {
            (_, Op::Binary(Binary::Add | Binary::Sub)) => !states.iter().any(|state| matches!(state, State::Cut(_))),
            (_, Op::Binary(Binary::Mul)) => states.contains(&State::Same),
            (_, Op::Binary(Binary::Div)) => states[1] == State::Same,
            (Class::Sum | Class::View, _) | (_, Op::Unary(Unary::Neg)) => true,
            (Class::Source | Class::Elementwise | Class::Product | Class::Join | Class::Rows, _) => false,
            (Class::Indexed | Class::Exchange, _) => false,
        };
        if !is_linear {
            return Err(self.refuse(id, "it is not linear in a sum over the sequence"));
        }
        let inputs = node.inputs.iter().map(|input| self.image(*input)).collect();
        Ok((self.tape.push(node.op.clone(), inputs, node.ty.clone()), State::Mean))
    }

    /// Operations of one cut tensor, and perhaps of others that are the same for every slice.
    fn of_one(&mut self, id: NodeId, node: &Node, along: Along) -> Cut<(NodeId, State)> {
        let rank = self.rank(node.inputs[0]);
        let is_free = |axis: usize| axis != along.axis && along.columns.is_none_or(|(columns, _)| columns != axis);
        let inputs: Vec<NodeId> = node.inputs.iter().map(|input| self.image(*input)).collect();
        let next = match (node.op.class(), &node.op) {
            (_, Op::Unary(function)) => along.masked_if(reference::unary(*function, 0.0) == 0.0),
            (_, Op::Sum { axis }) if is_free(*axis as usize) => along,
            (_, Op::Sum { axis }) if along.columns == Some((*axis as usize, true)) => Along { columns: None, ..along },
            (_, Op::Sum { axis }) if *axis as usize == along.axis && along.columns.is_none() => {
                let sum = scaled_sum(&mut self.tape, inputs[0], along.axis, self.slice.count());
                return Ok((sum, State::Mean));
            }
            (_, Op::Reshape) => self.reshaped(id, node, along)?,
            (_, Op::Transpose { permutation }) => {
                let to = |axis: usize| permutation.iter().position(|from| *from as usize == axis).unwrap_or(axis);
                Along { axis: to(along.axis), columns: along.columns.map(|(columns, masked)| (to(columns), masked)) }
            }
            (_, Op::Vary | Op::AllReduce | Op::OwnIndices { .. }) => along,
            (_, Op::AllGather { .. }) => along.shifted(1),
            (_, Op::OwnPart | Op::AllToAll) if is_free(0) => along,
            (_, Op::ReduceScatter) if is_free(0) => along.shifted(-1),
            (_, Op::Slice { axis, .. }) if is_free(*axis as usize) => along,
            (_, Op::Softmax { causal: true }) if rank >= 2 => match along.columns {
                Some((columns, _)) if columns == rank - 1 && along.axis == rank - 2 => {
                    Along { columns: Some((columns, true)), ..along }
                }
                _ if is_free(rank - 1) && is_free(rank - 2) => along.masked_if(false),
                _ => return Err(self.refuse(id, "`causal_softmax` needs a row and a column for each position")),
            },
            // Rows of zeros do not stay zero: a softmax makes all their elements alike.
            (Class::Rows, _) if is_free(rank - 1) => along.masked_if(false),
            _ => return Err(self.refuse(id, "every position would depend on later ones")),
        };
        Ok(self.push(node, inputs, next))
    }

    fn reshaped(&self, id: NodeId, node: &Node, along: Along) -> Cut<Along> {
        let whole = self.whole.tape.shape(node.inputs[0]);
        let to = |axis: usize| {
            let before: u64 = whole[..axis].iter().product();
            let found = (0..node.ty.shape.len()).find(|other| {
                node.ty.shape[..*other].iter().product::<u64>() == before && node.ty.shape[*other] == whole[axis]
            });
            found.ok_or_else(|| self.refuse(id, "`reshape` joins the sequence with another axis, or splits it"))
        };
        let columns =
            along.columns.map(|(columns, masked)| to(columns).map(|columns| (columns, masked))).transpose()?;
        Ok(Along { axis: to(along.axis)?, columns })
    }
}
