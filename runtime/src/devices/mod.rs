//! The backends, one file or folder each.

pub mod null;
