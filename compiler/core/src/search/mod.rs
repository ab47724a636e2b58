//! Search: a short schedule with a given placement, under real costs and a memory limit per device.
//!
//! A portfolio, in rounds ([`round`]). Starts are the standard schedules that fit, those with what nothing waits for put where devices wait ([`fill`]),
//! also with forwards and backwards in turn ([`turns`]) and so many forwards first ([`depth`]), building blocks for these costs ([`block`]) and schedules
//! built task by task from either end ([`frontier`]). Annealing on critical paths ([`anneal`]) improves them, on a step with few
//! microbatches whose steady state is then repeated ([`stretch`]). Rules of list schedules ([`rule`], [`list`]) are annealed as
//! well ([`priority`]), also those of a pipeline with half the devices ([`coarse`]). Where the step is small, an exhaustive [`frontier`] proves
//! that nothing is shorter; elsewhere bounds grow by what single devices say to each other ([`windows`]). Where it pays, every
//! backward may be one task or two ([`fusion`]). Everything follows from the seed; a caller that ends the search early gets the best so
//! far. What is found is only orders: [`write`] makes a source of them, which the ordinary checks judge.

mod anneal;
mod block;
mod bytes;
mod coarse;
mod depth;
mod estimate;
mod exchange;
pub mod find;
mod forms;
mod frontier;
mod halves;
mod known;
pub mod moves;
mod pauses;
mod portfolio;
mod priority;
mod promise;
pub mod proof;
mod relax;
mod round;
mod slots;
mod span;
mod steady;
mod target;
mod windows;
mod work;
pub mod write;

pub use crate::dispatch::{Objective, fusion, job, scale};
pub use known::Known;
pub use portfolio::{Progress, search};
pub use target::Problem;
pub use work::Workers;

use crate::dispatch::{fill, list, plan, random, rule, stretch, turns};

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

#[cfg(test)]
mod tests;
