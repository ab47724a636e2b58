//! Predictions: a language model on the processor, from the tokens of a row to the logits of the next one.
//!
//! It computes what a run computes, in one row and on one thread. Kernels touch the memory of a predictor alone, in
//! places that the plan of its graph has: see [`pipe_distributed::memory`].

mod sampling;

use crate::checkpoint::{self, CheckpointError};
use crate::devices::cpu::{Jit, Launch, Launcher, launch};
use crate::values::bounds::indexed_rows;
use crate::values::numbers::{decode, encode};
use crate::weights::{self, WeightsError};
use pipe_distributed::RunError;
use pipe_distributed::memory::{Memory, Region};
use pipe_ir::graph::DType;
use pipe_ir::kernels::plan;
use pipe_ir::prediction::Prediction;
use pipe_ir::units::Bytes;
use pipe_ir::value::ValueKind;
pub use sampling::{Sampler, Sampling};
use std::path::Path;

/// Why a prediction failed.
#[derive(Debug, thiserror::Error)]
pub enum PredictionError {
    /// A kernel cannot be compiled, or the machine lacks memory.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The checkpoint cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The weights cannot be read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The model computes something that is no number.
    #[error("the model predicts no numbers: its weights, or what it computes of them, are not finite")]
    NotFinite,
}

/// What is known of a checkpoint whose weights were taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Taken {
    /// Steps done.
    pub step: u64,
    /// What should be said of it.
    pub notes: Vec<String>,
}

/// What logits may differ by, of the largest one, where other tokens are in the same products.
const ROUNDING: f64 = 0.01;

/// A model with memory for one row.
pub struct Predictor {
    prediction: Prediction,
    /// Tokens from this one on have no row in the table of the model.
    bound: u64,
    operands: Vec<Region>,
    launches: Vec<Launch>,
    launcher: Launcher,
    // Regions lie in it.
    _memory: Memory,
}

impl Predictor {
    /// Allocates memory and compiles the kernels of a model. All weights are 0.
    ///
    /// # Errors
    /// If the machine lacks memory, or a kernel cannot be compiled.
    pub fn new(prediction: Prediction) -> Result<Self, PredictionError> {
        let plan = plan(&prediction.graph);
        let sizes = prediction.operands.iter().map(|value| value.bytes).chain([plan.scratch]);
        let sizes: Vec<Bytes> = sizes.collect();
        let all = sizes.iter().map(|size| size.aligned()).sum::<Bytes>();
        let lacking = || RunError::Unsupported(format!("the model needs {all} of memory, and the machine has less"));
        let memory = Memory::new(all).ok_or_else(lacking)?;
        let mut offset = Bytes::ZERO;
        let operands = sizes.iter().map(|size| {
            let region = memory.region(offset, *size);
            offset += size.aligned();
            region
        });
        let operands = operands.collect();
        let mut jit = Jit::new()?;
        let launches = plan.kernels.into_iter().map(|kernel| launch(kernel, &mut jit));
        let launches = launches.collect::<Result<Vec<_>, _>>()?;
        let (graph, tokens) = (&prediction.graph, u32::try_from(prediction.tokens).unwrap_or(u32::MAX));
        let tables = graph.nodes.iter().filter_map(|node| indexed_rows(graph, node, tokens));
        let bound = tables.min().unwrap_or(u64::MAX);
        Ok(Self { prediction, bound, operands, launches, launcher: Launcher::new(false), _memory: memory })
    }

    /// Positions of a row.
    pub const fn sequence(&self) -> u64 {
        self.prediction.sequence
    }

    /// How many tokens the model knows.
    pub fn vocabulary(&self) -> u64 {
        self.prediction.vocabulary().min(self.bound)
    }

    /// Takes the weights of a checkpoint.
    ///
    /// # Errors
    /// If it cannot be read, is damaged, or has weights of other shapes.
    pub fn resume(&mut self, path: &Path) -> Result<Taken, PredictionError> {
        let state = checkpoint::load(path)?;
        for (value, region) in self.prediction.operands.iter().zip(&self.operands) {
            if value.kind != ValueKind::Parameters {
                continue;
            }
            for slot in &value.tensors {
                let unfit = |reason| CheckpointError::Unfit { path: path.to_owned(), reason };
                let found = state.tensors.iter().find(|tensor| tensor.name == slot.name);
                let found = found.ok_or_else(|| unfit(format!("it has no tensor `{}`", slot.name)))?;
                if found.ty != slot.ty {
                    let reason = format!("it holds `{}` as {}, but the model's is {}", slot.name, found.ty, slot.ty);
                    return Err(unfit(reason).into());
                }
                region.part(slot.offset.to_usize(), found.data.len()).bytes_mut().copy_from_slice(&found.data);
            }
        }
        let mut notes = Vec::new();
        if !state.is_verified {
            notes.push(format!("{} has no checksums, so it may not be as it was saved", path.display()));
        }
        let own = self.prediction.model.to_string();
        if state.origin.model.is_some_and(|model| model != own) {
            notes.push(format!("{} was saved with a model of other operations or constants", path.display()));
        }
        Ok(Taken { step: state.step, notes })
    }

    /// Takes weights as other tools save them; those of a `config.json` have the names of its family.
    ///
    /// # Errors
    /// If files are missing, cut off or of another model.
    pub fn fill(&mut self, from: &Path, config: Option<&str>) -> Result<(), PredictionError> {
        for read in weights::read(&self.prediction.operands, from, config)? {
            let (value, tensor, bytes) = read?;
            let slot = &self.prediction.operands[value].tensors[tensor];
            self.operands[value].part(slot.offset.to_usize(), bytes.len()).bytes_mut().copy_from_slice(&bytes);
        }
        Ok(())
    }

    /// The logits of the token after these, of which only as many as a row has count, from the end on.
    ///
    /// # Errors
    /// If a token is not in the vocabulary, or the logits are no numbers.
    pub fn logits(&mut self, tokens: &[i32]) -> Result<Vec<f64>, PredictionError> {
        self.padded(tokens, 0)
    }

    /// Whether what comes after a token changes what the model predicts there. Text of such a model is no sample of it.
    ///
    /// # Errors
    /// As [`Self::logits`].
    pub fn looks_ahead(&mut self, tokens: &[i32]) -> Result<bool, PredictionError> {
        let other = i32::try_from(self.vocabulary().saturating_sub(1)).unwrap_or(0);
        let (one, another) = (self.padded(tokens, 0)?, self.padded(tokens, other)?);
        let largest = one.iter().fold(0.0, |largest: f64, logit| largest.max(logit.abs()));
        Ok(one.iter().zip(&another).any(|(one, another)| (one - another).abs() > ROUNDING * largest))
    }

    fn padded(&mut self, tokens: &[i32], padding: i32) -> Result<Vec<f64>, PredictionError> {
        let sequence = self.prediction.sequence as usize;
        let tokens = &tokens[tokens.len().saturating_sub(sequence)..];
        let slot = &self.prediction.operands[self.prediction.tokens].tensors[0];
        let region = self.operands[self.prediction.tokens].part(slot.offset.to_usize(), slot.ty.bytes().to_usize());
        for row in region.bytes_mut().chunks_exact_mut(sequence * size_of::<i32>()) {
            let numbers = tokens.iter().copied().chain(std::iter::repeat(padding)).take(sequence);
            row.copy_from_slice(&encode(DType::I32, numbers.map(f64::from)));
        }
        let scratch = self.operands.len() - 1;
        let done = self.launcher.graph(&mut self.launches, Some(scratch), self.operands.iter().copied());
        done.map_err(|fault| RunError::Unsupported(fault.to_string()))?;
        let (logits, dtype) = (self.operands[scratch - 1], self.prediction.logits.dtype);
        let bytes = self.prediction.vocabulary() as usize * dtype.bytes().to_usize();
        let own = logits.part(tokens.len().saturating_sub(1) * bytes, bytes);
        let mut found = decode(dtype, own.bytes());
        found.truncate(self.vocabulary() as usize);
        if found.iter().all(|logit| logit.is_finite()) { Ok(found) } else { Err(PredictionError::NotFinite) }
    }
}
