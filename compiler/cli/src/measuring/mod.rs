//! Measuring: what the tasks of traced steps took, what a task waits for its inputs, and how fast memory and links are.

pub(crate) mod comparison;

use pipe_compiler::judge::Judged;
use pipe_compiler::profile::TaskTime;
use pipe_ir::ids::DeviceId;
use pipe_ir::instruction::Instruction;
use pipe_ir::program::Program;
use pipe_ir::task::{Task, TaskKind};
use pipe_ir::units::Bytes;
use pipe_runtime::calibrate::{self, median};
use pipe_runtime::job::{Division, Job, Rank};
use pipe_runtime::{RunError, Span, StepReport};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Repetitions of each copy and transfer.
const TIMES: u32 = 51;
/// Larger than what caches hold.
const COPY: Bytes = Bytes(32 << 20);

/// What copies and transfers take while nothing else runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Machine {
    /// Bytes that a copy moves in a second.
    copy_bytes_per_second: u64,
    /// By size of what the program sends between devices of one process, ascending.
    links: Vec<Link>,
    /// By ranks and size of what it sends between processes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rank_links: Vec<RankLink>,
}

/// A transfer between devices of two ranks, either way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct RankLink {
    ranks: [Rank; 2],
    bytes: u64,
    ns: u64,
}

/// A transfer between two device threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Link {
    bytes: u64,
    ns: u64,
}

/// What traced steps say.
pub(crate) struct Measured {
    pub(crate) tasks: Vec<TaskTime>,
    pub(crate) transfer_ns: u64,
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1)
}

/// Measures copies and, for every size that the program sends, transfers. All ranks of a job do it at once; the first one has the answer.
///
/// # Errors
/// If the machine lacks memory for them, or another rank cannot go on.
pub(crate) fn machine(program: &Program, job: Option<&Job>) -> Result<Machine, RunError> {
    let division = Division::new(program.devices.len(), job.map_or(1, Job::n_ranks));
    let rank_of = |device: DeviceId| division.map_or(Rank::FIRST, |division| division.rank_of(device));
    let (mut here, mut between) = (BTreeSet::new(), BTreeSet::new());
    for (own, device) in program.devices.iter().enumerate() {
        for instruction in &device.step {
            let Instruction::SendStart { buffer, to, .. } = *instruction else { continue };
            let (bytes, from, to) =
                (device.buffers[buffer.index()].bytes, rank_of(DeviceId::from_index(own)), rank_of(to));
            if from == to {
                here.insert(bytes);
            } else {
                between.insert(([from.min(to), from.max(to)], bytes));
            }
        }
    }
    let mut machine = Machine { copy_bytes_per_second: 0, links: Vec::new(), rank_links: Vec::new() };
    if job.is_none_or(Job::is_first) {
        // The others wait, so that nothing else runs on this host but for their messengers.
        for bytes in here {
            machine.links.push(Link { bytes: bytes.0, ns: nanos(calibrate::link(bytes, TIMES)?) });
        }
        let copy = u128::from(nanos(calibrate::copy(COPY, TIMES)?));
        let per_second = u128::from(COPY.0) * 1_000_000_000 / copy;
        machine.copy_bytes_per_second = u64::try_from(per_second).unwrap_or(u64::MAX);
    }
    if let Some(job) = job {
        job.any(false)?;
        for (ranks, bytes) in between {
            let ns = nanos(calibrate::rank_link(job, ranks, bytes, TIMES)?);
            machine.rank_links.push(RankLink { ranks, bytes: bytes.0, ns });
        }
    }
    Ok(machine)
}

/// What each kind of task of each stage takes, and what a task waits for an input from another device: of each step the mean over the
/// microbatches, of these the median. Tasks are timed where they ran, beside those of other devices, so that the times hold for devices
/// that share cores.
#[must_use]
pub(crate) fn tasks(program: &Program, judged: &Judged, steps: &[&StepReport], machine: &Machine) -> Measured {
    let mut means: BTreeMap<(u32, TaskKind), Vec<u64>> = BTreeMap::new();
    let mut waits = Vec::new();
    for step in steps {
        let mut sums: BTreeMap<(u32, TaskKind), (u64, u64)> = BTreeMap::new();
        for span in step.devices.iter().flat_map(|device| &device.spans) {
            let exec = program.exec(span.exec);
            let (sum, count) = sums.entry((exec.stage.0, exec.kind)).or_default();
            (*sum, *count) = (*sum + (span.end.0 - span.start.0), *count + 1);
        }
        for (key, (sum, count)) in sums {
            means.entry(key).or_default().push(sum / count);
        }
        waits.extend(waits_of(program, judged, step));
    }
    let flops = |stage: u32, kind| {
        let own = program.execs.iter().filter(|exec| exec.stage.0 == stage && exec.kind == kind);
        own.map(|exec| exec.flops).fold(0, u64::saturating_add)
    };
    let tasks = means.into_iter().map(|((stage, kind), means)| TaskTime {
        stage,
        kind,
        ns: median(means),
        flops: flops(stage, kind),
    });
    let links = machine.links.iter().map(|link| link.ns);
    let alone = links.chain(machine.rank_links.iter().map(|link| link.ns)).max().unwrap_or_default();
    Measured { tasks: tasks.collect(), transfer_ns: if waits.is_empty() { alone } else { median(waits) } }
}

/// For each task that waited for nothing but an input from another device: from the end of what makes the input to its own start.
fn waits_of(program: &Program, judged: &Judged, step: &StepReport) -> Vec<u64> {
    let mut ends: BTreeMap<Task, (DeviceId, u64)> = BTreeMap::new();
    let task_of = |span: &Span| {
        let exec = program.exec(span.exec);
        Task { kind: exec.kind, stage: exec.stage, microbatch: span.microbatch }
    };
    for (device, report) in step.devices.iter().enumerate() {
        let spans = report.spans.iter().map(|span| (task_of(span), (DeviceId::from_index(device), span.end.0)));
        ends.extend(spans.filter(|(task, _)| task.kind != TaskKind::Update));
    }
    let mut waits = Vec::new();
    for (device, report) in step.devices.iter().enumerate() {
        for pair in report.spans.windows(2).filter(|pair| program.exec(pair[1].exec).kind != TaskKind::Update) {
            let inputs = judged.order.dependencies.inputs(task_of(&pair[1]));
            let Some((maker, end)) = inputs.filter_map(|task| ends.get(&task)).max_by_key(|(_, end)| *end) else {
                continue;
            };
            if maker.index() != device && *end > pair[0].end.0 {
                waits.push(pair[1].start.0.saturating_sub(*end));
            }
        }
    }
    waits
}
