//! Lowering: a timed schedule and the executables of its stages become the instruction lists of all devices.
//!
//! Nothing here can fail: the schedule is known to run to its end. Four steps, each in its file:
//!
//! 1. `order` puts all tasks in one global linear order, by the time at which they start.
//! 2. `transfers` finds out what crosses between devices, one transfer per value, microbatch and
//!    target device, and says after which task of the sender it is sent, before which task of the
//!    receiver its receive is queued, and before which task of the sender its end is waited for.
//! 3. `all_gathers` finds out when weights that are kept in shares have to be there as a whole, and
//!    `collectives` says after which task each device joins these gatherings and the reductions of
//!    replicated weights.
//! 4. `emit` writes each device's list; `arena` then gives every buffer its place.
//!
//! `halves` then looks for backwards that take less memory if both halves are one run, and all four
//! steps are done again with these.
//!
//! # Why no device waits forever
//!
//! Run the blocks of all tasks one after the other in the global order. The block of a task waits
//! for its inputs, runs, queues sends, frees what nobody needs any more, and queues the receives
//! that stand before the next task of its device. Receives queued before any task go first. Then no
//! `wait` ever blocks, because both sides of its transfer were queued in an earlier block:
//!
//! - A channel carries values in the order in which the receiver first reads them. When a task is
//!   about to read the k-th, the readers of the others before it have run, so their producers have
//!   too: all of them were sent. Its receive is queued at the latest right before it.
//! - The wait for a send stands in the block of a task that comes later in the global order than
//!   both the block of its producer and the block at whose end the receive is queued.
//!
//! Collectives are waited for after the last task of a device, when it has joined all of its own;
//! or, where gradients leave when their sum is made, in the block of a task that comes later in the
//! global order than every task after which a member joins. Sums that travel between replicas are
//! waited for right where they are received; the global order has the task that makes one before
//! the task that is behind its receive, and all receives of a total before the next task that
//! changes what was sent.
//!
//! Each gathering of weights has a place in the global order, before some task. All members have
//! joined it when the blocks before that place have run, or do so then, behind receives that stand
//! there: a member that does not need the weights itself waits for them right before it joins the
//! next gathering, whose place is no earlier, or where the first other member needs them. All
//! others wait in the block of a task behind that place. Reductions are joined in one order with
//! these, and waited for behind their places. A member whose list says `gather` may join earlier, and
//! then waits for nothing there.
//!
//! What one order of execution completes, every order completes: starting a transfer never blocks,
//! and no device can take a transfer from another. The verifier proves each program again, without
//! knowing any of this.

mod activation_swaps;
mod all_gathers;
mod arena;
mod chained_reductions;
mod chunks;
mod collectives;
mod emit;
mod halves;
mod lists;
pub mod offload;
mod order;
mod program_tables;
pub mod reductions;
mod state_swaps;
mod transfers;
mod unused_gathers;

use crate::offload::copied::Traffic;
use crate::reductions::reductions;
use emit::Elsewhere;
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use pipe_ir::program::{DeviceProgram, Program};
use pipe_ir::training::Training;
use pipe_ir::units::Bytes;
use pipe_ir::units::capacity::Capacity;
use pipe_model::stage_set::StageSet;
use pipe_schedule::block::async_window::updates;
use pipe_schedule::dependencies::Dependencies;
use pipe_schedule::parts::StageParts;
use pipe_schedule::placement::names;
use pipe_schedule::policy::offload::Offload;
use pipe_schedule::policy::zero::Zero;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::step_tasks::StepTaskKind;
use pipe_schedule::timing::latency::Latency;
use pipe_schedule::timing::reductions::Reduction;
use pipe_schedule::timing::timeline::Timeline;
use pipe_schedule::units::Ticks;
use pipe_syntax::diagnostic::{Code, Diagnostic};
use state_swaps::Residency;

pub use unused_gathers::unused_gathers;

/// What a program says beside its instructions.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Options {
    /// Name of the pipeline or schedule.
    pub name: String,
    /// What each device has, if it was said.
    pub memory: Option<Capacity>,
    /// How to train.
    pub training: Option<Training>,
    /// What each device may use of its host's memory, if it was said.
    pub host: Option<Capacity>,
    /// What lives in the memory of hosts.
    pub offload: Offload,
    /// What devices with the same weights divide among them.
    pub zero: Zero,
    /// What chunks may take together with all else, if that was said; otherwise as little as lets copies hide.
    pub budget: Option<Capacity>,
    /// How long a transfer takes: its sender waits for its end no earlier than that.
    pub latency: Latency,
    /// How long a copy of 1 MiB between a device and its host takes.
    pub copy: Ticks,
    /// What the copies of state make of the times of tasks, where state and activations are offloaded.
    pub traffic: Option<Traffic>,
    /// By stage: whether halves of backwards are runs of their own where both could be one, because each
    /// is to be measured, or both at once take longer. None of them where it is shorter.
    pub apart: Vec<bool>,
}

/// Says why a schedule has no program. An instruction runs a stage, or a part of one, on one device. So a stage on
/// several devices at once would have to be divided among them. The instructions of a list and of its lanes need one
/// order, and some schedules have none. There are no instructions for `evict` and `fetch`.
pub fn undivided(schedule: &Schedule) -> Option<Diagnostic> {
    if let Some(origin) = schedule.swaps.first_origin() {
        let message = format!("`{}` evicts activations, and no instructions do that", schedule.name);
        let span = schedule.origins[usize::from(origin)];
        let error = Diagnostic::error(Code::UndividedStage, span, "this has no instructions", message);
        return Some(error.help("leave `evict` and `fetch` out; `check` and `plot` take schedules with them"));
    }
    let rows = (0..schedule.n_stages()).map(StageId::from_index);
    let alone = rows.filter_map(|row| schedule.parts.part(row)).find(|part| part.member.is_some());
    let Some(stage) = schedule.placement.spread_stage().or(alone.map(|part| part.stage)) else {
        return lists::stops(schedule);
    };
    let queues = schedule.placement.devices(stage, MicrobatchId(0)).iter();
    let devices: Vec<DeviceId> = queues.map(|queue| schedule.parts.device(*queue, schedule.n_devices())).collect();
    let (devices, name) = (names(&devices), schedule.stage_name(stage));
    let message = format!("{name} lives on {devices} at once, and how its tensors are divided among them is not known");
    let error = Diagnostic::error(Code::UndividedStage, schedule.placement_span, "this has no instructions", message);
    Some(error.help("place every stage on one device; `check`, `plot` and `search` take several"))
}

/// Writes the program of a schedule that was found to run to its end, with the times of its tasks.
pub fn lower(schedule: &Schedule, timeline: &Timeline, set: &StageSet, options: &Options) -> Program {
    let parts = &schedule.parts;
    let listed;
    let (schedule, timeline) = if parts.lanes().is_empty() {
        (schedule, timeline)
    } else {
        listed = lists::of(schedule, timeline);
        (&listed.0, &listed.1)
    };
    let (apart, transfers) = write((schedule, parts), timeline, set, options);
    let Some(firsts) = halves::found((schedule, timeline, set), options, (&apart, &transfers)) else { return apart };
    halves::least(apart, &firsts, |firsts| {
        let (schedule, timeline) = halves::joined(schedule, timeline, firsts);
        write((&schedule, parts), &timeline, set, options).0
    })
}

/// The program in which every task is a run, and what crosses between its devices.
fn write(
    (schedule, parts): (&Schedule, &StageParts),
    timeline: &Timeline,
    set: &StageSet,
    options: &Options,
) -> (Program, transfers::Transfers) {
    let mut work = program_tables::ProgramTables::new((schedule, parts), set, options);
    // Only where blocks run on, or an order places updates, does a task wait for more than what it reads.
    let waits = schedule.window.is_some() || schedule.step_tasks.first(StepTaskKind::Update).is_some();
    let dependencies = waits.then(|| Dependencies::of(schedule));
    let order = order::GlobalOrder::new(schedule, timeline, &work, dependencies.as_ref());
    let transfers = transfers::Transfers::new(schedule, timeline, &work, &order, &options.latency);
    let reductions = reductions(schedule, set, timeline, &options.latency);
    let given =
        Inputs { schedule, timeline, options, dependencies: dependencies.as_ref(), order, transfers, reductions };
    let Lowered { groups, mut devices } = given.least_waiting(&work);
    work.name_groups(&groups);
    work.leave_out_wholes(&mut devices);
    let program = Program {
        name: options.name.clone(),
        n_stages: u32::try_from(schedule.n_stages()).unwrap_or(u32::MAX),
        n_microbatches: schedule.n_microbatches,
        n_slices: schedule.slices.count(),
        slice_shares: schedule.shares.clone(),
        n_steps: schedule.n_steps(),
        lags: lags(schedule),
        lanes: parts.lanes().iter().map(|lane| lane.to_string()).collect(),
        members: set.members.max(1),
        groups,
        values: work.values,
        execs: work.execs,
        devices,
        training: options.training.clone().map(|training| Training { model: set.model, ..training }),
    };
    (program, given.transfers)
}

/// What the lists of all devices follow from, beside what there is to do.
struct Inputs<'a> {
    schedule: &'a Schedule,
    timeline: &'a Timeline,
    options: &'a Options,
    dependencies: Option<&'a Dependencies>,
    order: order::GlobalOrder,
    transfers: transfers::Transfers,
    reductions: Vec<Reduction>,
}

/// The lists of all devices, and who joins collectives together.
struct Lowered {
    groups: Vec<Vec<DeviceId>>,
    devices: Vec<DeviceProgram>,
}

impl Lowered {
    fn largest(&self) -> Bytes {
        self.devices.iter().map(|code| code.arena).max().unwrap_or_default()
    }

    /// Whether every device has room for its arena.
    fn fits(&self, budget: &Capacity) -> bool {
        (0..).map(DeviceId).zip(&self.devices).all(|(device, code)| code.arena <= budget.of(device))
    }
}

impl Inputs<'_> {
    /// Weights that are kept in shares come while the task before runs, if memory is left for that.
    fn least_waiting(&self, work: &program_tables::ProgramTables) -> Lowered {
        let ahead = self.written(work, true);
        if work.kept().next().is_none() || self.options.budget.as_ref().is_none_or(|budget| ahead.fits(budget)) {
            return ahead;
        }
        let later = self.written(work, false);
        if later.largest() < ahead.largest() { later } else { ahead }
    }

    fn written(&self, work: &program_tables::ProgramTables, ahead: bool) -> Lowered {
        let Self { schedule, timeline, options, dependencies, order, transfers, reductions } = self;
        let rounds = all_gathers::rounds(schedule, work, order, ahead);
        let collectives = collectives::Collectives::new((reductions, &rounds), work, (order, timeline));
        let updates = updates(schedule);
        let sums = chained_reductions::Sums::new(schedule, work, *dependencies, &updates);
        let mut emitter = emit::Emitter::new(schedule, work, transfers, (&collectives, &sums, &updates));
        let devices = (0..schedule.n_devices())
            .map(|device| {
                let device = DeviceId::from_index(device);
                let (state, code) = match options.offload.state() {
                    true => with_state_away(&mut emitter, work, device, options),
                    false => (None, arena::place(device, emitter.device(device, Elsewhere::default()), options)),
                };
                match options.offload.activations {
                    true => activation_swaps::leave(&mut emitter, device, timeline, (state, code), options),
                    false => code,
                }
            })
            .collect();
        let mut groups = collectives.groups;
        if work.exchanges() {
            // Each device alone: its members exchange what pieces of tasks made, and sums of squares.
            groups.extend((0..schedule.n_devices()).map(|device| vec![DeviceId::from_index(device)]));
        }
        Lowered { groups, devices }
    }
}

/// How often chunks get less room because all together cannot be packed into what the device has.
const ATTEMPTS: usize = 4;

/// The program of a device whose state lives in the memory of its host, and its plan: within what
/// the device has, or else with as little as possible.
fn with_state_away(
    emitter: &mut emit::Emitter<'_>,
    work: &program_tables::ProgramTables,
    device: DeviceId,
    options: &Options,
) -> (Option<Residency>, DeviceProgram) {
    let bare = emitter.device(device, Elsewhere::of_state(Residency::default()));
    let mut with = |limit: Option<Bytes>| {
        let residency = Residency::new(emitter.schedule, work, device, &bare, limit);
        let code = arena::place(device, emitter.device(device, Elsewhere::of_state(residency.clone())), options);
        (Some(residency), code)
    };
    let budget = options.budget.as_ref().map(|budget| budget.of(device));
    let mut room = budget;
    for _ in 0..ATTEMPTS {
        let (Some(budget), Some(own)) = (budget, room) else { break };
        let (residency, code) = with(room);
        let excess = Bytes(code.arena.0.saturating_sub(budget.0));
        if excess == Bytes::ZERO {
            return (residency, code);
        }
        room = own.0.checked_sub(excess.0).map(Bytes);
    }
    with(None)
}

/// What the tasks of each stage read, where that is not what their step begins with.
fn lags(schedule: &Schedule) -> Vec<Vec<u32>> {
    let stages = schedule.window.iter().flat_map(|window| &window.stages);
    stages.map(|stage| stage.lags.clone()).collect()
}

/// Items grouped by a number, in their order.
#[derive(Default)]
struct Buckets {
    starts: Vec<u32>,
    items: Vec<u32>,
}

impl Buckets {
    /// Groups pairs of bucket and item.
    fn new(n_buckets: usize, pairs: impl Iterator<Item = (usize, usize)> + Clone) -> Self {
        let mut starts = vec![0_u32; n_buckets + 1];
        for (bucket, _) in pairs.clone() {
            starts[bucket + 1] += 1;
        }
        for bucket in 0..n_buckets {
            starts[bucket + 1] += starts[bucket];
        }
        let mut next = starts.clone();
        let mut items = vec![0_u32; starts[n_buckets] as usize];
        for (bucket, item) in pairs {
            items[next[bucket] as usize] = index32(item);
            next[bucket] += 1;
        }
        Self { starts, items }
    }

    fn of(&self, bucket: usize) -> &[u32] {
        &self.items[self.starts[bucket] as usize..self.starts[bucket + 1] as usize]
    }
}

/// Positions in tables of tasks, transfers and buffers: the limit on tasks keeps them small.
fn index32(index: usize) -> u32 {
    u32::try_from(index).expect("the limit on tasks keeps tables far smaller than 2^32 entries")
}
