//! What a pipeline may choose beside its schedule: frozen stages, recomputation, offload, ZeRO, and what an activation
//! counts; groups of devices that divide stages, and pipelines side by side.

pub mod activation;
mod data;
pub mod freeze;
pub mod frozen;
mod groups;
pub mod offload;
pub mod recompute;
pub mod zero;
