//! Exhaustive search: proofs that nothing is shorter.

pub(crate) mod beam;
pub(crate) mod dominance;
pub mod proof;
