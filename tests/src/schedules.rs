//! Schedules that nobody would write: any placement, any order that can run.

use pipe_compiler::check::check;
use pipe_compiler::costs::of_stages;
use pipe_compiler::pipeline::StageCosts;
use pipe_compiler::schedule::{Schedule, ScheduledTask};
use pipe_compiler::source::{FileId, Span};
use pipe_compiler::timeline::{Timeline, place};
use pipe_compiler::units::Ticks;
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use pipe_ir::task::{Task, TaskKind};
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

/// The tasks of one microbatch in an order in which they can run, given the stages that split their backward.
fn chain(split: &[bool]) -> Vec<(TaskKind, usize)> {
    let mut tasks: Vec<_> = (0..split.len()).map(|stage| (TaskKind::Forward, stage)).collect();
    for (stage, split) in split.iter().enumerate().rev() {
        tasks.push((if *split { TaskKind::BackwardInput } else { TaskKind::Backward }, stage));
    }
    tasks
}

/// A schedule drawn from all that can run: stages anywhere, each with its backward fused or in halves, and tasks in any
/// order that respects what they need.
#[must_use]
pub fn random(size: Size, dice: &mut Dice) -> Schedule {
    let placement: Vec<_> = (0..size.stages).map(|_| DeviceId::from_index(dice.below(size.devices))).collect();
    let split: Vec<bool> = (0..size.stages).map(|_| dice.below(2) == 0).collect();
    let chain = chain(&split);
    let mut orders = vec![Vec::new(); size.devices];
    // How far along the chain each microbatch is, and the weight halves that could run.
    let mut progress = vec![0; size.microbatches];
    let mut weights: Vec<(usize, usize)> = Vec::new();
    let mut open: Vec<usize> = (0..size.microbatches).collect();
    while !open.is_empty() || !weights.is_empty() {
        let choice = dice.below(open.len() + weights.len());
        let (kind, stage, microbatch) = if choice < open.len() {
            let microbatch = open[choice];
            let (kind, stage) = chain[progress[microbatch]];
            progress[microbatch] += 1;
            if progress[microbatch] == chain.len() {
                open.swap_remove(choice);
            }
            if kind == TaskKind::BackwardInput {
                weights.push((stage, microbatch));
            }
            (kind, stage, microbatch)
        } else {
            let (stage, microbatch) = weights.swap_remove(choice - open.len());
            (TaskKind::BackwardWeight, stage, microbatch)
        };
        orders[placement[stage].index()].push(task(kind, stage, microbatch));
    }
    schedule("random", placement, orders, size.microbatches)
}

/// A schedule that can run, after some tasks of some devices have changed places: it may get stuck.
#[must_use]
pub fn disordered(size: Size, dice: &mut Dice) -> Schedule {
    let mut schedule = random(size, dice);
    for _ in 0..dice.below(4) {
        let device = dice.below(size.devices);
        let order = &mut schedule.orders[device];
        if !order.is_empty() {
            let (from, to) = (dice.below(order.len()), dice.below(order.len()));
            order.swap(from, to);
        }
    }
    schedule
}

/// The tasks that never run if every device waits for the inputs of its next task: plays the schedule in rounds, and
/// shares nothing with the compiler.
#[must_use]
pub fn stuck(schedule: &Schedule) -> Vec<Task> {
    let n_stages = schedule.placement.len();
    let mut rest: Vec<_> = schedule.orders.iter().map(|order| order.iter().map(|task| task.task).peekable()).collect();
    let mut done = BTreeSet::new();
    let mut runs = true;
    while runs {
        runs = false;
        for order in &mut rest {
            let ready = |task: &Task| {
                let ran = |kind, stage: usize| done.contains(&(kind, stage, task.microbatch));
                let stage = task.stage.index();
                let back = |stage| ran(TaskKind::Backward, stage) || ran(TaskKind::BackwardInput, stage);
                match task.kind {
                    TaskKind::Forward => stage == 0 || ran(TaskKind::Forward, stage - 1),
                    TaskKind::Backward | TaskKind::BackwardInput => {
                        ran(TaskKind::Forward, stage) && (stage + 1 == n_stages || back(stage + 1))
                    }
                    TaskKind::BackwardWeight => ran(TaskKind::BackwardInput, stage),
                    TaskKind::Update => true,
                }
            };
            if let Some(task) = order.next_if(ready) {
                done.insert((task.kind, task.stage.index(), task.microbatch));
                runs = true;
            }
        }
    }
    rest.into_iter().flatten().collect()
}

/// A task without a source.
#[must_use]
pub fn task(kind: TaskKind, stage: usize, microbatch: usize) -> ScheduledTask {
    let (stage, microbatch) = (StageId::from_index(stage), MicrobatchId::from_index(microbatch));
    ScheduledTask { task: Task { kind, stage, microbatch }, origin: 0 }
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
        placement,
        placement_span: SPAN,
        orders,
        origins: vec![SPAN],
        block: None,
        reorder: None,
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
    place(schedule, &order, &of_stages(&costs(), schedule.n_stages()))
}

fn costs() -> StageCosts {
    let unit = Ticks::UNIT;
    StageCosts { tasks: [unit, unit, unit, unit + unit, Ticks::ZERO], latency: Ticks::ZERO }
}
