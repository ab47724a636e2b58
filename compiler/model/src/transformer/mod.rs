//! Transformers: what a model costs whose sizes a Hugging Face `config.json` says, without a tensor graph of it.
//!
//! [`Config`] is the file as transformers reads it ([`families`]), [`Settings`] say how the model
//! is divided and trained. From both follow the tensors of one layer on one device, as integers:
//! its weights ([`weights`]), what its forward keeps for its backward ([`activations`]), its
//! floating-point operations ([`flops`]). [`account`] adds them up by stage, with the embedding on
//! the first stage and the head on the last one; [`balance`] cuts them so that devices have equally
//! much to do. [`stages`] makes values and executables of that, which are proved like those of any
//! other model. [`graph()`] is the model as `pipec` runs it.
//! [`exchanges`] says what devices that divide a stage tell each other.
//! `docs/models.md` has the formulas and what is not counted.

mod account;
mod activations;
mod balance;
mod config;
pub mod exchanges;
mod families;
mod flops;
mod graph;
mod json;
mod layout;
mod rotation;
mod settings;
mod sliding;
mod stages;
mod weights;

pub use account::{StageAccount, accounts, parameters};
pub use activations::{INPUTS, KeptTensor, StagePart, Until};
pub use config::{Config, Experts};
pub use families::{FAMILIES, read};
pub use flops::Flops;
pub use graph::{GRAPHS, GraphCall, SETTINGS_OF_GRAPH, graph};
pub use layout::check;
pub use settings::{Layers, Place, Recompute, SETTINGS, Setting, Settings, settings};
pub use stages::stage_set;

use pipe_syntax::diagnostic::Edit;
use pipe_syntax::source::Span;
use std::collections::BTreeMap;

/// A model of a pipeline: its sizes, and how it is divided and trained.
#[derive(Clone, PartialEq, Debug)]
pub struct Transformer {
    /// Sizes.
    pub config: Config,
    /// How it is divided and trained.
    pub settings: Settings,
    /// Where the pipeline names it.
    pub span: Span,
    /// Where each setting is written.
    pub places: BTreeMap<&'static str, Place>,
}

impl Transformer {
    /// Where a setting is written, or else where the model is named.
    pub fn place(&self, setting: &str) -> Span {
        self.places.get(setting).map_or(self.span, |place| place.value)
    }

    /// The edit that leaves a setting out, where the text has it.
    pub fn cut(&self, setting: &str) -> Option<Edit> {
        let cut = self.places.get(setting)?.cut?;
        Some(Edit { span: cut, text: String::new() })
    }
}
