//! Schedules that nobody would write: any placement, any order that can run.

use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use pipe_ir::task::{Task, TaskKind};
use pipe_schedule::check::check;
use pipe_schedule::placement::{DeviceSets, Placement};
use pipe_schedule::policy::activation::Activations;
use pipe_schedule::policy::frozen::Frozen;
use pipe_schedule::schedule::{Schedule, ScheduledTask};
use pipe_schedule::slices::Slices;
use pipe_schedule::stage_graph::StageGraph;
use pipe_schedule::step_tasks::{CarriedLanes, StepTaskKind, StepTasks};
use pipe_schedule::timing::costs::{StageCosts, of_stages};
use pipe_schedule::timing::timeline::{Timeline, simulate};
use pipe_syntax::diagnostic::Code;
use pipe_syntax::source::{FileId, Span};
use std::collections::BTreeSet;

/// Nowhere in particular.
pub const SPAN: Span = Span { file: FileId(0), start: 0, end: 0 };

/// A stream of reproducible random numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct Dice(pub u64);

impl Dice {
    /// Below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) % n as u64) as usize
    }
}

/// How large a random schedule is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Number of devices.
    pub devices: usize,
    /// Number of stages.
    pub stages: usize,
    /// Number of microbatches.
    pub microbatches: usize,
}

/// Stages with random edges between them; every stage but the last is read by some other one.
fn random_graph(n_stages: usize, dice: &mut Dice) -> StageGraph {
    let mut edges = Vec::new();
    for from in 0..n_stages.saturating_sub(1) {
        let sure = from + 1 + dice.below(n_stages - from - 1);
        let drawn = (from + 1..n_stages).filter(|to| *to == sure || dice.below(4) == 0);
        edges.extend(drawn.map(|to| (StageId::from_index(from), StageId::from_index(to))));
    }
    StageGraph::new(n_stages, edges)
}

/// A schedule drawn from all that can run: stages in a chain or any graph, anywhere, each with its backward fused or in
/// halves and some recomputing, microbatches whole or in slices, and tasks in any order that respects what they need.
#[must_use]
pub fn random(size: Size, dice: &mut Dice) -> Schedule {
    let devices: Vec<_> = (0..size.stages).map(|_| DeviceId::from_index(dice.below(size.devices))).collect();
    random_on(Placement::of_stages(devices), size, dice)
}

/// The same, but microbatches of a stage run on several devices: in turns, or anywhere.
#[must_use]
pub fn replicated(size: Size, dice: &mut Dice) -> Schedule {
    let period = if dice.below(2) == 0 { size.microbatches } else { 1 + dice.below(3) };
    let rows: Vec<_> = (0..period * size.stages).map(|_| DeviceId::from_index(dice.below(size.devices))).collect();
    let rows = rows.chunks(size.stages).cycle().take(size.microbatches);
    random_on(Placement::of_tasks(size.stages, rows.flatten().copied().collect()), size, dice)
}

/// The same, but some stages live on several devices at once.
#[must_use]
pub fn spread(size: Size, dice: &mut Dice) -> Schedule {
    let mut sets = DeviceSets::default();
    for _ in 0..size.stages {
        let n_devices = if dice.below(2) == 0 { 1 } else { 1 + dice.below(size.devices) };
        let devices: Vec<_> = (0..n_devices).map(|_| DeviceId::from_index(dice.below(size.devices))).collect();
        sets.push(devices);
    }
    random_on(Placement::of_stages(sets), size, dice)
}

fn random_on(placement: Placement, size: Size, dice: &mut Dice) -> Schedule {
    let is_chain = dice.below(2) == 0;
    let graph = if is_chain { StageGraph::chain(size.stages) } else { random_graph(size.stages, dice) };
    let slices = if placement.is_replicated() { 1 } else { [1, 1, 2, 3][dice.below(4)] };
    let n_microbatches = size.microbatches * slices;
    let split: Vec<bool> = (0..size.stages).map(|_| dice.below(2) == 0).collect();
    let again = recomputed(size.stages, n_microbatches, dice);
    let mut orders = vec![Vec::new(); size.devices];
    let mut done = BTreeSet::new();
    let mut open: Vec<Task> = Vec::new();
    for (stage, split) in split.iter().enumerate() {
        let kinds: &[TaskKind] = if *split {
            &[TaskKind::Forward, TaskKind::BackwardInput, TaskKind::BackwardWeight]
        } else {
            &[TaskKind::Forward, TaskKind::Backward]
        };
        open.extend(kinds.iter().flat_map(|kind| (0..n_microbatches).map(|m| task(*kind, stage, m).task)));
        let repeated = (0..n_microbatches).map(|m| task(TaskKind::Recompute, stage, m).task);
        open.extend(repeated.filter(|task| again.contains(&(task.stage, task.microbatch))));
    }
    while !open.is_empty() {
        let ready: Vec<usize> =
            (0..open.len()).filter(|index| is_ready((&graph, slices, &again), &done, open[*index])).collect();
        let task = open.swap_remove(ready[dice.below(ready.len())]);
        done.insert((task.kind, task.stage, task.microbatch));
        for device in placement.devices(task.stage, task.microbatch) {
            orders[device.index()].push(ScheduledTask::new(task, 0));
        }
    }
    let is_equal = slices == 1 || dice.below(2) == 0;
    let share = |()| u32::try_from(1 + dice.below(4)).unwrap_or(1);
    let shares: Vec<u32> = if is_equal { Vec::new() } else { vec![(); slices].into_iter().map(share).collect() };
    let activations = Activations::default().sliced(&shares).unwrap_or_default();
    let slices = Slices::new(u32::try_from(slices).unwrap_or(1));
    let empty = schedule("random", Vec::new(), orders, n_microbatches);
    Schedule { graph, placement, slices, shares, activations, ..empty }
}

/// The microbatches that some stages recompute. In half of the schedules these are all microbatches of the stage.
fn recomputed(n_stages: usize, n_microbatches: usize, dice: &mut Dice) -> BTreeSet<(StageId, MicrobatchId)> {
    let mut again = BTreeSet::new();
    let all = dice.below(2) == 0;
    for stage in (0..n_stages).map(StageId::from_index) {
        let some = dice.below(3) == 0;
        let own = (0..n_microbatches).filter(|_| some && (all || dice.below(2) == 0));
        again.extend(own.map(|microbatch| (stage, MicrobatchId::from_index(microbatch))));
    }
    again
}

/// Whether everything that a task needs has run. Shares nothing with the compiler but the graph.
fn is_ready(
    (graph, slices, again): (&StageGraph, usize, &BTreeSet<(StageId, MicrobatchId)>),
    done: &BTreeSet<(TaskKind, StageId, MicrobatchId)>,
    task: Task,
) -> bool {
    let slice = task.microbatch.index() % slices;
    let (first, last) = (slice == 0, slice + 1 == slices);
    let neighbour = |kind, number: u32| done.contains(&(kind, task.stage, MicrobatchId(number)));
    let ran = |kind, stage: StageId| done.contains(&(kind, stage, task.microbatch));
    let back = |stage| ran(TaskKind::Backward, stage) || ran(TaskKind::BackwardInput, stage);
    match task.kind {
        TaskKind::Forward => {
            let before = first || neighbour(TaskKind::Forward, task.microbatch.0 - 1);
            before && graph.edges().all(|(from, to)| to != task.stage || ran(TaskKind::Forward, from))
        }
        TaskKind::Backward | TaskKind::BackwardInput => {
            let behind = last || neighbour(task.kind, task.microbatch.0 + 1);
            let first =
                if again.contains(&(task.stage, task.microbatch)) { TaskKind::Recompute } else { TaskKind::Forward };
            behind && ran(first, task.stage) && graph.edges().all(|(from, to)| from != task.stage || back(to))
        }
        TaskKind::Recompute => ran(TaskKind::Forward, task.stage),
        TaskKind::BackwardWeight => ran(TaskKind::BackwardInput, task.stage),
        TaskKind::Update => true,
    }
}

/// A schedule that can run, after some tasks of some devices have changed places: it may get stuck.
#[must_use]
pub fn disordered(size: Size, dice: &mut Dice) -> Schedule {
    disorder(random(size, dice), dice)
}

/// A schedule after some tasks of some devices have changed places.
#[must_use]
pub fn disorder(mut schedule: Schedule, dice: &mut Dice) -> Schedule {
    for _ in 0..dice.below(4) {
        let device = dice.below(schedule.orders.len());
        let order = &mut schedule.orders[device];
        if !order.is_empty() {
            let (from, to) = (dice.below(order.len()), dice.below(order.len()));
            order.swap(from, to);
        }
    }
    schedule
}

/// The tasks that never run if every device waits for the inputs of its next task, and for all
/// devices of that task to stand at it: plays the schedule in rounds, and shares nothing with the
/// compiler.
#[must_use]
pub fn stuck(schedule: &Schedule) -> Vec<Task> {
    let again = schedule.orders.iter().flatten().filter(|one| one.task.kind == TaskKind::Recompute);
    let again = again.map(|one| (one.task.stage, one.task.microbatch)).collect();
    let mut next = vec![0; schedule.orders.len()];
    let mut done = BTreeSet::new();
    let slices = schedule.slices.count() as usize;
    loop {
        // A device joins the sums, and waits for the updates, that stand before its next task.
        let stands = |device: usize, kind: StepTaskKind| {
            let next = schedule.orders[device].get(next[device]).map_or(u32::MAX, |task| task.at);
            let own = schedule.step_tasks.of(DeviceId::from_index(device)).iter();
            own.filter(move |mark| mark.kind == kind && mark.at < next).map(|mark| mark.stage)
        };
        let joins = |device: DeviceId, stage| stands(device.index(), StepTaskKind::Reduce).any(|own| own == stage);
        let waits = |device: usize| {
            stands(device, StepTaskKind::Update).any(|stage| {
                let all = schedule.placement.devices_of(stage);
                all.len() > 1 && !all.iter().all(|other| joins(*other, stage))
            })
        };
        let head = |device: usize| {
            let own = schedule.orders[device].get(next[device]).map(|one| one.task);
            own.filter(|_| !waits(device))
        };
        let can_run = |task: &Task| {
            let devices = schedule.placement.devices(task.stage, task.microbatch);
            devices.iter().all(|device| head(device.index()) == Some(*task))
                && is_ready((&schedule.graph, slices, &again), &done, *task)
        };
        let Some(task) = (0..next.len()).filter_map(head).find(can_run) else { break };
        done.insert((task.kind, task.stage, task.microbatch));
        schedule.placement.devices(task.stage, task.microbatch).iter().for_each(|device| next[device.index()] += 1);
    }
    let rest = schedule.orders.iter().zip(&next).flat_map(|(order, next)| &order[*next..]);
    rest.map(|one| one.task).collect()
}

/// Whether the compiler accepts a schedule exactly if [`stuck`] finds nothing, and else says that it gets stuck.
///
/// # Errors
/// What the compiler says, or keeps quiet about.
pub fn analysis_as_it_runs(schedule: &Schedule) -> Result<(), String> {
    let stuck = stuck(schedule);
    match check(schedule) {
        Ok(_) if !stuck.is_empty() => Err(format!("accepted, but these never run: {stuck:?}")),
        Err(found) if stuck.is_empty() => Err(format!("rejected, but it runs: {found:#?}")),
        Err(found) if found.iter().any(|diagnostic| diagnostic.code != Code::Deadlock) => Err(format!("{found:#?}")),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// A task without a source.
#[must_use]
pub fn task(kind: TaskKind, stage: usize, microbatch: usize) -> ScheduledTask {
    let (stage, microbatch) = (StageId::from_index(stage), MicrobatchId::from_index(microbatch));
    ScheduledTask::new(Task { kind, stage, microbatch }, 0)
}

/// A schedule without a source.
#[must_use]
pub fn schedule(
    name: &str,
    placement: Vec<DeviceId>,
    orders: Vec<Vec<ScheduledTask>>,
    microbatches: usize,
) -> Schedule {
    Schedule {
        name: name.to_owned(),
        span: SPAN,
        n_microbatches: u32::try_from(microbatches).unwrap_or(u32::MAX),
        slices: Slices::ONE,
        shares: Vec::new(),
        parts: pipe_schedule::parts::StageParts::default(),
        graph: StageGraph::chain(placement.len()),
        activations: Activations::default(),
        placement: Placement::of_stages(placement),
        window: None,
        placement_span: SPAN,
        orders,
        origins: vec![SPAN],
        block: None,
        swaps: pipe_schedule::swaps::Swaps::default(),
        step_tasks: StepTasks::default(),
        carried: CarriedLanes::default(),
        frozen: Frozen::default(),
        reorder: None,
        pipelines: 1,
    }
}

/// 1F1B, interleaved if there is more than one stage per device: the classic order with `warmup` forwards first.
#[must_use]
pub fn one_f_one_b(devices: usize, microbatches: usize) -> Schedule {
    let orders = (0..devices).map(|device| {
        let warmup = (devices - 1 - device).min(microbatches);
        let forward = |microbatch| task(TaskKind::Forward, device, microbatch);
        let backward = |microbatch| task(TaskKind::Backward, device, microbatch);
        let mut order: Vec<_> = (0..warmup).map(forward).collect();
        for microbatch in warmup..microbatches {
            order.extend([forward(microbatch), backward(microbatch - warmup)]);
        }
        order.extend((microbatches - warmup..microbatches).map(backward));
        order
    });
    let placement = (0..devices).map(DeviceId::from_index).collect();
    schedule("one_f_one_b", placement, orders.collect(), microbatches)
}

/// The times of a schedule that can run: F, B and W take 1, BW 2.
///
/// # Panics
/// If the schedule cannot run.
#[must_use]
pub fn time(schedule: &Schedule) -> Timeline {
    let order = check(schedule).expect("the schedule can run");
    simulate(schedule, &order, &of_stages(&StageCosts::default(), schedule.n_stages()))
}
