//! The syntax tree of layers and models.

use super::{Call, Expr, Let, Name, Section};
use crate::source::Span;
use pipe_ir::graph::DType;

/// `layer name(parameters) { ... }`.
pub type Layer = Section<LayerItem>;

/// `split 1 of 3`: along which axis the devices that stand behind one device divide a weight.
#[derive(Clone, PartialEq, Debug)]
pub struct WeightSplit {
    /// Which axis.
    pub axis: Expr,
    /// In how many blocks of equal size the axis is, each of which is divided. One where nothing is said.
    pub blocks: Option<Expr>,
}

/// A line of a layer.
#[derive(Clone, PartialEq, Debug)]
pub enum LayerItem {
    /// `input x`: a tensor that flows from another layer.
    Input {
        /// What it is called here.
        name: Name,
    },
    /// `data tokens: i32[rows, sequence]`: a tensor of the microbatch's data.
    Data {
        /// Which one: `tokens` or `targets`.
        name: Name,
        /// Type of its elements.
        dtype: DType,
        /// Sizes, outermost first.
        shape: Vec<Expr>,
        /// What must hold for the layer to have it.
        given: Option<Expr>,
        /// The whole line.
        span: Span,
    },
    /// `weight gain: [hidden] = ones`: a trained tensor of numbers.
    Weight {
        /// What it is called.
        name: Name,
        /// Sizes, outermost first.
        shape: Vec<Expr>,
        /// Along which axis devices divide it, if they do.
        split: Option<Box<WeightSplit>>,
        /// Its elements before the first step.
        init: Init,
        /// Where it says that it is not trained.
        frozen: Option<Span>,
        /// Whether it is trained where its layer is frozen.
        trained: bool,
        /// What must hold for the layer to have it.
        given: Option<Expr>,
        /// The whole line.
        span: Span,
    },
    /// `part experts`: what follows, up to the next one, is a part of the layer.
    Part {
        /// What the part is called.
        name: Name,
        /// The whole line.
        span: Span,
    },
    /// A tensor or a number.
    Let(Let),
    /// `output y`, `output y, gates`: the tensors that flow to later layers.
    Output {
        /// Each of them; at least one.
        values: Vec<Expr>,
        /// The whole line.
        span: Span,
    },
    /// `loss l`: the number that training makes small; ends a model.
    Loss {
        /// The tensor, of shape `[]`.
        value: Expr,
        /// What must hold for the line to count.
        given: Option<Expr>,
        /// The whole line.
        span: Span,
    },
}

/// What a weight is before the first step.
#[derive(Clone, PartialEq, Debug)]
pub enum Init {
    /// All 0.
    Zeros,
    /// All 1.
    Ones,
    /// Normally distributed around 0.
    Normal {
        /// Standard deviation, a number.
        deviation: Expr,
    },
}

/// `model name(parameters) { ... }`.
pub type Model = Section<ModelItem>;

/// A line of a model.
#[derive(Clone, PartialEq, Debug)]
pub enum ModelItem {
    /// A number, or a layer that takes what flows from the one before: only names tell them apart.
    Let(Let),
    /// The next layer.
    Layer(LayerUse),
    /// `repeat blocks { ... }`.
    Repeat {
        /// How often.
        count: Expr,
        /// What is repeated.
        body: Vec<Self>,
        /// The whole item.
        span: Span,
    },
    /// `for k in 0..depth { ... }`.
    For {
        /// What counts.
        variable: Name,
        /// The first number.
        start: Expr,
        /// The number behind the last one.
        end: Expr,
        /// What is repeated.
        body: Vec<Self>,
    },
}

/// The name of a layer's output: `left`, or `skip[k]`.
#[derive(Clone, PartialEq, Debug)]
pub struct LayerName {
    /// What it is called.
    pub name: Name,
    /// Which one of several that are called so.
    pub index: Option<Expr>,
    /// All of it.
    pub span: Span,
}

/// `let x = head(hidden, vocab) from y, z`: a layer in a model. The names and what flows in may be missing.
#[derive(Clone, PartialEq, Debug)]
pub struct LayerUse {
    /// What its outputs are called, in their order. None where it has no name, and one if that has an index.
    pub names: Vec<LayerName>,
    /// The layer with its arguments.
    pub call: Call,
    /// The layers whose outputs flow in; empty where nothing is said.
    pub sources: Vec<LayerName>,
    /// Weights that are those of layers before it.
    pub ties: Vec<Tie>,
    /// Whether none of its weights is trained, but for those that say so.
    pub frozen: Option<FrozenLayer>,
}

/// `frozen if rank > 0`, behind a layer of a model.
#[derive(Clone, PartialEq, Debug)]
pub struct FrozenLayer {
    /// What must hold; nothing where it always is.
    pub given: Option<Expr>,
}

/// `table = words.table`: a weight that is the one of another layer.
#[derive(Clone, PartialEq, Debug)]
pub struct Tie {
    /// The layer's own name for it.
    pub weight: Name,
    /// The layer that has it.
    pub layer: LayerName,
    /// What it is called there.
    pub owner: Name,
    /// All of it.
    pub span: Span,
}
