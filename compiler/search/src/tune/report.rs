//! What `pipec tune` found, in the form that other programs read (`pipec.tune/1`).

use crate::tune::{Candidate, Counts, LEFT_OUT, Layout, Problem, Space, StepTime, TuneResult};
use pipe_compiler::cluster::unmodelled::OF_EXPERTS;
use pipe_compiler::report::cluster::RatesReport;
use pipe_compiler::report::{Finding, Report, time};
use pipe_schedule::units::Ticks;
use serde::Serialize;

/// Name and version of this form.
pub const SCHEMA: &str = "pipec.tune/1";

/// The report of one tuning.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct TuneReport {
    /// Name and version of this form.
    pub schema: &'static str,
    /// Whether something fits.
    pub ok: bool,
    /// What was tuned, as the user named it.
    pub target: String,
    /// Name of the pipeline.
    pub pipeline: Option<String>,
    /// The machines, the model and what a step is.
    pub setting: Option<SettingReport>,
    /// The best, shortest first.
    pub best: Vec<BestReport>,
    /// No candidate that may fit is shorter.
    pub lower_bound: Option<f64>,
    /// step / lower bound - 1, of the best.
    pub gap: Option<f64>,
    /// Whether nothing was left out that could be among the best, by the times of this report
    /// ([`SettingReport::not_modelled`]).
    pub complete: bool,
    /// Whether no other order of nodes could change the best: false where only some orders were
    /// looked at for a candidate that matters.
    pub node_orders_complete: bool,
    /// So many of the best, the first ones, are what they would be with more time.
    pub final_rows: usize,
    /// Orders that were searched for some of the best, in the order of these.
    pub searched: Vec<SearchedReport>,
    /// Others that fit and were timed, shortest first.
    pub slower: Vec<OtherReport>,
    /// So many more are slower, one for each layout and schedule.
    pub slower_more: usize,
    /// What would be shorter than the last of the best, but does not fit; of that, what is least too large.
    pub does_not_fit: Vec<OtherReport>,
    /// So many more do not fit, by what was counted until that was clear, and may be shorter than the last of the best.
    pub does_not_fit_more: usize,
    /// What is no layout, and why.
    pub not_allowed: Vec<RefusalReport>,
    /// Standard schedules that are not tried, and why.
    pub not_tried: Vec<RefusalReport>,
    /// What was done.
    pub counts: Counts,
    /// Time that it took.
    pub seconds: f64,
    /// The source of the best.
    pub source: Option<String>,
    /// Errors and warnings.
    pub diagnostics: Vec<Finding>,
}

/// On what, and for what.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SettingReport {
    /// The file of the cluster.
    pub cluster: String,
    /// Nodes that there are.
    pub nodes: u32,
    /// Devices of each.
    pub devices_per_node: u32,
    /// How fast devices compute, where a profile says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rates: Option<RatesReport>,
    /// What a device may hold.
    pub limit_bytes: u64,
    /// The `config.json`.
    pub config: String,
    /// What is counted: `run`, the tensor graphs that `pipec run` runs, or `megatron`, a job of Megatron-LM.
    pub counted: &'static str,
    /// Tokens of a row.
    pub sequence: u64,
    /// Rows of a step, over all pipelines.
    pub batch: u64,
    /// Times are in these.
    pub time_unit: &'static str,
    /// What makes up much of a step of this model and is not in the times.
    #[serde(skip_serializing_if = "<[&str]>::is_empty")]
    pub not_modelled: &'static [&'static str],
}

/// A way to divide the model, with a schedule and what is kept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct CandidateReport {
    /// The sizes.
    #[serde(flatten)]
    pub layout: Layout,
    /// The schedule as a pipeline calls it.
    pub schedule: String,
    /// What is computed once more.
    pub recompute: &'static str,
    /// What pipelines side by side divide.
    pub zero: u64,
    /// Whether devices that divide a layer also divide the sequence.
    pub sequence_parallel: bool,
    /// What of the state lives with the hosts, or `none`.
    pub offload: String,
    /// The order in which nodes are filled, where that of the file is not the best.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<u32>,
}

/// One of the best.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct BestReport {
    /// How.
    #[serde(flatten)]
    pub candidate: CandidateReport,
    /// Time of a step, gradients included.
    pub step: f64,
    /// Of that, time after the last task until gradients are exchanged.
    pub exchange: f64,
    /// Operations of the model as a share of what the devices could do at their peak, where that is said.
    pub mfu: Option<f64>,
    /// Tokens of all pipelines in a second.
    pub tokens_per_second: Option<f64>,
    /// 1 - work / step, with the mean work of all devices.
    pub bubble_mean: f64,
    /// 1 - work / step, with the work of the busiest device.
    pub bubble: f64,
    /// What the fullest device holds.
    pub peak_bytes: u64,
    /// Which device that is.
    pub device: u32,
    /// What the fullest one holds in the memory of its host.
    #[serde(skip_serializing_if = "is_nothing")]
    pub host_peak_bytes: u64,
}

/// Whether there is nothing to be told.
const fn is_nothing(bytes: &u64) -> bool {
    *bytes == 0
}

/// An order of its own, for the layout of one of the best.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SearchedReport {
    /// How, with the schedule that was there before.
    #[serde(flatten)]
    pub candidate: CandidateReport,
    /// Time of a step.
    pub step: f64,
    /// 1 - work / step, with the mean work of all devices.
    pub bubble_mean: f64,
    /// 1 - work / step, with the work of the busiest device.
    pub bubble: f64,
    /// What the fullest device holds.
    pub peak_bytes: u64,
}

/// Another one.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct OtherReport {
    /// How.
    #[serde(flatten)]
    pub candidate: CandidateReport,
    /// Time of a step.
    pub step: f64,
    /// How much longer than the best it takes; shorter, where that is negative.
    pub slower: Option<f64>,
    /// What the fullest device holds.
    pub peak_bytes: u64,
    /// Which device that is.
    pub device: u32,
    /// What it holds too much.
    pub excess_bytes: u64,
    /// What the fullest one holds in the memory of its host.
    #[serde(skip_serializing_if = "is_nothing")]
    pub host_peak_bytes: u64,
    /// What that is too much.
    #[serde(skip_serializing_if = "is_nothing")]
    pub host_excess_bytes: u64,
}

/// Something that is not possible.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RefusalReport {
    /// What.
    pub what: String,
    /// Why not.
    pub reason: String,
    /// How many candidates that concerns, where it was found one by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candidates: Option<usize>,
}

impl RefusalReport {
    fn new(what: &str, reason: &str) -> Self {
        Self { what: what.to_owned(), reason: reason.to_owned(), candidates: None }
    }
}

impl CandidateReport {
    /// That of a candidate.
    pub fn new(candidate: &Candidate) -> Self {
        let Candidate { layout, variant, keeping, nodes } = candidate;
        Self {
            layout: *layout,
            schedule: variant.call(),
            recompute: keeping.recompute.word(),
            zero: keeping.zero,
            sequence_parallel: keeping.sequence_parallel,
            offload: keeping.offload.to_string(),
            nodes: nodes.clone(),
        }
    }
}

impl BestReport {
    /// A candidate as the compiler judged its source.
    pub fn new(candidate: &Candidate, taken: &StepTime, report: &Report) -> Self {
        let cluster = report.cluster.as_ref();
        Self {
            candidate: CandidateReport::new(candidate),
            step: report.figures.makespan.unwrap_or_else(|| time(taken.time)),
            exchange: cluster.map_or(0.0, |cluster| cluster.exchange),
            mfu: cluster.and_then(|cluster| cluster.mfu),
            tokens_per_second: cluster.and_then(|cluster| cluster.tokens_per_second),
            bubble_mean: report.figures.bubble_mean.unwrap_or_default(),
            bubble: report.figures.bubble_makespan.unwrap_or_default(),
            peak_bytes: taken.bytes.0,
            device: taken.device.0,
            host_peak_bytes: taken.host.0,
        }
    }
}

impl TuneReport {
    /// Without figures.
    pub fn new(target: &str) -> Self {
        let not_tried = LEFT_OUT.iter().map(|(name, reason)| RefusalReport::new(name, reason)).collect();
        Self { schema: SCHEMA, target: target.to_owned(), not_tried, ..Self::default() }
    }

    /// Fills in what is tuned, and what is no layout of it.
    pub fn describe(&mut self, problem: &Problem, space: &Space) {
        let cluster = &problem.cluster;
        self.pipeline = Some(problem.name.clone());
        self.setting = Some(SettingReport {
            cluster: cluster.name().to_owned(),
            nodes: cluster.n_nodes(),
            devices_per_node: cluster.per_node,
            rates: RatesReport::new(&cluster.rates),
            limit_bytes: problem.limit.0,
            counted: if problem.trained.is_some() { "run" } else { "megatron" },
            config: problem.transformer.config.path.clone(),
            sequence: problem.transformer.settings.sequence,
            batch: problem.batch,
            time_unit: "ms",
            not_modelled: if problem.transformer.config.experts.is_some() { &OF_EXPERTS } else { &[] },
        });
        self.not_allowed = space.refused.iter().map(|one| RefusalReport::new(&one.what, &one.reason)).collect();
    }

    /// Fills in what was found. `analysis` are the reports of the best, in their order.
    pub fn fill(&mut self, problem: &Problem, found: &TuneResult, analysis: &[Report]) {
        let pairs = found.best.iter().zip(analysis);
        self.best = pairs.map(|((candidate, taken), report)| BestReport::new(candidate, taken, report)).collect();
        self.ok = !self.best.is_empty();
        let best = found.best.first().map(|(_, taken)| taken.time);
        let other = |candidate: &Candidate, taken: &StepTime| OtherReport {
            candidate: CandidateReport::new(candidate),
            step: time(taken.time),
            slower: best.map(|best| taken.time.0 as f64 / (best.0 as f64).max(f64::MIN_POSITIVE) - 1.0),
            peak_bytes: taken.bytes.0,
            device: taken.device.0,
            excess_bytes: taken.bytes.0.saturating_sub(problem.limit.0),
            host_peak_bytes: taken.host.0,
            host_excess_bytes: problem.cluster.host_of_device().map_or(0, |host| taken.host.0.saturating_sub(host.0)),
        };
        self.slower = found.slower.iter().map(|(candidate, taken)| other(candidate, taken)).collect();
        self.does_not_fit = found.misfits.iter().map(|one| other(&one.candidate, &one.taken)).collect();
        (self.slower_more, self.does_not_fit_more) = (found.more_slower, found.more_misfits);
        self.not_allowed.extend(found.refused.iter().map(|((name, reason), count)| RefusalReport {
            candidates: Some(*count),
            ..RefusalReport::new(name, reason)
        }));
        if let Some(best) = best {
            self.lower_bound = Some(time(found.bound));
            let gap = best.0 as f64 / found.bound.0 as f64 - 1.0;
            self.gap = (found.bound > Ticks::ZERO).then_some(gap);
        }
        self.complete = found.is_complete;
        self.node_orders_complete = found.are_orders_best;
        self.final_rows = found.n_final;
        self.counts = found.counts;
    }
}
