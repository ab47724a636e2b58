//! What a trace measured as a profile (`pipec.profile/1`), which `check`, `search`, `plot` and `build` take.

use super::measured::Measured;
use super::refit::Refit;
use crate::commands::profile::steps::operations;
use pipe_compiler::profile::{SCHEMA, TaskTime};
use pipe_ir::program::Program;
use pipe_ir::task::TaskKind;
use serde::Serialize;

/// The file. All times are in nanoseconds.
#[derive(Serialize)]
pub(crate) struct File {
    schema: &'static str,
    target: String,
    devices: usize,
    stages: usize,
    /// Where it comes from: always `trace`.
    backend: &'static str,
    /// Steps that were measured.
    steps: usize,
    /// What those took, from the first start of a task to the last end of one.
    makespan_ns: u64,
    transfer_ns: u64,
    tasks: Vec<TaskTime>,
}

impl File {
    /// The profile of a target.
    pub(crate) fn new(target: &str, program: Option<&Program>, refit: &Refit, measured: &Measured) -> Self {
        let flops = |kind, stage| program.map_or(0, |program| operations(program, kind, stage));
        let updates = measured.updates.iter().map(|(stage, ns)| ((TaskKind::Update, *stage), *ns));
        let all = refit.tasks.iter().map(|(key, ns)| (*key, *ns)).chain(updates);
        let mut tasks: Vec<TaskTime> =
            all.map(|((kind, stage), ns)| TaskTime { stage, kind, ns, flops: flops(kind, stage) }).collect();
        tasks.sort_by_key(|task| (task.stage, task.kind));
        Self {
            schema: SCHEMA,
            target: target.to_owned(),
            devices: measured.spans.len(),
            stages: refit.costs.tasks.len(),
            backend: "trace",
            steps: measured.numbers.len(),
            makespan_ns: measured.makespan(),
            transfer_ns: refit.transfer.unwrap_or_default(),
            tasks,
        }
    }
}
