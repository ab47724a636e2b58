//! Origins: the model, optimizer and data of the run that saved a checkpoint. Its tensors mean the
//! same only to a run that has the same of each; schedule, learning rate, number of microbatches,
//! devices and ranks may be others.

use crate::run::Run;
use pipe_ir::training::{Optimizer, Training};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a checkpoint says of the run that saved it. What is missing is not known.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Origin {
    /// Digest of what the model computes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What the optimizer's state means: `adamw`, `sgd with momentum`, `sgd`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optimizer: Option<String>,
    /// Where its data came from: `synthetic`, or the length and checksum of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
}

impl Origin {
    /// That of a run.
    pub(crate) fn of(run: &Run) -> Self {
        let training = run.program().training.as_ref();
        let model = training.and_then(|training| training.model).map(|model| model.to_string());
        let optimizer = training.map(|Training { optimizer, .. }| Optimizer::state(optimizer).to_owned());
        Self { model, optimizer, data: training.and_then(|_| run.data()) }
    }

    pub(super) fn is_unknown(&self) -> bool {
        *self == Self::default()
    }

    /// What is known of both and differs.
    pub(super) fn differences(&self, own: &Self) -> Vec<Difference> {
        let pairs = [
            (Aspect::Model, &self.model, &own.model),
            (Aspect::Optimizer, &self.optimizer, &own.optimizer),
            (Aspect::Data, &self.data, &own.data),
        ];
        let known = pairs.into_iter().filter_map(|(aspect, saved, own)| Some((aspect, saved.clone()?, own.clone()?)));
        let differ = known.filter(|(_, saved, own)| saved != own);
        differ.map(|(aspect, saved, own)| Difference { aspect, saved, own }).collect()
    }
}

/// A part of an origin.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Aspect {
    /// What is trained.
    Model,
    /// What keeps state beside the weights.
    Optimizer,
    /// What it learns from.
    Data,
}

/// What a checkpoint and a run do not have in common.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Which part.
    pub aspect: Aspect,
    /// What the checkpoint says.
    pub saved: String,
    /// What the run has.
    pub own: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { aspect, saved, own } = self;
        match aspect {
            Aspect::Model => {
                write!(
                    f,
                    "another model (its operations or their constants differ: digest {saved}, and this one's is {own})"
                )
            }
            Aspect::Optimizer => write!(f, "another optimizer ({saved}, and this run has {own})"),
            Aspect::Data => write!(f, "other data ({saved}, and this run has {own})"),
        }
    }
}
