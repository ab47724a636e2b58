//! The syntax tree: what the user wrote, every node with its place. Nothing here knows what a name means.

mod expr;
mod model;
mod pipeline;
mod schedule;
mod step_task;
mod swap;
mod weights;

pub use expr::{Argument, BinaryOp, Call, Decimal, Expr, ExprKind, UnaryOp};
pub use model::{FrozenLayer, Init, Layer, LayerItem, LayerName, LayerUse, Model, ModelItem, Tie, WeightSplit};
pub use pipeline::{DataFile, Limit, Pipeline, PipelineItem, Recomputed, Setting, SettingValue, Subject, TaskNumber};
pub use schedule::{
    Block, BlockTask, FrozenStages, Function, FunctionBody, Lane, Order, PartItem, PartList, Reads, Schedule,
    ScheduleItem, SlotDuration, StageParts, Statement, Swap,
};
pub use step_task::{Carried, StepTaskKind};
pub use swap::SwapKind;
pub use weights::Weights;

use crate::source::{FileId, Span};

/// One file.
#[derive(Clone, PartialEq, Debug)]
pub struct File {
    /// Which text it was parsed from.
    pub id: FileId,
    /// In the order of the text.
    pub declarations: Vec<Declaration>,
}

/// What may stand at the top of a file.
#[derive(Clone, PartialEq, Debug)]
pub enum Declaration {
    /// Makes the declarations of another file visible.
    Import(Import),
    /// `param width = 256`: a number that `--set` can override.
    Parameter(Parameter),
    /// `let homes = [0, 2, 3, 1]`: what several declarations use.
    Let(Let),
    /// `let warmup(s) = min(D - 1 - s, M)`: the same with parameters.
    Function(Function),
    /// Which device does what in which order.
    Schedule(Schedule),
    /// A piece of a model: weights and tensor operations.
    Layer(Layer),
    /// A chain of layers.
    Model(Model),
    /// A model bound to devices and a schedule.
    Pipeline(Pipeline),
}

/// A declaration whose lines stand between braces.
#[derive(Clone, PartialEq, Debug)]
pub struct Section<Item> {
    /// Lines of `///` above it.
    pub doc: String,
    /// What it is called; that of a schedule may begin with a digit.
    pub name: Name,
    /// What callers may set. A pipeline has none.
    pub parameters: Vec<Parameter>,
    /// Its lines, in the order of the text.
    pub items: Vec<Item>,
    /// The whole declaration.
    pub span: Span,
}

/// A name at a place: of a declaration, or of a use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Name {
    /// As written.
    pub text: String,
    /// Where.
    pub span: Span,
}

/// `import std.models.gpt` or `import "parts/mlp.pipe"`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Import {
    /// What is imported.
    pub path: ImportPath,
    /// The path, without the keyword.
    pub span: Span,
}

/// Where an import looks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ImportPath {
    /// A file of the standard library: `models.gpt`, without the leading `std.`.
    Standard(String),
    /// A path relative to the folder of the importing file.
    Relative(String),
}

/// A parameter of a file, a schedule, a layer or a model.
#[derive(Clone, PartialEq, Debug)]
pub struct Parameter {
    /// Lines of `///` above it.
    pub doc: String,
    /// What it is called.
    pub name: Name,
    /// Its value where the caller gives none. Parameters of a file always have one.
    pub default: Option<Expr>,
}

/// `let name = value`.
#[derive(Clone, PartialEq, Debug)]
pub struct Let {
    /// Lines of `///` above it.
    pub doc: String,
    /// What it is called.
    pub name: Name,
    /// What it stands for.
    pub value: Expr,
    /// The file whose numbers it stands for, if it says so: once that is read, `value` has them.
    pub file: Option<Name>,
}
