//! Tensor graphs: a [`tape`] records one, and its parts become derivatives and executables.

pub(crate) mod bundle;
pub(crate) mod composed;
mod derivative;
pub(crate) mod differentiate;
pub(crate) mod extract;
pub(crate) mod flops;
pub(crate) mod tape;
