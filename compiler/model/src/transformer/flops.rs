//! Floating-point operations of one microbatch on one device, 2 per multiply-add, of products only.
//!
//! A matrix takes as many for the input's gradient, and for its own, as forward. Attention has two
//! products forward and four backward, all of them for the input. Without FlashAttention, all `s^2`
//! scores of a head are computed and then masked: this is the count of arXiv 2205.05198, appendix
//! A. With it, tiles above the diagonal are left out, so the `s (s + 1) / 2` scores count that a
//! causal mask leaves (fewer with a window), and the backward pass computes them once more: five
//! products instead of four.

use super::layout::Local;
use super::weights::{Kind, Weight, of_head, of_layer};
use super::{Config, Recompute, Settings};

/// What one layer or the head takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flops {
    /// Forward.
    pub forward: u128,
    /// Backward for the input, with what is computed once more inside it.
    pub backward_input: u128,
    /// Backward for the weights.
    pub backward_weight: u128,
    /// What of the backward is computed once more, because the forward did not keep it.
    pub again: u128,
}

impl std::ops::AddAssign for Flops {
    fn add_assign(&mut self, other: Self) {
        self.forward += other.forward;
        self.backward_input += other.backward_input;
        self.backward_weight += other.backward_weight;
        self.again += other.again;
    }
}

/// Of one layer.
pub(super) fn flops_of_layer(config: &Config, settings: &Settings, layer: u64) -> Flops {
    let products: u128 = of_layer(config, settings, layer).iter().map(|one| matrix(config, settings, layer, one)).sum();
    let local = Local::of(config, settings);
    let pairs =
        if settings.flash { seen(settings.sequence, config.window) } else { u128::from(settings.sequence).pow(2) };
    let product = 2 * u128::from(settings.rows) * pairs * local.queries;
    let attention = 2 * product;
    let forward = products + attention;
    let backward = if settings.flash { 5 * product } else { 4 * product };
    let again = match settings.recompute {
        Recompute::Selective if !settings.flash => attention,
        Recompute::None | Recompute::Selective => 0,
        Recompute::Full => forward,
    };
    Flops { forward, backward_input: products + backward + again, backward_weight: products, again }
}

/// Of the head.
pub(super) fn flops_of_head(config: &Config, settings: &Settings) -> Flops {
    let matrices = of_head(config, settings, false).into_iter().filter(|one| one.what == Kind::Matrix);
    let products = 2 * Local::of(config, settings).tokens * matrices.map(|one| one.local).sum::<u128>();
    Flops { forward: products, backward_input: products, backward_weight: products, again: 0 }
}

/// The product with one weight.
fn matrix(config: &Config, settings: &Settings, layer: u64, weight: &Weight) -> u128 {
    let local = Local::of(config, settings);
    match (weight.what, config.experts_of(layer)) {
        (Kind::Matrix, _) => 2 * local.tokens * weight.local,
        (Kind::Router, _) => 2 * local.own_tokens * weight.local,
        // Each token goes through some of them; devices that divide the experts get equally many tokens.
        (Kind::Expert, Some(experts)) => {
            let one = weight.whole / u128::from(experts.count) / u128::from(settings.tensor);
            2 * local.tokens * u128::from(experts.per_token) * one
        }
        _ => 0,
    }
}

/// Pairs of positions of a row, the second one not behind the first, and less than a window before it.
fn seen(sequence: u64, window: Option<u64>) -> u128 {
    let (all, most) = (u128::from(sequence), u128::from(window.unwrap_or(sequence).min(sequence)));
    most * (most + 1) / 2 + (all - most) * most
}
