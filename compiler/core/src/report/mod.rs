//! Reports: what `check` found, in the form that other programs read (`pipec.check/1`).
//!
//! The one place where exact figures become floating-point numbers.

pub mod activation;
pub mod certificate;
pub mod cluster;
pub mod costs;
mod device;
mod finding;
pub mod frozen;
pub mod lanes;
pub mod offload;
pub mod profile;
pub mod recompute;
pub mod swaps;
pub mod torch;
pub mod versions;
pub mod zero;

pub use device::DeviceReport;
pub use finding::Finding;

use crate::Request;
use crate::analyze::Analysis;
use crate::block_family::Numbers;
use crate::certificate::{Alone, Certified};
use crate::memory::alive;
use crate::results::Results;
use activation::ActivationReport;
use certificate::CertificateReport;
use cluster::ClusterReport;
use costs::DerivedCostReport;
use costs::stage_costs::{AccountReport, ChangeReport};
use frozen::FrozenReport;
use lanes::LaneReport;
use offload::OffloadReport;
use pipe_ir::ids::DeviceId;
use pipe_ir::instruction::Instruction;
use pipe_ir::program::Program;
use pipe_ir::task::TaskKind;
use pipe_model::pipeline::Pipeline;
use pipe_model::stage_set::StageSet;
use pipe_schedule::bounds::Forms;
use pipe_schedule::dispatch::Objective;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::swaps::places::Places;
use pipe_schedule::timing::timeline::Timeline;
use pipe_schedule::units::{Ticks, Units};
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::source::Sources;
use profile::ProfileReport;
use recompute::RecomputeReport;
use serde::Serialize;
use swaps::SwapReport;
use torch::TorchReport;
use versions::WeightsReport;
use zero::ZeroReport;

/// Name and version of this form.
pub const SCHEMA: &str = "pipec.check/1";

/// The report of one compilation. Figures that could not be computed are `None`.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Report {
    /// Name and version of this form.
    pub schema: &'static str,
    /// Whether the target is accepted.
    pub ok: bool,
    /// What was checked, as the user named it.
    pub target: String,
    /// Name of the schedule.
    pub schedule: Option<String>,
    /// Name of the pipeline, where there is one.
    pub pipeline: Option<String>,
    /// Of a model from a `config.json`, what is counted: `run`, the program that `pipec run` runs, or `megatron`, a
    /// job of Megatron-LM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted: Option<&'static str>,
    /// Sizes.
    #[serde(flatten)]
    pub sizes: Sizes,
    /// What a unit of the times is called, where it has a name: `ms` where they were measured or follow from a cluster,
    /// `MFLOP` or `TFLOP` where they are the operations of a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_unit: Option<&'static str>,
    /// Instructions of one step, over all devices.
    pub instructions: Option<usize>,
    /// Figures over the whole step.
    #[serde(flatten)]
    pub figures: Figures,
    /// Reductions of replicated weights in a step, and gatherings of those that are divided, each
    /// joined by all devices that hold the weights.
    pub collectives: Option<usize>,
    /// Whether no device ever waits for itself through others.
    pub deadlock_free: Option<bool>,
    /// Whether all of this holds for every number of microbatches.
    pub valid_for_all_microbatches: Option<bool>,
    /// For which numbers of microbatches it holds; none where it does for the number at hand only.
    pub valid_for: Option<Numbers>,
    /// What holds for every number of microbatches, if all of this does.
    pub certificate: Option<CertificateReport>,
    /// Versions of the weights, where they change while microbatches are under way.
    pub weights: Option<WeightsReport>,
    /// What activations count in units, by stage, where that was said.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub activation: Vec<ActivationReport>,
    /// Costs of `B` and `W` that nobody gave and that follow from that of `BW`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub derived_costs: Vec<DerivedCostReport>,
    /// Which stages do not train, where some are frozen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frozen: Option<FrozenReport>,
    /// What recomputation costs, where stages recompute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recompute: Option<RecomputeReport>,
    /// What offload costs, where anything lives in the memory of hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offload: Option<OffloadReport>,
    /// What devices evict and fetch, where they do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub swaps: Vec<SwapReport>,
    /// What the replicas of stages divide, where they do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zero: Option<ZeroReport>,
    /// Where the times were measured, if they were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileReport>,
    /// The machines behind the times, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterReport>,
    /// What the target was read as, where it is a schedule of PyTorch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torch: Option<TorchReport>,
    /// Figures of every device.
    pub per_device: Vec<DeviceReport>,
    /// What stands behind the bytes, where the model's sizes are those of a `config.json`.
    #[serde(flatten)]
    pub account: AccountReport,
    /// Errors and warnings.
    pub diagnostics: Vec<Finding>,
}

/// How large a schedule is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Sizes {
    /// Number of devices of the schedule.
    pub devices: Option<usize>,
    /// How many devices each of them is, where that is a tensor-parallel group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensor: Option<u32>,
    /// In how many pipelines side by side, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<u32>,
    /// Number of stages.
    pub stages: Option<usize>,
    /// Number of parts of all stages, if stages have parts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts: Option<usize>,
    /// Number of steps that follow each other without a flush.
    pub steps: Option<u32>,
    /// Number of microbatches in a step.
    pub microbatches: Option<u32>,
    /// In how many slices each microbatch is cut, where it is cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slices: Option<u32>,
    /// Number of tasks.
    pub tasks: Option<usize>,
}

/// Figures over the whole step, in the units of the costs and of activation memory.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Figures {
    /// First start to last end.
    pub makespan: Option<f64>,
    /// The longest time from first start to last end on one device.
    pub longest_stage: Option<f64>,
    /// 1 - work / makespan, with the mean work of all devices.
    pub bubble_mean: Option<f64>,
    /// 1 - work / makespan, with the work of the busiest device.
    pub bubble_makespan: Option<f64>,
    /// 1 - work / longest span.
    pub bubble_longest_stage: Option<f64>,
    /// What a search made short: what `lower_bound` and `gap` are about. The makespan, where nothing was searched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objective: Option<&'static str>,
    /// No schedule with this placement, these costs, this peak and these limits, in which the same
    /// stages recompute, is shorter, with pairs or without.
    pub lower_bound: Option<f64>,
    /// The forms of backwards that this is about, where other forms may be shorter: `fused`,
    /// `split` or, of each stage as it is, `mixed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lower_bound_form: Option<Forms>,
    /// The same for backwards of either form, where that is less and the costs of both are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lower_bound_any_form: Option<f64>,
    /// Because of what.
    pub lower_bound_reason: Option<String>,
    /// makespan / lower bound - 1, or longest span / lower bound - 1 where a search made that short.
    pub gap: Option<f64>,
    /// The lower bound on the makespan, whatever a search made short.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub makespan_lower_bound: Option<f64>,
    /// Where the time goes along the critical path.
    pub critical_path: Option<Vec<PathPart>>,
    /// The most activation memory of any device, exact.
    pub peak_activation: Option<f64>,
    /// Σ ceil(l / T), where the schedule has a period.
    pub bound_activation: Option<f64>,
    /// The most bytes of activations of any device, what waits for `W` included, where a model is bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_activation_bytes: Option<u64>,
}

impl Figures {
    /// What follows the lower bound wherever it is printed: which forms of backwards it is about, behind a
    /// space, or nothing where it is about all.
    pub fn form_of_bound(&self) -> String {
        self.lower_bound_form.map_or_else(String::new, |form| format!(" {}", form.word()))
    }
}

/// Time on the critical path.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct PathPart {
    /// `F`, `B`, `W`, `BW`, `F & B` or `F & BW` for pairs, or `comm` for transfers.
    pub kind: &'static str,
    /// How much.
    pub time: f64,
}

impl Report {
    /// A report without figures.
    pub fn new(target: &str) -> Self {
        Self { schema: SCHEMA, target: target.to_owned(), ..Self::default() }
    }

    /// The report of what the steps of a compilation gave; the verdict is still open.
    pub(crate) fn of(target: &str, results: &Results) -> Self {
        let mut report = Self::new(target);
        let Some(request) = &results.request else { return report };
        if let Some(Alone { elaborated, certified, open }) = &results.alone {
            report.certify(certified, elaborated.pipeline.as_ref());
            report.certificate.iter_mut().for_each(|certificate| certificate.not_computed.extend_from_slice(open));
            return report;
        }
        let elaborated = results.elaborated.as_ref().map(|elaborated| (&elaborated.schedule, &elaborated.pipeline));
        let analyzed = results.analysis.as_ref().map(|analysis| (&analysis.schedule, &analysis.pipeline));
        let Some((schedule, pipeline)) = analyzed.or(elaborated) else { return report };
        report.describe(schedule, pipeline.as_ref());
        let table = results.files.as_ref().and_then(|files| files.table(schedule.span.file));
        report.torch = table.filter(|_| results.is_table).map(|table| TorchReport::new(table, request.torch));
        report.profile = request.profile.as_ref().filter(|_| results.is_profiled).map(ProfileReport::new);
        let (Some(analysis), Some(stages), true) = (&results.analysis, &results.stages, results.is_countable) else {
            return report;
        };
        report.time_unit = analysis.unit;
        report.measure(analysis, stages, request, results.numbers);
        report.certificate = results.certified.as_ref().map(CertificateReport::new);
        let Some(program) = &results.program else { return report };
        report.offload = results.copies.as_ref().and_then(|copies| OffloadReport::new(analysis, program, copies));
        report.count(program, analysis.has_model());
        if let Some(weights) = report.weights.as_mut().filter(|_| analysis.has_model()) {
            weights.count(stages, &analysis.schedule);
        }
        report.zero = ZeroReport::new(analysis, program, stages);
        report.account(analysis, program, stages);
        report.account.changes = results.changes.iter().map(ChangeReport::new).collect();
        report
    }

    /// Fills in names and sizes.
    pub fn describe(&mut self, schedule: &Schedule, pipeline: Option<&Pipeline>) {
        self.schedule = Some(schedule.name.clone());
        self.activation = ActivationReport::all(schedule);
        self.pipeline = pipeline.map(|pipeline| pipeline.name.clone());
        self.counted = pipeline.and_then(|pipeline| match (&pipeline.transformer, &pipeline.model) {
            (Some(_), _) => Some("megatron"),
            (None, Some(call)) => call.config.as_ref().map(|_| "run"),
            (None, None) => None,
        });
        self.sizes = Sizes {
            devices: Some(schedule.n_devices()),
            tensor: pipeline.map(Pipeline::members).filter(|members| *members > 1),
            data: Some(schedule.pipelines).filter(|pipelines| *pipelines > 1),
            stages: Some(schedule.n_whole_stages()),
            parts: (!schedule.parts.is_empty()).then(|| schedule.parts.count()),
            steps: Some(schedule.n_steps()),
            microbatches: Some(schedule.microbatches_of_step() / schedule.slices.count()),
            slices: (schedule.slices.count() > 1).then_some(schedule.slices.count()),
            tasks: Some(schedule.n_tasks()),
        };
    }

    /// Fills in what holds for every number of microbatches, where nothing else is computed.
    pub fn certify(&mut self, certified: &Certified, pipeline: Option<&Pipeline>) {
        let schedule = &certified.schedule;
        self.describe(schedule, pipeline);
        let of_one = schedule.n_tasks() / (schedule.n_microbatches as usize).max(1);
        self.sizes.microbatches = Some(certified.n_microbatches);
        self.sizes.tasks = Some(of_one * certified.n_microbatches as usize);
        self.deadlock_free = Some(true);
        self.holds_for(Some(certified.numbers));
        let mut certificate = CertificateReport::new(certified);
        certificate.not_computed =
            ["makespan", "longest span", "lower bound", "critical path", "instructions"].map(str::to_owned).to_vec();
        if pipeline.is_some_and(Pipeline::has_model) {
            certificate.not_computed.push("bytes".to_owned());
        }
        self.certificate = Some(certificate);
    }

    /// Fills in what follows from the timeline and the peaks.
    pub fn measure(&mut self, analysis: &Analysis, stages: &StageSet, request: &Request, numbers: Option<Numbers>) {
        let limit = request.memory.as_ref();
        self.cluster = request.cluster.as_ref().map(|cluster| ClusterReport::new(cluster, analysis, stages));
        let Analysis { schedule, timeline, bound, critical_path, peaks, .. } = analysis;
        let dependencies = &analysis.order.dependencies;
        self.derived_costs = DerivedCostReport::all(
            analysis
                .halves
                .iter()
                .copied()
                .filter(|half| dependencies.is_split(half.stage) && schedule.parts.lane(half.stage).is_none()),
        );
        let certificates = analysis.certificates.as_deref();
        self.deadlock_free = Some(true);
        self.weights = analysis.versions.as_ref().and_then(|versions| WeightsReport::new(schedule, versions));
        self.frozen = FrozenReport::new(&analysis.schedule);
        self.recompute = RecomputeReport::new(analysis);
        self.swaps = SwapReport::all(analysis);
        let places = Places::of(schedule);
        let carriage = lanes::carriage(timeline);
        let is_limited = limit.is_some() && !analysis.is_valid_for_all_microbatches(limit);
        // Numbers that were judged one by one were judged with sums that travel.
        let is_proved = |numbers: &Numbers| matches!(numbers, Numbers::UpTo(_)) || analysis.sums_follow_slots();
        let is_of_one = analysis.pipeline.as_ref().is_some_and(Pipeline::is_of_one_number);
        self.holds_for(numbers.filter(|_| !is_limited && !is_of_one).filter(is_proved));
        let devices = || (0..schedule.n_devices()).map(DeviceId::from_index);
        let activations = |count: u64| units(schedule.units(count));
        self.per_device = devices()
            .map(|device| DeviceReport {
                device: device.0,
                first_start: Some(time(timeline.first_start(device))),
                last_end: Some(time(timeline.last_end(device))),
                busy: Some(time(timeline.busy(device))),
                peak_activation: Some(activations(peaks[device.index()].activations)),
                bound_activation: certificates.map(|certificates| activations(certificates[device.index()].bound)),
                limit_activation: limit.map(|limit| units(limit.of(device))),
                reserved_activation: Some(places.held_on(device)).filter(|held| *held > 0).map(activations),
                lanes: LaneReport::all(schedule, timeline, &carriage, device),
                ..DeviceReport::default()
            })
            .collect();
        let of_either = analysis.bound_of_either_form.map(|bound| bound.makespan);
        let only_own = of_either.is_none_or(|of_either| of_either < bound.makespan);
        let n_devices = schedule.n_devices();
        let work = most_work(timeline, n_devices);
        let spans = devices().map(|device| timeline.last_end(device) - timeline.first_start(device));
        let (makespan, longest_stage) = (timeline.makespan(), spans.max().unwrap_or_default());
        let kinds = TaskKind::ALL.into_iter().map(|kind| (kind.letters(), critical_path.work[kind.index()]));
        let pairs = [("F & B", TaskKind::BackwardInput), ("F & BW", TaskKind::Backward)];
        let pairs = pairs.map(|(name, kind)| (name, critical_path.pairs[kind.index()]));
        let parts = kinds
            .chain(pairs)
            .chain([("lanes", critical_path.lanes), ("comm", critical_path.transfers), ("copy", critical_path.copies)])
            .filter(|(_, ticks)| *ticks > Ticks::ZERO);
        self.figures = Figures {
            makespan: Some(time(makespan)),
            longest_stage: Some(time(longest_stage)),
            bubble_mean: Some(mean_bubble_of(timeline, n_devices)),
            bubble_makespan: Some(bubble_of(timeline, n_devices)),
            bubble_longest_stage: Some(rest(work, longest_stage)),
            lower_bound: Some(time(bound.makespan)),
            lower_bound_form: only_own.then(|| Forms::of(schedule, dependencies)),
            lower_bound_any_form: of_either.filter(|_| only_own).map(time),
            lower_bound_reason: Some(format!("{} ({})", bound.kind.word(), schedule.device_name(bound.device))),
            gap: Some(excess(makespan, bound.makespan)),
            critical_path: Some(parts.map(|(kind, ticks)| PathPart { kind, time: time(ticks) }).collect()),
            peak_activation: peaks.iter().map(|peak| peak.activations).max().map(activations),
            bound_activation: certificates
                .and_then(|certificates| certificates.iter().map(|certificate| certificate.bound).max())
                .map(activations),
            ..Figures::default()
        };
    }

    /// Says for which numbers of microbatches the verdict holds.
    fn holds_for(&mut self, numbers: Option<Numbers>) {
        self.valid_for = numbers;
        self.valid_for_all_microbatches = Some(matches!(numbers, Some(Numbers::Every | Numbers::Allowed)));
    }

    /// Takes over the lower bounds that a search found: on what it made short, because of this, and on the makespan.
    pub fn bound(&mut self, objective: Objective, (bound, reason): (Ticks, &str), makespan: Ticks) {
        let figures = &mut self.figures;
        figures.objective = Some(objective.name());
        let found = match objective {
            Objective::Makespan => figures.makespan,
            Objective::LongestStage => figures.longest_stage,
        };
        let Some(found) = found else { return };
        figures.makespan_lower_bound = Some(time(makespan));
        (figures.lower_bound_form, figures.lower_bound_any_form) = (None, None);
        figures.lower_bound = Some(time(bound));
        figures.lower_bound_reason = Some(reason.to_owned());
        // Nothing is any part longer than nothing.
        figures.gap = if bound > Ticks::ZERO { Some(found / time(bound) - 1.0) } else { (found == 0.0).then_some(0.0) };
    }

    /// Fills in what the program says. Bytes mean something only where a model is bound.
    pub fn count(&mut self, program: &Program, has_model: bool) {
        self.instructions = Some(program.n_instructions());
        self.collectives = Some(program.n_collectives());
        if has_model {
            let alive = alive::activations(program);
            self.figures.peak_activation_bytes = alive.iter().map(|bytes| bytes.0).max();
            for (report, bytes) in self.per_device.iter_mut().zip(alive) {
                report.peak_activation_bytes = Some(bytes.0);
            }
        }
        for (report, device) in self.per_device.iter_mut().zip(&program.devices) {
            report.peak_bytes = has_model.then_some(device.peak.0);
            report.limit_bytes = device.limit.map(|limit| limit.0);
            report.host_peak_bytes = Some(device.host.peak.0).filter(|peak| *peak > 0 && has_model);
            report.host_limit_bytes = device.host.limit.map(|limit| limit.0);
        }
    }

    /// Fills in what a verified program says by itself.
    pub fn program(&mut self, program: &Program) {
        let kinds =
            program.devices.iter().flat_map(|device| &device.step).filter_map(|instruction| match instruction {
                // A task that runs in pieces counts once.
                Instruction::Run { exec, .. } => {
                    let exec = program.exec(*exec);
                    exec.piece.is_none_or(|piece| piece.number == 0).then_some(exec.kind)
                }
                _ => None,
            });
        self.sizes = Sizes {
            devices: Some(program.devices.len()),
            tensor: Some(program.members()).filter(|members| *members > 1),
            data: None,
            stages: Some(program.n_stages as usize),
            parts: None,
            steps: Some(program.n_steps),
            microbatches: Some(program.microbatches_of_step() / program.n_slices.max(1)),
            slices: (program.n_slices > 1).then_some(program.n_slices),
            tasks: Some(kinds.filter(|kind| *kind != TaskKind::Update).count()),
        };
        self.schedule = Some(program.name.clone());
        self.deadlock_free = Some(true);
        let devices = (0..).zip(&program.devices).map(|(device, _)| DeviceReport { device, ..DeviceReport::default() });
        self.per_device = devices.collect();
        self.count(program, true);
    }

    /// Takes the verdict from the diagnostics.
    pub fn conclude(&mut self, diagnostics: &[Diagnostic], sources: &Sources) {
        self.ok = !diagnostics.iter().any(|diagnostic| diagnostic.severity.is_error());
        self.diagnostics = diagnostics.iter().map(|diagnostic| Finding::new(diagnostic, sources)).collect();
        if diagnostics.iter().any(|diagnostic| diagnostic.severity.is_error() && diagnostic.code == Code::Deadlock) {
            self.deadlock_free = Some(false);
        }
    }
}

/// A time in the unit of the costs.
pub fn time(ticks: Ticks) -> f64 {
    ticks.0 as f64 / Ticks::UNIT.0 as f64
}

fn units(units: Units) -> f64 {
    units.0 as f64 / Units::UNIT.0 as f64
}

/// 1 - part / whole, and 0 for an empty whole.
fn rest(part: Ticks, whole: Ticks) -> f64 {
    if whole == Ticks::ZERO { 0.0 } else { (whole - part).0 as f64 / whole.0 as f64 }
}

/// The part of the makespan in which the busiest device idles.
pub fn bubble_of(timeline: &Timeline, n_devices: usize) -> f64 {
    rest(most_work(timeline, n_devices), timeline.makespan())
}

/// The part of the makespan in which devices idle, as a mean over all of them.
pub fn mean_bubble_of(timeline: &Timeline, n_devices: usize) -> f64 {
    let (devices, makespan) = ((0..n_devices).map(DeviceId::from_index), timeline.makespan());
    let idle = devices.map(|device| rest(timeline.busy(device), makespan)).sum::<f64>();
    idle / n_devices.max(1) as f64
}

fn most_work(timeline: &Timeline, n_devices: usize) -> Ticks {
    let devices = (0..n_devices).map(DeviceId::from_index);
    devices.map(|device| timeline.busy(device)).max().unwrap_or_default()
}

/// whole / part - 1, and 0 for an empty part.
fn excess(whole: Ticks, part: Ticks) -> f64 {
    if part == Ticks::ZERO { 0.0 } else { (whole - part).0 as f64 / part.0 as f64 }
}
