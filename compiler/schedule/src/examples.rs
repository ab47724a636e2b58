//! Schedules built by hand, for unit tests.

use crate::placement::Placement;
use crate::schedule::{Block, BlockTask, Schedule, ScheduledTask};
use crate::slices::Slices;
use crate::stage_graph::StageGraph;
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use pipe_ir::task::{Task, TaskKind};
use pipe_syntax::source::{FileId, Span};

/// Orders from one line per device, such as `F0.0 F1.0 B1.0 W1.0` (kind, stage, microbatch); each
/// task is its own origin.
pub(crate) fn by_hand(placement: &[u32], n_microbatches: u32, devices: &[&str]) -> Schedule {
    let mut origins = Vec::new();
    let mut scheduled = |word: &str| {
        let letters = word.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        let (stage, microbatch) = word[letters.len()..].split_once('.').expect("stage.microbatch");
        let kind = TaskKind::from_letters(letters).expect("a kind");
        let task = Task {
            kind,
            stage: StageId(stage.parse().expect("a stage")),
            microbatch: MicrobatchId(microbatch.parse().expect("a microbatch")),
        };
        let origin = u16::try_from(origins.len()).expect("few origins");
        origins.push(span(u32::from(origin)));
        ScheduledTask::new(task, origin)
    };
    let orders = devices.iter().map(|line| line.split_whitespace().map(&mut scheduled).collect()).collect();
    schedule(placement, n_microbatches, orders, origins, None)
}

/// A building block from `F0@0` words (kind, stage, slot), repeated and sorted by slot. `BW` takes 2 slots.
pub(crate) fn block(placement: &[u32], n_microbatches: u32, period: u64, text: &str) -> Schedule {
    let mut slots = Vec::new();
    for (origin, word) in text.split_whitespace().enumerate() {
        let (name, slot) = word.split_once('@').expect("name@slot");
        let letters = name.trim_end_matches(|c: char| c.is_ascii_digit());
        slots.push(BlockTask {
            kind: TaskKind::from_letters(letters).expect("a kind"),
            stage: StageId(name[letters.len()..].parse().expect("a stage")),
            microbatch: MicrobatchId(0),
            slot: slot.parse().expect("a slot"),
            origin: u16::try_from(origin).expect("few origins"),
        });
    }
    let origins = (0..slots.len()).map(|origin| span(u32::try_from(origin).expect("few origins"))).collect();
    let n_devices = placement.iter().max().map_or(0, |device| *device as usize + 1);
    let mut orders: Vec<Vec<(u64, ScheduledTask)>> = vec![Vec::new(); n_devices];
    for microbatch in 0..n_microbatches {
        for task in &slots {
            let BlockTask { kind, stage, slot, origin, .. } = *task;
            let task = Task { kind, stage, microbatch: MicrobatchId(microbatch) };
            let start = slot + u64::from(microbatch) * period;
            orders[placement[stage.index()] as usize].push((start, ScheduledTask::new(task, origin)));
        }
    }
    orders.iter_mut().for_each(|order| order.sort_by_key(|(start, _)| *start));
    let orders = orders.into_iter().map(|order| order.into_iter().map(|(_, task)| task).collect()).collect();
    let durations = [1, 1, 1, 2, 1, 0];
    let block = Block { microbatches: 1, period, every: None, slots, durations, of_parts: Vec::new(), only: None };
    schedule(placement, n_microbatches, orders, origins, Some(block))
}

/// 1F1B with a fused backward.
pub(crate) fn one_f_one_b(n_devices: u32, n_microbatches: u32) -> Schedule {
    let stages = 0..n_devices;
    let words = stages.clone().map(|s| format!("F{s}@{s} BW{s}@{} ", n_devices + 2 * (n_devices - 1 - s)));
    let placement: Vec<u32> = stages.collect();
    block(&placement, n_microbatches, 3, &words.collect::<String>())
}

/// V-Half (arXiv 2405.15362), not reordered.
pub(crate) fn v_half(n_devices: u32, n_microbatches: u32) -> Schedule {
    let gap = if n_devices.is_multiple_of(2) { 3 } else { 0 };
    v_shape(n_devices, n_microbatches, |device| {
        let forwards = [2 * device, 3 * n_devices - 2 - device];
        (forwards, [6 * n_devices - 2 + gap - device, 3 * n_devices - 1 + gap + 2 * device])
    })
}

/// V-ZB (arXiv 2405.15362), not reordered.
pub(crate) fn v_zb(n_devices: u32, n_microbatches: u32) -> Schedule {
    let last = n_devices - 1;
    v_shape(n_devices, n_microbatches, |device| {
        let forwards = [4 * device, 4 * last + 1 + 2 * (last - device)];
        (forwards, [10 * last + 3 + 2 * (last - device), 6 * last + 2 + 4 * device])
    })
}

/// A block on a V: slots of `F` and `B` of each device's two stages, and every `W` in the first free slot.
fn v_shape(n_devices: u32, n_microbatches: u32, slots: impl Fn(u32) -> ([u32; 2], [u32; 2])) -> Schedule {
    let last = 2 * n_devices - 1;
    let placement: Vec<u32> = (0..=last).map(|s| s.min(last - s)).collect();
    let mut words = String::new();
    for device in 0..n_devices {
        let (forwards, backwards) = slots(device);
        let mut taken: Vec<u32> = forwards.iter().chain(&backwards).map(|slot| slot % 6).collect();
        for (position, stage) in [device, last - device].into_iter().enumerate() {
            let free = (backwards[position] + 1..).find(|slot| !taken.contains(&(slot % 6))).expect("6 slots, 6 tasks");
            taken.push(free % 6);
            let (forward, backward) = (forwards[position], backwards[position]);
            words.push_str(&format!("F{stage}@{forward} B{stage}@{backward} W{stage}@{free} "));
        }
    }
    block(&placement, n_microbatches, 6, &words)
}

/// A complete order: again and again, the task with the highest priority among those whose inputs
/// have run. What is split and what recomputes is said by stage, priorities by task.
pub(crate) fn greedy(
    graph: &StageGraph,
    placement: &[u32],
    n_microbatches: u32,
    (split, again, priorities): (&[bool], &[bool], &[u16]),
) -> Schedule {
    let n_devices = placement.iter().max().map_or(0, |device| *device as usize + 1);
    let mut waiting = Vec::new();
    for (stage, (split, again)) in split.iter().zip(again).enumerate() {
        let kinds: &[TaskKind] = if *split {
            &[TaskKind::Forward, TaskKind::BackwardInput, TaskKind::BackwardWeight]
        } else {
            &[TaskKind::Forward, TaskKind::Backward]
        };
        let again = again.then_some(TaskKind::Recompute);
        for (kind, microbatch) in
            kinds.iter().chain(&again).flat_map(|kind| (0..n_microbatches).map(move |m| (*kind, m)))
        {
            waiting.push(Task { kind, stage: StageId::from_index(stage), microbatch: MicrobatchId(microbatch) });
        }
    }
    let all = waiting.iter().map(|task| ScheduledTask::new(*task, 0)).collect();
    let mut unordered = schedule(placement, n_microbatches, vec![all], vec![span(0)], None);
    unordered.graph = graph.clone();
    let dependencies = crate::dependencies::Dependencies::of(&unordered);
    let mut orders = vec![Vec::new(); n_devices];
    let mut priorities = priorities.iter().cycle();
    let mut waiting: Vec<(u16, Task)> =
        waiting.into_iter().map(|task| (priorities.next().copied().unwrap_or_default(), task)).collect();
    waiting.sort_unstable();
    while !waiting.is_empty() {
        let runs = |task: Task| dependencies.inputs(task).all(|input| waiting.iter().all(|(_, other)| *other != input));
        let next = waiting.iter().position(|(_, task)| runs(*task)).expect("tasks wait for earlier ones only");
        let (_, task) = waiting.remove(next);
        orders[placement[task.stage.index()] as usize].push(ScheduledTask::new(task, 0));
    }
    Schedule { graph: graph.clone(), ..schedule(placement, n_microbatches, orders, vec![span(0)], None) }
}

fn span(index: u32) -> Span {
    Span { file: FileId(0), start: 10 * (index + 1), end: 10 * (index + 1) + 5 }
}

fn schedule(
    placement: &[u32],
    n_microbatches: u32,
    orders: Vec<Vec<ScheduledTask>>,
    origins: Vec<Span>,
    block: Option<Block>,
) -> Schedule {
    Schedule {
        name: "example".to_owned(),
        span: Span { file: FileId(0), start: 0, end: 1 },
        n_microbatches,
        slices: Slices::ONE,
        shares: Vec::new(),
        placement: Placement::of_stages(placement.iter().map(|device| DeviceId(*device)).collect::<Vec<_>>()),
        window: None,
        parts: crate::parts::StageParts::default(),
        activations: crate::policy::activation::Activations::default(),
        graph: StageGraph::chain(placement.len()),
        placement_span: Span { file: FileId(0), start: 2, end: 3 },
        orders,
        origins,
        block,
        swaps: crate::swaps::Swaps::default(),
        step_tasks: crate::step_tasks::StepTasks::default(),
        carried: crate::step_tasks::CarriedLanes::default(),
        frozen: crate::policy::frozen::Frozen::default(),
        reorder: None,
        pipelines: 1,
    }
}
