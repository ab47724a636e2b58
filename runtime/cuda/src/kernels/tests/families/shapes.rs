//! The shapes: sizes of published models, in the configurations of small ones of the same families.

use pipe_ir::graph::DType;

/// One layer of a model, with few tokens: the rows, the heads or the vocabulary of a published one.
pub(super) struct Shape {
    /// Whose sizes.
    pub(super) name: &'static str,
    /// The folder of the small model in `tests/data/transformers/`.
    pub(super) family: &'static str,
    config: &'static str,
    /// What is different in its `config.json`.
    with: &'static str,
    sequence: u64,
}

macro_rules! shapes {
    ($($name:literal $family:literal $sequence:literal $with:literal)*) => {
        /// All of them.
        pub(super) const SHAPES: &[Shape] = &[$(Shape {
            name: $name,
            family: $family,
            config: include_str!(concat!("../../../../../../tests/data/transformers/", $family, "/config.json")),
            with: $with,
            sequence: $sequence,
        }),*];
    };
}

// Keys are those of Hugging Face. Where the rows are real, heads are few and narrow; where heads are, rows are short.
shapes! {
    "GPT-2, rows and heads" "gpt2" 40 "n_embd 768 n_head 12 n_inner 64"
    "GPT-2, vocabulary" "gpt2" 6 "n_embd 32 n_head 1 vocab_size 50257"
    "GPT-2 with dropout" "gpt2" 70 "n_embd 128 n_head 2 attn_pdrop 0.1 embd_pdrop 0.1 resid_pdrop 0.1"
    "Llama 2 7B, rows" "llama2" 6 "hidden_size 4096 head_dim 32 num_attention_heads 2 num_key_value_heads 2"
    "Llama 2 7B, heads" "llama2" 70 "hidden_size 64 head_dim 128 num_attention_heads 2 num_key_value_heads 2"
    "Llama 2 7B, vocabulary" "llama2" 6 "vocab_size 32000"
    "heads of 96" "llama2" 70 "hidden_size 64 head_dim 96 num_attention_heads 4 num_key_value_heads 1"
    "Llama 3 70B, rows" "llama3" 6 "hidden_size 8192 head_dim 32 num_attention_heads 2 num_key_value_heads 1"
    "Llama 3 70B, heads" "llama3" 70 "hidden_size 64 head_dim 128 num_attention_heads 8 num_key_value_heads 1"
    "Llama 3, vocabulary" "llama3" 6 "vocab_size 128256"
    "Llama 3.2 1B, heads" "llama3" 70 "hidden_size 64 head_dim 64 num_attention_heads 8 num_key_value_heads 2"
    "Mistral 7B, rows" "mistral" 6 "hidden_size 4096 head_dim 32 num_attention_heads 2 num_key_value_heads 1"
    "Mistral 7B, heads and a window" "mistral_window" 150
        "hidden_size 64 head_dim 128 num_attention_heads 4 num_key_value_heads 1 sliding_window 72"
    "Qwen 2 7B, rows" "qwen2" 6 "hidden_size 3584 num_attention_heads 28 num_key_value_heads 4 head_dim 8"
    "Qwen 2 7B, heads" "qwen2" 70 "hidden_size 56 num_attention_heads 7 num_key_value_heads 1 head_dim 128"
    "Qwen 2 0.5B, heads" "qwen2" 70 "hidden_size 56 num_attention_heads 14 num_key_value_heads 2 head_dim 64"
    "Qwen 2 7B, vocabulary" "qwen2" 6 "vocab_size 152064"
    "Qwen 2 7B, a window" "qwen2_window" 150
        "hidden_size 56 num_attention_heads 7 num_key_value_heads 1 head_dim 128 sliding_window 72"
    "Qwen 3 32B, rows" "qwen3" 6 "hidden_size 5120 head_dim 32 num_attention_heads 2 num_key_value_heads 1"
    "Qwen 3 32B, heads" "qwen3" 70 "hidden_size 64 head_dim 128 num_attention_heads 8 num_key_value_heads 1"
    "Qwen 3 8B, heads and YaRN" "qwen3_yarn" 70
        "hidden_size 64 head_dim 128 num_attention_heads 4 num_key_value_heads 1"
    "Qwen 3 8B, a window" "qwen3_window" 150
        "hidden_size 64 head_dim 128 num_attention_heads 4 num_key_value_heads 1 sliding_window 72"
    "Qwen 3, vocabulary" "qwen3" 6 "vocab_size 151936"
    "Gemma 7B, rows" "gemma" 6 "hidden_size 3072 head_dim 32 num_attention_heads 2 num_key_value_heads 1"
    "Gemma 2B, heads" "gemma" 70 "hidden_size 64 head_dim 256 num_attention_heads 8 num_key_value_heads 1"
    "Gemma, vocabulary" "gemma" 6 "vocab_size 256000"
    "Mixtral 8x7B, rows" "mixtral" 6
        "hidden_size 4096 head_dim 32 num_attention_heads 2 num_key_value_heads 1 num_local_experts 8"
    "Mixtral 8x7B, heads and experts" "mixtral" 70
        "hidden_size 64 head_dim 128 num_attention_heads 4 num_key_value_heads 1 num_local_experts 8"
    "Qwen 1.5 MoE, experts" "qwen2_moe" 70
        "hidden_size 64 head_dim 128 num_attention_heads 2 num_key_value_heads 2 num_experts 60 num_experts_per_tok 4"
    "Qwen 3 30B-A3B, rows" "qwen3_moe" 6
        "hidden_size 2048 head_dim 32 num_attention_heads 2 num_key_value_heads 1"
    "Qwen 3 30B-A3B, heads and experts" "qwen3_moe" 70
        "hidden_size 64 head_dim 128 num_attention_heads 8 num_key_value_heads 1 num_local_experts 128
        num_experts_per_tok 8"
    "DeepSeek V2 Lite, heads" "deepseek_v2" 70
        "hidden_size 64 num_attention_heads 2 num_key_value_heads 2 kv_lora_rank 512 qk_nope_head_dim 128
        qk_rope_head_dim 64 v_head_dim 128 n_routed_experts 64 num_experts_per_tok 6"
    "DeepSeek V2, rows, heads and groups" "deepseek_v2_groups" 6
        "first_k_dense_replace 0 hidden_size 5120 num_attention_heads 1 num_key_value_heads 1 q_lora_rank 96
        kv_lora_rank 64 qk_nope_head_dim 128 qk_rope_head_dim 64 v_head_dim 128 n_routed_experts 16 n_group 8 topk_group 3
        num_experts_per_tok 6"
    "DeepSeek V3, rows" "deepseek_v3" 6
        "first_k_dense_replace 0 hidden_size 7168 q_lora_rank 96 kv_lora_rank 64"
    "DeepSeek V3, heads, latents and experts" "deepseek_v3" 70
        "hidden_size 64 num_attention_heads 2 num_key_value_heads 2 q_lora_rank 1536 kv_lora_rank 512
        qk_nope_head_dim 128 qk_rope_head_dim 64 v_head_dim 128 n_routed_experts 256 n_group 8 topk_group 4
        num_experts_per_tok 8"
    "DeepSeek V3, heads and YaRN" "deepseek_v3_yarn" 70
        "hidden_size 64 num_attention_heads 2 num_key_value_heads 2 qk_nope_head_dim 128 qk_rope_head_dim 64
        v_head_dim 128"
    "DeepSeek V3, vocabulary" "deepseek_v3" 6 "vocab_size 129280 first_k_dense_replace 0"
}

impl Shape {
    /// The `config.json`: one layer, or of a mixture with dense layers before it one of each.
    pub(super) fn config(&self) -> String {
        let mut config: serde_json::Value = serde_json::from_str(self.config).expect("a configuration");
        let keys = config.as_object_mut().expect("keys");
        let words: Vec<&str> = self.with.split_whitespace().collect();
        for pair in words.chunks(2) {
            keys.insert(pair[0].to_owned(), serde_json::from_str(pair[1]).expect("a number"));
        }
        let n_layers = 1 + keys.get("first_k_dense_replace").and_then(serde_json::Value::as_u64).unwrap_or(0);
        let sizes =
            [("num_hidden_layers", n_layers), ("n_layer", n_layers), ("n_positions", 256), ("max_window_layers", 0)];
        for (key, size) in sizes {
            keys.get_mut(key).into_iter().for_each(|old| *old = size.into());
        }
        // The last layers are those with a window, if any has one.
        if let Some(types) = keys.get_mut("layer_types").and_then(serde_json::Value::as_array_mut) {
            types.drain(..types.len() - n_layers as usize);
        }
        config.to_string()
    }

    /// In bf16, too, unless that takes the emulator half a minute.
    pub(super) fn precisions(&self) -> &'static [DType] {
        let size = self.with.strip_prefix("vocab_size ").and_then(|rest| rest.split(' ').next()?.parse().ok());
        if size.is_some_and(|size: u64| size > 100_000) { &[DType::F32] } else { &[DType::F32, DType::BF16] }
    }

    /// The pipeline of a run: two rows of tokens.
    pub(super) fn pipeline(&self, dtype: DType) -> String {
        let sequence = self.sequence;
        format!(
            "pipeline p {{
                model \"config.json\"(sequence = {sequence}, rows = 2)
                precision {dtype}
                microbatches 1
                devices 1
                schedule gpipe
                train {{ data synthetic steps 1 optimizer sgd(learning_rate = 0.1) }}
            }}"
        )
    }
}
