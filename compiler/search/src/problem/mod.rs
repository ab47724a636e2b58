//! The problem: what a target leaves to be ordered, and the orders that are known for it.

pub(crate) mod bytes;
pub mod seeds;
pub(crate) mod split_costs;
pub mod target;
