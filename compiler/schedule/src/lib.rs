//! Schedules: which device runs which task when. Tasks, placement, order, costs, times and bounds,
//! and the rules that a schedule must hold.
//!
//! Knows diagnostics and places in sources, but neither syntax trees nor models.
pub mod block;
pub mod bounds;
pub mod check;
pub mod dependencies;
pub mod dispatch;
pub mod memory_limit;
pub mod order;
pub mod parts;
pub mod placement;
pub mod policy;
pub mod ratio;
pub mod requirement;
pub mod saved;
pub mod schedule;
pub mod slices;
pub mod stage_graph;
pub mod stage_range;
pub mod step_tasks;
pub mod swaps;
pub mod timing;
pub mod units;
pub mod window;

#[cfg(test)]
mod examples;
