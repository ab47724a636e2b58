//! What the steps of a compilation give, as far as they come. [`crate::report`] reads it.

use crate::Request;
use crate::analyze::Analysis;
use crate::block_family::Numbers;
use crate::certificate::{Alone, Certified};
use crate::stuck::Stuck;
use crate::suggest_fix::Alternative;
use pipe_ir::program::Program;
use pipe_model::pipeline::Elaborated;
use pipe_model::stage_set::StageSet;
use pipe_schedule::timing::copies::Cost;
use pipe_syntax::diagnostic::Diagnostics;
use pipe_syntax::files::Files;

/// The results of all steps so far.
#[derive(Default)]
pub(crate) struct Results {
    pub(crate) files: Option<Files>,
    /// With the cluster's place in its file, and memory.
    pub(crate) request: Option<Request>,
    /// The numbers of microbatches that the verdict speaks for.
    pub(crate) numbers: Option<Numbers>,
    /// What holds for all of them, where nothing else is computed.
    pub(crate) alone: Option<Alone>,
    /// Until it is analyzed.
    pub(crate) elaborated: Option<Elaborated>,
    pub(crate) stages: Option<StageSet>,
    /// Whether the schedule is sound, and was read from a table of PyTorch.
    pub(crate) is_table: bool,
    /// Whether the profile is about this target.
    pub(crate) is_profiled: bool,
    pub(crate) analysis: Option<Analysis>,
    /// Of a schedule that is stuck.
    pub(crate) stuck: Option<Stuck>,
    /// Whether all durations and sums of the analysis are exact.
    pub(crate) is_countable: bool,
    /// What holds for all numbers of microbatches, beside the step.
    pub(crate) certified: Option<Certified>,
    /// What copies between devices and hosts cost each device.
    pub(crate) copies: Option<Vec<Cost>>,
    /// Not verified yet. It may need more memory than there is.
    pub(crate) program: Option<Program>,
    /// What would make it fit.
    pub(crate) changes: Vec<Alternative>,
    pub(crate) warnings: Diagnostics,
}
