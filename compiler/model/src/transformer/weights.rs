//! Weights: every matrix, bias and gain of a layer, of the embedding and of the head, whole and on one device.
//!
//! Under tensor parallelism (Megatron-LM, arXiv 1909.08053, section 3) matrices are divided by
//! column, then by row; biases behind the first one are divided, those behind the second one,
//! norms, positions and the router of experts are copies. A head of keys that several devices share
//! is a copy on each. Symbols are divided, too.

use super::layout::Local;
use super::{Config, Settings};

/// Elements of a weight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Weight {
    /// What it is.
    pub what: Kind,
    /// All of them.
    pub whole: u128,
    /// Those of one device.
    pub local: u128,
}

/// What a weight is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Kind {
    /// Multiplies every token.
    Matrix,
    /// Of experts: multiplies the tokens that go through them, and is divided among pipelines.
    Expert,
    /// A router: multiplies every token of the device between the matrices.
    Router,
    /// A table, bias or gain.
    Other,
}

fn weight(what: Kind, whole: u128, local: u128) -> Weight {
    Weight { what, whole, local }
}

/// A weight of which every device has a copy.
fn copy(elements: u128) -> Weight {
    weight(Kind::Other, elements, elements)
}

/// The gain of a norm, and its bias where it has one.
fn norm(config: &Config) -> Weight {
    let vectors = if config.has_norm_bias { 2 } else { 1 };
    copy(u128::from(config.hidden) * vectors)
}

/// Those of one layer.
pub(super) fn of_layer(config: &Config, settings: &Settings, layer: u64) -> Vec<Weight> {
    let local = Local::of(config, settings);
    let hidden = u128::from(config.hidden);
    let (queries, keys) = (u128::from(config.query_width()), u128::from(config.kv_heads * config.head_dim));
    let heads = (queries + 2 * keys, local.queries + 2 * local.keys);
    let mut all = vec![norm(config), norm(config)];
    all.push(weight(Kind::Matrix, hidden * heads.0, hidden * heads.1));
    all.push(weight(Kind::Matrix, queries * hidden, local.queries * hidden));
    all.extend(config.biases.attention.then(|| weight(Kind::Other, heads.0, heads.1)));
    all.extend(config.biases.projection.then(|| copy(hidden)));
    all.extend(config.has_query_norm.then(|| copy(u128::from(2 * config.head_dim))));
    let inner = if config.is_gated { 2 } else { 1 };
    let mut feed_forward = |width: u64, what: Kind, (count, own): (u128, u128)| {
        let (width, part) = (u128::from(width), u128::from(width.div_ceil(settings.tensor)));
        all.push(weight(what, count * hidden * width * (inner + 1), own * hidden * part * (inner + 1)));
        if config.biases.feed_forward {
            all.push(weight(Kind::Other, inner * width, inner * part));
            all.push(copy(hidden));
        }
    };
    match config.experts_of(layer) {
        None => feed_forward(config.feed_forward, Kind::Matrix, (1, 1)),
        Some(experts) => {
            let count = u128::from(experts.count);
            feed_forward(experts.width, Kind::Expert, (count, count / u128::from(settings.expert)));
            if experts.shared > 0 {
                feed_forward(experts.shared, Kind::Matrix, (1, 1));
                all.push(weight(Kind::Router, hidden, hidden));
            }
            all.push(weight(Kind::Router, hidden * count, hidden * count));
        }
    }
    all
}

/// The table of symbols, and that of positions where there is one.
pub(super) fn of_embedding(config: &Config, settings: &Settings) -> Vec<Weight> {
    let hidden = u128::from(config.hidden);
    let symbols = weight(Kind::Other, u128::from(config.vocabulary) * hidden, own_table(config, settings));
    vec![symbols, copy(u128::from(config.positions) * hidden)]
}

/// The norm before the head, and the head's matrix where the device does not have it anyway: a tied
/// head is the table of the embedding, or a copy of it where that lies on another device.
pub(super) fn of_head(config: &Config, settings: &Settings, has_table: bool) -> Vec<Weight> {
    let table = u128::from(config.vocabulary * config.hidden);
    let head = (!has_table).then(|| weight(Kind::Matrix, table, own_table(config, settings)));
    [norm(config)].into_iter().chain(head).collect()
}

/// The parameters of the whole model.
pub(super) fn total(config: &Config, settings: &Settings) -> u128 {
    let sum = |weights: Vec<Weight>| weights.iter().map(|weight| weight.whole).sum::<u128>();
    let layers: u128 = (0..config.layers).map(|layer| sum(of_layer(config, settings, layer))).sum();
    layers + sum(of_embedding(config, settings)) + sum(of_head(config, settings, config.is_tied))
}

/// Symbols of one device, times the width.
fn own_table(config: &Config, settings: &Settings) -> u128 {
    Local::of(config, settings).vocabulary * u128::from(config.hidden)
}
