//! What was measured, lined up with the tasks of a target: the median over steps of when each task started and ended.
//!
//! If a task starts after another one ended in every step, it does so in the median too: medians of
//! single moments are a timeline.

use super::read::{Traced, TracedStep};
use crate::commands::profile::steps::{MeasuredSteps, Step};
use crate::output::figures::count;
use pipe_compiler::analyze::Analysis;
use pipe_ir::ids::DeviceId;
use pipe_ir::task::{Task, TaskKind};
use pipe_schedule::schedule::{Schedule, ScheduledTask};
use pipe_schedule::timing::durations::Costs;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A measured timeline. All times are nanoseconds.
pub(crate) struct Measured {
    /// Numbers of the steps behind it.
    pub(crate) numbers: Vec<u64>,
    /// Steps that were left out: those before, which warm up, or all but one.
    pub(crate) left_out: usize,
    /// The steps themselves, without updates, each from its first start.
    pub(crate) steps: Vec<Step>,
    /// Start and end of each task, by device and position in its order, from the first start.
    pub(crate) spans: Vec<Vec<(u64, u64)>>,
    /// The shortest and the longest step, from the first start of a task to the last end of one.
    pub(crate) range: (u64, u64),
    /// From the end of the last task to that of the step, with its sums and updates.
    pub(crate) behind: u64,
    /// From the end of a step to the first task of the next one, where steps follow each other.
    pub(crate) between: Option<u64>,
    /// What updates took in the median, by stage.
    pub(crate) updates: Vec<(u32, u64)>,
}

/// The middle one of some numbers; of an even number the higher of two, the same one in every list as long.
pub(crate) fn median(mut numbers: Vec<u64>) -> u64 {
    let middle = numbers.len() / 2;
    if numbers.is_empty() { 0 } else { *numbers.select_nth_unstable(middle).1 }
}

impl Measured {
    /// From the first start to the end of the last task.
    pub(crate) fn makespan(&self) -> u64 {
        self.spans.iter().flatten().map(|span| span.1).max().unwrap_or_default()
    }

    /// From the first start to the last end of what a device did at these positions of its order:
    /// one task, or two that share it.
    pub(crate) fn span(&self, device: DeviceId, positions: Range<usize>) -> (u64, u64) {
        let spans = &self.spans[device.index()][positions];
        let start = spans.iter().map(|span| span.0).min().unwrap_or_default();
        (start, spans.iter().map(|span| span.1).max().unwrap_or_default())
    }

    /// Lines a trace up with the first of some schedules whose tasks, places and order it has, and says which of them.
    /// Without a number, some first steps are left out. An error says what does not fit the first of them.
    pub(crate) fn new(trace: &Traced, number: Option<u64>, candidates: &[&Analysis]) -> Result<(Self, usize), String> {
        if trace.steps.values().all(|step| step.tasks.is_empty()) {
            let events = count(trace.n_events, "event");
            return Err(format!(
                "no task is among its {events}; `pipec run TARGET --trace PATH` writes traces with tasks"
            ));
        }
        let (steps, left_out) = chosen(trace, number)?;
        let mut wrong = Vec::new();
        for (place, analysis) in candidates.iter().enumerate() {
            let aligned: Result<Vec<Aligned>, String> =
                steps.iter().map(|(number, step)| aligned(analysis, *number, step)).collect();
            match aligned {
                Ok(aligned) => return Ok((Self::of(&aligned, left_out), place)),
                Err(reason) => wrong.push(reason),
            }
        }
        let reason = wrong.into_iter().next().unwrap_or_default();
        let of = trace.about["target"].as_str().map(|target| format!("; it says that it is of `{target}`"));
        Err(reason + &of.unwrap_or_default())
    }

    fn of(steps: &[Aligned], left_out: usize) -> Self {
        let over = |pick: &dyn Fn(&Aligned) -> u64| median(steps.iter().map(pick).collect());
        let first = steps.first().map(|aligned| &aligned.tasks[..]).unwrap_or_default();
        let spans = first.iter().enumerate().map(|(device, tasks)| {
            let at = |place: usize| {
                (over(&|step| step.tasks[device][place].start), over(&|step| step.tasks[device][place].end))
            };
            (0..tasks.len()).map(at).collect()
        });
        let follow =
            |pair: &[Aligned]| (pair[0].number < pair[1].number).then(|| pair[1].begin.saturating_sub(pair[0].end));
        let between: Vec<u64> = steps.windows(2).filter_map(follow).collect();
        let last = |step: &Aligned| step.tasks.iter().flatten().map(|ran| ran.end).max().unwrap_or_default();
        let stages: BTreeSet<u32> = steps.iter().flat_map(|step| &step.updates).map(|ran| ran.task.stage.0).collect();
        let update = |stage: u32| {
            let all = steps.iter().flat_map(|step| &step.updates).filter(|ran| ran.task.stage.0 == stage);
            (stage, median(all.map(MeasuredSteps::time).collect()))
        };
        Self {
            numbers: steps.iter().map(|step| step.number).collect(),
            left_out,
            spans: spans.collect(),
            range: (steps.iter().map(last).min().unwrap_or_default(), steps.iter().map(last).max().unwrap_or_default()),
            behind: over(&|step| (step.end - step.begin).saturating_sub(last(step))),
            between: (!between.is_empty()).then(|| median(between)),
            updates: stages.into_iter().map(update).collect(),
            steps: steps.iter().map(|step| step.tasks.clone()).collect(),
        }
    }
}

/// A step with its number.
type Numbered<'t> = (u64, &'t TracedStep);

/// The steps to look at, and how many others there are.
fn chosen(trace: &Traced, number: Option<u64>) -> Result<(Vec<Numbered<'_>>, usize), String> {
    let all: Vec<Numbered<'_>> = trace.steps.iter().map(|(number, step)| (*number, step)).collect();
    let Some(wanted) = number else {
        // Caches and page tables fill.
        let warm = (all.len().saturating_sub(1) / 2).min(2);
        return Ok((all[warm..].to_vec(), warm));
    };
    let (first, last) = (all.first().map_or(0, |step| step.0), all.last().map_or(0, |step| step.0));
    let found = all.iter().find(|(number, _)| *number == wanted);
    let step = found.ok_or_else(|| format!("there is no step {wanted}; its steps go from {first} to {last}"))?;
    Ok((vec![*step], all.len() - 1))
}

/// A step whose tasks are those of a schedule, from its first start.
struct Aligned {
    number: u64,
    /// When it began, and when all of it had ended, in the trace.
    begin: u64,
    end: u64,
    tasks: Step,
    updates: Vec<MeasuredSteps>,
}

fn aligned(analysis: &Analysis, number: u64, step: &TracedStep) -> Result<Aligned, String> {
    let schedule = &analysis.schedule;
    let name = &schedule.name;
    let n_devices = u32::try_from(schedule.n_devices()).unwrap_or(u32::MAX);
    if let Some((device, own)) = step.tasks.iter().rfind(|(device, _)| **device >= n_devices) {
        let task = own.first().map(|ran| ran.task.to_string()).unwrap_or_default();
        return Err(format!(
            "step {number}: d{device} ran `{task}`, and the last device of `{name}` is d{}",
            n_devices.saturating_sub(1)
        ));
    }
    let (mut tasks, mut updates) = (Vec::new(), Vec::new());
    for (device, order) in (0..).map(DeviceId).zip(&schedule.orders) {
        let own = step.tasks.get(&device.0).map(Vec::as_slice).unwrap_or_default();
        let (own, ended): (Vec<MeasuredSteps>, Vec<MeasuredSteps>) =
            own.iter().partition(|ran| ran.task.kind != TaskKind::Update);
        let own = apart(&analysis.costs, order, own);
        compare(schedule, device, order, &own)
            // A task that is somewhere else says more than the hole that it leaves.
            .map_err(|reason| format!("step {number}: {}", misplaced(schedule, step).unwrap_or(reason)))?;
        tasks.push(own);
        updates.extend(ended);
    }
    at_once(schedule, &tasks).map_err(|reason| format!("step {number}: {reason}"))?;
    let all = || tasks.iter().flatten();
    let begin = all().map(|ran| ran.start).min().unwrap_or_default();
    let end = all().chain(&updates).map(|ran| ran.end).chain(step.joined).max().unwrap_or_default();
    for ran in tasks.iter_mut().flatten() {
        (ran.start, ran.end) = (ran.start - begin, ran.end - begin);
    }
    Ok(Aligned { number, begin, end, tasks, updates })
}

/// Gives both halves of a backward that ran at once their parts of its time, as the plan divides it.
fn apart(costs: &Costs, order: &[ScheduledTask], own: Vec<MeasuredSteps>) -> Vec<MeasuredSteps> {
    let mut all = Vec::with_capacity(order.len());
    for ran in own {
        let rest = order.get(all.len()..).unwrap_or_default();
        let [input, weight] = match rest {
            [input, weight, ..] if ScheduledTask::run_by(rest, ran.task) == Some(2) => [input.task, weight.task],
            _ => {
                all.push(ran);
                continue;
            }
        };
        let [first, second] = [input, weight].map(|task| u128::from(costs.of(task.kind, task.stage).0));
        let (part, whole) = if first + second > 0 { (first, first + second) } else { (1, 2) };
        let middle = ran.start + u64::try_from(u128::from(ran.time()) * part / whole).unwrap_or_default();
        all.push(MeasuredSteps { task: input, end: middle, ..ran });
        all.push(MeasuredSteps { task: weight, start: middle, ..ran });
    }
    all
}

/// Moments are written in nanoseconds, as microseconds with decimals.
const ROUNDING: u64 = 2;

/// What a device ran is what its order says, one after the other.
fn compare(
    schedule: &Schedule,
    device: DeviceId,
    order: &[ScheduledTask],
    own: &[MeasuredSteps],
) -> Result<(), String> {
    let name = &schedule.name;
    let expected = |place: usize| order.get(place).map(|one| one.task);
    let differs = (0..order.len().max(own.len())).find(|place| expected(*place) != own.get(*place).map(|ran| ran.task));
    if let Some(place) = differs {
        let (wanted, ran) = (expected(place), own.get(place).map(|ran| ran.task));
        return Err(match (wanted, ran) {
            (Some(wanted), Some(ran)) if own.iter().any(|one| one.task == wanted) => format!(
                "{device} ran `{ran}` as task {} of {}, where `{name}` has `{wanted}`: the trace is of another order",
                place + 1,
                order.len()
            ),
            (Some(wanted), _) => format!(
                "{device} ran {} of the {} that `{name}` has there, and not `{wanted}`: the trace was cut, or is of another target",
                own.len(),
                count(order.len(), "task")
            ),
            (None, ran) => {
                let ran = ran.map(|ran| ran.to_string()).unwrap_or_default();
                format!("{device} ran `{ran}` a second time: two runs are in one trace")
            }
        });
    }
    for (pair, one) in own.windows(2).zip(order).filter(|(pair, _)| pair[1].start + ROUNDING < pair[0].end) {
        if !one.with_next {
            let (first, second) = (&pair[0], &pair[1]);
            return Err(format!(
                "{device} began `{}` {} ns before the end of `{}`",
                second.task,
                first.end - second.start,
                first.task
            ));
        }
    }
    Ok(())
}

/// Devices that occupy themselves with one task do so from the same moment to the same moment.
fn at_once(schedule: &Schedule, tasks: &Step) -> Result<(), String> {
    let mut first: BTreeMap<Task, (DeviceId, MeasuredSteps)> = BTreeMap::new();
    for (device, own) in (0..).map(DeviceId).zip(tasks) {
        for ran in own.iter().filter(|ran| schedule.devices_of(ran.task).len() > 1) {
            let (other, before) = *first.entry(ran.task).or_insert((device, *ran));
            if (before.start, before.end) != (ran.start, ran.end) {
                return Err(format!(
                    "`{}` ran on {other} for {} ns from {} ns on, and on {device} for {} ns from {} ns on; it is one task of both",
                    ran.task,
                    before.time(),
                    before.start,
                    ran.time(),
                    ran.start
                ));
            }
        }
    }
    Ok(())
}

/// What the first task is and should be that ran on a device which does not have it.
fn misplaced(schedule: &Schedule, step: &TracedStep) -> Option<String> {
    let name = &schedule.name;
    let has = |device: usize, task: Task| schedule.orders[device].iter().any(|one| one.task == task);
    step.tasks.iter().find_map(|(device, own)| {
        let tasks = own.iter().map(|ran| ran.task).filter(|task| task.kind != TaskKind::Update);
        let ran = tasks.into_iter().find(|task| !has(*device as usize, *task))?;
        let home = (0..schedule.n_devices()).find(|home| has(*home, ran));
        Some(match home {
            Some(home) => format!("d{device} ran `{ran}`, which is a task of d{home} in `{name}`"),
            None => format!("d{device} ran `{ran}`, but `{name}` has no such task"),
        })
    })
}
