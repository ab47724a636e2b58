//! Graphs: which model of the standard library a `config.json` is, and with which numbers.
//!
//! The formulas of the other files count the bytes of a job of Megatron-LM. This is the model as
//! `pipec` runs it: layers of `stdlib/models/`, whose arithmetic is the one of transformers
//! (`src/transformers/models/<family>/modeling_*.py`).

use super::Settings;
use super::config::Config;
use super::families::{LARGE, Reader, SIZES};
use super::rotation::magnitude;
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::expr::number::Number;
use pipe_syntax::fraction::Fraction;
use pipe_syntax::source::FileId;
use serde_json::Value;
use std::collections::BTreeMap;

/// Families that have a graph.
pub const GRAPHS: [&str; 11] = [
    "gpt2",
    "llama",
    "mistral",
    "mixtral",
    "qwen2",
    "qwen2_moe",
    "qwen3",
    "qwen3_moe",
    "gemma",
    "deepseek_v2",
    "deepseek_v3",
];

/// Settings that a model has which runs; the others describe a job of Megatron-LM.
pub const SETTINGS_OF_GRAPH: [&str; 6] = ["sequence", "rows", "tensor", "sequence_parallel", "data", "lora"];

/// Keys that say nothing about what is computed in training, whatever their value is.
const SILENT: &[&str] = &[
    "architectures",
    "auto_map",
    "aux_loss_alpha",
    "bos_token_id",
    "cache_implementation",
    "dtype",
    "eos_token_id",
    "ep_size",
    "finetuning_task",
    "id2label",
    "initializer_range",
    "is_llama_config",
    "label2id",
    "max_position_embeddings",
    "max_sequence_length",
    "model_type",
    "n_ctx",
    "n_special",
    "name_or_path",
    "num_labels",
    "num_mtp_layers",
    "num_nextn_predict_layers",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "output_router_logits",
    "pad_token_id",
    "predict_special_tokens",
    "pretraining_tp",
    "qk_head_dim",
    "quantization_config",
    "rope_interleave",
    "scoring_func",
    "seq_aux",
    "task_specific_params",
    "tokenizer_class",
    "topk_method",
    "torch_dtype",
    "transformers_version",
    "unk_token_id",
    "use_cache",
    "use_mrope",
    "rotary_dim",
    "moe_layer_freq",
    "add_cross_attention",
    "gradient_checkpointing",
    "reorder_and_upcast_attn",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
];

/// Keys that are read, by this file or in `families.rs`.
const READ: &[&str] = &[
    "activation_function",
    "attention_bias",
    "attention_dropout",
    "attn_pdrop",
    "decoder_sparse_step",
    "embd_pdrop",
    "first_k_dense_replace",
    "head_dim",
    "hidden_act",
    "hidden_activation",
    "hidden_size",
    "intermediate_size",
    "kv_lora_rank",
    "layer_norm_epsilon",
    "layer_types",
    "max_window_layers",
    "mlp_bias",
    "mlp_only_layers",
    "moe_intermediate_size",
    "n_embd",
    "n_group",
    "n_head",
    "n_inner",
    "n_layer",
    "n_positions",
    "n_routed_experts",
    "n_shared_experts",
    "norm_topk_prob",
    "num_attention_heads",
    "num_experts",
    "num_experts_per_tok",
    "num_hidden_layers",
    "num_key_value_heads",
    "num_local_experts",
    "q_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "qkv_bias",
    "resid_pdrop",
    "rms_norm_eps",
    "rope_interleaved",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "router_jitter_noise",
    "routed_scaling_factor",
    "router_aux_loss_coef",
    "scale_attn_by_inverse_layer_idx",
    "scale_attn_weights",
    "shared_expert_intermediate_size",
    "sliding_window",
    "tie_word_embeddings",
    "topk_group",
    "use_bidirectional_attention",
    "use_sliding_window",
    "v_head_dim",
    "vocab_size",
];

/// A model of the standard library, with a value for each of its parameters that is not the default.
#[derive(Clone, PartialEq, Debug)]
pub struct GraphCall {
    /// The file, without spaces.
    pub config: String,
    /// What it is called.
    pub model: &'static str,
    /// By parameter.
    pub arguments: BTreeMap<String, Number>,
}

/// Reads a `config.json` as a model to run.
///
/// # Errors
/// Everything in it that is not as it should be, and what would be computed otherwise than it says.
pub fn graph(file: FileId, path: &str, text: &str, settings: &Settings) -> Result<GraphCall, Diagnostics> {
    let mut reader = Reader::new(file, path, text).map_err(|error| vec![error])?;
    let family = reader.family(&GRAPHS).map_err(|error| vec![error])?;
    reader.unknown_keys();
    let call = match family {
        "gpt2" => reader.gpt2_graph(settings),
        "deepseek_v2" | "deepseek_v3" => reader.deepseek(family, settings),
        _ => reader.llama_graph(family, settings),
    };
    let (model, Arguments(arguments)) = call;
    let compact = serde_json::from_str::<Value>(text).map(|value| value.to_string());
    let config = compact.unwrap_or_else(|_| text.to_owned());
    reader.finish(GraphCall { model, config, arguments })
}

/// Numbers by parameter.
pub(super) struct Arguments(BTreeMap<String, Number>);

impl Arguments {
    fn sizes(sizes: &[(&str, u64)]) -> Self {
        let whole = |size: u64| Number::whole(i64::try_from(size).unwrap_or(i64::MAX));
        Self(sizes.iter().map(|(name, size)| ((*name).to_owned(), whole(*size))).collect())
    }

    pub(super) fn set(&mut self, name: &str, number: Number) {
        self.0.insert(name.to_owned(), number);
    }

    fn flag(&mut self, name: &str, is_set: bool) {
        self.set(name, Number::whole(i64::from(is_set)));
    }
}

impl Reader<'_> {
    /// Rule: every key is known, so that nothing is computed otherwise than the file says.
    fn unknown_keys(&mut self) {
        let keys: Vec<String> = self.object.keys().map(str::to_owned).collect();
        for key in keys {
            let is_null = self.object.get(&[key.as_str()]).is_none();
            // What begins so is kept by the library for itself.
            let is_private = key.starts_with('_');
            if is_null || is_private || SILENT.contains(&key.as_str()) || READ.contains(&key.as_str()) {
                continue;
            }
            let message = format!("unknown key `{key}` in `{}`: it may change what the model computes", self.path);
            let span = self.object.key(&key).unwrap_or_else(|| self.object.start());
            let error = Diagnostic::error(Code::UnusableConfig, span, "this key", message);
            self.found.push(match pipe_syntax::suggest::closest(&key, READ.iter().copied()) {
                Some(near) => error.help(format!("did you mean `{near}`?")),
                None => error.help("remove it if the model computes the same without it"),
            });
        }
    }

    /// Rule: what is computed has this value; others are not known.
    fn only(&mut self, key: &str, known: &[&str]) {
        let Some((_, written)) = self.object.get(&[key]) else { return };
        let text = written.text.trim_matches('"').to_owned();
        if !known.contains(&text.as_str()) {
            let list = known.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(" or ");
            self.refuse_with(&[key], format!("`{key}` is `{text}`"), format!("only {list} is supported"));
        }
    }

    /// A number, exact where it is short.
    pub(super) fn number(&mut self, key: &str, default: f64) -> Number {
        let Some((_, written)) = self.object.get(&[key]) else { return exact(default) };
        match written.text.parse::<f64>() {
            Ok(value) if value.is_finite() && value >= 0.0 => exact(value),
            _ => {
                self.refuse(&[key], format!("`{key}` must be a number that is not negative"));
                exact(default)
            }
        }
    }

    /// A rate of dropout, which `families.rs` found to be a number.
    fn rate(&mut self, key: &str, default: f64) -> Number {
        let written = self.object.get(&[key]).and_then(|(_, written)| written.text.parse::<f64>().ok());
        let rate = written.unwrap_or(default);
        if !(0.0..1.0).contains(&rate) {
            self.refuse(&[key], format!("`{key}` is {rate}; a rate of dropout is 0 or more and below 1"));
        }
        exact(rate)
    }

    /// Layers of `std.models.gpt`.
    fn gpt2_graph(&mut self, settings: &Settings) -> (&'static str, Arguments) {
        let config = self.gpt2();
        self.only("activation_function", &["gelu_new", "gelu_pytorch_tanh"]);
        self.only("scale_attn_weights", &["true"]);
        self.only("scale_attn_by_inverse_layer_idx", &["false"]);
        if config.positions < settings.sequence {
            let message = format!("there are {} positions, and rows have {}", config.positions, settings.sequence);
            self.refuse(&["n_positions", "max_position_embeddings"], message);
        }
        let mut arguments = Arguments::sizes(&[
            ("vocab", config.vocabulary),
            ("hidden", config.hidden),
            ("heads", config.heads),
            ("blocks", config.layers),
            ("wide", config.feed_forward),
            ("positions", config.positions),
            ("sequence", settings.sequence),
            ("rows", settings.rows),
        ]);
        arguments.flag("tied", config.is_tied);
        for (name, key) in
            [("embedding_dropout", "embd_pdrop"), ("dropout", "resid_pdrop"), ("attention_dropout", "attn_pdrop")]
        {
            let rate = self.rate(key, 0.1);
            arguments.set(name, rate);
        }
        let epsilon = self.number("layer_norm_epsilon", 1e-5);
        arguments.set("epsilon", epsilon);
        ("gpt2", arguments)
    }

    /// Layers of `std.models.llama`.
    fn llama_graph(&mut self, family: &'static str, settings: &Settings) -> (&'static str, Arguments) {
        let config = self.llama_like(family);
        let is_gemma = family == "gemma";
        let acts: &[&str] = if is_gemma { &["gelu", "gelu_pytorch_tanh", "gelu_new"] } else { &["silu"] };
        self.only("hidden_act", acts);
        self.only("hidden_activation", acts);
        self.only("use_bidirectional_attention", &["false"]);
        self.only("router_jitter_noise", &["0.0", "0"]);
        self.only("rope_interleaved", &["false"]);
        if is_gemma {
            self.only("attention_bias", &["false"]);
        }
        let mut arguments = self.common(&config, family, settings);
        self.windows(&config, family, settings, &mut arguments);
        let is_windowed = arguments.0.get("window").is_some_and(|window| window.to_f64() > 0.0);
        let rate = arguments.0.get("attention_dropout").map_or(0.0, |rate| rate.to_f64());
        if is_windowed && rate > 0.0 {
            let message =
                format!("`attention_dropout` is {rate}, and scores of attention with a window are not dropped here");
            self.refuse_with(&["attention_dropout"], message, "set it to 0".to_owned());
        }
        arguments.flag("normed", config.has_query_norm);
        let biased = u64::from(config.biases.attention) + u64::from(config.biases.projection);
        arguments.set("biased", Number::whole(i64::try_from(biased).unwrap_or(0)));
        arguments.flag("biased_feed_forward", config.biases.feed_forward);
        if is_gemma {
            ["unit", "gelu_gate"].into_iter().for_each(|flag| arguments.flag(flag, true));
            #[expect(clippy::cast_precision_loss, reason = "a number of tensors")]
            arguments.set("scale", exact((config.hidden as f64).sqrt()));
        }
        if let Some(experts) = &config.experts {
            let of_experts = Arguments::sizes(&[
                ("experts", experts.count),
                ("chosen", experts.per_token),
                ("expert_wide", experts.width),
                ("shared", experts.shared),
                ("every", if family == "mixtral" { 1 } else { self.whole(&["decoder_sparse_step"], 1, SIZES) }),
            ]);
            arguments.0.extend(of_experts.0);
            arguments.flag("gate_shared", experts.shared > 0);
            let is_divided = family == "mixtral" || self.flag("norm_topk_prob", false);
            arguments.flag("divided", is_divided);
            let is_plain: Vec<u64> = self.list("mlp_only_layers");
            // Layers without experts that come first can be said; others cannot.
            let dense = (0..).zip(&experts.is_sparse).take_while(|(layer, _)| is_plain.contains(layer)).count();
            if is_plain.len() > dense {
                self.refuse(&["mlp_only_layers"], "only the first layers can be without experts".to_owned());
            }
            arguments.set("dense", Number::whole(i64::try_from(dense).unwrap_or(0)));
        }
        ("llama", arguments)
    }

    /// What all models of `std.models.llama` have.
    fn common(&mut self, config: &Config, family: &str, settings: &Settings) -> Arguments {
        let mut arguments = Arguments::sizes(&[
            ("vocab", config.vocabulary),
            ("hidden", config.hidden),
            ("heads", config.heads),
            ("kv_heads", config.kv_heads),
            ("width", config.head_dim),
            ("wide", config.feed_forward),
            ("blocks", config.layers),
            ("sequence", settings.sequence),
            ("rows", settings.rows),
        ]);
        arguments.flag("tied", config.is_tied);
        let rate = self.rate("attention_dropout", 0.0);
        arguments.set("attention_dropout", rate);
        let epsilon = self.number("rms_norm_eps", if family == "mixtral" { 1e-5 } else { 1e-6 });
        arguments.set("epsilon", epsilon);
        let rotated = match family {
            "deepseek_v2" | "deepseek_v3" => self.whole(&["qk_rope_head_dim"], 64, SIZES),
            _ => {
                let width = config.head_dim;
                if width % 2 == 1 {
                    let message = format!("a head is {width} wide; pairs of its elements rotate, so it must be even");
                    self.refuse(&["head_dim", "num_attention_heads", "hidden_size"], message);
                }
                width
            }
        };
        self.rotation(&mut arguments, (if family == "mixtral" { 1e6 } else { 1e4 }, rotated));
        arguments
    }

    /// Latent attention, groups of experts (`modeling_deepseek_v2.py`, `modeling_deepseek_v3.py`).
    fn deepseek(&mut self, family: &'static str, settings: &Settings) -> (&'static str, Arguments) {
        let config = self.llama_like(family);
        let is_v3 = family == "deepseek_v3";
        self.only("hidden_act", &["silu"]);
        self.only("attention_bias", &["false"]);
        self.only("mlp_bias", &["false"]);
        self.only("rope_interleave", &["true"]);
        self.only("topk_method", if is_v3 { &["noaux_tc"] } else { &["greedy", "group_limited_greedy"] });
        self.only("scoring_func", if is_v3 { &["sigmoid"] } else { &["softmax"] });
        self.only("moe_layer_freq", &["1"]);
        let method = self.object.get(&["topk_method"]).map(|(_, method)| method.text.trim_matches('"').to_owned());
        let is_limited = !is_v3 && method.is_some_and(|method| method == "group_limited_greedy");
        let mut arguments = self.common(&config, family, settings);
        arguments.flag("limited", is_limited);
        if arguments.0.contains_key("original") {
            let message = "only `default` and `yarn` positions can be computed here".to_owned();
            self.refuse(&["rope_parameters", "rope_scaling"], message);
        }
        // (0.1 * mscale_all_dim * log(factor) + 1)^2, which scores are multiplied with.
        let focus = self.rotation_setting("mscale_all_dim").unwrap_or_default();
        if let (true, Some(factor)) = (focus > 0.0, self.rotation_setting("factor")) {
            arguments.set("focus", exact(magnitude(factor, focus).powi(2)));
        }
        let query_rank = self.object.get(&["q_lora_rank"]).map_or(0, |_| self.whole(&["q_lora_rank"], 1_536, SIZES));
        let experts = self.whole(&["n_routed_experts"], if is_v3 { 256 } else { 64 }, 0..=1 << 16);
        let expert_wide = self.whole(&["moe_intermediate_size"], if is_v3 { 2_048 } else { 1_407 }, LARGE);
        let n_shared = self.whole(&["n_shared_experts"], if is_v3 { 1 } else { 2 }, 0..=1 << 10);
        let own = [
            ("latent", self.whole(&["kv_lora_rank"], 512, SIZES)),
            ("query_rank", query_rank),
            ("plain_width", self.whole(&["qk_nope_head_dim"], 128, SIZES)),
            ("rotated_width", self.whole(&["qk_rope_head_dim"], 64, SIZES)),
            ("value_width", self.whole(&["v_head_dim"], 128, SIZES)),
            ("experts", experts),
            ("chosen", self.whole(&["num_experts_per_tok"], if is_v3 { 8 } else { 2 }, SIZES)),
            ("expert_wide", expert_wide),
            ("shared", n_shared * expert_wide),
            ("dense", self.whole(&["first_k_dense_replace"], if is_v3 { 3 } else { 0 }, 0..=1 << 12)),
            ("groups", if is_v3 || is_limited { self.whole(&["n_group"], 8, SIZES) } else { 0 }),
            ("open", if is_v3 || is_limited { self.whole(&["topk_group"], 4, SIZES) } else { 1 }),
        ];
        let of = |name: &str| own.iter().find(|(known, _)| *known == name).map_or(0, |(_, size)| *size);
        if of("value_width") >= of("plain_width") + of("rotated_width") {
            let message = "a head of values that is as wide as one of keys cannot be computed here".to_owned();
            self.refuse(&["v_head_dim"], message);
        }
        if of("rotated_width") % 2 == 1 {
            self.refuse(&["qk_rope_head_dim"], "pairs of elements rotate, so their number is even".to_owned());
        }
        if of("chosen") > experts {
            self.refuse(&["num_experts_per_tok"], format!("there are only {experts} experts"));
        }
        let (groups, open, chosen) = (of("groups"), of("open"), of("chosen"));
        if groups > 0 && !experts.is_multiple_of(groups) {
            self.refuse(&["n_group"], format!("`n_group` is {groups}, which does not divide {experts} experts"));
        } else if groups > 0 && open > groups {
            self.refuse(&["topk_group"], format!("`topk_group` is {open}, and there are only {groups} groups"));
        } else if groups > 0 && chosen > experts / groups * open {
            let there = experts / groups * open;
            let message =
                format!("`num_experts_per_tok` is {chosen}, and `topk_group` groups have only {there} experts");
            self.refuse(&["num_experts_per_tok"], message);
        }
        arguments.0.extend(Arguments::sizes(&own).0);
        let is_divided = is_v3 && self.flag("norm_topk_prob", true);
        arguments.flag("divided", is_divided);
        let scale = self.number("routed_scaling_factor", if is_v3 { 2.5 } else { 1.0 });
        arguments.set("expert_scale", scale);
        ("llama", arguments)
    }
}

/// A number as a fraction, where it is whole.
#[expect(clippy::cast_possible_truncation, reason = "it is whole and small")]
pub(super) fn exact(value: f64) -> Number {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        Number::Exact(Fraction::whole(value as i64))
    } else {
        Number::Decimal(value)
    }
}
