//! Expressions: names are resolved in a [`scope`], arguments bound to parameters ([`arguments`]),
//! and values computed, in whole numbers that round down ([`evaluate`](mod@evaluate)) or exactly
//! ([`exact`](mod@exact), over [`number`]s). What is wrong has one wording everywhere ([`errors`]).

pub mod arguments;
pub mod errors;
pub mod evaluate;
pub mod exact;
pub mod number;
pub mod scope;
