//! Measuring: what the tasks of traced steps took, what a task waits for its inputs, and how fast memory and links are.

pub(crate) mod comparison;
pub(crate) mod steps;

use pipe_compiler::judge::Judged;
use pipe_compiler::profile::TaskTime;
use pipe_ir::ids::DeviceId;
use pipe_ir::instruction::Instruction;
use pipe_ir::program::Program;
use pipe_ir::task::TaskKind;
use pipe_ir::units::Bytes;
use pipe_runtime::calibrate::{self, median};
use pipe_runtime::job::{Division, Job, Rank};
use pipe_runtime::{RunError, StepReport};
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
    let links = machine.links.iter().map(|link| link.ns);
    let alone = links.chain(machine.rank_links.iter().map(|link| link.ns)).max().unwrap_or_default();
    Measured { tasks: tasks.collect(), transfer_ns: if waits.is_empty() { alone } else { median(waits) } }
}
