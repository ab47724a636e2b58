//! Names: what Hugging Face calls the tensors of the models in `stdlib/models/`.
//!
//! Layouts are the same on both sides. A tensor of ours that has a matrix for each expert is there one by one.

/// Where a tensor is saved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Saved {
    /// Its names, in the order of the first axis if there are several. Of each, those that files may use instead.
    pub names: Vec<Vec<String>>,
    /// Whether each of them is one place of the first axis.
    pub is_by_expert: bool,
}

impl Saved {
    fn one(names: Vec<String>) -> Self {
        Self { names: vec![names], is_by_expert: false }
    }
}

/// Where a tensor of a program, such as `3.self_attention.query`, is saved; `size` is the size of its first axis.
/// `None` if the family has no such tensor.
pub fn saved(family: &str, name: &str, size: u64) -> Option<Saved> {
    let mut parts = name.splitn(3, '.');
    let (number, layer, tensor) = (parts.next()?.parse::<u64>().ok()?, parts.next()?, parts.next()?);
    if family == "gpt2" {
        let own = gpt2(number, layer, tensor)?;
        return Some(Saved::one(vec![format!("transformer.{own}"), own]));
    }
    if let Some(own) = outside(layer, tensor) {
        return Some(Saved::one(vec![own.to_owned()]));
    }
    // A block is two layers, behind the embedding.
    let block = format!("model.layers.{}", number.checked_sub(1)? / 2);
    if layer == "mixture"
        && let Some(of_expert) = expert(family, tensor)
    {
        let names = (0..size).map(|expert| vec![format!("{block}.{}.{expert}.{of_expert}.weight", experts(family))]);
        return Some(Saved { names: names.collect(), is_by_expert: true });
    }
    let own = match layer {
        "self_attention" | "latent_attention" => attention(layer, tensor)?.to_owned(),
        "feed_forward" => feed_forward(tensor)?.to_owned(),
        "mixture" => mixture(family, tensor)?,
        _ => return None,
    };
    Some(Saved::one(vec![format!("{block}.{own}")]))
}

fn gpt2(number: u64, layer: &str, tensor: &str) -> Option<String> {
    let block = |own: &str| number.checked_sub(1).map(|block| format!("h.{block}.{own}"));
    match (layer, tensor) {
        ("embedding_of_positions", "token") => Some("wte.weight".to_owned()),
        ("embedding_of_positions", "position") => Some("wpe.weight".to_owned()),
        ("table_head", "norm_gain") => Some("ln_f.weight".to_owned()),
        ("table_head", "norm_bias") => Some("ln_f.bias".to_owned()),
        ("block", "norm1_gain") => block("ln_1.weight"),
        ("block", "norm1_bias") => block("ln_1.bias"),
        ("block", "qkv") => block("attn.c_attn.weight"),
        ("block", "qkv_bias") => block("attn.c_attn.bias"),
        ("block", "out") => block("attn.c_proj.weight"),
        ("block", "out_bias") => block("attn.c_proj.bias"),
        ("block", "norm2_gain") => block("ln_2.weight"),
        ("block", "norm2_bias") => block("ln_2.bias"),
        ("block", "up") => block("mlp.c_fc.weight"),
        ("block", "up_bias") => block("mlp.c_fc.bias"),
        ("block", "down") => block("mlp.c_proj.weight"),
        ("block", "down_bias") => block("mlp.c_proj.bias"),
        _ => None,
    }
}

/// What is outside of the blocks.
fn outside(layer: &str, tensor: &str) -> Option<&'static str> {
    match (layer, tensor) {
        ("token_embedding", "embedding") => Some("model.embed_tokens.weight"),
        ("language_head", "norm" | "unit_norm") => Some("model.norm.weight"),
        ("language_head", "unembedding") => Some("lm_head.weight"),
        _ => None,
    }
}

fn attention(layer: &str, tensor: &str) -> Option<&'static str> {
    Some(match (layer, tensor) {
        (_, "norm" | "unit_norm") => "input_layernorm.weight",
        (_, "query") => "self_attn.q_proj.weight",
        (_, "out") => "self_attn.o_proj.weight",
        ("self_attention", "key") => "self_attn.k_proj.weight",
        ("self_attention", "value") => "self_attn.v_proj.weight",
        ("self_attention", "query_bias") => "self_attn.q_proj.bias",
        ("self_attention", "key_bias") => "self_attn.k_proj.bias",
        ("self_attention", "value_bias") => "self_attn.v_proj.bias",
        ("self_attention", "out_bias") => "self_attn.o_proj.bias",
        ("self_attention", "query_norm") => "self_attn.q_norm.weight",
        ("self_attention", "key_norm") => "self_attn.k_norm.weight",
        ("latent_attention", "query_down") => "self_attn.q_a_proj.weight",
        ("latent_attention", "query_norm") => "self_attn.q_a_layernorm.weight",
        ("latent_attention", "query_up") => "self_attn.q_b_proj.weight",
        ("latent_attention", "down") => "self_attn.kv_a_proj_with_mqa.weight",
        ("latent_attention", "latent_norm") => "self_attn.kv_a_layernorm.weight",
        ("latent_attention", "up") => "self_attn.kv_b_proj.weight",
        _ => return None,
    })
}

fn feed_forward(tensor: &str) -> Option<&'static str> {
    Some(match tensor {
        "norm" | "unit_norm" => "post_attention_layernorm.weight",
        "gate" => "mlp.gate_proj.weight",
        "up" => "mlp.up_proj.weight",
        "down" => "mlp.down_proj.weight",
        "gate_bias" => "mlp.gate_proj.bias",
        "up_bias" => "mlp.up_proj.bias",
        "down_bias" => "mlp.down_proj.bias",
        _ => return None,
    })
}

/// Where the experts of a block are.
fn experts(family: &str) -> &'static str {
    if family == "mixtral" { "block_sparse_moe.experts" } else { "mlp.experts" }
}

/// A matrix of each expert.
fn expert(family: &str, tensor: &str) -> Option<&'static str> {
    Some(match (family, tensor) {
        ("mixtral", "gate") => "w1",
        ("mixtral", "up") => "w3",
        ("mixtral", "down") => "w2",
        (_, "gate") => "gate_proj",
        (_, "up") => "up_proj",
        (_, "down") => "down_proj",
        _ => return None,
    })
}

/// What a block of experts has in addition to them.
fn mixture(family: &str, tensor: &str) -> Option<String> {
    let shared = if family.starts_with("deepseek") { "mlp.shared_experts" } else { "mlp.shared_expert" };
    Some(match tensor {
        "norm" => "post_attention_layernorm.weight".to_owned(),
        "router" if family == "mixtral" => "block_sparse_moe.gate.weight".to_owned(),
        "router" => "mlp.gate.weight".to_owned(),
        "router_bias" => "mlp.gate.e_score_correction_bias".to_owned(),
        "shared_gate" => format!("{shared}.gate_proj.weight"),
        "shared_up" => format!("{shared}.up_proj.weight"),
        "shared_down" => format!("{shared}.down_proj.weight"),
        "shared_router" => "mlp.shared_expert_gate.weight".to_owned(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::saved;

    #[test]
    fn layers_are_counted_by_block() {
        let one = |family, name| saved(family, name, 4).map(|saved| saved.names[0][0].clone());
        assert_eq!(one("llama", "0.token_embedding.embedding").as_deref(), Some("model.embed_tokens.weight"));
        assert_eq!(one("llama", "1.self_attention.norm").as_deref(), Some("model.layers.0.input_layernorm.weight"));
        assert_eq!(one("qwen2", "4.feed_forward.up").as_deref(), Some("model.layers.1.mlp.up_proj.weight"));
        assert_eq!(one("gpt2", "2.block.qkv").as_deref(), Some("transformer.h.1.attn.c_attn.weight"));
        assert_eq!(one("llama", "3.self_attention.other"), None);
        assert_eq!(one("llama", "weights"), None);
    }

    #[test]
    fn experts_are_saved_one_by_one() {
        let found = saved("mixtral", "2.mixture.down", 2).expect("it is saved");
        let names: Vec<&str> = found.names.iter().map(|names| names[0].as_str()).collect();
        let block = "model.layers.0.block_sparse_moe.experts";
        assert_eq!(names, [format!("{block}.0.w2.weight"), format!("{block}.1.w2.weight")]);
        assert!(found.is_by_expert);
    }
}
