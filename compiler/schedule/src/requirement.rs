//! Requirements: what a pipeline demands of the finished schedule.

use crate::ratio::Ratio;
use crate::schedule::Schedule;
use pipe_ir::units::Bytes;
use pipe_syntax::ast::Subject;
use pipe_syntax::source::Span;

/// A `require` of a pipeline.
#[derive(Clone, PartialEq, Debug)]
pub struct Requirement {
    /// What is limited.
    pub subject: Subject,
    /// By what.
    pub limit: Limit,
    /// The whole line.
    pub span: Span,
}

/// The most that a requirement allows.
#[derive(Clone, PartialEq, Debug)]
pub enum Limit {
    /// A number, in the unit of the subject.
    Number(Ratio),
    /// A part of what another schedule of as many devices and microbatches takes.
    PartOf {
        /// Which part.
        factor: Ratio,
        /// The other schedule; none where a turn of each block is written out, and this is no block.
        schedule: Option<Box<Schedule>>,
    },
}

impl Requirement {
    /// The bytes that every device's arena may take, if this limits them.
    pub fn memory(&self) -> Option<Bytes> {
        match (self.subject, &self.limit) {
            (Subject::Memory, Limit::Number(limit)) => Some(Bytes(u64::try_from(limit.of(1)).unwrap_or(u64::MAX))),
            _ => None,
        }
    }
}
