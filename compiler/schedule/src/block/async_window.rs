//! Windows: some optimizer steps that run on without a flush, and the version of the weights that each task reads.
//!
//! Version `v` of a stage's weights is what `v` updates made of the initial ones; versions below 0
//! are the initial ones. An update stands right after the last weight gradient of its step. Under
//! `previous`, the tasks of step `t` read version `t - 1`; under `newest`, a forward reads the
//! newest version that was made before its slot, and the backward the same one. Both are properties
//! of the building block, repeated without end: a window shows some steps of it.

use crate::block::weight_versions::cycles;
use crate::dependencies::Dependencies;
use crate::schedule::{Block, Schedule};
use crate::stage_graph::StageGraph;
use crate::window::StageVersions;
use pipe_ir::ids::StageId;
use pipe_ir::task::{Task, TaskKind};
use pipe_syntax::ast::Weights;
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::source::Span;

/// A version that is not made in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Late {
    /// Of this stage.
    pub stage: StageId,
    /// The task that is too early: a forward that reads the version, or a weight gradient of the
    /// next step, which must not mix with those that the version is made of.
    pub kind: TaskKind,
    /// Where that starts, counted from the first slot of its step's first microbatch.
    pub start: u64,
    /// The slot after the last weight gradient that the version waits for, likewise.
    pub update: u64,
    /// The fewest microbatches of a step with which the version is always there.
    pub enough: u64,
}

/// Says which version a forward does not find, or which gradients would mix.
pub fn too_late(late: Late, span: Span, per_step: u32) -> Diagnostic {
    let Late { stage, kind, start, update, enough } = late;
    let starts = format!("{} of {stage} starts at slot {start} of its step", kind.letters());
    if kind != TaskKind::Forward {
        let message = format!("{starts}, but the gradients of the step before are complete at {update}");
        return Diagnostic::error(Code::VersionTooLate, span, "the gradients of two steps would mix", message)
            .help("let a stage take its weight gradients in the order of the microbatches, or use `weights flush`");
    }
    let microbatches = if per_step == 1 { "1 microbatch".to_owned() } else { format!("{per_step} microbatches") };
    let message = format!("{starts}, but the previous version of its weights is made at {update}");
    Diagnostic::error(Code::VersionTooLate, span, "reads a version that is not there", message)
        .note(format!("a step has {microbatches}"))
        .help(format!("say `require M >= {enough}` and use as many, or `weights newest`"))
}

/// First slots of a stage's tasks, by microbatch of the block, then by kind.
type Starts = Vec<[u64; TaskKind::ALL.len()]>;

fn starts(block: &Block, n_stages: usize) -> Vec<Starts> {
    let mut starts = vec![vec![Default::default(); block.microbatches as usize]; n_stages];
    for task in &block.slots {
        let of_kinds: &mut [u64; TaskKind::ALL.len()] = &mut starts[task.stage.index()][task.microbatch.index()];
        of_kinds[task.kind.index()] = task.slot;
    }
    starts
}

/// Where the task of a kind starts on a microbatch of the stream.
fn start(block: &Block, starts: &Starts, kind: TaskKind, microbatch: u64) -> u64 {
    let size = u64::from(block.microbatches.max(1));
    let moved = (microbatch / size).saturating_mul(block.period);
    starts[(microbatch % size) as usize][kind.index()].saturating_add(moved)
}

/// Slots from one step to the next. Steps are whole blocks.
pub fn step_length(block: &Block, per_step: u64) -> u64 {
    (per_step / u64::from(block.microbatches.max(1))).saturating_mul(block.period)
}

/// The slots of one stage of an endless block.
struct Slots<'a> {
    block: &'a Block,
    starts: Starts,
    stage: StageId,
    last: TaskKind,
}

impl Slots<'_> {
    /// Where the task of a kind starts on a microbatch of the stream.
    fn start(&self, kind: TaskKind, microbatch: u64) -> u64 {
        start(self.block, &self.starts, kind, microbatch)
    }

    /// The slot after the last weight gradient of step 0.
    fn update(&self, per_step: u64) -> u64 {
        let end = |microbatch| {
            self.start(self.last, microbatch).saturating_add(self.block.durations_of(self.stage)[self.last.index()])
        };
        (0..per_step).map(end).max().unwrap_or(0)
    }
}

/// The versions that every stage of a block reads, if each is there in time. `per_step` microbatches make a step.
///
/// # Errors
/// The first version that is not, of each stage.
pub fn versions(
    weights: Weights,
    block: &Block,
    n_stages: usize,
    per_step: u32,
) -> Result<Vec<StageVersions>, Vec<Late>> {
    // Which task of a stage is its last one does not depend on who feeds whom.
    let dependencies = Dependencies::of_block(block, &StageGraph::chain(n_stages));
    let found = starts(block, n_stages).into_iter().enumerate().map(|(index, starts)| {
        let stage = StageId::from_index(index);
        let slots = Slots { block, starts, stage, last: dependencies.last(stage) };
        of_stage(weights, &slots, u64::from(per_step))
    });
    let (mut all, mut late) = (Vec::with_capacity(n_stages), Vec::new());
    found.for_each(|stage| match stage {
        Ok(stage) => all.push(stage),
        Err(one) => late.push(Late { enough: enough(block, n_stages, one.stage), ..one }),
    });
    if late.is_empty() { Ok(all) } else { Err(late) }
}

fn enough(block: &Block, n_stages: usize, stage: StageId) -> u64 {
    cycles(block, n_stages)[stage.index()].enough_for_previous()
}

fn of_stage(weights: Weights, slots: &Slots<'_>, per_step: u64) -> Result<StageVersions, Late> {
    let step = step_length(slots.block, per_step);
    let update = slots.update(per_step);
    let late = |kind, start, update| Late { stage: slots.stage, kind, start, update, enough: 0 };
    let first = (0..per_step).map(|microbatch| slots.start(slots.last, microbatch)).min().unwrap_or(0);
    if first.saturating_add(step) < update {
        return Err(late(slots.last, first, update - step));
    }
    let mut lags = Vec::with_capacity(per_step as usize);
    let mut buffers = 1;
    for microbatch in 0..per_step {
        let forward = slots.start(TaskKind::Forward, microbatch);
        // Version t - lag is made at `update + (t - lag - 1) * step`, and the forward starts at `forward + t * step`.
        let newest = update.saturating_sub(forward).div_ceil(step).saturating_sub(1);
        let lag = match weights {
            Weights::Flush => 0,
            Weights::Newest => newest,
            Weights::Previous if newest <= 1 => 1,
            Weights::Previous => return Err(late(TaskKind::Forward, forward, update - 2 * step)),
        };
        lags.push(u32::try_from(lag).unwrap_or(u32::MAX));
        // A version may be replaced at an update that comes after the start of its last reader.
        let reader = slots.start(slots.last, microbatch).saturating_add(lag.saturating_mul(step));
        buffers = buffers.max(if reader < update { 1 } else { (reader - update) / step + 2 });
    }
    Ok(StageVersions { lags, buffers: u32::try_from(buffers).unwrap_or(u32::MAX), update, is_trained: true })
}

/// An update of a stage's weights, between two tasks of a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Update {
    /// It stands right before the task at this position of the device's order.
    pub before: u32,
    /// Whose weights.
    pub stage: StageId,
    /// After which step of the window.
    pub step: u32,
}

/// Where the updates of a window stand, by device; in the order in which they are made. None where a step flushes.
pub fn updates(schedule: &Schedule) -> Vec<Vec<Update>> {
    let mut all: Vec<Vec<(u64, Update)>> = vec![Vec::new(); schedule.n_devices()];
    let (Some(window), Some(block)) = (&schedule.window, &schedule.block) else {
        return vec![Vec::new(); schedule.n_devices()];
    };
    let slots = starts(block, schedule.n_stages());
    let start = |task: Task| start(block, &slots[task.stage.index()], task.kind, u64::from(task.microbatch.0));
    let length = step_length(block, u64::from(schedule.microbatches_of_step()));
    for (index, stage) in window.stages.iter().enumerate() {
        let id = StageId::from_index(index);
        for device in schedule.placement.devices_of(id).iter().map(|device| device.index()) {
            for step in 0..window.n_steps {
                let slot = stage.update.saturating_add(u64::from(step).saturating_mul(length));
                let before = schedule.orders[device].partition_point(|scheduled| start(scheduled.task) < slot);
                let before = u32::try_from(before).expect("orders are far shorter than 2^32 tasks");
                all[device].push((slot, Update { before, stage: id, step }));
            }
        }
    }
    // Devices that update the same stages do so in one order.
    let sorted = |mut device: Vec<(u64, Update)>| {
        device.sort_unstable();
        device.into_iter().map(|(_, update)| update).collect()
    };
    all.into_iter().map(sorted).collect()
}
