//! Expressions: names are resolved in a [`scope`], arguments bound to parameters ([`arguments`]), and values computed
//! ([`evaluate`](mod@evaluate)), in whole numbers that round down or exactly ([`arithmetic`], over [`number`]s). What
//! is wrong has one wording everywhere ([`errors`]).

pub mod arguments;
pub mod arithmetic;
pub mod errors;
pub mod evaluate;
pub mod number;
pub mod scope;
