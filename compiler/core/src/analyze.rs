//! Judgement: when a sound schedule runs, how much it holds, how good it is, and whether that is allowed.

use crate::memory::bytes;
use crate::resolve_costs::{halves, unit};
use crate::timing::{Setting, Timed};
use crate::{Request, elaborate, suggest_fix};
use pipe_ir::gpu::room::Beside;
use pipe_ir::ids::StageId;
use pipe_ir::program::Program;
use pipe_ir::units::Bytes;
use pipe_ir::units::capacity::Capacity;
use pipe_lower::offload::copied::traffic;
use pipe_lower::{Options, lower};
use pipe_model::pipeline::{Elaborated, Pipeline};
use pipe_model::stage_set::StageSet;
use pipe_schedule::block::chained_reductions::follow_slots;
use pipe_schedule::bounds::{Bound, lower_bound, of_either_form};
use pipe_schedule::check::memory::{self, Certificate, Peak, certificates, peaks};
use pipe_schedule::check::requirements::{self, InBytes};
use pipe_schedule::memory_limit::MemoryLimit;
use pipe_schedule::order::{Order, Versions};
use pipe_schedule::schedule::Schedule;
use pipe_schedule::timing::copies::Cost;
use pipe_schedule::timing::costs::halves::Half;
use pipe_schedule::timing::costs::{StageCosts, of_stages};
use pipe_schedule::timing::critical_path::{CriticalPath, critical_path};
use pipe_schedule::timing::durations::Costs;
use pipe_schedule::timing::timeline::{Timeline, simulate_with_updates};
use pipe_schedule::units::Ticks;
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::files::Files;
use pipe_syntax::source::Span;
use pipe_syntax::uniform;

/// A schedule that runs to its end, with its times.
#[derive(Clone, PartialEq, Debug)]
pub struct Analysis {
    /// What is done, where, in which order.
    pub schedule: Schedule,
    /// The pipeline that binds it, if one does.
    pub pipeline: Option<Pipeline>,
    /// Evidence that nothing waits forever.
    pub order: Order,
    /// What the times follow from.
    pub costs: Costs,
    /// What a unit of them is called, where it has a name: `ms`, `MFLOP` or `TFLOP`.
    pub unit: Option<&'static str>,
    /// Whether the building block is the same for every number of microbatches that its schedule allows.
    pub is_uniform: bool,
    /// When.
    pub timeline: Timeline,
    /// What each device holds at most.
    pub peaks: Vec<Peak>,
    /// The same for every number of microbatches, if it is a building block.
    pub certificates: Option<Vec<Certificate>>,
    /// How short a schedule could be whose backwards have the forms of this one.
    pub bound: Bound,
    /// How short it could be in whatever form, where the costs of both forms are known.
    pub bound_of_either_form: Option<Bound>,
    /// What makes this one longer.
    pub critical_path: CriticalPath,
    /// The versions of the weights that tasks read, where they change while microbatches are under way.
    pub versions: Option<Versions>,
    /// Halves of backwards whose costs follow from those of both at once, whether the schedule splits them or not.
    pub halves: Vec<Half>,
    /// Stages that share weights which are trained.
    pub tied: Vec<Vec<StageId>>,
    /// Whether every half of a backward is to be a run of its own.
    pub apart: bool,
    /// What the device that needs most has of its GPU beside what is counted, where the cluster does not say it.
    pub beside: Option<Beside>,
}

/// Times a schedule, reordered where it asks for it, and measures what follows. The request's costs
/// come before those of its profile, those before the pipeline's, and those before the model's.
pub fn analyze(files: &Files, elaborated: Elaborated, order: Order, stages: &StageSet, request: &Request) -> Analysis {
    let Elaborated { schedule, pipeline, .. } = elaborated;
    let called = elaborate::schedule_of(files, &request.choice);
    let is_uniform = called
        .is_some_and(|(declared, call)| uniform::dependence(files, declared, call) != uniform::Dependence::Varied);
    let Timed { schedule, order, costs, timeline } =
        Setting { stages, pipeline: pipeline.as_ref(), request }.timed(schedule, order);
    let peaks = peaks(&schedule, &order.dependencies);
    let memory = memory_at_hand(&schedule, &peaks, request.memory.as_ref());
    let held = (&schedule.activations, memory.as_slice());
    Analysis {
        certificates: certificates(&schedule),
        is_uniform,
        bound: lower_bound(&schedule, &order.dependencies, &costs, held),
        bound_of_either_form: of_either_form(&schedule, &order.dependencies, &costs, held),
        versions: order.versions.clone(),
        tied: stages.tied(),
        apart: request.apart,
        beside: None,
        unit: unit(request, pipeline.as_ref(), stages, &schedule),
        halves: halves(request, pipeline.as_ref(), stages, &schedule),
        critical_path: critical_path(&schedule, &order, &costs, &timeline),
        schedule,
        pipeline,
        order,
        costs,
        timeline,
        peaks,
    }
}

/// What each device may hold in schedules that this one is compared with: what the fullest one
/// holds, or less where its limit says so. Limits that this schedule breaks say nothing about it.
fn memory_at_hand(schedule: &Schedule, peaks: &[Peak], limit: Option<&MemoryLimit>) -> Vec<u64> {
    let most = peaks.iter().map(|peak| peak.activations).max().unwrap_or_default();
    let allowed = limit.map(|limit| limit.activations(schedule));
    let fits = |allowed: &Vec<u64>| peaks.iter().zip(allowed).all(|(peak, allowed)| peak.activations <= *allowed);
    let allowed = allowed.filter(fits).unwrap_or_else(|| vec![most; schedule.n_devices()]);
    allowed.into_iter().map(|allowed| allowed.min(most)).collect()
}

/// Moments are counted in 64 bits, and additions stop at the end of them: no figure of such a timeline would be true.
///
/// # Errors
/// If the step takes too long to be counted.
pub fn countable(analysis: &Analysis) -> Result<(), Diagnostics> {
    if analysis.timeline.makespan() < Ticks::END {
        return Ok(());
    }
    let message = format!("the step takes {} units of time or more, which is too long to be counted", Ticks::END);
    let error = Diagnostic::error(Code::TooLarge, analysis.schedule.span, "with these costs", message);
    Err(vec![error.help("costs may be in any one unit: divide all of them by the same number")])
}

/// A program that is wanted needs tensor graphs.
///
/// # Errors
/// If only the sizes of the model are known.
pub fn has_graph(analysis: &Analysis, request: &Request) -> Result<(), Diagnostics> {
    let transformer = analysis.pipeline.as_ref().and_then(|pipeline| pipeline.transformer.as_ref());
    let Some(transformer) = transformer.filter(|_| request.program) else { return Ok(()) };
    let message = format!("`{}` says the sizes of a model, and not what it computes", transformer.config.path);
    let error = Diagnostic::error(Code::NoTensorGraph, transformer.span, "this has no tensor graph", message);
    Err(vec![error.help(
        "`check`, `plot` and `search` accept it; add `train { .. }` to the pipeline to build and run the model itself",
    )])
}

/// Compares what a schedule holds and how long it idles with what is allowed.
///
/// # Errors
/// Every limit and requirement that is broken.
pub fn limits(
    analysis: &Analysis,
    program: &Program,
    stages: &StageSet,
    (memory, bytes): (Option<&MemoryLimit>, Option<&InBytes>),
) -> Result<(), Diagnostics> {
    let mut found = activations(analysis, memory, bytes);
    if let Some(pipeline) = &analysis.pipeline {
        let held = (program, analysis.beside);
        found.extend(bytes::check(pipeline, &analysis.schedule, held, &stages.accounts).err().into_iter().flatten());
    }
    if found.is_empty() { Ok(()) } else { Err(found) }
}

/// The same for a schedule that has no program, so that its bytes are not known.
///
/// # Errors
/// Also `undivided`, which says why, where the program is wanted or bytes are limited.
pub fn without_program(analysis: &Analysis, undivided: Diagnostic, request: &Request) -> Result<(), Diagnostics> {
    let mut found = activations(analysis, request.memory.as_ref(), None);
    let limit = analysis.pipeline.as_ref().and_then(Pipeline::byte_limit);
    match limit {
        Some((bytes, span)) => {
            found.push(undivided.label(span, format!("{} cannot be compared with what it takes", bytes.least())))
        }
        None if request.program => found.push(undivided),
        None => {}
    }
    if found.is_empty() { Ok(()) } else { Err(found) }
}

/// Every limit on activations and every requirement on them, or on the bubble, that is broken.
fn activations(analysis: &Analysis, memory: Option<&MemoryLimit>, bytes: Option<&InBytes>) -> Diagnostics {
    let Analysis { schedule, pipeline, order, peaks, timeline, .. } = analysis;
    let within = memory.map_or(Ok(()), |limit| memory::check(schedule, &order.dependencies, peaks, limit));
    let required =
        pipeline.as_ref().map(|own| requirements::check(&own.requirements, schedule, (peaks, bytes), timeline));
    [Some(within), required].into_iter().flatten().filter_map(Result::err).flatten().collect()
}

impl Analysis {
    /// Lets tasks wait for the copies of their program, where state lives with the hosts, and for
    /// weights that are gathered; what copies cost each device.
    fn copy(&mut self, program: &Program, stages: &StageSet, request: &Request) -> Option<Vec<Cost>> {
        self.pipeline.as_ref().filter(|pipeline| pipeline.offload.any() || pipeline.zero.parameters())?;
        let setting = Setting { stages, pipeline: self.pipeline.as_ref(), request };
        let (timeline, copies) = setting.copied((&self.schedule, &self.order, &self.costs), program);
        self.critical_path = critical_path(&self.schedule, &self.order, &self.costs, &timeline);
        self.timeline = timeline;
        Some(copies)
    }

    /// The program of the schedule, with what has no room away from the devices where it may be,
    /// and what its copies cost each device. The timeline then waits for them.
    pub fn carry_out(&mut self, stages: &StageSet, request: &Request) -> (Program, Option<Vec<Cost>>) {
        let mut program = self.program(stages, &self.lowering());
        if self.reserve(&program, request) {
            program = self.program(stages, &self.lowering());
        }
        let program = suggest_fix::offload::settle(self, program, stages, request);
        let copies = self.copy(&program, stages, request);
        (program, copies)
    }

    /// Leaves driver and libraries what they need of the cluster's GPUs, where nobody says how much that is. Whether
    /// the pipeline then has less.
    fn reserve(&mut self, program: &Program, request: &Request) -> bool {
        let (Some(pipeline), Some(cluster)) = (&mut self.pipeline, &request.cluster) else { return false };
        self.beside = cluster.beside(pipeline, program);
        let Some(beside) = self.beside else { return false };
        pipeline.memory = pipeline
            .memory
            .take()
            .map(|(_, span)| (Bytes(cluster.memory().0.saturating_sub(beside.sum().0)).into(), span));
        true
    }

    /// The program of the schedule. Activations leave where no task waits for them, so what the
    /// copies of state make of the timeline comes first.
    pub fn program(&self, stages: &StageSet, options: &Options) -> Program {
        let Self { schedule, timeline, order, costs, .. } = self;
        if !options.offload.activations || !options.offload.state() {
            return lower(schedule, timeline, stages, options);
        }
        let state = Options { offload: options.offload.of_state(), ..options.clone() };
        let state = lower(schedule, timeline, stages, &state);
        let traffic = Some(traffic(schedule, order, costs, &state));
        lower(schedule, timeline, stages, &Options { traffic, ..options.clone() })
    }

    /// Whether the stages are those of a model, so that bytes mean something.
    pub fn has_model(&self) -> bool {
        self.pipeline.as_ref().is_some_and(Pipeline::has_model)
    }

    /// When the same tasks in the same order run under other costs, and when each device has also
    /// done its updates; reductions at the end of the step are left out.
    pub fn under(&self, costs: &StageCosts) -> (Timeline, Vec<Ticks>) {
        simulate_with_updates(&self.schedule, &self.order, &of_stages(costs, self.schedule.n_stages()))
    }

    /// What lowering needs to know beside the schedule.
    pub fn lowering(&self) -> Options {
        let capacity = |said: &Option<(Capacity, Span)>| said.as_ref().map(|(bytes, _)| bytes.clone());
        let pipeline = self.pipeline.as_ref();
        Options {
            name: pipeline.map_or(&self.schedule.name, |pipeline| &pipeline.name).clone(),
            // Nobody allocates the arena of a program that cannot run, so that its peak is what must fit.
            memory: pipeline.filter(|own| own.transformer.is_none()).and_then(|own| capacity(&own.memory)),
            training: pipeline.and_then(|pipeline| pipeline.training.clone()),
            host: pipeline.and_then(|pipeline| capacity(&pipeline.host)),
            offload: pipeline.map(|pipeline| pipeline.offload).unwrap_or_default(),
            zero: pipeline.map(|pipeline| pipeline.zero).unwrap_or_default(),
            budget: pipeline.and_then(Pipeline::byte_limit).map(|(bytes, _)| bytes),
            latency: self.costs.latency.clone(),
            copy: self.costs.copy,
            traffic: None,
            apart: if self.apart { vec![true; self.costs.tasks.len()] } else { self.costs.are_slower_at_once() },
        }
    }

    /// Whether no step of a block is stuck for sums that travel between replicas, however long it is.
    pub fn sums_follow_slots(&self) -> bool {
        let sums = self.order.dependencies.sums();
        let follow = |block| follow_slots(block, &self.schedule.placement, |stage| sums.travels(stage));
        sums.is_empty() || self.schedule.block.as_ref().is_some_and(follow)
    }

    /// Whether the verdict does not depend on the number of microbatches: the checks of a building
    /// block hold for all of them, and so does its exact count of activations.
    pub fn is_valid_for_all_microbatches(&self, memory: Option<&MemoryLimit>) -> bool {
        let allowed = memory.map(|limit| limit.activations(&self.schedule));
        let fits = |certificates: &Vec<Certificate>| {
            allowed.is_none_or(|allowed| certificates.iter().zip(allowed).all(|(one, allowed)| one.exact <= allowed))
        };
        self.is_uniform && self.sums_follow_slots() && self.certificates.as_ref().is_some_and(fits)
    }
}
