//! From orders to a source of the language.

pub(crate) mod lists;
pub(crate) mod slots;
pub mod source;
pub(crate) mod steady;
mod words;
