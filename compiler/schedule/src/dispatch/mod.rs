//! Orders for tasks whose devices are given. [`crate::dispatch::reorder`] and the search stand on this.
//!
//! Three layers, each of which imports only those above it:
//! - [`job`]: what is to be ordered.
//! - One schedule: a list schedule ([`list`]) simulates devices, latencies and memory exactly and
//!   follows a rule ([`rule`]) or another schedule; fillers go where devices are idle
//!   ([`backfill`]); devices run forwards and backwards alternately ([`round_robin`]); the steady
//!   state of a short step makes a long one ([`stretch`]).
//! - Many schedules: [`improve`] makes one shorter with all of these, in a fixed number of steps.

pub mod backfill;
pub mod estimate;
mod fixed;
pub mod fuse_move;
pub(crate) mod improve;
pub mod job;
pub mod list;
pub mod plan;
pub mod random;
pub mod reorder;
pub mod round_robin;
pub mod rule;
pub mod samples;
pub mod stretch;

pub use job::{fusion, scale};

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
    pub const fn name(self) -> &'static str {
        match self {
            Self::Makespan => "makespan",
            Self::LongestStage => "longest-stage",
        }
    }

    /// What reports call it.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Makespan => "makespan",
            Self::LongestStage => "longest span",
        }
    }
}
