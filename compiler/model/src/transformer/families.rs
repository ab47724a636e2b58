//! Families: the keys of each `model_type`, and what transformers takes where one is missing.
//!
//! Keys and defaults are those of the configuration classes of huggingface/transformers
//! (`src/transformers/models/<family>/configuration_<family>.py`), biases those of the modules beside them.

use super::config::{Biases, Config, Dropout, Experts};
use super::json::{JsonValue, Object};
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics, Edit};
use pipe_syntax::source::{FileId, Span};
use pipe_syntax::suggest;
use std::ops::RangeInclusive;

/// What is read of a file: `model_type` is one of these.
pub const FAMILIES: [&str; 8] = ["gpt2", "llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe"];

/// Types of transformers whose names are much like these, but whose layers are others.
const OTHERS: [&str; 3] = ["ministral", "mllama", "pixtral"];

/// Widths and numbers of heads that are accepted, so that products stay countable.
pub(super) const SIZES: RangeInclusive<u64> = 1..=1 << 20;
/// Widths of feed-forwards, numbers of symbols, positions and experts that are accepted, likewise.
pub(super) const LARGE: RangeInclusive<u64> = 1..=1 << 24;
/// Numbers of layers that are accepted.
const LAYERS: RangeInclusive<u64> = 1..=1 << 12;

/// Reads a `config.json`.
///
/// # Errors
/// Everything in it that is not as it should be.
pub fn read(file: FileId, path: &str, text: &str) -> Result<Config, Diagnostics> {
    let mut reader = Reader::new(file, path, text).map_err(|error| vec![error])?;
    let family = reader.family(&FAMILIES).map_err(|error| vec![error])?;
    let config = match family {
        "gpt2" => reader.gpt2(),
        _ => reader.llama_like(family),
    };
    reader.finish(config)
}

/// A file that is being read.
pub(super) struct Reader<'t> {
    pub object: Object<'t>,
    pub path: &'t str,
    pub found: Diagnostics,
}

/// What transformers takes for Llama and its kin where a key is missing.
struct Defaults {
    vocabulary: u64,
    hidden: u64,
    feed_forward: u64,
    layers: u64,
    heads: u64,
    /// None is as many as there are heads.
    kv_heads: Option<u64>,
    /// None is the hidden width over the heads.
    head_dim: Option<u64>,
}

/// Row by row from the configuration classes.
fn defaults(family: &str) -> Defaults {
    let row = |vocabulary, hidden, feed_forward, layers, heads, kv_heads, head_dim| Defaults {
        vocabulary,
        hidden,
        feed_forward,
        layers,
        heads,
        kv_heads,
        head_dim,
    };
    match family {
        "mistral" | "mixtral" => row(32_000, 4_096, 14_336, 32, 32, Some(8), None),
        "qwen2" => row(151_936, 4_096, 22_016, 32, 32, Some(32), None),
        "qwen2_moe" => row(151_936, 2_048, 5_632, 24, 16, Some(16), None),
        "qwen3" => row(151_936, 4_096, 22_016, 32, 32, Some(32), Some(128)),
        "qwen3_moe" => row(151_936, 2_048, 6_144, 24, 32, Some(4), None),
        "gemma" => row(256_000, 3_072, 24_576, 28, 16, Some(16), Some(256)),
        "deepseek_v2" => row(32_000, 4_096, 11_008, 32, 32, Some(32), Some(64)),
        "deepseek_v3" => row(129_280, 7_168, 18_432, 61, 128, Some(128), Some(64)),
        _ => row(32_000, 4_096, 11_008, 32, 32, None, None),
    }
}

impl<'t> Reader<'t> {
    /// The beginning of a file.
    pub(super) fn new(file: FileId, path: &'t str, text: &'t str) -> Result<Self, Diagnostic> {
        Ok(Self { object: Object::read(file, path, text)?, path, found: Vec::new() })
    }

    /// What was read, if nothing is wrong.
    pub(super) fn finish<T>(self, read: T) -> Result<T, Diagnostics> {
        if self.found.is_empty() { Ok(read) } else { Err(self.found) }
    }

    /// The type of the model, one of these.
    pub(super) fn family(&self, known: &[&'static str]) -> Result<&'static str, Diagnostic> {
        let Some((_, written)) = self.object.get(&["model_type"]) else {
            let message = format!("`{}` does not say its `model_type`", self.path);
            let error =
                Diagnostic::error(Code::UnusableConfig, self.object.start(), "no `model_type` in here", message);
            let near = suggest::closest("model_type", self.object.keys());
            let Some(near) = near else {
                return Err(error.help(listed(known)));
            };
            let edit = self.object.key(near).map(|span| Edit { span, text: "model_type".to_owned() });
            return Err(error.help(format!("there is `{near}`: did you mean `model_type`?")).edit_with(edit));
        };
        let name = written.text.trim_matches('"');
        known.iter().copied().find(|family| *family == name).ok_or_else(|| {
            let message = format!("`{}` is a model of the type `{name}`, whose layers are not known", self.path);
            let error = Diagnostic::error(Code::UnusableConfig, written.span, "this type", message);
            if super::GRAPHS.contains(&name) {
                let message = format!("the formulas do not count what a model of the type `{name}` takes");
                let error = Diagnostic { message, ..error };
                return error
                    .help("write `train { .. }` in the pipeline: then the model itself is checked, and can run");
            }
            let Some(meant) = misspelt(name, known).filter(|_| written.text.starts_with('"')) else {
                return error.help(listed(known));
            };
            let inside =
                Span { start: written.span.start + 1, end: written.span.end.saturating_sub(1), ..written.span };
            error.help(format!("did you mean `{meant}`? {}", listed(known))).edit(inside, meant)
        })
    }

    /// Layer norms and biases everywhere, learned positions, no gate (`modeling_gpt2.py`).
    pub(super) fn gpt2(&mut self) -> Config {
        let hidden = self.whole(&["n_embd", "hidden_size"], 768, SIZES);
        let heads = self.whole(&["n_head", "num_attention_heads"], 12, SIZES);
        let dropout = Dropout {
            embedding: self.is_positive("embd_pdrop", true),
            attention: self.is_positive("attn_pdrop", true),
            residual: self.is_positive("resid_pdrop", true),
        };
        Config {
            path: self.path.to_owned(),
            family: "gpt2",
            hidden,
            layers: self.whole(&["n_layer", "num_hidden_layers"], 12, LAYERS),
            heads,
            kv_heads: heads,
            head_dim: self.head_dim(hidden, heads, None),
            feed_forward: self.whole(&["n_inner"], 4 * hidden, LARGE),
            vocabulary: self.whole(&["vocab_size"], 50_257, LARGE),
            positions: self.whole(&["n_positions", "max_position_embeddings"], 1_024, LARGE),
            is_tied: self.flag("tie_word_embeddings", true),
            is_gated: false,
            has_norm_bias: true,
            has_query_norm: false,
            biases: Biases { attention: true, projection: true, feed_forward: true },
            dropout,
            window: None,
            experts: None,
        }
    }

    /// RMS norms, rotated positions, a gated feed-forward, grouped queries.
    pub(super) fn llama_like(&mut self, family: &'static str) -> Config {
        let known = defaults(family);
        let hidden = self.whole(&["hidden_size"], known.hidden, SIZES);
        let heads = self.whole(&["num_attention_heads"], known.heads, SIZES);
        let layers = self.whole(&["num_hidden_layers"], known.layers, LAYERS);
        let biases = match family {
            // The modules of Qwen 2 have this bias whatever the file says; its experts' since `qkv_bias`.
            "qwen2" => Biases { attention: true, ..Biases::default() },
            "qwen2_moe" => Biases { attention: self.flag("qkv_bias", true), ..Biases::default() },
            "llama" | "qwen3" | "qwen3_moe" => {
                let attention = self.flag("attention_bias", false);
                let feed_forward = family == "llama" && self.flag("mlp_bias", false);
                Biases { attention, projection: attention, feed_forward }
            }
            _ => Biases::default(),
        };
        let default = if family == "mistral" { Some(4_096) } else { None };
        let config = Config {
            path: self.path.to_owned(),
            family,
            hidden,
            layers,
            heads,
            kv_heads: self.kv_heads(heads, known.kv_heads),
            head_dim: self.head_dim(hidden, heads, known.head_dim),
            feed_forward: self.whole(&["intermediate_size"], known.feed_forward, LARGE),
            vocabulary: self.whole(&["vocab_size"], known.vocabulary, LARGE),
            positions: 0,
            is_tied: self.flag("tie_word_embeddings", family == "gemma"),
            is_gated: true,
            has_norm_bias: false,
            has_query_norm: family.starts_with("qwen3"),
            biases,
            dropout: Dropout { attention: self.is_positive("attention_dropout", false), ..Dropout::default() },
            // Where Qwen and its kin have a window at all, it is that of some layers only.
            window: if matches!(family, "mistral" | "mixtral") { self.window(default) } else { None },
            experts: None,
        };
        let experts = self.experts(family, &config);
        Config { experts, ..config }
    }

    fn kv_heads(&mut self, heads: u64, default: Option<u64>) -> u64 {
        let key = "num_key_value_heads";
        // An explicit `null` is as many as there are heads, in every family.
        let is_null = self.object.keys().any(|other| other == key) && self.object.get(&[key]).is_none();
        let default = if is_null { heads } else { default.unwrap_or(heads) };
        let number = self.whole(&[key], default, SIZES);
        if !heads.is_multiple_of(number) {
            self.refuse(&[key], format!("`{key}` is {number}, and {heads} heads of queries cannot share them evenly"));
        }
        number
    }

    fn head_dim(&mut self, hidden: u64, heads: u64, default: Option<u64>) -> u64 {
        let own = default.unwrap_or((hidden / heads).max(1));
        let is_said = default.is_some() || self.object.get(&["head_dim"]).is_some();
        if !is_said && !hidden.is_multiple_of(heads) {
            let keys = ["num_attention_heads", "n_head", "hidden_size", "n_embd"];
            self.refuse(&keys, format!("a hidden width of {hidden} cannot be divided among {heads} heads"));
        }
        self.whole(&["head_dim"], own, SIZES)
    }

    pub(super) fn window(&mut self, default: Option<u64>) -> Option<u64> {
        let key = "sliding_window";
        match self.object.get(&[key]) {
            Some(_) => Some(self.whole(&[key], 1, LARGE)),
            // An explicit `null` is no window.
            None => default.filter(|_| !self.object.keys().any(|other| other == key)),
        }
    }

    fn experts(&mut self, family: &str, config: &Config) -> Option<Experts> {
        let (count, per_token, width, shared) = match family {
            "mixtral" => (8, 2, config.feed_forward, 0),
            "qwen2_moe" => (60, 4, 1_408, 5_632),
            "qwen3_moe" => (128, 8, 768, 0),
            _ => return None,
        };
        let layers = usize::try_from(config.layers).unwrap_or(0);
        let is_mixtral = family == "mixtral";
        let count = self.whole(&["num_local_experts", "num_experts"], count, 0..=1 << 16);
        let per_token = self.whole(&["num_experts_per_tok"], per_token, SIZES);
        let width = if is_mixtral { width } else { self.whole(&["moe_intermediate_size"], width, LARGE) };
        let has_shared = shared > 0;
        let shared = if has_shared { self.whole(&["shared_expert_intermediate_size"], shared, LARGE) } else { 0 };
        let (every, dense) = match is_mixtral {
            true => (1, Vec::new()),
            false => (self.whole(&["decoder_sparse_step"], 1, SIZES), self.list("mlp_only_layers")),
        };
        if count == 0 {
            return None;
        }
        if per_token > count {
            let message = format!("each token goes through {per_token} experts, but there are {count}");
            self.refuse(&["num_experts_per_tok"], message);
        }
        let is_sparse = |layer: u64| !dense.contains(&layer) && (layer + 1).is_multiple_of(every);
        let is_sparse = (0..).map(is_sparse).take(layers).collect();
        Some(Experts { count, per_token, width, shared, is_sparse })
    }

    /// A whole number.
    pub(super) fn whole(&mut self, keys: &[&str], default: u64, range: RangeInclusive<u64>) -> u64 {
        let Some((key, written)) = self.object.get(keys) else { return default };
        match written.text.parse() {
            Ok(value) if range.contains(&value) => value,
            _ => {
                let (low, high) = (range.start(), range.end());
                let message = format!("`{key}` is {}; it must be a whole number from {low} to {high}", short(written));
                self.refuse(&[key], message);
                default.max(1)
            }
        }
    }

    pub(super) fn flag(&mut self, key: &str, default: bool) -> bool {
        let Some((_, written)) = self.object.get(&[key]) else { return default };
        match written.text.parse() {
            Ok(value) => value,
            Err(_) => {
                self.refuse(&[key], format!("`{key}` is {}; it must be `true` or `false`", short(written)));
                default
            }
        }
    }

    /// Whether a share is more than 0: whether a digit before its exponent is.
    fn is_positive(&mut self, key: &str, default: bool) -> bool {
        let Some((_, written)) = self.object.get(&[key]) else { return default };
        let is_number = written.text.starts_with(|mark: char| mark.is_ascii_digit());
        if !is_number {
            self.refuse(&[key], format!("`{key}` is {}; it must be a share from 0 to 1", short(written)));
        }
        let digits = written.text.split(['e', 'E']).next().unwrap_or_default();
        digits.contains(|mark: char| ('1'..='9').contains(&mark))
    }

    pub(super) fn list(&mut self, key: &str) -> Vec<u64> {
        let Some((_, written)) = self.object.get(&[key]) else { return Vec::new() };
        serde_json::from_str(written.text).unwrap_or_else(|_| {
            self.refuse(&[key], format!("`{key}` is {}; it must be a list of layers", short(written)));
            Vec::new()
        })
    }

    /// Notes what is wrong with the first of these keys that is there.
    pub(super) fn refuse(&mut self, keys: &[&str], message: String) {
        self.refuse_with(keys, message, "compare with the `config.json` that the model is published with".to_owned());
    }

    /// The same with another help.
    pub(super) fn refuse_with(&mut self, keys: &[&str], message: String, help: String) {
        let span = self.object.get(keys).map_or(self.object.start(), |(_, written)| written.span);
        let error = Diagnostic::error(Code::UnusableConfig, span, "this value", message);
        self.found.push(error.help(help));
    }
}

/// The types that are known, and those that are with `train`.
fn listed(known: &[&str]) -> String {
    let named = |names: &mut dyn Iterator<Item = &str>| names.map(|name| format!("`{name}`")).collect::<Vec<_>>();
    let more = named(&mut super::GRAPHS.into_iter().filter(|name| !known.contains(name))).join(", ");
    let all = named(&mut known.iter().copied()).join(", ");
    if more.is_empty() { format!("known are {all}") } else { format!("known are {all}, and with `train` also {more}") }
}

/// The type that was meant by a name that is the type of no other architecture: `gemma2` is not a misspelt `gemma`.
fn misspelt<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let meant = suggest::closest(name, known.iter().copied())?;
    let digits = |name: &str| name.chars().filter(char::is_ascii_digit).collect::<String>();
    let is_other = OTHERS.contains(&name) || digits(name) != digits(meant) || name.starts_with(meant);
    (!is_other).then_some(meant)
}

/// A value in a message: not more of it than one can read.
fn short(written: JsonValue<'_>) -> String {
    let text: String = written.text.chars().filter(|mark| !mark.is_control()).take(40).collect();
    format!("`{text}`{}", if text.len() < written.text.len() { ".." } else { "" })
}
