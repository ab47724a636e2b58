//! Pipelines: a model bound to devices, a schedule, requirements and training settings, all expressions evaluated.

use crate::transformer::Transformer;
use pipe_ir::graph::DType;
use pipe_ir::program::DeviceProgram;
use pipe_ir::training::Training;
use pipe_ir::units::Bytes;
use pipe_ir::units::capacity::Capacity;
use pipe_schedule::policy::offload::Offload;
use pipe_schedule::policy::zero::Zero;
use pipe_schedule::requirement::Requirement;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::timing::costs::StageCosts;
use pipe_schedule::timing::speeds::Speeds;
use pipe_syntax::expr::arguments::Values;
use pipe_syntax::expr::number::Number;
use pipe_syntax::source::Span;
use std::collections::BTreeMap;

/// What a `pipeline` declaration says, beside its schedule.
#[derive(Clone, PartialEq, Debug)]
pub struct Pipeline {
    /// Name of its declaration.
    pub name: String,
    /// Where its name was declared.
    pub span: Span,
    /// What is trained, if the pipeline says so.
    pub model: Option<ModelCall>,
    /// The same, if its sizes are those of a `config.json`.
    pub transformer: Option<Transformer>,
    /// How many devices stand behind each device of the schedule, where that was written.
    pub tensor: Option<(u32, Span)>,
    /// Bytes that each device has, and where that was written.
    pub memory: Option<(Capacity, Span)>,
    /// Bytes that each device may use of its host's memory, and where that was written.
    pub host: Option<(Capacity, Span)>,
    /// How fast each device is, if the pipeline says so, and where.
    pub speeds: Option<(Speeds, Span)>,
    /// What lives in the memory of hosts.
    pub offload: Offload,
    /// Whether something may live there if that makes it fit: what does is then said above.
    pub may_offload: bool,
    /// What devices with the same weights divide among them.
    pub zero: Zero,
    /// How long tasks take, if the pipeline says so.
    pub costs: Option<StageCosts>,
    /// What must hold of the finished schedule, in the order of the text.
    pub requirements: Vec<Requirement>,
    /// How the model is trained, if the pipeline says so.
    pub training: Option<Training>,
    /// Where the files of the training are named.
    pub files: TrainingFiles,
}

/// Where the files of a training are named, as far as any are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TrainingFiles {
    /// The line of a file of data.
    pub data: Option<Span>,
    /// The line of the tokenizer.
    pub tokenizer: Option<Span>,
    /// The line of what the run is evaluated on.
    pub validation: Option<Span>,
    /// The line of the files of initial weights.
    pub init: Option<Span>,
    /// The line of the folder of checkpoints.
    pub checkpoint: Option<Span>,
}

impl Pipeline {
    /// The name of its optimizer if that updates whole matrices, which then cannot be divided.
    pub fn whole_matrices(&self) -> Option<&'static str> {
        let optimizer = self.training.as_ref().map(|training| training.optimizer)?;
        optimizer.state_of_matrices().map(|_| optimizer.name())
    }

    /// How many devices stand behind each device of the schedule.
    pub fn members(&self) -> u32 {
        self.tensor.map_or(1, |(members, _)| members)
    }

    /// Whether the stages are those of a model, so that bytes and operations mean something.
    pub const fn has_model(&self) -> bool {
        self.model.is_some() || self.transformer.is_some()
    }

    /// What a device needs: its arena; its peak where the program never runs, so that nobody allocates an arena for it.
    pub const fn needed(&self, code: &DeviceProgram) -> Bytes {
        if self.transformer.is_some() { code.peak } else { code.arena }
    }

    /// Whether something is limited that is judged for the number of microbatches at hand: bytes,
    /// or what the pipeline requires.
    pub fn is_of_one_number(&self) -> bool {
        self.byte_limit().is_some() || !self.requirements.is_empty()
    }

    /// The bytes that each device may hold, and where the lowest number of them was written.
    pub fn byte_limit(&self) -> Option<(Capacity, Span)> {
        let required = self.requirements.iter().filter_map(|one| Some((Capacity::from(one.memory()?), one.span)));
        let limits: Vec<(Capacity, Span)> = required.chain(self.memory.clone()).collect();
        let (_, span) = limits.iter().min_by_key(|(bytes, _)| bytes.least())?;
        let all = limits.iter().map(|(bytes, _)| bytes.clone()).reduce(|one, other| one.min(&other))?;
        Some((all, *span))
    }
}

/// A model with numbers for its parameters.
#[derive(Clone, PartialEq, Debug)]
pub struct ModelCall {
    /// Which one: ask [`pipe_syntax::files::Files::model`].
    pub model: String,
    /// Where it was called.
    pub span: Span,
    /// The `config.json` that it is made of, if it is, without spaces.
    pub config: Option<String>,
    /// A value for every parameter of the model.
    pub arguments: BTreeMap<String, Number>,
    /// Type of its numbers: weights, activations, gradients, optimizer state and loss.
    pub precision: DType,
    /// The line that says so, if there is one.
    pub precision_line: Option<Span>,
    /// How many layers each stage has, and where that was written; none where the compiler balances them.
    pub cut: Option<(Vec<usize>, Span)>,
    /// Whether dropouts drop anything, as they do in a training.
    pub drops: bool,
}

/// What a file means.
#[derive(Clone, PartialEq, Debug)]
pub struct Elaborated {
    /// Every task. [`pipe_schedule::schedule::Schedule::reorder`] says whether a better order was asked for.
    pub schedule: Schedule,
    /// The pipeline that binds it; none where a schedule stands alone.
    pub pipeline: Option<Pipeline>,
    /// Values of the files' parameters: layers and models may name them.
    pub parameters: Values,
}
