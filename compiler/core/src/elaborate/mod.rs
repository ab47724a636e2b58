//! Syntax tree to schedule and pipeline: names become values, loops become tasks.

use crate::diagnostic::Diagnostics;
use crate::files::Files;
use crate::pipeline::Pipeline;
use crate::schedule::Schedule;
use std::collections::BTreeMap;

/// What the caller asks for, beside the text.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Request {
    /// Which pipeline, where the root file declares several.
    pub pipeline: Option<String>,
    /// Which schedule, where the root file declares several, or instead of its pipeline.
    pub schedule: Option<String>,
    /// Values for parameters: `devices`, `microbatches`, the file's and the schedule's.
    pub settings: Vec<(String, i64)>,
}

/// What a file means.
#[derive(Clone, PartialEq, Debug)]
pub struct Elaborated {
    /// Every task. [`crate::schedule::Schedule::reorder`] says whether a better order was asked for.
    pub schedule: Schedule,
    /// The pipeline that binds it; none where a schedule stands alone.
    pub pipeline: Option<Pipeline>,
    /// Values of the files' parameters: layers and models may name them.
    pub parameters: BTreeMap<String, i64>,
}

/// Elaborates the pipeline or schedule that the request names, or the only one of the root file.
pub fn elaborate(_files: &Files, _request: &Request) -> Result<Elaborated, Diagnostics> {
    Err(Vec::new())
}
