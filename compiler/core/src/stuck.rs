//! A schedule that is stuck, with its times: what runs, and behind it what never does, so that it can be drawn.

use crate::Request;
use crate::resolve_costs::{costs, unit};
use pipe_ir::ids::DeviceId;
use pipe_model::pipeline::Elaborated;
use pipe_model::stage_set::StageSet;
use pipe_schedule::check::stuck::{Wait, stuck};
use pipe_schedule::order::{Order, Position};
use pipe_schedule::schedule::{Schedule, ScheduledTask};
use pipe_schedule::timing::durations::Costs;
use pipe_schedule::timing::timeline::{Timeline, simulate_with};
use pipe_schedule::units::Ticks;
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::source::Sources;
use std::collections::BTreeSet;

/// Tasks that are shown of each device from where it stands, whatever its cycles are about.
const NEAR: usize = 5;

/// A schedule up to where its devices stand, and as much of the rest as its cycles are about.
#[derive(Clone, PartialEq, Debug)]
pub struct Stuck {
    /// Its orders end with what is shown.
    pub schedule: Schedule,
    /// The name of the pipeline that binds it, if one does.
    pub pipeline: Option<String>,
    /// What runs.
    pub order: Order,
    /// What the times follow from.
    pub costs: Costs,
    /// Times of what runs. What never does is placed behind `at`, task after task on each device, with
    /// a gap where tasks are left out.
    pub timeline: Timeline,
    /// By device: how many tasks run.
    pub ran: Vec<usize>,
    /// By device: how many tasks never run and are not shown.
    pub hidden: Vec<usize>,
    /// When the last task ends that runs.
    pub at: Ticks,
    /// What a unit of time is called, where it has a name.
    pub unit: Option<&'static str>,
    /// Who waits for whom, cycle by cycle.
    pub cycles: Vec<Vec<WaitingFor>>,
}

/// A device waits at one task for another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitingFor {
    /// Where in which order the task stands that the device comes to.
    pub at: Position,
    /// Where the task stands that it needs.
    pub needs: Position,
    /// Whether it needs no more than that the other device comes to the same task.
    pub meets: bool,
    /// Lines of the statements of both.
    pub lines: [u32; 2],
}

/// Runs a schedule with a deadlock as far as it goes.
pub(crate) fn of(
    elaborated: &Elaborated,
    stages: &StageSet,
    request: &Request,
    found: &[Diagnostic],
    sources: &mut Sources,
) -> Option<Stuck> {
    found.iter().find(|one| one.code == Code::Deadlock)?;
    let Elaborated { schedule, pipeline, .. } = elaborated;
    let told = stuck(schedule)?;
    let (costs, unit) = durations(elaborated, stages, request, sources);
    let mut timeline = simulate_with(schedule, &told.order, &costs.latency, |slot, ready| {
        let start = ready.free.max(ready.arrived);
        (start, start + costs.of_node(schedule.node(slot.device, slot.position as usize)))
    });
    let at = timeline.ends.iter().flatten().copied().max().unwrap_or_default();
    let named = told.cycles.iter().flatten().flat_map(|wait| [(wait.device, wait.at), (wait.of, wait.needs)]);
    let named: BTreeSet<(DeviceId, usize)> =
        named.filter_map(|(device, task)| Some((device, position(schedule, device, task)?))).collect();
    let mut shown = schedule.clone();
    let hidden = rest(&mut shown, &mut timeline, (&told.ran, at, &costs), |device, position| {
        named.range((device, position.saturating_sub(1))..=(device, position + 1)).next().is_some()
    });
    let line = |one: ScheduledTask| {
        let span = schedule.origins[usize::from(one.origin)];
        sources.line_column(span.file, span.start).0
    };
    let place = |device: DeviceId, task: ScheduledTask| Some(Position::new(device, position(&shown, device, task)?));
    let wait = |wait: &Wait| {
        let lines = [line(wait.at), line(wait.needs)];
        let (at, needs) = (place(wait.device, wait.at)?, place(wait.of, wait.needs)?);
        Some(WaitingFor { at, needs, meets: wait.meets, lines })
    };
    let cycles = told.cycles.iter().map(|cycle| cycle.iter().filter_map(wait).collect()).collect();
    let pipeline = pipeline.as_ref().map(|own| own.name.clone());
    Some(Stuck {
        schedule: shown,
        pipeline,
        order: told.order,
        costs,
        timeline,
        ran: told.ran,
        hidden,
        at,
        unit,
        cycles,
    })
}

/// The costs that go with a target, and their unit. Those that are not about it are left out.
fn durations(
    elaborated: &Elaborated,
    stages: &StageSet,
    request: &Request,
    sources: &mut Sources,
) -> (Costs, Option<&'static str>) {
    let schedule = &elaborated.schedule;
    let mut request = request.clone();
    let is_of_target = |own: &crate::profile::Profile| own.check(sources, schedule, stages, request.costs.as_ref());
    if request.profile.as_ref().map(is_of_target).is_some_and(|checked| checked.is_err()) {
        request.profile = None;
    }
    if request.check(elaborated).is_err() {
        request.costs = None;
    }
    let unit = unit(&request, elaborated.pipeline.as_ref(), stages, schedule);
    (costs(&request, elaborated.pipeline.as_ref(), stages, schedule), unit)
}

/// Where a task stands in the order of a device.
fn position(schedule: &Schedule, device: DeviceId, task: ScheduledTask) -> Option<usize> {
    schedule.orders[device.index()].iter().position(|one| one.task == task.task)
}

/// Places what never runs behind a moment: the first tasks of each device, and those that are asked for, with a gap
/// where others stand between them. By device, how many tasks are left out.
fn rest(
    schedule: &mut Schedule,
    timeline: &mut Timeline,
    (ran, at, costs): (&[usize], Ticks, &Costs),
    is_asked_for: impl Fn(DeviceId, usize) -> bool,
) -> Vec<usize> {
    let mut hidden = Vec::new();
    for (device, ran) in ran.iter().copied().enumerate() {
        let (starts, ends) = (&mut timeline.starts[device], &mut timeline.ends[device]);
        starts.truncate(ran);
        ends.truncate(ran);
        let id = DeviceId::from_index(device);
        let order = &schedule.orders[device];
        let mut shown = order[..ran].to_vec();
        let (mut position, mut behind, mut free) = (ran, ran, at);
        while position < order.len() {
            let node = schedule.node(id, position);
            let places = position..position + node.len();
            if position < ran + NEAR || places.clone().any(|place| is_asked_for(id, place)) {
                let cost = costs.of_node(node);
                let start = if position > behind { free + cost } else { free };
                free = start + cost;
                shown.extend_from_slice(node);
                starts.extend(places.clone().map(|_| start));
                ends.extend(places.clone().map(|_| free));
                behind = places.end;
            }
            position = places.end;
        }
        hidden.push(order.len() - shown.len());
        schedule.orders[device] = shown;
    }
    hidden
}
