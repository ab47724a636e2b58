//! Requirements: what a pipeline demands of the finished schedule.

use crate::ratio::Ratio;
use crate::schedule::Schedule;
use pipe_ir::units::Bytes;
use pipe_syntax::source::Span;

/// A `require` of a pipeline.
#[derive(Clone, PartialEq, Debug)]
pub struct Requirement {
    /// What is limited, and by what.
    pub limit: Limit,
    /// The whole line.
    pub span: Span,
}

/// What a requirement limits.
#[derive(Clone, PartialEq, Debug)]
pub enum Limit {
    /// Activation memory of the fullest device, in units.
    Peak(Ratio),
    /// Activation memory of the fullest device, compared with the one of another schedule of as
    /// many devices and microbatches.
    PeakOf {
        /// The part of the other schedule's peak that is allowed.
        factor: Ratio,
        /// The other schedule; none where a turn of each block is written out, and this is no block.
        schedule: Option<Box<Schedule>>,
    },
    /// Bytes of every device's arena.
    Memory(Bytes),
    /// Idle share of the busiest device within the makespan.
    Bubble(Ratio),
}
