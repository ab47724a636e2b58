//! Backends.

mod axes;
pub(crate) mod cpu;
pub(crate) mod cuda;
pub(crate) mod null;
