//! Rule: a transformer can be divided as its settings say. And what one device then has of its widths.

use super::{Config, Settings, Transformer};
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};

/// Widths of one device, and tokens of one microbatch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Local {
    /// Tokens of a microbatch.
    pub tokens: u128,
    /// Those of them that a device has between the matrices: with sequence parallelism a part, else all.
    pub own_tokens: u128,
    /// Heads of queries.
    pub heads: u128,
    /// Width of these heads.
    pub queries: u128,
    /// Width of the keys, and likewise of the values: a device has at least one head of them.
    pub keys: u128,
    /// Width of the feed-forward of dense layers.
    pub feed_forward: u128,
    /// Symbols: those of the device that has most.
    pub vocabulary: u128,
}

impl Local {
    /// What a device has.
    pub(super) fn of(config: &Config, settings: &Settings) -> Self {
        let tokens = settings.sequence * settings.rows;
        let own_tokens = if settings.sequence_parallel { tokens.div_ceil(settings.tensor) } else { tokens };
        let heads = config.heads.div_ceil(settings.tensor);
        Self {
            tokens: tokens.into(),
            own_tokens: own_tokens.into(),
            heads: heads.into(),
            queries: u128::from(heads * config.head_dim),
            keys: u128::from(config.kv_heads.div_ceil(settings.tensor) * config.head_dim),
            feed_forward: config.feed_forward.div_ceil(settings.tensor).into(),
            vocabulary: config.vocabulary.div_ceil(settings.tensor).into(),
        }
    }
}

/// Compares the settings with the model's sizes.
///
/// # Errors
/// Everything that cannot be divided evenly.
pub fn check(transformer: &Transformer) -> Result<(), Diagnostics> {
    let (config, settings) = (&transformer.config, &transformer.settings);
    let tensor = settings.tensor;
    let mut found = Diagnostics::new();
    let mut refuse = |setting: &'static str, message: String, help: &str| {
        let span = transformer.place(setting);
        let error = Diagnostic::error(Code::UnusableConfig, span, format!("`{setting}`"), message).help(help);
        let cut = transformer.cut(setting).filter(|_| help.starts_with("leave "));
        found.push(error.edit_with(cut));
    };
    let widths = [("heads", config.heads), ("the feed-forward", config.feed_forward)];
    let of_experts = config.experts.iter().flat_map(|experts| [experts.width, experts.shared]);
    let widths = widths.into_iter().chain(of_experts.map(|width| ("the experts", width)));
    for (what, width) in widths.filter(|(_, width)| !width.is_multiple_of(tensor)) {
        let message = format!("{tensor} devices cannot divide {what} of `{}` evenly: {width}", config.path);
        refuse("tensor", message, "choose a number that divides heads and widths");
    }
    let shares_keys = config.kv_heads.is_multiple_of(tensor) || tensor.is_multiple_of(config.kv_heads);
    if !shares_keys {
        let heads = config.kv_heads;
        let message = format!("{tensor} devices can neither divide nor share {heads} heads of keys evenly");
        refuse("tensor", message, "choose a divisor or a multiple of the number of heads");
    }
    if settings.sequence_parallel && !settings.sequence.is_multiple_of(tensor) {
        let message = format!("{tensor} devices cannot divide a sequence of {} evenly", settings.sequence);
        refuse("sequence_parallel", message, "choose a sequence that `tensor` divides");
    }
    if config.positions > 0 && settings.sequence > config.positions {
        let message = format!(
            "a sequence of {} is too long: `{}` has {} positions",
            settings.sequence, config.path, config.positions
        );
        refuse("sequence", message, "positions are learned in this family: choose a shorter sequence");
    }
    let expert = settings.expert;
    match &config.experts {
        None if expert > 1 => {
            refuse("expert", format!("`{}` has no experts to divide", config.path), "leave `expert` out");
        }
        Some(experts) if !experts.count.is_multiple_of(expert) => {
            let message = format!("{expert} pipelines cannot divide {} experts evenly", experts.count);
            refuse("expert", message, "choose a divisor of the number of experts");
        }
        _ => {}
    }
    if !settings.data.is_multiple_of(expert) {
        let message =
            format!("{expert} pipelines divide the experts, and {} pipelines are side by side", settings.data);
        refuse("expert", message, "choose a divisor of `data`");
    }
    if found.is_empty() { Ok(()) } else { Err(found) }
}
