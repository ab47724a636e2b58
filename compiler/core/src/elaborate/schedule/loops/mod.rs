//! Loops of an `order` that never run.

pub(super) mod empty;
pub(super) mod idle;
