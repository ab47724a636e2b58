//! What a pipeline may choose about its memory: recomputation, offload, ZeRO, and what an activation counts.

pub mod activation;
pub mod offload;
pub mod recompute;
pub mod zero;
