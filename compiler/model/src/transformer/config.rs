//! The sizes of a model, as transformers has them after it read a `config.json`.

/// A decoder of equal layers: attention and feed-forward, each after a norm, between an embedding and a head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Path of the file, as the pipeline names it.
    pub path: String,
    /// `model_type`.
    pub family: &'static str,
    /// Width of what flows from layer to layer.
    pub hidden: u64,
    /// Number of layers.
    pub layers: u64,
    /// Heads of queries.
    pub heads: u64,
    /// Heads of keys and values; queries share them where there are fewer.
    pub kv_heads: u64,
    /// Width of a head.
    pub head_dim: u64,
    /// Width of the feed-forward of dense layers.
    pub feed_forward: u64,
    /// Symbols.
    pub vocabulary: u64,
    /// Positions with a learned embedding; 0 where positions are rotations, which have no weights.
    pub positions: u64,
    /// Whether the head is the table of the embedding.
    pub is_tied: bool,
    /// Whether a gate multiplies the feed-forward (SwiGLU): three matrices instead of two.
    pub is_gated: bool,
    /// Whether norms have a bias beside their gain (layer norm), or not (RMS norm).
    pub has_norm_bias: bool,
    /// Whether queries and keys of each head go through a norm of their own.
    pub has_query_norm: bool,
    /// Which matrices have a bias.
    pub biases: Biases,
    /// Where training drops elements out.
    pub dropout: Dropout,
    /// Positions that attention looks back at most, where that is limited.
    pub window: Option<u64>,
    /// The experts, where there are any.
    pub experts: Option<Experts>,
}

/// Which matrices have a bias.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Biases {
    /// Queries, keys and values.
    pub attention: bool,
    /// What joins the heads.
    pub projection: bool,
    /// Feed-forward.
    pub feed_forward: bool,
}

/// Where elements are dropped out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dropout {
    /// Of the embedding.
    pub embedding: bool,
    /// Of what attention looks at.
    pub attention: bool,
    /// Of what attention and feed-forward add to a layer's input.
    pub residual: bool,
}

/// Feed-forwards of which each token goes through a few.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Experts {
    /// How many.
    pub count: u64,
    /// How many of them each token goes through.
    pub per_token: u64,
    /// Width of each.
    pub width: u64,
    /// Width of the expert that all tokens go through; 0 where there is none.
    pub shared: u64,
    /// By layer: whether it has experts, or is dense.
    pub is_sparse: Vec<bool>,
}

impl Config {
    /// The experts of a layer; none where it is dense.
    pub fn experts_of(&self, layer: u64) -> Option<&Experts> {
        let index = usize::try_from(layer).unwrap_or(usize::MAX);
        self.experts.as_ref().filter(|experts| experts.is_sparse.get(index).copied().unwrap_or(false))
    }

    /// Width of all queries of a token.
    pub const fn query_width(&self) -> u64 {
        self.heads * self.head_dim
    }
}
