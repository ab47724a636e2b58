//! Orders for tasks whose devices are given: what is to be ordered ([`job`]), and schedules of it. [`crate::reorder`] and [`crate::search`] stand on this.
//!
//! A list schedule ([`list`]) simulates devices, latencies and memory exactly, and follows a rule ([`rule`]) or another schedule. What nothing waits for is
//! put where devices wait ([`fill`]); devices run forwards and backwards in turn ([`turns`]). A short step becomes a long one by its steady state
//! ([`stretch`]). [`improve`] makes a schedule shorter with all of them, in so many steps.

pub(crate) mod compact;
pub(crate) mod fill;
mod fixed;
pub mod fusion;
pub(crate) mod improve;
pub mod job;
pub(crate) mod list;
mod passes;
pub(crate) mod plan;
pub(crate) mod random;
pub(crate) mod rule;
pub mod scale;
mod schedules;
pub(crate) mod stretch;
pub(crate) mod turns;

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

#[cfg(test)]
pub(crate) mod tests;
