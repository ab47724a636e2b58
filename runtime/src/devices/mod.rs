//! Backends.

pub mod axes;
pub(crate) mod cpu;
pub(crate) mod null;
