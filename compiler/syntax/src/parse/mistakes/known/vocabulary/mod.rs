//! Words: keywords and names.

pub(super) mod keywords;
pub(super) mod names;
