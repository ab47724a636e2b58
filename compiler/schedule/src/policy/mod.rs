//! What a pipeline may choose beside its schedule: frozen stages, recomputation, offload, ZeRO, and what an activation
//! counts; and groups of devices that divide stages.

pub mod activation;
pub mod freeze;
pub mod frozen;
mod groups;
pub mod offload;
pub mod recompute;
pub mod zero;
