//! Building blocks: the tasks of one microbatch, repeated every so many slots, also across optimizer steps.

pub mod async_window;
pub mod chained_reductions;
pub(crate) mod least_period;
pub mod period;
pub mod throughput;
pub mod weight_versions;
