//! The runtime: executes verified programs on devices. It cannot see a syntax tree.

pub mod checkpoint;
pub mod data;
pub mod random;
