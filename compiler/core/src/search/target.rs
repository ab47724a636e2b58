//! From a judged target to what the search orders, and back.

use super::job::{Job, Orders, Time};
use super::plan::Plan;
use super::scale::Scale;
use super::{Objective, Progress};
use crate::bounds::lower_bound;
use crate::dependencies::Dependencies;
use crate::diagnostic::{Code, Diagnostic};
use crate::judge::Judged;
use crate::memory_limit::MemoryLimit;
use crate::schedule::{Costs, Schedule, ScheduledTask};
use crate::units::Ticks;
use pipe_ir::ids::DeviceId;
use pipe_ir::task::TaskKind;

/// A target without its order.
#[derive(Clone, Debug)]
pub struct Problem {
    /// What is to be ordered.
    pub job: Job,
    /// The unit of its times.
    pub scale: Scale,
    /// No schedule with as much memory is shorter.
    pub bound: Time,
    /// The target, with the order that it came with.
    pub schedule: Schedule,
    /// What is to be short.
    pub objective: Objective,
    /// Activations of single stages that each device may hold.
    pub activations: Vec<u64>,
    /// Whether some `BW` takes less than its `B` and `W`. Bounds and proofs are about split backwards: then they say nothing.
    pub fusing_pays: bool,
}

/// Takes the order away from a target. Without a limit, devices may hold as much as the fullest one does in the target.
///
/// # Errors
/// If its tasks cannot be searched, or no order fits in the memory.
pub(super) fn problem(
    judged: &Judged,
    memory: Option<&MemoryLimit>,
    objective: Objective,
    split: bool,
) -> Result<Problem, Diagnostic> {
    let schedule = &judged.schedule;
    if let Some(reason) = unsearchable(schedule) {
        let message = format!("the search cannot order `{}`: {reason}", schedule.name);
        let help =
            "every stage must have the same devices for all microbatches, which must be alike and end with a flush";
        return Err(Diagnostic::error(Code::CannotSearch, schedule.placement_span, "this schedule", message).help(help));
    }
    let most = judged.peaks.iter().map(|peak| peak.activations).max().unwrap_or_default();
    if let Some(error) = memory.and_then(|limit| limit.miscounted(schedule)) {
        return Err(error);
    }
    let activations = memory.map_or_else(|| vec![most; schedule.n_devices()], |limit| limit.activations(schedule));
    let scale = Scale::new(&judged.costs, schedule.n_tasks() * 2);
    let held = |allowed: &u64| i64::try_from(*allowed).unwrap_or(i64::MAX).min(schedule.n_tasks() as i64);
    let job = Job::new(schedule, split, &judged.costs, &scale, activations.iter().map(held).collect());
    if let Some((device, least)) = too_little(&job) {
        let needs = schedule.units(least);
        let message = format!(
            "{device} needs {} for a single microbatch, and {} are allowed",
            needs.words(),
            memory.map_or_else(|| schedule.units(most), |limit| limit.of(device))
        );
        let error = Diagnostic::error(Code::MemoryExceeded, schedule.placement_span, "stages live here", message);
        return Err(error.help(format!("allow at least `--memory {needs}`, or place fewer stages on {device}")));
    }
    let half = |stage: &[Ticks; TaskKind::ALL.len()], kind: TaskKind| stage[kind.index()];
    let fusing_pays = judged.costs.tasks.iter().any(|stage| {
        let halves = half(stage, TaskKind::BackwardInput) + half(stage, TaskKind::BackwardWeight);
        half(stage, TaskKind::Backward) < halves
    });
    let schedule = schedule.clone();
    let mut problem = Problem { job, scale, bound: 0, schedule, objective, activations, fusing_pays };
    problem.set_bound(&judged.costs);
    Ok(problem)
}

fn unsearchable(schedule: &Schedule) -> Option<&'static str> {
    if schedule.placement.period() > 1 {
        return Some("it has a stage whose microbatches run on different devices");
    }
    if schedule.slices.count() > 1 {
        return Some("its microbatches are cut in slices");
    }
    schedule.window.as_ref().map(|_| "its steps follow each other without a flush")
}

/// A device that cannot hold what one microbatch takes there, with that.
fn too_little(job: &Job) -> Option<(DeviceId, u64)> {
    job.on_device.iter().enumerate().find_map(|(device, lanes)| {
        let takes: i64 = lanes.iter().map(|lane| job.lanes[*lane].takes.max(0)).sum();
        (takes > job.capacity[device]).then(|| (DeviceId::from_index(device), takes.unsigned_abs()))
    })
}

impl Problem {
    /// Notes what no schedule with as many activations is shorter than.
    pub(super) fn set_bound(&mut self, costs: &Costs) {
        let split = self.job.lanes.iter().any(|lane| lane.kind == TaskKind::BackwardInput);
        let dependencies = Dependencies::uniform(&self.schedule.graph, split);
        self.bound = match self.objective {
            Objective::Makespan => {
                self.scale.at_least(lower_bound(&self.schedule, &dependencies, costs, &self.activations).makespan)
            }
            Objective::LongestStage => self.job.work() * self.job.microbatches as Time,
        };
    }

    /// Whether nothing is shorter than what was found: not where the costs are too large to be counted exactly, or fusing
    /// pays.
    #[must_use]
    pub fn is_proved(&self, found: &Progress) -> bool {
        self.scale.is_exact && !self.fusing_pays && found.bound == found.length
    }

    /// A length in the unit of the costs.
    #[must_use]
    pub fn ticks(&self, length: Time) -> Ticks {
        self.scale.ticks(length)
    }

    /// The schedule that orders stand for. Where it costs nothing, the two halves of a stage's backward are merged.
    #[must_use]
    pub fn schedule(&self, orders: &Orders) -> Schedule {
        let (orders, merged) = self.merged(orders);
        let tasks = self.job.tasks(&orders).into_iter().map(|tasks| {
            let tasks = tasks.into_iter().filter_map(|mut scheduled| {
                let is_merged = merged[scheduled.task.stage.index()];
                match scheduled.task.kind {
                    TaskKind::BackwardWeight if is_merged => return None,
                    TaskKind::BackwardInput if is_merged => scheduled.task.kind = TaskKind::Backward,
                    _ => {}
                }
                Some(scheduled)
            });
            tasks.collect::<Vec<ScheduledTask>>()
        });
        Schedule {
            orders: tasks.collect(),
            block: None,
            reorder: None,
            name: "found".to_owned(),
            ..self.schedule.clone()
        }
    }

    /// The stages whose `W` may as well follow their `B` at once, and orders in which it does.
    fn merged(&self, orders: &Orders) -> (Orders, Vec<bool>) {
        let mut merged = vec![false; self.schedule.n_stages()];
        let mut orders = orders.clone();
        let mut job = self.job.clone();
        let Some((_, limit)) = Plan::new(&job, self.objective, &orders) else { return (orders, merged) };
        for weight in 0..job.lanes.len() {
            let lane = &job.lanes[weight];
            let input = lane.needs.first().map(|(input, _)| *input);
            let Some(input) = input.filter(|_| lane.kind == TaskKind::BackwardWeight) else { continue };
            let (stage, before) = (lane.stage, job.clone());
            job.lanes[input].duration += std::mem::take(&mut job.lanes[weight].duration);
            let together = |order: &Vec<usize>| -> Vec<usize> {
                let rest = order.iter().filter(|lane| **lane != weight);
                rest.flat_map(|lane| [Some(*lane), (*lane == input).then_some(weight)]).flatten().collect()
            };
            let candidate: Orders = orders.iter().map(together).collect();
            match Plan::new(&job, self.objective, &candidate) {
                Some((_, length)) if length.length <= limit.length => {
                    orders = candidate;
                    merged[stage.index()] = true;
                }
                _ => job = before,
            }
        }
        (orders, merged)
    }
}
