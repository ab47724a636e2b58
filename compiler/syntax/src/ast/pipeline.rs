//! The syntax tree of pipelines.

use super::{Call, Expr, FrozenStages, Lane, Name, Section, StageParts};
use crate::source::Span;
use pipe_ir::graph::DType;
use pipe_ir::training::{DecayShape, DecayedWeights};

/// `pipeline name { ... }`.
pub type Pipeline = Section<PipelineItem>;

/// A line of a pipeline.
#[derive(Clone, PartialEq, Debug)]
pub enum PipelineItem {
    /// `model gpt(blocks = 8)`.
    Model(Call),
    /// `model "llama.json"(sequence = 8192)`: the name of the call is the path.
    Config(Call),
    /// `precision f64`.
    Precision {
        /// Type of all numbers of the model.
        dtype: DType,
        /// The whole line.
        span: Span,
    },
    /// `devices 4 memory 64MiB host 1GiB`.
    Devices {
        /// How many.
        count: Expr,
        /// Bytes that each of them has.
        memory: Option<Expr>,
        /// Bytes that each of them may use of its host's memory.
        host: Option<Expr>,
        /// The whole line.
        span: Span,
    },
    /// `device d memory if d < 2 then 80GiB else 40GiB speed if d < 2 then 3 / 2 else 1`.
    Device {
        /// What stands for the device.
        variable: Name,
        /// `memory`, `host` and `speed`, each with its number.
        numbers: Vec<(Name, Expr)>,
        /// The whole line.
        span: Span,
    },
    /// `microbatches 8`.
    Microbatches {
        /// How many in a step.
        count: Expr,
        /// The whole line.
        span: Span,
    },
    /// `cut [6, 5, 4, 3]`, or `cut auto`.
    Cut {
        /// How many layers each stage has, as a list; none where the compiler balances them.
        layers: Option<Expr>,
        /// The whole line.
        span: Span,
    },
    /// `schedule v_half`.
    Schedule(Call),
    /// `phase generate { .. }`: a pipeline that runs before or after others in every step.
    Phase(Pipeline),
    /// `lane link`: a queue beside compute on each device.
    Lane(Lane),
    /// `parts s = attention, dispatch on link, experts`: the parts of each stage's tasks.
    Parts(StageParts),
    /// `frozen s if s < S - 1`: whose weights stay as they are.
    Frozen(FrozenStages),
    /// `recompute 0..2, 5, F[s, m] if m % 2 == 0`.
    Recompute {
        /// The entries. None means `all`.
        tasks: Option<Vec<Recomputed>>,
        /// The whole line.
        span: Span,
    },
    /// `offload activations, optimizer, parameters`, or `offload auto`.
    Offload {
        /// Each of the words; none where whatever makes it fit may leave.
        words: Vec<String>,
        /// The whole line.
        span: Span,
    },
    /// `zero 1`.
    Zero {
        /// The stage of ZeRO.
        stage: Expr,
        /// The whole line.
        span: Span,
    },
    /// `tensor 2`.
    Tensor {
        /// How many devices stand behind each.
        members: Expr,
        /// The whole line.
        span: Span,
    },
    /// `data 2`.
    Data {
        /// How many pipelines there are side by side.
        pipelines: Expr,
        /// The whole line.
        span: Span,
    },
    /// `activation F[0] = 1.5, W = 11 / 30`.
    Activation {
        /// Of `F`, `W`, or `W[0..4]` of some stages.
        shares: Vec<TaskNumber>,
        /// The whole line.
        span: Span,
    },
    /// `cost F = 1, comm = 0.1`.
    Cost {
        /// Of letters of a kind, `F[0..4]` of some stages, `comm` or `comm[0-1]`.
        durations: Vec<TaskNumber>,
        /// The whole line.
        span: Span,
    },
    /// `require bubble <= 0.3`.
    Require {
        /// What is limited.
        subject: Subject,
        /// By what.
        limit: Limit,
        /// The whole line.
        span: Span,
    },
    /// `train { ... }`.
    Train {
        /// In the order of the text.
        settings: Vec<Setting>,
        /// The whole item.
        span: Span,
    },
}

pipe_ir::words! {
    /// What a pipeline's `require` limits.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum Subject {
        /// Activation memory of the fullest device.
        Peak "peak"
        /// Bytes of every device's arena.
        Memory "memory"
        /// Idle share of the busiest device, by makespan.
        Bubble "bubble"
    }
}

impl Subject {
    /// Whether its limit is a number of bytes, and not of units or a share.
    pub const fn is_in_bytes(self) -> bool {
        match self {
            Self::Memory => true,
            Self::Peak | Self::Bubble => false,
        }
    }
}

/// The right side of a pipeline's `require`.
#[derive(Clone, PartialEq, Debug)]
pub enum Limit {
    /// A number: units for `peak`, bytes for `memory`, a share for `bubble`.
    Number(Expr),
    /// `0.6 * 1f1b`: a part of what another schedule takes.
    Schedule {
        /// The part; none is 1.
        factor: Option<Expr>,
        /// The other schedule.
        schedule: Call,
    },
}

/// A line of `train { ... }`.
#[derive(Clone, PartialEq, Debug)]
pub struct Setting {
    /// What is set.
    pub value: SettingValue,
    /// The whole line.
    pub span: Span,
}

/// A file that data are read from.
#[derive(Clone, PartialEq, Debug)]
pub struct DataFile {
    /// The data tensor that it feeds, where the text says it: `images = "x.npy"`.
    pub tensor: Option<Name>,
    /// Where it is.
    pub path: String,
}

/// What a line of `train { ... }` sets.
#[derive(Clone, PartialEq, Debug)]
pub enum SettingValue {
    /// `data "shakespeare.txt" shuffled`, or `data synthetic`.
    Data {
        /// The file, or files of data tensors; none is synthetic.
        files: Vec<DataFile>,
        /// What is said of it in brackets, as a call of `data`.
        details: Option<Call>,
        /// Whether each of its windows comes once.
        is_shuffled: bool,
    },
    /// `init "model.safetensors"`.
    Init(String),
    /// `tokenizer "tokenizer.json"`: what makes tokens of a text.
    Tokenizer(String),
    /// `validation "val.txt" every 100`, or `validation 0.1 every 100`.
    Validation {
        /// The file, or files of data tensors.
        files: Vec<DataFile>,
        /// The share of the data that is not trained on, where no file is named.
        share: Option<Expr>,
        /// Steps between two evaluations.
        every: Expr,
    },
    /// `steps 300`.
    Steps(Expr),
    /// `seed 42`.
    Seed(Expr),
    /// `optimizer adamw(learning_rate = 0.003)`.
    Optimizer(Call),
    /// `weight_decay matrices`: which weights decay.
    WeightDecay(DecayedWeights),
    /// `warmup 20`, in steps.
    Warmup(Expr),
    /// `minimum 0.0003`: the learning rate of the last step.
    Minimum(Expr),
    /// `clip_norm 1.0`: the most that the norm of all gradients may be.
    ClipNorm(Expr),
    /// `decay linear over 100`.
    Decay {
        /// How the learning rate falls.
        shape: DecayShape,
        /// Over how many of the last steps; none is all after the warm-up.
        over: Option<Expr>,
    },
    /// `checkpoint "folder" every 100`.
    Checkpoint {
        /// The folder.
        path: String,
        /// Steps between two; none is only at the end.
        every: Option<Expr>,
    },
}

/// An entry of `recompute`.
#[derive(Clone, PartialEq, Debug)]
pub enum Recomputed {
    /// A stage, or the first stage and the end of a range.
    Stages(Expr, Option<Expr>),
    /// `F[s, m] if m % 2 == 0`. The condition is in the place of the number.
    Tasks(TaskNumber),
    /// `F.attention`: the forwards of a part, of all stages.
    Part(Name),
}

impl Recomputed {
    /// Where it begins.
    pub const fn start(&self) -> Span {
        match self {
            Self::Stages(first, _) => first.span,
            Self::Tasks(tasks) => tasks.name.span,
            Self::Part(name) => name.span,
        }
    }
}

/// `F[0..4] = 1.5`, or `F[s, m] = 1 + s`: a number for what has a name.
#[derive(Clone, PartialEq, Debug)]
pub struct TaskNumber {
    /// What it is for, as it was written.
    pub name: Name,
    /// The part that it is for, if one is named.
    pub part: Option<Name>,
    /// Names in brackets, which stand for the stage, the microbatch and the slice.
    pub variables: Vec<Name>,
    /// The number.
    pub value: Expr,
}
