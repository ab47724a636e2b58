//! Lists: what each device does, with its lanes in one row.
//!
//! A device has one list. What runs on a lane stands in it where it starts, and the list goes on beside it. So for all
//! of lowering but the writing of instructions, a lane task is a task of its device like any other.

use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use pipe_ir::task::Task;
use pipe_schedule::dependencies::{Dependencies, TaskTable};
use pipe_schedule::parts::StageParts;
use pipe_schedule::placement::DeviceSets;
use pipe_schedule::schedule::{Schedule, ScheduledTask};
use pipe_schedule::timing::timeline::Timeline;
use pipe_schedule::units::Ticks;
use pipe_syntax::diagnostic::{Code, Diagnostic};

/// A schedule whose orders are the lists of devices, and the times of its tasks. A task of a list starts when the list
/// comes to it: a lane task may really start later.
pub(super) fn of(schedule: &Schedule, timeline: &Timeline) -> (Schedule, Timeline) {
    let n_devices = schedule.n_devices();
    let (mut orders, mut starts, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    for device in 0..n_devices {
        let device = DeviceId::from_index(device);
        let list = schedule.list(device);
        let mut now = Ticks::ZERO;
        let (mut own_starts, mut own_ends) = (Vec::with_capacity(list.len()), Vec::with_capacity(list.len()));
        for (queue, position) in &list {
            let (start, end) = (timeline.starts[queue.index()][*position], timeline.ends[queue.index()][*position]);
            own_starts.push(if *queue == device { start } else { now });
            own_ends.push(end);
            now = if *queue == device { now.max(end) } else { now };
        }
        let tasks = list.iter().map(|(queue, position)| schedule.orders[queue.index()][*position]);
        orders.push(tasks.collect());
        starts.push(own_starts);
        ends.push(own_ends);
    }
    (with_orders(schedule, orders), Timeline { starts, ends, ..timeline.clone() })
}

/// The same without times.
pub(super) fn alone(schedule: &Schedule) -> Schedule {
    let lists = (0..schedule.n_devices()).map(|device| {
        let list = schedule.list(DeviceId::from_index(device)).into_iter();
        list.map(|(queue, position)| schedule.orders[queue.index()][position]).collect()
    });
    with_orders(schedule, lists.collect())
}

fn with_orders(schedule: &Schedule, orders: Vec<Vec<ScheduledTask>>) -> Schedule {
    let n_devices = schedule.n_devices();
    let mut sets = DeviceSets::default();
    for microbatch in (0..schedule.placement.period()).map(MicrobatchId) {
        for row in (0..schedule.n_stages()).map(StageId::from_index) {
            let queues = schedule.placement.devices(row, microbatch).iter();
            sets.push(queues.map(|queue| schedule.parts.device(*queue, n_devices)));
        }
    }
    let placement = schedule.placement.with_stages(schedule.n_stages(), sets);
    Schedule { orders, placement, parts: StageParts::default(), ..schedule.clone() }
}

/// Says where the lists of devices would wait forever, though lanes do not: a lane task stands before what it reads in
/// its own list, or reads what another device sends only after something behind it.
pub(super) fn stops(schedule: &Schedule) -> Option<Diagnostic> {
    if schedule.parts.lanes().is_empty() {
        return None;
    }
    let lists = alone(schedule);
    let dependencies = Dependencies::of(&lists);
    let mut table = TaskTable::empty(&lists.placement, lists.n_microbatches);
    for list in &lists.orders {
        for (position, one) in list.iter().enumerate() {
            table.insert(one.task, 0, position);
        }
    }
    let mut passed = vec![0; lists.n_devices()];
    let mut moves = true;
    while moves {
        moves = false;
        for device in 0..lists.n_devices() {
            while let Some(one) = lists.orders[device].get(passed[device]) {
                let has_ended = |input: Task| {
                    let from = lists.device_of(input).index();
                    table.position(input).is_some_and(|position| position < passed[from])
                };
                if !dependencies.inputs(one.task).all(has_ended) {
                    break;
                }
                passed[device] += 1;
                moves = true;
            }
        }
    }
    let stuck = lists.orders.iter().enumerate().filter_map(|(device, list)| Some((device, list.get(passed[device])?)));
    let on_lanes = stuck.filter(|(_, one)| schedule.parts.lane(one.task.stage).is_some());
    let missing = |(device, one): (usize, &ScheduledTask)| {
        let is_missing = |input: &Task| {
            let from = lists.device_of(*input).index();
            table.position(*input).is_some_and(|position| position >= passed[from])
        };
        let input = dependencies.inputs(one.task).find(is_missing)?;
        Some((device, *one, input, lists.device_of(input).index()))
    };
    let all: Vec<_> = on_lanes.filter_map(missing).collect();
    // A part before what it reads in its own list holds up all others.
    let (device, one, input, from) =
        all.iter().find(|(device, _, _, from)| device == from).or_else(|| all.first()).copied()?;
    let (device, task, read) = (DeviceId::from_index(device), schedule.task_name(one.task), schedule.task_name(input));
    let (reason, help) = if device.index() == from {
        let reason = format!("`{task}` of {device} reads `{read}`, which stands behind it in the list");
        (reason, format!("let `{task}` stand behind `{read}`"))
    } else {
        let reason =
            format!("`{task}` of {device} reads `{read}` of d{from}, which waits for what stands behind `{task}`");
        (reason, "let the part stand later in the list".to_owned())
    };
    let message = format!("{reason}: instructions of a list wait for what a lane reads");
    let place = schedule.origins[usize::from(one.origin)];
    let error = Diagnostic::error(Code::UndividedStage, place, "this has no instructions", message);
    Some(error.help(format!("{help}; `check` and `plot` take the schedule as it is")))
}
