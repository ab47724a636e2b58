//! What a pipeline may choose beside its schedule: frozen stages, recomputation, offload, ZeRO, and what an activation
//! counts.

pub mod activation;
pub mod freeze;
pub mod frozen;
pub mod offload;
pub mod recompute;
pub mod zero;
