//! Search: a short schedule with a given placement, under real costs and a memory limit per device.
//!
//! A portfolio, in rounds. It starts from the standard schedules that fit ([`problem::seeds`]), from these with
//! fillers where devices are idle and with forwards and backwards alternating, from building blocks for these costs
//! and from schedules built task by task from either end ([`exact`]). The heuristics improve them: annealing on
//! critical paths, on a step with few microbatches whose steady state is then repeated; annealed rules of list
//! schedules, also those of a pipeline with half the devices. Where the step is small, an exhaustive search proves
//! that nothing is shorter; elsewhere lower bounds grow. Where it pays, a backward may be one task or two.
//!
//! Everything follows from the seed; a caller that ends the search early gets the best result up to then. A result
//! is only orders: [`emit`] makes a source of them, which the ordinary checks judge. [`tune`] chooses layouts on a
//! cluster.

mod bounds;
pub mod driver;
pub mod emit;
pub mod exact;
mod heuristics;
pub mod problem;
#[cfg(test)]
mod tests;
pub mod tune;

pub use driver::portfolio::{Progress, search};
pub use driver::subtasks::Workers;
pub use problem::seeds::Known;
pub use problem::target::Problem;

use pipe_schedule::dispatch::Objective;

/// How to search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// What is to be short.
    pub objective: Objective,
    /// Where random choices come from.
    pub seed: u64,
    /// Rounds of improvement, each twice as long as the one before.
    pub rounds: u32,
}
