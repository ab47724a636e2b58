//! Backends.

pub(crate) mod cpu;
pub(crate) mod null;
