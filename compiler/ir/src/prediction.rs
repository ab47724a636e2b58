//! Predictions: the graph of a whole model on one device, from the tokens of a row to the logits of what follows each.

use crate::digest::Digest;
use crate::graph::{Graph, TensorType};
use crate::value::Value;

/// What a language model computes before its loss.
#[derive(Clone, PartialEq, Debug)]
pub struct Prediction {
    /// From the operands to the logits. The logits are its only store.
    pub graph: Graph,
    /// What each operand of the graph holds: weights, tokens, and the logits last.
    pub operands: Vec<Value>,
    /// Which operand holds the tokens.
    pub tokens: usize,
    /// Positions of a row.
    pub sequence: u64,
    /// Type of the logits: the last axis is the vocabulary, the others are rows and positions.
    pub logits: TensorType,
    /// Whether the loss of the model is the cross-entropy of these logits and nothing else.
    pub is_loss: bool,
    /// Tells the model from others, as a checkpoint does.
    pub model: Digest,
}

impl Prediction {
    /// How many tokens there are to choose from.
    pub fn vocabulary(&self) -> u64 {
        self.logits.shape.last().copied().unwrap_or(0)
    }
}
