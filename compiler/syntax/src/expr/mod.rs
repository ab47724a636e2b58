//! Expressions: names are resolved in a [`scope`], arguments bound to parameters ([`arguments`]),
//! and values computed, in whole numbers that round down ([`evaluate`](mod@evaluate)) or exactly
//! ([`exact`](mod@exact)).

pub mod arguments;
pub mod evaluate;
pub mod exact;
pub mod scope;
