//! The runtime: executes verified programs on devices. It cannot see a syntax tree.

pub mod arena;
pub mod channel;
pub mod checkpoint;
pub mod data;
pub mod device;
pub mod devices;
mod executor;
pub mod fault;
pub mod ledger;
pub mod random;
pub mod session;
pub mod trace;
