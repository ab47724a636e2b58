//! Pipelines: a model bound to devices, a schedule, requirements and training settings, all expressions evaluated.

use crate::activation::Ratio;
use crate::costs::Entry;
use crate::offload::Offload;
use crate::schedule::Schedule;
use crate::sharing::Sharing;
use crate::source::Span;
use crate::transformer::Transformer;
use crate::units::Ticks;
use crate::zero::Zero;
use pipe_ir::graph::DType;
use pipe_ir::program::DeviceProgram;
use pipe_ir::task::TaskKind;
use pipe_ir::training::Training;
use pipe_ir::units::Bytes;
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
    /// Bytes that each device has, and where that was written.
    pub memory: Option<(Bytes, Span)>,
    /// Bytes that each device may use of its host's memory, and where that was written.
    pub host: Option<(Bytes, Span)>,
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
    /// The line of the folder of checkpoints.
    pub checkpoint: Option<Span>,
}

impl Pipeline {
    /// Whether the stages are those of a model, so that bytes and operations mean something.
    #[must_use]
    pub const fn has_model(&self) -> bool {
        self.model.is_some() || self.transformer.is_some()
    }

    /// What a device needs: its arena; its peak where the program never runs, so that nobody allocates an arena for it.
    #[must_use]
    pub const fn needed(&self, code: &DeviceProgram) -> Bytes {
        if self.transformer.is_some() { code.peak } else { code.arena }
    }

    /// Whether something is limited that is judged for the number of microbatches at hand: bytes, or what the pipeline requires.
    #[must_use]
    pub fn is_of_one_number(&self) -> bool {
        self.byte_limit().is_some() || !self.requirements.is_empty()
    }

    /// The bytes that each device may hold, and where that was written.
    #[must_use]
    pub fn byte_limit(&self) -> Option<(Bytes, Span)> {
        let required = self.requirements.iter().filter_map(|requirement| match requirement.limit {
            Limit::Memory(bytes) => Some((bytes, requirement.span)),
            _ => None,
        });
        required.chain(self.memory).min_by_key(|(bytes, _)| *bytes)
    }
}

/// A model with numbers for its parameters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModelCall {
    /// Which one: ask [`crate::files::Files::model`].
    pub model: String,
    /// Where it was called.
    pub span: Span,
    /// A value for every parameter of the model.
    pub arguments: BTreeMap<String, i64>,
    /// Type of its numbers: weights, activations, gradients, optimizer state and loss.
    pub precision: DType,
}

/// How long things take, as it was said: without regard to how many stages and devices there are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StageCosts {
    /// One task of one stage, by [`TaskKind::index`].
    pub tasks: [Ticks; TaskKind::ALL.len()],
    /// Whether it was said, and does not follow from that of other kinds; likewise.
    pub said: [bool; TaskKind::ALL.len()],
    /// What a forward and a backward take together that share a device, by [`TaskKind::index`] of the backward, where it
    /// was said.
    pub pairs: [Option<Ticks>; TaskKind::ALL.len()],
    /// One-way latency between two different devices; nothing where it was not said.
    pub latency: Option<Ticks>,
    /// A copy of 1 MiB between a device and its host; nothing where it was not said.
    pub copy: Option<Ticks>,
    /// All that was said, in the order of the text. Of entries about the same stage or link the last one holds, and each comes before those
    /// about all.
    pub entries: Vec<Entry>,
    /// Which devices share processors, where that was said.
    pub sharing: Option<Sharing>,
}

/// A `require` of a pipeline.
#[derive(Clone, PartialEq, Debug)]
pub struct Requirement {
    /// What is limited, and by what.
    pub limit: Limit,
    /// The whole line.
    pub span: Span,
}

/// What a requirement limits.
#[derive(Clone, PartialEq, Debug)]
pub enum Limit {
    /// Activation memory of the fullest device, in units.
    Peak(Ratio),
    /// Activation memory of the fullest device, compared with the one of another schedule of as many devices and microbatches.
    PeakOf {
        /// The part of the other schedule's peak that is allowed.
        factor: Ratio,
        /// The other schedule; none where a turn of each block is written out, and this is no block.
        schedule: Option<Box<Schedule>>,
    },
    /// Bytes of every device's arena.
    Memory(Bytes),
    /// Idle share of the busiest device within the makespan.
    Bubble(Ratio),
}
