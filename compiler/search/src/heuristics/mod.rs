//! Heuristics: where short schedules come from, and how they get shorter.

pub(crate) mod anneal;
pub(crate) mod block;
pub(crate) mod coarse;
pub(crate) mod priority;
pub(crate) mod warmup_depth;
