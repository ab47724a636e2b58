//! The whole of `pipec search`: a target in, a source and its report out. The clock is the caller's.

use crate::emit::source::{OfPipeline, source};
use crate::problem::bytes::{in_bytes, tighten};
use crate::problem::seeds::Known;
use crate::problem::split_costs::{complete, in_halves};
use crate::problem::target::{Problem, problem, without_pairs};
use crate::{Options, Progress, Workers, search};
use pipe_compiler::analyze::Analysis;
use pipe_compiler::elaborate::{self, elaborate, schedule_of};
use pipe_compiler::report::costs::DerivedCostReport;
use pipe_compiler::report::{Finding, Report};
use pipe_compiler::{Compilation, Request, compile};
use pipe_ir::ids::{DeviceId, StageId};
use pipe_ir::units::Bytes;
use pipe_ir::units::capacity::Capacity;
use pipe_model::pipeline::Pipeline;
use pipe_model::stage_set;
use pipe_schedule::dispatch::Objective;
use pipe_schedule::dispatch::job::{Orders, Time};
use pipe_schedule::dispatch::plan::Plan;
use pipe_schedule::policy::offload::Offload;
use pipe_schedule::policy::recompute::recomputing;
use pipe_schedule::units::Units;
use pipe_syntax::ast::{PipelineItem, Subject};
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::files::{self, Loader};
use pipe_syntax::source::{Source, Sources};

/// Standard schedules that are compiled at the end of a search: so many of those that fit by the estimate of
/// the memory, and of all.
const MOST_LIKELY: usize = 4;
const MOST_SHORT: usize = 12;

/// Lines of the root's pipeline that decide what the schedule and the search add to it.
#[derive(Clone, Debug, Default)]
struct Said {
    /// Whether there is a line `offload`.
    offload: bool,
    /// Its parts and lanes.
    of_pipeline: OfPipeline,
}

/// A target that can be searched.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// What is to be ordered.
    pub problem: Problem,
    root: Source,
    request: Request,
    /// Where the root names the pipeline's schedule, if it has a pipeline.
    call: Option<(usize, usize)>,
    /// What that pipeline says already.
    said: Said,
    /// What devices may hold, if it is counted in bytes.
    limit: Option<Capacity>,
    /// What of the target the search leaves out, with its places in the sources of the target.
    pub warnings: Diagnostics,
    /// The same for programs.
    findings: Vec<Finding>,
}

/// Compiles a target, whatever it holds, and takes its order away.
///
/// # Errors
/// The compilation, with what speaks against it.
pub fn prepare(
    sources: &mut Sources,
    root: Source,
    loader: &Loader<'_>,
    request: &Request,
    objective: Objective,
) -> Result<Prepared, Box<Compilation>> {
    let request = &request.of_search();
    // The memory beside what tasks leave is that of a program in which every task is a run.
    let unlimited = Request { memory: None, apart: true, ..request.clone() };
    let mut compilation = compile(sources, root.clone(), loader, &unlimited);
    if compilation.diagnostics.iter().any(|found| found.code == Code::UndividedStage) {
        // What its bytes are limited by would say nothing about what is found.
        return Err(Box::new(compilation));
    }
    let Some(mut analysis) = compilation.analysis.take() else { return Err(Box::new(compilation)) };
    complete(&mut analysis, &root, loader, &unlimited);
    let prepared = problem(&analysis, request.memory.as_ref(), objective).and_then(|problem| {
        let (call, said) =
            call(&root, loader, request).map_or((None, Said::default()), |(call, said)| (Some(call), said));
        let warnings: Diagnostics = without_pairs(&problem, analysis.timeline.makespan()).into_iter().collect();
        let findings = warnings.iter().map(|warning| Finding::new(warning, sources)).collect();
        let request = request.clone();
        let counts = Prepared { problem, root, request, call, said, limit: None, warnings, findings };
        if counts.request.memory.is_none() && counts_bytes(&analysis) && analysis.schedule.parts.is_empty() {
            counts.with_bytes(&analysis, &compilation.report, loader)
        } else {
            Ok(counts)
        }
    });
    match prepared {
        Ok(prepared) => Ok(prepared),
        Err(error) => {
            compilation.diagnostics.push(error);
            compilation.conclude(sources);
            Err(Box::new(compilation))
        }
    }
}

/// Whether a pipeline says what its devices hold in bytes, and not in activations.
fn counts_bytes(analysis: &Analysis) -> bool {
    let Some(pipeline) = analysis.pipeline.as_ref().filter(|_| analysis.has_model()) else { return false };
    pipeline.byte_limit().is_some() && !pipeline.requirements.iter().any(|one| one.subject == Subject::Peak)
}

/// Where the root's pipeline names its schedule, and what else that pipeline says.
fn call(root: &Source, loader: &Loader<'_>, request: &Request) -> Option<((usize, usize), Said)> {
    let files = files::load(&mut Sources::default(), root.clone(), loader).ok()?;
    // A table of PyTorch has no place for a schedule of ours.
    files.root_table().is_none().then_some(())?;
    let (_, call) = schedule_of(&files, &request.choice)?;
    let call = call?;
    let is_call = |item: &PipelineItem| matches!(item, PipelineItem::Schedule(own) if own.span == call.span);
    let own = files.root_pipelines().find(|pipeline| pipeline.items.iter().any(is_call));
    let mut said = Said::default();
    for item in own.iter().flat_map(|own| &own.items) {
        match item {
            PipelineItem::Offload { .. } => said.offload = true,
            PipelineItem::Parts(_) => said.of_pipeline.parts = true,
            PipelineItem::Lane(lane) => said.of_pipeline.lanes.push(lane.name.text.clone()),
            _ => {}
        }
    }
    Some(((call.span.start as usize, call.span.end as usize), said))
}

impl Prepared {
    /// Counts what the pipeline's model saves, in the memory that the pipeline's devices have.
    fn with_bytes(mut self, analysis: &Analysis, report: &Report, loader: &Loader<'_>) -> Result<Self, Diagnostic> {
        let files = files::load(&mut Sources::default(), self.root.clone(), loader);
        let stages = files.and_then(|files| {
            let elaborated = elaborate(&files, &self.request.choice)?;
            Ok((stage_set(&files, &elaborated)?, in_halves(&files, &elaborated)))
        });
        let Ok((stages, halves)) = stages else { return Ok(self) };
        let limit = analysis.pipeline.as_ref().and_then(Pipeline::byte_limit);
        let Some((limit, _)) = limit else { return Ok(self) };
        self.limit = Some(limit.clone());
        let offload = analysis.pipeline.as_ref().map(|pipeline| pipeline.offload).unwrap_or_default();
        let peaks: Vec<Bytes> = if offload.any() {
            // Chunks take the room that there is: only without a limit they say how little they
            // need. Activations are counted where they are used.
            let options = pipe_lower::Options { budget: None, offload: offload.of_state(), ..analysis.lowering() };
            let program = pipe_lower::lower(&analysis.schedule, &analysis.timeline, &stages, &options);
            program.devices.iter().map(|device| device.peak).collect()
        } else {
            report.per_device.iter().map(|device| Bytes(device.peak_bytes.unwrap_or_default())).collect()
        };
        // What is found may need more of it to be away than the target does.
        let may_offload = analysis.pipeline.as_ref().is_some_and(|pipeline| pipeline.may_offload);
        let away = if may_offload { Offload::ALL.into_iter().fold(offload, Offload::and) } else { offload };
        let counted = in_bytes(&mut self.problem, &halves.unwrap_or(stages), &peaks, (&limit, away));
        self.problem.set_bound();
        counted.map_err(|missing| {
            let span = analysis
                .pipeline
                .as_ref()
                .and_then(|pipeline| pipeline.memory.as_ref())
                .map_or(analysis.schedule.span, |at| at.1);
            let (device, bytes) = missing.first().copied().unwrap_or((DeviceId(0), 0));
            let bytes = Bytes(bytes.unsigned_abs());
            let message = format!("{device} has {bytes} too little for a single microbatch, in whatever order");
            let error = Diagnostic::error(Code::MemoryExceeded, span, "of each device", message);
            error.help("use more devices, smaller microbatches, or devices with more memory")
        })?;
        Ok(self)
    }

    /// Whether it is not known exactly how much memory there is beside what programs need anyway.
    pub const fn estimates_memory(&self) -> bool {
        self.limit.is_some()
    }

    /// Leaves less room where what was found needs more bytes than were thought. Whether another search makes sense.
    pub fn tighten(&mut self, found: &Progress, compilation: &Compilation) -> bool {
        let is_memory = |code: Code| matches!(code, Code::MemoryExceeded | Code::RequirementFailed);
        let is_full = compilation.diagnostics.iter().any(|found| is_memory(found.code));
        let report = &compilation.report;
        self.limit.as_ref().is_some_and(|limit| is_full && tighten(&mut self.problem, &found.orders, report, limit))
    }

    /// Orders that may fit although the estimate says otherwise: the target's own, and one microbatch after
    /// the other. The shortest comes first.
    pub fn instead_of(&self, found: &Progress) -> Vec<Progress> {
        let Problem { job, schedule, .. } = &self.problem;
        self.measured(found, job.orders(schedule).into_iter().chain(job.in_turn()))
    }

    /// The same, and standard schedules with the places of the target that may fit: the shortest ones, and
    /// the shortest of those that fit by the estimate.
    pub fn all_instead_of(&self, found: &Progress) -> Vec<Progress> {
        let job = &self.problem.job;
        let mut all = self.instead_of(found);
        let longest = all.last().map_or(Time::MAX, |last| last.length);
        let possible = job.relaxed();
        let standard = (0..self.count()).flat_map(|index| self.orders(index, job.microbatches));
        let standard = self.measured(found, standard.filter(|orders| possible.fits(orders)));
        let standard: Vec<Progress> = standard.into_iter().filter(|progress| progress.length < longest).collect();
        all.extend(standard.iter().filter(|progress| job.fits(&progress.orders)).take(MOST_LIKELY).cloned());
        all.extend(standard.into_iter().take(MOST_SHORT));
        all.sort_by(|one, other| (one.length, &one.orders).cmp(&(other.length, &other.orders)));
        all.dedup_by(|one, other| one.orders == other.orders);
        all
    }

    /// Orders with their lengths, the shortest first.
    fn measured(&self, found: &Progress, all: impl Iterator<Item = Orders>) -> Vec<Progress> {
        let Problem { job, objective, .. } = &self.problem;
        let of = |orders: Orders| {
            let length = Plan::new(job, *objective, &orders)?.1.length;
            let progress = Progress { length, orders, known: Vec::new(), bound: found.bound.min(length), ..*found };
            Some(self.problem.measured(progress))
        };
        let mut all: Vec<Progress> = all.filter_map(of).collect();
        all.sort_by_key(|progress| progress.length);
        all
    }

    /// Searches. `report` hears of every improvement. `None` if the workers stop before anything was found.
    pub fn search(
        &self,
        options: Options,
        workers: &dyn Workers,
        report: &mut dyn FnMut(&Progress),
    ) -> Option<Progress> {
        let found = search(&self.problem.job, self.problem.bound, self, options, workers, report)?;
        Some(self.problem.measured(found))
    }

    /// Writes what was found as source, and compiles that like any other: the report, the verdict and the program are
    /// those of the ordinary compiler.
    pub fn finish(&self, found: &Progress, sources: &mut Sources, loader: &Loader<'_>) -> (String, Compilation) {
        let (schedule, steady) = self.problem.schedule(found);
        let name = self.free_name();
        let declared = source(&schedule, &name, &format!("{}\n{steady}", self.about(found)), &self.said.of_pipeline);
        let text = match self.call {
            Some((start, end)) => {
                let (before, after) = (&self.root.text[..start], &self.root.text[end..]);
                let offload = self.request.choice.offload.filter(|offload| offload.any() && !self.said.offload);
                let offload = offload.map(|offload| format!("\n    offload {offload}")).unwrap_or_default();
                format!("{before}{name}{offload}{after}\n{declared}")
            }
            None => declared,
        };
        let mut request = self.request.clone();
        if self.call.is_none() {
            let all = [("devices", schedule.n_devices()), ("microbatches", schedule.n_microbatches as usize)];
            request.choice = elaborate::Request {
                settings: all.iter().map(|(name, value)| ((*name).to_owned(), *value as i64)).collect(),
                activation: self.request.choice.activation.clone(),
                ..elaborate::Request::default()
            };
        }
        let stem = self.root.name.strip_suffix(".csv");
        let name = stem.map_or_else(|| self.root.name.clone(), |stem| format!("{stem}.pipe"));
        let root = Source { name, text: text.clone() };
        let mut compilation = compile(sources, root, loader, &request);
        let reason = if self.problem.is_proved(found) { "proved by the search" } else { "any order in this memory" };
        let bound = self.problem.ticks(self.problem.bound(found));
        let makespan = self.problem.makespan_bound().max(bound);
        compilation.report.bound(self.problem.objective, (bound, reason), makespan);
        // What was found is one of those that the halves are compared with, and so is `BW`, whatever it has itself.
        let halves = compilation.analysis.iter().flat_map(|analysis| &analysis.halves);
        compilation.report.derived_costs = DerivedCostReport::all(halves.copied());
        compilation.diagnostics.retain(|found| found.code != Code::UnusedCost);
        compilation.report.diagnostics.retain(|found| found.code != Code::UnusedCost.name());
        compilation.report.diagnostics.extend(self.findings.iter().cloned());
        (text, compilation)
    }

    /// Whether the whole step of what was found, as its report has it, is as short as the bound: then
    /// nothing is shorter.
    pub fn is_proved(&self, found: &Progress, compilation: &Compilation) -> bool {
        let Some(analysis) = compilation.analysis.as_ref().filter(|_| compilation.report.ok) else { return false };
        let length = match self.problem.objective {
            Objective::Makespan => analysis.timeline.makespan(),
            Objective::LongestStage => analysis.timeline.longest_stage(),
        };
        length == self.problem.ticks(self.problem.bound(found))
    }

    /// What the schedule is called that is found: `found`, unless the file has one of that name already.
    fn free_name(&self) -> String {
        let is_free = |name: &String| self.call.is_none() || !self.root.text.contains(&format!("schedule {name} "));
        let names = std::iter::once(NAME.to_owned()).chain((2..).map(|number: u64| format!("{NAME}_{number}")));
        names.into_iter().find(is_free).unwrap_or_default()
    }

    /// The first lines of the source.
    fn about(&self, found: &Progress) -> String {
        let Problem { schedule, memory, .. } = &self.problem;
        let (length, bound) = (self.problem.ticks(found.length), self.problem.ticks(self.problem.bound(found)));
        let unit = self.problem.unit.map_or_else(String::new, |unit| format!(" {unit}"));
        let limits: Vec<Units> = memory.iter().map(|parts| schedule.units(*parts)).collect();
        let memory = match limits.split_first() {
            _ if self.limit.is_some() => "the pipeline's memory".to_owned(),
            Some((first, others)) if others.iter().any(|other| other != first) => {
                format!("{} units", limits.iter().map(Units::to_string).collect::<Vec<_>>().join(", "))
            }
            first => first.map_or_else(String::new, |(first, _)| first.words()),
        };
        let recomputing = (0..).map(StageId).zip(recomputing(schedule)).filter(|(_, recomputes)| *recomputes);
        let recomputing: Vec<String> = recomputing.map(|(stage, _)| stage.to_string()).collect();
        let proof = match self.problem.is_proved(found) {
            true if recomputing.is_empty() => "proved optimal, ".to_owned(),
            true => "proved optimal where these stages recompute, ".to_owned(),
            false => format!("at least {bound}{unit}, "),
        };
        let again = match recomputing.len() {
            0 => String::new(),
            _ => format!(" Recomputed: {}.", recomputing.join(", ")),
        };
        let shares = self.request.choice.activation.as_ref().filter(|_| self.call.is_none());
        let counted = shares.map_or_else(String::new, |shares| format!(", counted with `--activation {shares}`"));
        format!(
            "Found by `pipec search {}`: {} {length}{unit}, {proof}for devices that hold {memory}{counted}.{again}",
            self.root.name,
            self.problem.words()
        )
    }
}

/// What the schedule that is found is called.
const NAME: &str = "found";
