//! From text to a syntax tree: sources, diagnostics and their pages, the parser, the formatter, and
//! the engine that evaluates expressions.
//!
//! Knows no schedules and no models: only what was written, and where.

pub mod ast;
pub mod diagnostic;
pub mod edits;
pub mod expr;
pub mod files;
pub mod format;
pub mod fraction;
pub mod json;
pub mod limits;
pub mod parse;
pub mod source;
pub mod stdlib;
pub mod suggest;
pub mod torch;
pub mod uniform;
