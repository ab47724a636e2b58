//! Models: from declared layers to the tensor graphs of stages.
//!
//! A model is a list of [`Layer`]s, each with its forward graph and after those that it reads.
//! [`partition()`] cuts the list into stages; [`stages()`] differentiates every stage and returns
//! the executables and values that lowering works with. [`stage_set()`] does all of it for a
//! pipeline, and stands in for the model where a schedule is on its own.

mod costs;
mod data_files;
pub mod frozen;
mod graph;
mod identity;
mod language;
mod matrices;
mod members;
mod mixed;
mod partition;
pub mod pipeline;
pub mod prediction;
mod rows;
mod slicing;
mod stages;
#[cfg(test)]
mod tests;
pub mod transformer;

pub use costs::{costs, operations};
pub use graph::tape::{Leaf, Tape};
pub use language::{MAX_LAYERS, elaborate, functions};
pub use partition::partition;
pub use stages::symbolic::{abstract_of, abstract_stages, add_weights};
pub use stages::{Kinds, StageRequest, pieces, saved_bytes, stage_set, stages, symbolic};

use pipe_ir::graph::{DType, TensorType};
use pipe_ir::ids::NodeId;
use pipe_ir::program::Body;
use pipe_ir::value::{DROPOUT, Init, Split};
use pipe_schedule::schedule::Schedule;
use pipe_schedule::stage_graph::StageGraph;
use pipe_schedule::window::Window;
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::expr::arguments::Values;
use pipe_syntax::files::Files;
use pipe_syntax::source::Span;
use pipeline::{Elaborated, ModelCall, Pipeline};
use stage_set::StageSet;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// What the devices of a pipeline run. A schedule without a model gets abstract stages.
///
/// # Errors
/// Everything that is wrong with the model, or that it has too few layers.
pub fn stage_set(files: &Files, elaborated: &Elaborated) -> Result<StageSet, Diagnostics> {
    stage_set_of(files, elaborated, &Kinds::of_schedule(&elaborated.schedule))
}

/// The same for these kinds of tasks, by [`pipe_ir::ids::StageId`], whatever the schedule uses.
///
/// # Errors
/// Likewise.
pub fn stage_set_of(files: &Files, elaborated: &Elaborated, kinds: &[Kinds]) -> Result<StageSet, Diagnostics> {
    let schedule = &elaborated.schedule;
    let pipeline = elaborated.pipeline.as_ref();
    if let Some(transformer) = pipeline.and_then(|pipeline| pipeline.transformer.as_ref()) {
        return transformer::stage_set(transformer, schedule, kinds);
    }
    let Some(call) = pipeline.and_then(|pipeline| pipeline.model.as_ref()) else {
        let mut set = abstract_of(kinds, schedule);
        add_weights(&mut set, schedule);
        return Ok(set);
    };
    let without = ModelCall { drops: false, ..call.clone() };
    let call = if schedule.frozen.is_forward_only() { &without } else { call };
    let mut model = elaborate(files, call, &elaborated.parameters)?;
    let layers = layers_of(&model, call, schedule).map_err(|found| vec![found])?;
    if let Some(unfilled) = pipeline.and_then(|pipeline| data_files::unfilled(&model, pipeline)) {
        return Err(vec![unfilled]);
    }
    let training = pipeline.and_then(|pipeline| pipeline.training.as_ref());
    if let Some(untrained) = training.and_then(|_| untrained(&model)) {
        return Err(vec![untrained]);
    }
    frozen::freeze(&mut model, &layers, schedule).map_err(|found| vec![found])?;
    let optimizer = training.map(|training| training.optimizer);
    let n_microbatches = schedule.microbatches_of_step();
    let request = StageRequest { layers: &layers, kinds, n_microbatches, optimizer };
    // A model is the same whatever it drops while it learns.
    let digest = match model.data.iter().any(DataTensor::is_key) {
        true => {
            let mut undropped = elaborate(files, &without, &elaborated.parameters)?;
            frozen::freeze(&mut undropped, &layers, schedule).map_err(|found| vec![found])?;
            identity::digest(&undropped)
        }
        false => identity::digest(&model),
    };
    let members = pipeline.map_or(1, Pipeline::members);
    if members > 1 {
        model = members::of_model(&model, members.into()).map_err(|found| vec![found])?;
    }
    let mut set = if schedule.slices.count() > 1 {
        let slices = slicing::slices(&model, schedule)?.into_iter().map(mixed::stored).collect::<Vec<_>>();
        stages::slice_set::slice_set(&slices, schedule.shares.is_empty(), &request)
    } else {
        stages(&mixed::stored(model), &request)
    };
    set.model = Some(digest);
    set.members = members;
    if members > 1 {
        for exec in &mut set.execs {
            if let Body::Graph(graph) = &exec.body {
                exec.flops = graph::flops::of_member(&set.values, &exec.operands, graph);
            }
        }
    }
    match schedule.window.as_ref().and_then(|window| shared(window, &set)) {
        Some(error) => Err(vec![error]),
        None => Ok(set),
    }
}

/// Rule: where a model is trained, not all of its weights are frozen.
fn untrained(model: &Model) -> Option<Diagnostic> {
    let mut weights = model.layers.iter().flat_map(|layer| &layer.weights).filter(|weight| weight.owner.is_none());
    let count = weights.clone().count();
    (count > 0 && weights.all(|weight| weight.is_frozen)).then(|| {
        let message = format!("all {count} weights of `{}` are frozen, so there is nothing to train", model.name);
        let error = Diagnostic::error(Code::MissingItem, model.span, "this model", message);
        error.help("leave `frozen` out where a weight is to be trained, or `train { .. }`")
    })
}

/// Weights that several stages share have no slot at which all of them are done with a step.
fn shared(window: &Window, set: &StageSet) -> Option<Diagnostic> {
    let group = set.weights.iter().find(|group| group.stages.len() > 1)?;
    let name = &set.values[group.parameters.index()].name;
    let stages: Vec<String> = group.stages.iter().map(ToString::to_string).collect();
    let (word, stages) = (window.weights.word(), stages.join(", "));
    let message =
        format!("`{name}` belongs to the stages {stages}, and `weights {word}` updates each stage on its own");
    let error = Diagnostic::error(Code::WeightsNeedBlock, window.span, "stages share weights", message);
    Some(error.help("use `weights flush`, or place the layers that share weights in one stage"))
}

/// How many layers a model has to be cut at. None if something is wrong with it.
pub fn n_layers(files: &Files, call: &ModelCall, parameters: &Values) -> Option<usize> {
    Some(elaborate(files, call, parameters).ok()?.written.len())
}

/// Which of so many stages of a model read which. None where something is wrong with the model, or
/// it has too few layers.
pub fn graph_of(files: &Files, call: &ModelCall, parameters: &Values, n_stages: usize) -> Option<StageGraph> {
    let model = elaborate(files, call, parameters).ok()?;
    let layers = cut(&model, call, n_stages, call.span).ok()?;
    Some(stages::ports::graph(&model, &layers))
}

/// Which rows of a schedule's tables read which: stages, or their parts. None if the model has an error, or
/// its layers lack the parts that the schedule names.
pub fn graph_of_rows(files: &Files, call: &ModelCall, parameters: &Values, schedule: &Schedule) -> Option<StageGraph> {
    let model = elaborate(files, call, parameters).ok()?;
    let layers = layers_of(&model, call, schedule).ok()?;
    Some(stages::ports::graph(&model, &layers))
}

/// The layers of each row of a schedule's tables: of each stage, or of each of its parts.
fn layers_of(model: &Model, call: &ModelCall, schedule: &Schedule) -> Result<Vec<Range<usize>>, Diagnostic> {
    let stages = cut(model, call, schedule.n_whole_stages(), schedule.span)?;
    rows::rows(model, stages, schedule)
}

/// The layers of each stage: as the pipeline says, or so that the forward pass of the most expensive one is as cheap as
/// possible. Another schedule that `require` compares with may have
/// another number of stages: the written cut is then not used.
fn cut(model: &Model, call: &ModelCall, n_stages: usize, schedule: Span) -> Result<Vec<Range<usize>>, Diagnostic> {
    if let Some((layers, span)) = call.cut.as_ref().filter(|(layers, _)| layers.len() == n_stages) {
        return written_cut(model, layers, *span);
    }
    let flops = |pieces: &Range<usize>| {
        model.layers[pieces.clone()].iter().fold(0_u64, |sum, layer| sum.saturating_add(layer.flops()))
    };
    let costs: Vec<u64> = model.written.iter().map(flops).collect();
    let cut = partition(&costs, n_stages).map(|cut| cut.into_iter().map(|layers| pieces(model, layers)).collect());
    cut.ok_or_else(|| {
        let n_layers = costs.len();
        let message =
            format!("the schedule has {n_stages} stages, but the model `{}` has only {n_layers} layers", model.name);
        Diagnostic::error(Code::TooFewLayers, model.span, format!("{n_layers} layers"), message)
            .label(schedule, format!("{n_stages} stages"))
            .help("use fewer devices, or more layers")
    })
}

/// What layers of the text are in the model.
fn pieces(model: &Model, written: Range<usize>) -> Range<usize> {
    model.written[written.start].start..model.written[written.end - 1].end
}

/// Rule: a cut that is written has all layers of the model.
fn written_cut(model: &Model, layers: &[usize], span: Span) -> Result<Vec<Range<usize>>, Diagnostic> {
    let (n_layers, n_cut) = (model.written.len(), layers.iter().sum::<usize>());
    if n_cut == n_layers {
        let ends = layers.iter().scan(0, |end, count| {
            *end += count;
            Some(pieces(model, *end - count..*end))
        });
        return Ok(ends.collect());
    }
    let message = format!("the stages have {n_cut} layers together, but the model `{}` has {n_layers}", model.name);
    let by = n_layers.abs_diff(n_cut);
    let (plural, more) = (if by == 1 { "" } else { "s" }, if n_cut < n_layers { "more" } else { "fewer" });
    let error = Diagnostic::error(Code::WrongCut, span, format!("{n_cut} layers"), message);
    let error = error.label(model.span, format!("{n_layers} layers"));
    Err(error.help(format!("give the stages {by} layer{plural} {more}, or write `cut auto`")))
}

/// Layers that read each other. The last one computes the loss.
#[derive(Clone, Debug)]
pub struct Model {
    /// Name of its declaration.
    pub name: String,
    /// Where it was called.
    pub span: Span,
    /// Type of all its numbers, or of those that are kept, sent or multiplied, if that is bfloat16.
    pub precision: DType,
    /// Tensors of a microbatch, by [`Leaf::Data`].
    pub data: Vec<DataTensor>,
    /// Each after those that it reads. One that the text divides into parts is several.
    pub layers: Vec<Layer>,
    /// By layer of the text: which of these it is.
    pub written: Vec<Range<usize>>,
}

/// A tensor of the microbatch's data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DataTensor {
    /// Such as `tokens`.
    pub name: String,
    /// Element type and shape.
    pub ty: TensorType,
}

impl DataTensor {
    /// Whether it is a key of dropouts, which a run makes from its seed.
    pub fn is_key(&self) -> bool {
        self.name.starts_with(DROPOUT)
    }
}

/// One layer of a model, with numbers for all its parameters.
#[derive(Clone, Debug)]
pub struct Layer {
    /// Its position in the model and the name of its declaration: `3.block`.
    pub name: String,
    /// The part of that layer that it computes, or a piece of. None if the layer is a whole.
    pub part: Option<Arc<str>>,
    /// Where the model calls it.
    pub span: Span,
    /// The layers before it whose outputs flow in, by [`Leaf::Activation`].
    pub inputs: Vec<usize>,
    /// What it computes.
    pub tape: Tape,
    /// What flows out of it, or its loss.
    pub output: NodeId,
    /// Its weights, by [`Leaf::Weight`].
    pub weights: Vec<Weight>,
    /// What a slice carries over to the later ones, by [`Leaf::Past`].
    pub carried: Vec<NodeId>,
    /// What its `let`s call nodes.
    pub names: BTreeMap<NodeId, String>,
}

/// A weight of a model: which layer's, and which of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WeightId {
    /// Position in [`Model::layers`].
    pub layer: usize,
    /// Position in [`Layer::weights`].
    pub weight: usize,
}

/// A tensor of a layer that is the same for all microbatches.
#[derive(Clone, PartialEq, Debug)]
pub struct Weight {
    /// Unique in its layer.
    pub name: String,
    /// Element type and shape.
    pub ty: TensorType,
    /// How the text lets members of a device divide it. Where there are several, each has a tensor of the type above.
    pub split: Option<Split>,
    /// Its elements before the first step.
    pub init: Init,
    /// Whether it is never trained. Of a tied one, its owner says so.
    pub is_frozen: bool,
    /// The weight of a layer before that it is, if it is not one of its own.
    pub owner: Option<WeightId>,
}

impl Weight {
    /// How the members of a device divide it, if there are several.
    fn divided(&self) -> Option<Split> {
        self.split.filter(|split| split.members > 1)
    }
}

impl Layer {
    /// Type of what flows out of it.
    pub fn ty(&self) -> &TensorType {
        self.tape.ty(self.output)
    }

    /// Floating-point operations of its forward pass.
    pub fn flops(&self) -> u64 {
        let nodes = graph::extract::reached(&self.tape, &BTreeMap::new(), [self.output]);
        nodes
            .into_iter()
            .fold(0, |sum, id| sum.saturating_add(graph::flops::of_node(self.tape.nodes(), self.tape.node(id))))
    }
}
