//! Search: a short schedule with a given placement, under real costs and a memory limit per device.
//!
//! A portfolio, in rounds ([`round`]). Starts are the standard schedules that fit, those with what nothing waits for put where devices wait ([`fill`]),
//! also with forwards and backwards in turn ([`turns`]) and so many forwards first ([`depth`]), building blocks for these costs ([`block`]) and schedules
//! built task by task from either end ([`frontier`]). Annealing on critical paths ([`anneal`]) improves them, on a step with few
//! microbatches whose steady state is then repeated ([`stretch`]). Rules of list schedules ([`rule`], [`dispatch`]) are annealed as
//! well ([`priority`]), also those of a pipeline with half the devices ([`coarse`]). Where the step is small, an exhaustive [`frontier`] proves
//! that nothing is shorter; elsewhere bounds grow by what single devices say to each other ([`windows`]). Where it pays, every
//! backward may be one task or two ([`fusion`]). Everything follows from the seed; a caller that ends the search early gets the best so
//! far. What is found is only orders: [`write`] makes a source of them, which the ordinary checks judge.

mod anneal;
mod block;
mod bytes;
mod coarse;
mod depth;
mod dispatch;
mod estimate;
mod exchange;
mod fill;
pub mod find;
mod fixed;
mod forms;
mod frontier;
pub mod fusion;
mod halves;
pub mod job;
mod known;
pub mod moves;
mod pauses;
mod plan;
mod portfolio;
mod priority;
mod promise;
pub mod proof;
pub(crate) mod random;
mod relax;
mod round;
mod rule;
pub mod scale;
mod slots;
mod span;
mod steady;
mod stretch;
mod target;
mod turns;
mod windows;
mod work;
pub mod write;

pub use known::Known;
pub use portfolio::{Progress, search};
pub use target::Problem;
pub use work::Workers;

/// What is to be short.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Objective {
    /// From the first start to the last end.
    #[default]
    Makespan,
    /// The longest time from first start to last end on one device.
    LongestStage,
}

impl Objective {
    /// What options and programs call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Makespan => "makespan",
            Self::LongestStage => "longest-stage",
        }
    }

    /// What reports call it.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Makespan => "makespan",
            Self::LongestStage => "longest stage",
        }
    }
}

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
