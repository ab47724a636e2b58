//! Pages of `docs/` that are written from what they are about: the grammar, the pages of errors,
//! the standard schedules.

pub mod errors;
pub mod examples;
pub mod gallery;
pub mod grammar;
