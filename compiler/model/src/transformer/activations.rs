//! Activations: the tensors of one microbatch that a device keeps from the forward pass of a layer
//! to its backward pass.
//!
//! The list is that of Korthikanti et al. (arXiv 2205.05198, section 4) for the block of GPT:
//! elements take 2 bytes, masks of dropout 1. With `s` tokens in a row, `b` rows, width `h`, `a`
//! heads and `t` devices it adds up to `sbh (10 + 24/t + 5as/ht)` bytes, to `sbh (34 + 5as/h) / t`
//! with sequence parallelism, and without `5as/h` under selective recomputation (their equations 2
//! and 4, table 2). FlashAttention keeps the same tensors as selective recomputation, so it has no
//! such term either.
//!
//! For Llama and its kin the same rule is applied to their tensors: what enters a norm, a matrix or
//! an activation function is kept, in 2 bytes. Keys and values are as wide as their heads; there is
//! no mask where nothing is dropped; the gate and what it multiplies are kept, and their product,
//! as fused kernels do (`6sbf/t` in all). Tokens that go through experts are kept once for each of
//! their experts, and so is what comes out of these, for the gradient of the router; its shares
//! take 4 bytes. Experts are taken to get equally many tokens. The backward pass of the weights
//! reads what enters matrices, that of the input the rest.

use super::layout::Local;
use super::{Config, Experts, Recompute, Settings};

/// Bytes of an element in half precision.
pub(super) const HALF: u128 = 2;
/// Bytes of an element in single precision.
const SINGLE: u128 = 4;
/// Bytes of a symbol's number.
const SYMBOL: u128 = 8;

/// Who reads a tensor last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Until {
    /// The backward pass of the input.
    Input,
    /// That of the weights.
    Weight,
}

pipe_ir::words! {
    /// What of a stage keeps a tensor.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum StagePart {
        /// Its layers.
        Layers "layers"
        /// The embedding.
        Embedding "embedding"
        /// The head with the loss.
        Head "head"
    }
}

/// A tensor of one microbatch that is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeptTensor {
    /// What it is.
    pub what: &'static str,
    /// Of what.
    pub part: StagePart,
    /// Until when.
    pub until: Until,
    /// Bytes on one device.
    pub bytes: u128,
}

/// What one layer, the embedding or the head takes of one microbatch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Kept {
    /// From the forward pass on.
    pub saved: Vec<KeptTensor>,
    /// Between the two halves of the backward pass, where it is split.
    pub deferred: u128,
    /// Inside the backward pass only: what is computed once more.
    pub again: u128,
}

/// What enters norms: the first one of a layer is what flows into it.
pub const INPUTS: &str = "inputs of norms";
/// What selective recomputation does not keep.
const SCORES: [&str; 2] = ["attention scores", "dropout masks of attention"];

/// What flows from layer to layer.
pub(super) fn flowing(config: &Config, settings: &Settings) -> u128 {
    HALF * Local::of(config, settings).own_tokens * u128::from(config.hidden)
}

/// Those of one layer. Its input comes first.
pub(super) fn of_layer(config: &Config, settings: &Settings, layer: u64) -> Kept {
    let mut list = List { local: Local::of(config, settings), hidden: u128::from(config.hidden), saved: Vec::new() };
    let attention = list.attention(config, settings);
    let feed_forward = match config.experts_of(layer) {
        None => list.feed_forward(config),
        Some(experts) => list.experts(experts, settings),
    };
    let deferred = attention + feed_forward;
    let saved = list.saved;
    match settings.recompute {
        Recompute::None => Kept { saved, deferred, again: 0 },
        Recompute::Selective => {
            let (again, saved): (Vec<KeptTensor>, Vec<KeptTensor>) =
                saved.into_iter().partition(|held| SCORES.contains(&held.what));
            Kept { saved, deferred, again: again.iter().map(|held| held.bytes).sum() }
        }
        Recompute::Full => {
            let (input, rest) = saved.split_at(1);
            let sum = |until: Option<Until>| {
                rest.iter().filter(|held| until.is_none_or(|until| held.until == until)).map(|held| held.bytes).sum()
            };
            let for_weights: u128 = sum(Some(Until::Weight));
            Kept { saved: input.to_vec(), deferred: deferred + for_weights, again: sum(None) }
        }
    }
}

struct List {
    local: Local,
    hidden: u128,
    saved: Vec<KeptTensor>,
}

impl List {
    fn keep(&mut self, what: &'static str, until: Until, bytes: u128) {
        self.saved.push(KeptTensor { what, part: StagePart::Layers, until, bytes });
    }

    /// What flows from layer to layer.
    const fn flowing(&self) -> u128 {
        HALF * self.local.own_tokens * self.hidden
    }

    /// Keeps what attention does, and returns the bytes of the gradients behind its matrices.
    fn attention(&mut self, config: &Config, settings: &Settings) -> u128 {
        let Local { tokens, heads, queries, keys, .. } = self.local;
        self.keep(INPUTS, Until::Input, self.flowing());
        self.keep("inputs of attention", Until::Weight, self.flowing());
        let projected = HALF * tokens * (queries + 2 * keys);
        self.keep("queries, keys and values", Until::Input, projected);
        if config.has_query_norm {
            self.keep("queries and keys before their norms", Until::Input, HALF * tokens * (queries + keys));
        }
        if !settings.flash {
            let scores = heads * tokens * u128::from(settings.sequence);
            self.keep(SCORES[0], Until::Input, HALF * scores);
            if config.dropout.attention {
                self.keep(SCORES[0], Until::Input, HALF * scores);
                self.keep(SCORES[1], Until::Input, scores);
            }
        }
        self.keep("outputs of attention", Until::Weight, HALF * tokens * queries);
        self.mask(config);
        projected + self.flowing()
    }

    /// The mask of what is dropped of what is added to a layer's input.
    fn mask(&mut self, config: &Config) {
        if config.dropout.residual {
            self.keep("dropout masks", Until::Input, self.flowing() / HALF);
        }
    }

    /// Keeps what a dense feed-forward does, likewise.
    fn feed_forward(&mut self, config: &Config) -> u128 {
        self.keep(INPUTS, Until::Input, self.flowing());
        self.keep("inputs of feed-forwards", Until::Weight, self.flowing());
        let inner = if config.is_gated { 2 } else { 1 };
        let width = HALF * self.local.tokens * self.local.feed_forward;
        self.keep("inside feed-forwards", Until::Input, inner * width);
        self.keep("activated feed-forwards", Until::Weight, width);
        self.mask(config);
        inner * width + self.flowing()
    }

    /// Keeps what experts do, likewise.
    fn experts(&mut self, experts: &Experts, settings: &Settings) -> u128 {
        let Local { tokens, own_tokens, .. } = self.local;
        let (routed, per_token) = (tokens * u128::from(experts.per_token), u128::from(experts.per_token));
        self.keep(INPUTS, Until::Input, self.flowing());
        self.keep("inputs of feed-forwards", Until::Weight, self.flowing());
        let shares = SINGLE * own_tokens * u128::from(experts.count);
        self.keep("shares of experts", Until::Input, shares);
        let inputs = HALF * routed * self.hidden;
        self.keep("tokens at experts", Until::Weight, inputs);
        let width = HALF * routed * u128::from(experts.width.div_ceil(settings.tensor));
        self.keep("inside feed-forwards", Until::Input, 2 * width);
        self.keep("activated feed-forwards", Until::Weight, width);
        self.keep("outputs of experts", Until::Input, per_token * self.flowing());
        let mut deferred = shares + 2 * width + inputs;
        if experts.shared > 0 {
            let width = HALF * tokens * u128::from(experts.shared.div_ceil(settings.tensor));
            self.keep("inside feed-forwards", Until::Input, 2 * width);
            self.keep("activated feed-forwards", Until::Weight, width);
            self.keep("outputs of experts", Until::Input, self.flowing());
            deferred += 2 * width + self.flowing();
        }
        deferred
    }
}

/// Those of the embedding: symbols, and the mask of what is dropped (arXiv 2205.05198, section 4.3).
pub(super) fn of_embedding(config: &Config, settings: &Settings) -> Kept {
    let flowing = flowing(config, settings);
    let held = |what, until, bytes| KeptTensor { what, part: StagePart::Embedding, until, bytes };
    let symbols = SYMBOL * Local::of(config, settings).tokens;
    let mut saved = vec![held("symbols", Until::Weight, symbols)];
    saved.extend(config.dropout.embedding.then(|| held("dropout masks", Until::Input, flowing / HALF)));
    Kept { saved, deferred: flowing, again: 0 }
}

/// Those of the head: what enters its norm (which comes first), what enters its matrix, and the
/// logits in single precision (likewise). Their half-precision form, which the matrix writes and
/// the backward pass reads, is inside a task only, or lies between the halves of the backward pass.
pub(super) fn of_head(config: &Config, settings: &Settings) -> Kept {
    let local = Local::of(config, settings);
    let flowing = flowing(config, settings);
    let held = |what, until, bytes| KeptTensor { what, part: StagePart::Head, until, bytes };
    let logits = local.tokens * local.vocabulary;
    let saved = vec![
        held(INPUTS, Until::Input, flowing),
        held("inputs of the head", Until::Weight, flowing),
        held("logits", Until::Input, SINGLE * logits),
        held("symbols", Until::Input, SYMBOL * local.tokens),
    ];
    Kept { saved, deferred: HALF * logits, again: HALF * logits }
}
