//! Measuring: what the tasks of traced steps took, and what a task waits for its inputs.

pub(crate) mod comparison;
pub(crate) mod machine;
pub(crate) mod steps;

use machine::Machine;
use pipe_compiler::judge::Judged;
use pipe_compiler::profile::TaskTime;
use pipe_ir::program::Program;
use pipe_ir::task::TaskKind;
use pipe_runtime::StepReport;
use pipe_runtime::calibrate::median;
use std::collections::BTreeMap;

/// What traced steps say.
pub(crate) struct Measured {
    pub(crate) tasks: Vec<TaskTime>,
    pub(crate) transfer_ns: u64,
}

/// What each kind of task of each stage takes, and what a task waits for an input from another device: of each step the mean over the
/// microbatches, of these the median. Tasks are timed where they ran, beside those of other devices, so that the times hold for devices
/// that share cores.
#[must_use]
pub(crate) fn tasks(program: &Program, judged: &Judged, steps: &[&StepReport], machine: &Machine) -> Measured {
    let mut all: BTreeMap<(u32, TaskKind), Vec<u64>> = BTreeMap::new();
    let mut waits = Vec::new();
    for step in steps.iter().map(|step| steps::of_report(program, step)) {
        for (key, mean) in steps::means(&step) {
            all.entry(key).or_default().push(mean);
        }
        waits.extend(steps::waits(&judged.order.dependencies, &step));
    }
    let tasks = all.into_iter().map(|((stage, kind), means)| TaskTime {
        stage,
        kind,
        ns: median(means),
        flops: steps::operations(program, kind, stage),
    });
    Measured {
        tasks: tasks.collect(),
        transfer_ns: if waits.is_empty() { machine.slowest_link() } else { median(waits) },
    }
}
