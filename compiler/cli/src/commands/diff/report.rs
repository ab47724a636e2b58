//! What `pipec diff` found, in the form that other programs read (`pipec.diff/1`). All times are milliseconds.

use super::losses::Loss;
use super::measured::Measured;
use super::parts::{Cause, Part, Parts};
use super::refit::Refit;
use pipe_compiler::analyze::Analysis;
use pipe_ir::ids::StageId;
use pipe_ir::task::{Task, TaskKind};
use pipe_schedule::timing::durations::Costs;
use serde::Serialize;

/// Name and version of the form.
pub(crate) const SCHEMA: &str = "pipec.diff/1";

/// The whole answer.
#[derive(Serialize)]
pub(crate) struct DiffReport {
    pub(crate) schema: &'static str,
    pub(crate) ok: bool,
    /// Name of the pipeline or schedule.
    pub(crate) target: String,
    /// The trace, as it was named.
    pub(crate) trace: String,
    /// What the times of the plan come from.
    pub(crate) costs_from: String,
    /// What a unit of the plan's costs was taken for, where it has no name: with it, the plan has
    /// as much work as was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unit_ms: Option<f64>,
    /// Numbers of the steps that were measured.
    pub(crate) steps: Vec<u64>,
    /// How many others the trace has.
    pub(crate) left_out: usize,
    /// The way from the plan to what was measured, in makespans of tasks.
    pub(crate) plan_ms: f64,
    pub(crate) refitted_ms: f64,
    pub(crate) varied_ms: f64,
    pub(crate) measured_ms: f64,
    /// The shortest and the longest step.
    pub(crate) range_ms: [f64; 2],
    /// What adds up to `measured_ms` - `plan_ms`.
    pub parts: Vec<PartReport>,
    /// From the last task to the end of the step, as measured: sums of gradients and updates.
    pub(crate) behind_ms: f64,
    /// From there to the first task of the next step.
    pub(crate) between_ms: Option<f64>,
    /// The tasks that cost most, on the critical path of what was measured.
    pub(crate) losses: Vec<LossReport>,
    /// Refitted costs in milliseconds, as `--cost` takes them.
    pub(crate) cost: String,
    /// What the target and others would take under them.
    pub(crate) better: Vec<BetterReport>,
}

/// One part of the difference.
#[derive(Clone, Serialize)]
pub(crate) struct PartReport {
    /// `cost`, `pairs`, `sharing`, `transfers`, `variation`, `late_input` or `late_start`.
    pub(crate) what: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stage: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) device: Option<u32>,
    /// What the plan says, where that is one figure, and what was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) planned_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) measured_ms: Option<f64>,
    /// What that adds to the makespan.
    pub(crate) ms: f64,
}

/// A task that cost much.
#[derive(Clone, Serialize)]
pub(crate) struct LossReport {
    pub(crate) task: String,
    pub(crate) device: u32,
    /// What it took beyond the usual.
    pub(crate) longer_ms: f64,
    /// How much later than it could it began.
    pub(crate) later_ms: f64,
    /// What it waited for from another device, if it did.
    pub(crate) waited_for: Option<String>,
}

/// What another order of the same tasks would take.
#[derive(Clone, Serialize)]
pub(crate) struct BetterReport {
    /// `reorder` or `search`.
    pub(crate) what: &'static str,
    /// From the first start to the end of the last task, by the refitted costs.
    pub(crate) makespan_ms: f64,
    /// How much shorter that is than `refitted_ms`.
    pub(crate) gain_ms: f64,
    pub(crate) gain_percent: f64,
    /// Whether no order in the same memory is shorter.
    pub(crate) proved_optimal: bool,
    /// The schedule, where it was found by a search.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<String>,
}

/// Milliseconds of nanoseconds.
pub(crate) fn ms(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

impl BetterReport {
    /// Compares an order with the one that ran.
    pub(crate) fn new(what: &'static str, makespan: u64, refitted: u64) -> Self {
        let gain = ms(refitted) - ms(makespan);
        let gain_percent = if refitted == 0 { 0.0 } else { gain / ms(refitted) * 100.0 };
        let makespan_ms = ms(makespan);
        Self { what, makespan_ms, gain_ms: gain, gain_percent, proved_optimal: false, source: None }
    }
}

impl DiffReport {
    /// The report of a trace, without what would have been better.
    pub(crate) fn new(analysis: &Analysis, plan: &Costs, refit: &Refit, measured: &Measured, parts: &Parts) -> Self {
        let name = analysis.pipeline.as_ref().map_or(&analysis.schedule.name, |pipeline| &pipeline.name);
        Self {
            schema: SCHEMA,
            ok: true,
            target: name.clone(),
            trace: String::new(),
            costs_from: String::new(),
            unit_ms: None,
            steps: measured.numbers.clone(),
            left_out: measured.left_out,
            plan_ms: ms(parts.plan),
            refitted_ms: ms(parts.refitted),
            varied_ms: ms(parts.varied),
            measured_ms: ms(parts.measured),
            range_ms: [ms(measured.range.0), ms(measured.range.1)],
            parts: parts.parts.iter().map(|part| part_report(*part, plan, refit)).collect(),
            behind_ms: ms(measured.behind),
            between_ms: measured.between.map(ms),
            losses: Vec::new(),
            cost: refit.text(),
            better: Vec::new(),
        }
    }

    /// Notes the tasks that cost most.
    pub(crate) fn lose(&mut self, analysis: &Analysis, losses: &[Loss]) {
        let slices = analysis.schedule.slices;
        let name = |task: Task| {
            let at = task.microbatch;
            crate::trace::task_name(task.kind, task.stage.0, Some(at.0), slices.count())
        };
        let report = |loss: &Loss| LossReport {
            task: name(loss.task),
            device: loss.slot.device.0,
            longer_ms: loss.longer as f64 / 1e6,
            later_ms: loss.later as f64 / 1e6,
            waited_for: loss.waited_for.map(name),
        };
        self.losses = losses.iter().map(report).collect();
    }
}

fn part_report((cause, halves): Part, plan: &Costs, refit: &Refit) -> PartReport {
    let times = |kind: TaskKind, stage: u32| {
        let of = |costs: &Costs| ms(costs.of(kind, StageId(stage)).0);
        (of(plan), of(&refit.costs))
    };
    let blank = PartReport {
        what: "",
        kind: None,
        stage: None,
        device: None,
        planned_ms: None,
        measured_ms: None,
        ms: halves as f64 / 2e6,
    };
    match cause {
        Cause::Cost(kind, stage) => {
            let times = stage.map(|stage| times(kind, stage));
            let (planned_ms, measured_ms) = (times.map(|times| times.0), times.map(|times| times.1));
            PartReport { what: "cost", kind: Some(kind.letters()), stage, planned_ms, measured_ms, ..blank }
        }
        Cause::Pairs => PartReport { what: "pairs", ..blank },
        Cause::Sharing => PartReport { what: "sharing", ..blank },
        Cause::Transfers => {
            let planned: Vec<u64> = plan.latency.times().map(|time| time.0).collect();
            let planned_ms = if let [usual] = planned[..] { Some(ms(usual)) } else { None };
            PartReport { what: "transfers", planned_ms, measured_ms: refit.transfer.map(ms), ..blank }
        }
        Cause::Variation(kind) => PartReport { what: "variation", kind: Some(kind.letters()), ..blank },
        Cause::LateInput(device) => PartReport { what: "late_input", device: Some(device.0), ..blank },
        Cause::LateStart(device) => PartReport { what: "late_start", device: Some(device.0), ..blank },
    }
}
