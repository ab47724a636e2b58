//! Windows as data: some optimizer steps that run on without a flush, and the version of the
//! weights that each task reads. [`crate::block::async_window`] computes them.

use pipe_syntax::ast::Weights;
use pipe_syntax::source::Span;

/// Steps of a schedule whose blocks run on across steps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Window {
    /// What tasks read: `previous` or `newest`.
    pub weights: Weights,
    /// Where that was said.
    pub span: Span,
    /// Optimizer steps that the orders show.
    pub n_steps: u32,
    /// What is read, by [`StageId`].
    pub stages: Vec<StageVersions>,
}

/// The versions of one stage's weights.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StageVersions {
    /// By microbatch of a step: how many updates fewer than the step's number the version has that its tasks read.
    pub lags: Vec<u32>,
    /// Buffers that the versions take turns in, so that each is there as long as it is read.
    pub buffers: u32,
    /// The slot before which the update of step 0 stands.
    pub update: u64,
    /// Whether anything updates them. A model may have stages without weights.
    pub is_trained: bool,
}
