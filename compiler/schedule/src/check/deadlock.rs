//! Explains a deadlock: the shortest cycle of tasks that wait for each other.
//!
//! Every device that cannot finish stands at one task and waits for inputs that other devices (or
//! itself, later) have not computed, and that stand behind other tasks that wait; at a task that
//! occupies several devices it waits for the others to come to it. Of every knot of such waits at
//! which a device stands, the shortest cycle is shown, even if that is further behind.

use crate::dependencies::{Dependencies, TaskTable};
use crate::parts::lanes::waits_at;
use crate::schedule::{Schedule, ScheduledTask};
use crate::step_tasks::{StepTask, StepTaskKind};
use pipe_ir::cycle::{Link, Need, cycles, window};
use pipe_ir::ids::DeviceId;
use pipe_ir::task::{Task, TaskKind};
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics, Label};
use std::collections::BTreeMap;

/// Devices of a cycle that are named, with two tasks each; the rest of a longer cycle is counted.
const SHOWN: usize = 3;

/// Devices that have not come to a task, or tasks that many others wait for, which are looked at: of many, each one
/// explains why it waits.
const LATE: usize = 16;

/// One wait: a device comes to a task, and that task needs one that does not run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    /// The device.
    pub device: DeviceId,
    /// The task that it comes to.
    pub at: ScheduledTask,
    /// Whether nothing before it is in the way.
    pub stands: bool,
    /// What that task needs.
    pub needs: ScheduledTask,
    /// Where the needed task runs.
    pub of: DeviceId,
    /// The task of that device which waits itself: one before the needed one, or that.
    pub of_at: ScheduledTask,
    /// Whether those two share the device.
    is_partner: bool,
    /// Whether it needs no more than that the other device comes to the same task.
    pub meets: bool,
    /// Why it needs that task, where it is about a sum of gradients that travels.
    sum: Option<SumWait>,
}

/// What a task waits for, of a sum of gradients that travels from device to device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SumWait {
    /// The sum that it adds to.
    Adds,
    /// The total, for an update before it.
    Updates,
    /// That others have taken the total from its buffer.
    Given,
    /// That another device joins the sum that an update before it waits for.
    Joins,
}

impl SumWait {
    fn of(dependencies: &Dependencies, at: Task, input: Task) -> Option<Self> {
        let sums = dependencies.sums();
        if dependencies.update_inputs(at).contains(&input) {
            return Some(Self::Joins);
        }
        if dependencies.sum_before(at) == Some(input) {
            return Some(Self::Adds);
        }
        let is_total = sums.is_total(input) && input.kind == dependencies.gradient_of(input.stage, input.microbatch);
        sums.waits(at).contains(&input).then_some(if is_total { Self::Updates } else { Self::Given })
    }

    /// What the note says of the needed task.
    fn words(self, needs: Task, device: DeviceId) -> String {
        match self {
            Self::Adds => format!("whose sum of gradients travels on to {device}"),
            Self::Updates => format!("whose sum of gradients {device} updates {} with before", needs.stage),
            Self::Joins => format!("behind which its device joins a sum that an update of {device} waits for"),
            Self::Given => format!("behind which the sum of gradients is taken from {device}"),
        }
    }
}

/// What is left of the orders: by device, where its foremost tasks that do not run stand, each two
/// that share the device as one.
struct Rest<'a> {
    schedule: &'a Schedule,
    dependencies: &'a Dependencies,
    table: &'a TaskTable,
    next: &'a [usize],
    nodes: Vec<Vec<usize>>,
    /// Of tasks that occupy several devices: some that have not come to it, each with where it stands there.
    late: BTreeMap<Task, Vec<(DeviceId, usize)>>,
}

/// One diagnostic per knot of devices that wait for each other.
pub(super) fn explain(schedule: &Schedule, knots: &[Vec<Wait>]) -> Diagnostics {
    knots.iter().map(|cycle| describe(schedule, cycle)).collect()
}

/// The shortest cycle of each knot of devices that wait for each other. `next` is the position at which each device
/// stands.
pub(super) fn knots(
    schedule: &Schedule,
    dependencies: &Dependencies,
    table: &TaskTable,
    next: &[usize],
) -> Vec<Vec<Wait>> {
    let nodes = next.iter().enumerate().map(|(device, from)| {
        let following = |position: &usize| {
            Some(position + schedule.node(DeviceId::from_index(device), *position).len())
                .filter(|position| *position < schedule.orders[device].len())
        };
        let first = Some(*from).filter(|from| *from < schedule.orders[device].len());
        std::iter::successors(first, following).take(window(next.len())).collect()
    });
    let nodes: Vec<Vec<usize>> = nodes.collect();
    let late = late(schedule, table, next, &nodes);
    let rest = Rest { schedule, dependencies, table, next, nodes, late };
    let needs = |(device, position): (usize, usize)| rest.lacks(device, position).map(|lack| rest.need(lack)).collect();
    let queue = |(device, nodes): (usize, &Vec<usize>)| nodes.iter().map(|one| needs((device, *one))).collect();
    let queues: Vec<Vec<Vec<Need>>> = rest.nodes.iter().enumerate().map(queue).collect();
    cycles(&queues).iter().map(|cycle| rest.waits(cycle)).collect()
}

/// The devices that have not come to tasks which occupy several, of those tasks that are looked at.
fn late(
    schedule: &Schedule,
    table: &TaskTable,
    next: &[usize],
    nodes: &[Vec<usize>],
) -> BTreeMap<Task, Vec<(DeviceId, usize)>> {
    let mut all = BTreeMap::new();
    if schedule.placement.spread_stage().is_none() {
        return all;
    }
    for (order, nodes) in schedule.orders.iter().zip(nodes) {
        for task in nodes.iter().map(|position| order[*position].task) {
            let places = || table.places(&schedule.placement, task).filter(|(of, place)| next[of.index()] < *place);
            if schedule.devices_of(task).len() > 1 {
                all.entry(task).or_insert_with(|| places().take(LATE).collect());
            }
        }
    }
    all
}

/// What a device lacks before it can run a task.
#[derive(Clone, Copy)]
struct Lack {
    at: ScheduledTask,
    /// The task that must run, or, if it is the same one, that the other device must come to.
    needs: ScheduledTask,
    of: DeviceId,
    /// Where that stands in the other device's order.
    position: usize,
}

impl Lack {
    fn meets(&self) -> bool {
        self.at.task == self.needs.task
    }
}

impl Rest<'_> {
    /// What a device lacks at a position: inputs, and devices that have not come to the same task.
    fn lacks(&self, device: usize, position: usize) -> impl Iterator<Item = Lack> {
        let node = self.schedule.node(DeviceId::from_index(device), position).iter();
        let lack = |at: &ScheduledTask, of: DeviceId, position: usize| Lack {
            at: *at,
            needs: self.schedule.orders[of.index()][position],
            of,
            position,
        };
        node.flat_map(move |at| {
            let place = |input: Task| Some((self.schedule.device_of(input), self.table.position(input)?));
            let is_open = |(of, position): &(DeviceId, usize)| *position >= self.next[of.index()];
            let inputs = self.dependencies.inputs_beside(at.task).filter_map(place);
            let waits = waits_at(self.schedule, self.table.places(&self.schedule.placement, at.task));
            let inputs = inputs.chain(self.joined(device, at.task)).chain(waits).filter(is_open);
            let inputs = inputs.map(move |(of, position)| lack(at, of, position));
            let late = self.late.get(&at.task).into_iter().flatten().filter(move |(of, _)| of.index() != device);
            inputs.chain(late.map(move |(of, position)| lack(at, *of, *position)))
        })
    }

    /// Of the tasks that the join of a task waits for, some that have not run, and those of the device itself.
    fn joined(&self, device: usize, task: Task) -> impl Iterator<Item = (DeviceId, usize)> {
        let n_devices = self.schedule.n_devices();
        let home = move |queue: DeviceId| self.schedule.parts.device(queue, n_devices);
        let stages = self.dependencies.join(task).map(|_| self.dependencies.joined(task)).into_iter().flatten();
        let tasks = stages.map(move |stage| self.dependencies.joined_task(task, *stage));
        let places = tasks.filter_map(|input| Some((self.schedule.device_of(input), self.table.position(input)?)));
        let open = places.filter(|(of, position)| *position >= self.next[of.index()]).enumerate();
        let is_looked_at = move |(nth, (of, _)): &(usize, (DeviceId, usize))| {
            *nth < LATE || home(*of) == home(DeviceId::from_index(device))
        };
        open.filter(is_looked_at).map(|(_, place)| place)
    }

    /// The tasks of a device up to the needed one, or before the one that it must come to.
    fn need(&self, lack: Lack) -> Need {
        let Lack { of, position, .. } = lack;
        let last = if lack.meets() { position.saturating_sub(1) } else { position };
        let items = self.nodes[of.index()].partition_point(|start| *start <= last);
        Need { queue: of.index(), items }
    }

    fn waits(&self, cycle: &[Link]) -> Vec<Wait> {
        let of_link = |link: &Link| self.lacks(link.queue, self.nodes[link.queue][link.item]).nth(link.need);
        let followers = cycle.iter().cycle().skip(1);
        let wait = |(link, follower): (&Link, &Link)| {
            let (lack, of_at) = (of_link(link)?, of_link(follower)?.at);
            let (Lack { at, needs, of, .. }, meets) = (lack, lack.meets());
            let beside = self.schedule.node(of, self.nodes[follower.queue][follower.item]);
            let is_partner = of_at != needs && beside.contains(&needs);
            let device = DeviceId::from_index(link.queue);
            let sum = SumWait::of(self.dependencies, at.task, needs.task);
            Some(Wait { device, at, stands: link.item == 0, needs, of, of_at, is_partner, meets, sum })
        };
        cycle.iter().zip(followers).filter_map(wait).collect()
    }
}

fn describe(schedule: &Schedule, cycle: &[Wait]) -> Diagnostic {
    let mut labels: Vec<Label> = Vec::new();
    let name = |task| schedule.task_name(task);
    let queue = |device| schedule.device_name(device);
    let mut label = |origin: u16, text: String| {
        let span = schedule.origins[usize::from(origin)];
        match labels.iter_mut().find(|label| label.span == span) {
            Some(label) => label.text = format!("{}; {text}", label.text),
            None => labels.push(Label { span, text }),
        }
    };
    for wait in cycle.iter().take(SHOWN) {
        if let Some((update, reduce)) = placed(schedule, wait) {
            let (device, of) = (queue(wait.device), queue(wait.of));
            label(update.origin, format!("{device} waits at `{}`", schedule.step_task_name(update)));
            label(reduce.origin, format!("{of} has not come to `{}`", schedule.step_task_name(reduce)));
            continue;
        }
        let comes = if wait.stands { "stands at" } else { "comes to" };
        label(wait.at.origin, format!("{} {comes} `{}`", queue(wait.device), name(wait.at.task)));
        let come = if wait.meets { format!("{} to come to ", queue(wait.of)) } else { String::new() };
        label(wait.needs.origin, format!("{} waits for {come}`{}` here", queue(wait.device), name(wait.needs.task)));
    }
    let notes: Vec<String> = cycle
        .iter()
        .take(SHOWN)
        .map(|wait| {
            let Wait { device, at, needs, of, of_at, is_partner, meets, sum, .. } = wait;
            let whose = if of == device { "its own".to_owned() } else { schedule.whose(*of) };
            let (device, of) = (&queue(*device), &queue(*of));
            let (at, needed, in_the_way) = (name(at.task), name(needs.task), name(of_at.task));
            if let Some((update, reduce)) = placed(schedule, wait) {
                let [update, reduce] = [update, reduce].map(|one| schedule.step_task_name(one));
                let behind = if of_at == needs { needed } else { in_the_way };
                return format!(
                    "{device} runs `{update}` only after {whose} `{reduce}`, which stands behind `{behind}`"
                );
            }
            if *meets {
                return format!("{device} runs `{at}` only together with {of}, which comes to it after `{in_the_way}`");
            }
            let behind = (of_at != needs).then(|| {
                let when = if *is_partner { "together with" } else { "after" };
                format!("which {of} runs {when} `{in_the_way}`")
            });
            let sum = sum.map(|sum| sum.words(needs.task, wait.device));
            let clauses: Vec<String> = sum.into_iter().chain(behind).collect();
            let comma = if clauses.is_empty() { "" } else { ", " };
            format!("{device} runs `{at}` only after {whose} `{needed}`{comma}{}", clauses.join(", and "))
        })
        .collect();
    let [first, ..] = cycle else { unreachable!("a cycle has at least one wait") };
    let message = match cycle {
        [wait] => format!(
            "{} waits for itself: `{}` comes before `{}`",
            queue(wait.device),
            name(wait.at.task),
            name(wait.needs.task)
        ),
        _ => sentence(schedule, cycle),
    };
    let span = schedule.origins[usize::from(first.at.origin)];
    let found = Diagnostic { labels, notes, ..Diagnostic::error(Code::Deadlock, span, "", message) };
    if let Some((wait, (update, _))) = cycle.iter().find_map(|wait| Some((wait, placed(schedule, wait)?))) {
        let (update, behind) = (schedule.step_task_name(update), name(wait.at.task));
        return found.help(format!("let `{update}` stand behind `{behind}` in the order of {}", queue(wait.device)));
    }
    let Some(Wait { of, needs, of_at, .. }) = cycle.iter().find(|wait| wait.of_at != wait.needs) else { return found };
    let (needed, before) = (name(needs.task), name(of_at.task));
    // What several devices do together has one order on all of them.
    let are_shared = [needs, of_at].iter().all(|one| schedule.devices_of(one.task).len() > 1);
    if are_shared && schedule.parts.lane(needs.task.stage).is_some() {
        return found.help(format!("let all devices come to `{needed}` and `{before}` in the same order"));
    }
    let earlier = format!("let {} run `{needed}` before `{before}`", queue(*of));
    let is_recomputed = needs.task.kind == TaskKind::Recompute && cycle.len() == 1;
    let named = if is_recomputed { ", or name the microbatches that are recomputed: `R[s, m]`" } else { "" };
    found.help(earlier + named)
}

/// The update at which a device waits, and the sum that another device joins, if that is what the wait is for.
fn placed<'s>(schedule: &'s Schedule, wait: &Wait) -> Option<(&'s StepTask, &'s StepTask)> {
    wait.sum.filter(|sum| *sum == SumWait::Joins)?;
    let device = |queue: DeviceId| schedule.parts.device(queue, schedule.n_devices());
    let of_kind = |device: DeviceId, kind: StepTaskKind| {
        schedule.step_tasks.of(device).iter().filter(move |one| one.kind == kind)
    };
    let updates = of_kind(device(wait.device), StepTaskKind::Update).filter(|one| one.at < wait.at.at);
    let sums = || of_kind(device(wait.of), StepTaskKind::Reduce).filter(|one| one.at > wait.needs.at);
    updates.rev().find_map(|update| Some((update, sums().find(|sum| sum.stage == update.stage)?)))
}

/// Who waits for whom.
fn sentence(schedule: &Schedule, cycle: &[Wait]) -> String {
    let clause = |(number, wait): (usize, &Wait)| {
        let waits = if number == 0 { "waits for" } else { "for" };
        let (device, of) = (schedule.device_name(wait.device), schedule.device_name(wait.of));
        if let Some((_, reduce)) = placed(schedule, wait) {
            let reduce = schedule.step_task_name(reduce);
            return format!("{device} {waits} {} `{reduce}`", schedule.whose(wait.of));
        }
        let whose = if wait.meets { format!("{of} to come to") } else { schedule.whose(wait.of) };
        format!("{device} {waits} {whose} `{}`", schedule.task_name(wait.needs.task))
    };
    let mut clauses: Vec<String> = cycle.iter().take(SHOWN).enumerate().map(clause).collect();
    if cycle.len() > SHOWN {
        clauses.push(format!("{} more likewise, in a cycle", cycle.len() - SHOWN));
    }
    let last = clauses.pop().unwrap_or_default();
    format!("{}, and {last}", clauses.join(", "))
}
