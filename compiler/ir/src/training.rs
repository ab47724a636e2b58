//! Training settings: what a run needs to know beside the instructions.

use crate::digest::Digest;
use crate::graph::TensorType;
use crate::units::Bytes;
use serde::{Deserialize, Serialize};

/// Which values a setting of an optimizer may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Range {
    /// Above 0.
    Positive,
    /// 0 or more.
    NotNegative,
    /// From 0 to below 1.
    Decay,
}

impl Range {
    /// Whether a value lies in it.
    pub fn contains(self, value: f64) -> bool {
        match self {
            Self::Positive => value > 0.0,
            Self::NotNegative => value >= 0.0,
            Self::Decay => (0.0..1.0).contains(&value),
        }
    }

    /// The range in words, for messages.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Positive => "above 0",
            Self::NotNegative => "0 or more",
            Self::Decay => "0 or more, and below 1",
        }
    }
}

/// A number that an optimizer takes, beside the learning rate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OptimizerSetting {
    /// Its name, in the language and in the IR.
    pub name: &'static str,
    /// Its position in a call, behind the learning rate.
    pub position: usize,
    /// Its value where none is given.
    pub default: f64,
    /// The values that it may have.
    pub range: Range,
    /// What it means.
    pub doc: &'static str,
}

/// Writes the enum of optimizers, and what the language, the IR text and the verifier read from it.
macro_rules! optimizers {
    ($($(#[doc = $doc:literal])* $variant:ident $name:literal {
        $($(#[doc = $field_doc:literal])* $field:ident: $position:literal, $default:literal, $range:ident;)*
    })*) => {
        /// How weights follow from their gradients. All numbers are per step.
        #[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Optimizer {
            $($(#[doc = $doc])* $variant { $($(#[doc = $field_doc])* $field: f64),* }),*
        }

        impl Optimizer {
            /// Every optimizer, by its name in the language.
            pub const NAMES: &[&'static str] = &[$($name),*];

            /// Its name.
            pub const fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => $name),*
                }
            }

            /// The settings of the optimizer of a name, in the order of the IR.
            pub fn settings(name: &str) -> Option<&'static [OptimizerSetting]> {
                match name {
                    $($name => Some(const { &[$(OptimizerSetting {
                        name: stringify!($field),
                        position: $position,
                        default: $default,
                        range: Range::$range,
                        doc: concat!($($field_doc),*).trim_ascii(),
                    }),*] }),)*
                    _ => None,
                }
            }

            /// The rule of the optimizer of a name, with its source.
            pub fn rule(name: &str) -> Option<&'static str> {
                match name {
                    $($name => Some(concat!($($doc),*).trim_ascii()),)*
                    _ => None,
                }
            }

            /// The values of its settings, in the order of the IR.
            pub fn values(&self) -> Vec<f64> {
                match *self {
                    $(Self::$variant { $($field),* } => vec![$($field),*]),*
                }
            }

            /// The optimizer of a name with these values, in the order of the IR. `None` where their number is another.
            pub fn new(name: &str, values: &[f64]) -> Option<Self> {
                match (name, values) {
                    $(($name, [$($field),*]) => Some(Self::$variant { $($field: *$field),* }),)*
                    _ => None,
                }
            }
        }
    };
}

optimizers! {
    /// v = momentum * v + (g + weight_decay * p); p -= learning_rate * v. State: v (none where momentum is 0).
    Sgd "sgd" {
        /// Share of the last step's direction that is kept.
        momentum: 0, 0.0, Decay;
        /// L2 penalty.
        weight_decay: 1, 0.0, NotNegative;
    }
    /// AdamW (arXiv 1711.05101, Algorithm 2) with bias correction. State: first and second moment.
    AdamW "adamw" {
        /// Decay of the first moment.
        beta1: 0, 0.9, Decay;
        /// Decay of the second moment.
        beta2: 1, 0.999, Decay;
        /// Added to the root of the second moment.
        epsilon: 3, 1e-8, Positive;
        /// Decoupled weight decay, times the learning rate.
        weight_decay: 2, 0.01, NotNegative;
    }
    /// Lion (arXiv 2302.06675, Algorithm 2): steps by the sign of a momentum. State: the momentum.
    Lion "lion" {
        /// Share of the momentum in the direction of a step.
        beta1: 0, 0.9, Decay;
        /// Decay of the momentum.
        beta2: 1, 0.99, Decay;
        /// Decoupled weight decay, times the learning rate.
        weight_decay: 2, 0.0, NotNegative;
    }
    /// Muon (arXiv 2502.16982, equations 1 to 4): steps by the orthogonalized momentum of each matrix. AdamW updates
    /// vectors, embeddings and the last layer. State: the momentum, or first and second moment.
    Muon "muon" {
        /// Decay of the momentum.
        momentum: 0, 0.95, Decay;
        /// Decoupled weight decay of all weights, times the learning rate.
        weight_decay: 1, 0.1, NotNegative;
        /// Decay of the first moment of AdamW.
        beta1: 2, 0.9, Decay;
        /// Decay of the second moment of AdamW.
        beta2: 3, 0.95, Decay;
        /// Added to the root of the second moment of AdamW.
        epsilon: 4, 1e-8, Positive;
    }
}

impl Optimizer {
    /// Numbers of state for each parameter that is updated element by element.
    pub fn state_per_parameter(&self) -> u64 {
        match self {
            Self::Sgd { momentum, .. } => u64::from(*momentum != 0.0),
            Self::AdamW { .. } | Self::Muon { .. } => 2,
            Self::Lion { .. } => 1,
        }
    }

    /// Numbers of state for each element of a matrix that is updated as a whole. `None` if no matrix is.
    pub const fn state_of_matrices(&self) -> Option<u64> {
        match self {
            Self::Sgd { .. } | Self::AdamW { .. } | Self::Lion { .. } => None,
            Self::Muon { .. } => Some(1),
        }
    }

    /// Numbers of state for each element of a weight.
    pub fn state_of(&self, is_matrix: bool) -> u64 {
        self.state_of_matrices().filter(|_| is_matrix).unwrap_or_else(|| self.state_per_parameter())
    }

    /// What a number of its state means: states of one name can be exchanged.
    pub const fn state(&self) -> &'static str {
        match self {
            Self::Sgd { momentum: 0.0, .. } => "sgd",
            Self::Sgd { .. } => "sgd with momentum",
            Self::AdamW { .. } => "adamw",
            Self::Lion { .. } => "lion",
            Self::Muon { .. } => "muon",
        }
    }

    /// How much the weights decay.
    pub const fn weight_decay(&self) -> f64 {
        match self {
            Self::Sgd { weight_decay, .. }
            | Self::AdamW { weight_decay, .. }
            | Self::Lion { weight_decay, .. }
            | Self::Muon { weight_decay, .. } => *weight_decay,
        }
    }

    /// The same without decay.
    #[must_use]
    pub fn without_decay(mut self) -> Self {
        match &mut self {
            Self::Sgd { weight_decay, .. }
            | Self::AdamW { weight_decay, .. }
            | Self::Lion { weight_decay, .. }
            | Self::Muon { weight_decay, .. } => *weight_decay = 0.0,
        }
        self
    }

    /// Bytes that an update of `parameters` reads and writes, element by element: parameters and state are read and
    /// written, gradients are read.
    pub fn traffic(&self, parameters: Bytes) -> Bytes {
        Bytes(parameters.0 * (3 + 2 * self.state_per_parameter()))
    }
}

/// Learning rate over the steps: linear warm-up, then constant, then down to `minimum` at the last step.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct LearningRate {
    /// After the warm-up.
    pub peak: f64,
    /// Steps of linear warm-up from 0.
    pub warmup: u32,
    /// Where the decay ends; `None` keeps the peak.
    pub minimum: Option<f64>,
    /// How it falls to `minimum`. Programs of earlier versions do not say it.
    #[serde(default, skip_serializing_if = "Decay::is_default")]
    pub decay: Decay,
}

/// How the learning rate falls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Decay {
    /// Along which curve.
    pub shape: DecayShape,
    /// Over so many steps at the end, with a constant rate before them: warmup-stable-decay (arXiv 2405.18392).
    /// `None` is over all steps after the warm-up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<u32>,
}

impl Decay {
    /// Whether it is the one that need not be said.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Along which curve the learning rate falls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecayShape {
    /// Half a period of a cosine.
    #[default]
    Cosine,
    /// A straight line.
    Linear,
}

impl DecayShape {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Cosine, Self::Linear];

    /// Its name, in the language and in the IR.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cosine => "cosine",
            Self::Linear => "linear",
        }
    }
}

/// Numbers of the value that holds the sum of squares of gradients: the first is the sum, the others are room for
/// partial sums.
pub const NORM_NUMBERS: u64 = 256;

/// What gradients are scaled with whose squares add up to `squares`, where their norm shall be `most` or less: as
/// `torch.nn.utils.clip_grad_norm_` does. No number where the sum is none.
pub fn clip_scale(squares: f64, most: f64) -> f64 {
    let scale = most / (squares.sqrt() + 1e-6);
    if scale > 1.0 { 1.0 } else { scale }
}

/// Which weights decay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecayedWeights {
    /// Every trained tensor.
    #[default]
    All,
    /// Tensors with two dimensions or more: no gains of norms, and no biases.
    Matrices,
}

impl DecayedWeights {
    /// Whether it is all of them.
    pub fn is_all(&self) -> bool {
        *self == Self::All
    }

    /// Whether a tensor of this type decays.
    pub fn contains(self, ty: &TensorType) -> bool {
        self.is_all() || ty.shape.len() >= 2
    }
}

/// Where microbatches come from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataSource {
    /// Random tokens and targets drawn from the seed: for timing and for tests.
    Synthetic,
    /// The bytes of a file, relative to the folder of the file that names it: tokens are a random window of bytes,
    /// targets the same window one byte on.
    Bytes(String),
    /// The same of a file of tokens (`.bin`, `.npy`) instead of bytes.
    Tokens(String),
    /// A safetensors file that has each data tensor by its name, with a row for each example.
    Examples(String),
    /// The same in a file (`.npy` or safetensors) for each data tensor: its name, and the path.
    ExamplesOf(Vec<(String, String)>),
}

impl DataSource {
    /// What a file is by its name.
    pub fn of_file(path: &str) -> Self {
        if path.ends_with(".safetensors") {
            Self::Examples(path.to_owned())
        } else if path.ends_with(".bin") || path.ends_with(".npy") {
            Self::Tokens(path.to_owned())
        } else {
            Self::Bytes(path.to_owned())
        }
    }

    /// The files that it is read from.
    pub fn paths(&self) -> Vec<&str> {
        match self {
            Self::Synthetic => Vec::new(),
            Self::Bytes(path) | Self::Tokens(path) | Self::Examples(path) => vec![path],
            Self::ExamplesOf(files) => files.iter().map(|(_, path)| path.as_str()).collect(),
        }
    }

    /// Whether a row of a microbatch is an example, and not a window of what lies along one axis.
    pub const fn has_examples(&self) -> bool {
        matches!(self, Self::Examples(_) | Self::ExamplesOf(_))
    }
}

/// What a run is evaluated on, and how often.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Validation {
    /// From what.
    pub data: HeldOut,
    /// Steps between two evaluations; one more comes at the end.
    pub every: u32,
}

/// Data that are not trained on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldOut {
    /// This share of the data of the training, at their end.
    Share(f64),
    /// A file of its own.
    File(DataSource),
}

/// When and where a run saves itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Folder, relative to the working directory.
    pub path: String,
    /// Steps between two checkpoints; one more is written at the end.
    pub every: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over references")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// The training settings of a pipeline.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Training {
    /// Optimizer steps of the run.
    pub steps: u32,
    /// Seed of the initial weights and of the order of the data.
    pub seed: u64,
    /// How weights are updated.
    pub optimizer: Optimizer,
    /// To which weights the optimizer's `weight_decay` applies. Programs of earlier versions do not say it.
    #[serde(default, skip_serializing_if = "DecayedWeights::is_all")]
    pub decayed: DecayedWeights,
    /// How fast.
    pub learning_rate: LearningRate,
    /// The most that the norm of all gradients may be: larger ones are scaled down to it, all by one number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip_norm: Option<f64>,
    /// From what.
    pub data: DataSource,
    /// Whether each window of a file comes once before any comes again, and not by chance. Programs of earlier versions
    /// do not say it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub shuffled: bool,
    /// The token that ends each document of a file. Attention stays inside a document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<u32>,
    /// The file that says how a text becomes tokens, relative as the data are; without it, its bytes are tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<String>,
    /// What it is evaluated on meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<Validation>,
    /// Where the weights are to begin with, if they are not random: a safetensors file, an index of
    /// several, or a folder with either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<String>,
    /// The `config.json` that the model is made of, if it is: other tools then know its weights by other names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// Saved where, if at all.
    pub checkpoint: Option<Checkpoint>,
    /// Tells models apart by what they compute, whatever their weights, batch, precision, schedule
    /// and number of devices. Programs of earlier versions do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Digest>,
}
