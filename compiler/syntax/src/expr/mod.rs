//! Expressions: names are resolved in a [`scope`], arguments bound to parameters ([`arguments`]), and values computed
//! ([`evaluate`](mod@evaluate)), in whole numbers that round down or exactly ([`arithmetic`], over [`number`]s). What
//! is wrong has one wording everywhere ([`errors`]). A text has functions ([`functions`]) and lists ([`lists`]), and
//! files define names for all of it ([`known`]).

pub mod arguments;
pub mod arithmetic;
pub mod errors;
pub mod evaluate;
pub mod functions;
pub mod known;
pub mod lists;
pub mod number;
pub mod scope;
