//! How long the tasks of traced steps took, and how long each waited for its inputs.

use super::machine::MachineReport;
use super::steps;
use pipe_compiler::analyze::Analysis;
use pipe_compiler::profile::TaskTime;
use pipe_ir::program::Program;
use pipe_ir::task::TaskKind;
use pipe_runtime::StepReport;
use pipe_runtime::calibrate::median;
use std::collections::BTreeMap;

/// What traced steps say.
pub(crate) struct TaskTimes {
    pub(crate) tasks: Vec<TaskTime>,
    pub(crate) transfer_ns: u64,
}

/// What each kind of task of each stage takes in some steps: of each step the mean over the
/// microbatches, of these the median. What a task waits for an input from another device is from
/// other steps, in which tasks run beside each other, or from the machine where there are none. `program` has a
/// list for each device that runs, `listed` one for each device of the schedule.
pub(crate) fn tasks(
    [program, listed]: [&Program; 2],
    analysis: &Analysis,
    from: [&[&StepReport]; 2],
    machine: &MachineReport,
) -> TaskTimes {
    let [timed, beside] = from.map(|steps| steps.iter().map(|step| steps::of_report(program, step)));
    let mut all: BTreeMap<(u32, TaskKind), Vec<u64>> = BTreeMap::new();
    for (key, mean) in timed.flat_map(|step| steps::means(&step)) {
        all.entry(key).or_default().push(mean);
    }
    let waits: Vec<u64> = beside.flat_map(|step| steps::waits(&analysis.order.dependencies, &step)).collect();
    let tasks = all.into_iter().map(|((stage, kind), means)| TaskTime {
        stage,
        kind,
        ns: median(means),
        flops: steps::operations(listed, kind, stage),
    });
    TaskTimes {
        tasks: tasks.collect(),
        transfer_ns: if waits.is_empty() { machine.slowest_link() } else { median(waits) },
    }
}
