//! The whole of `pipec search`: a target in, a source and its report out. The clock is the caller's.

use super::bytes::{in_bytes, tighten};
use super::job::Orders;
use super::target::{Problem, problem};
use super::write::source;
use super::{Objective, Options, Progress, Workers, search};
use crate::check::check;
use crate::diagnostic::{Code, Diagnostic};
use crate::elaborate::{self, elaborate, schedule_of};
use crate::files::{self, Loader};
use crate::judge::Judged;
use crate::model::stage_set;
use crate::pipeline::{Limit, Pipeline};
use crate::reorder::reorder;
use crate::report::Report;
use crate::schedule::{Costs, Schedule};
use crate::source::{Source, Sources};
use crate::units::{Ticks, Units};
use crate::{Certificates, Compilation, Request, compile, stdlib};
use pipe_ir::ids::DeviceId;
use pipe_ir::task::TaskKind;
use pipe_ir::units::Bytes;

/// A target that can be searched.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// What is to be ordered.
    pub problem: Problem,
    costs: Costs,
    root: Source,
    request: Request,
    /// Where the root names the pipeline's schedule, if it has a pipeline.
    call: Option<(usize, usize)>,
    /// What devices may hold, if it is counted in bytes.
    limit: Option<Bytes>,
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
    let unlimited = Request { memory: None, certificate: Certificates::Beside, ..request.clone() };
    let mut compilation = compile(sources, root.clone(), loader, &unlimited);
    if compilation.diagnostics.iter().any(|found| found.code == Code::UndividedStage) {
        // What its bytes are limited by would say nothing about what is found.
        return Err(Box::new(compilation));
    }
    let Some(judged) = compilation.judged.take() else { return Err(Box::new(compilation)) };
    let splits = may_split(&judged.costs);
    let prepared = problem(&judged, request.memory.as_ref(), objective, splits).and_then(|problem| {
        let call = call(&root, loader, request);
        let counts =
            Prepared { problem, costs: judged.costs.clone(), root, request: request.clone(), call, limit: None };
        if request.memory.is_none() && counts_bytes(&judged) {
            counts.with_bytes(&judged, &compilation.report, loader)
        } else {
            Ok(counts)
        }
    });
    match prepared {
        Ok(prepared) => Ok(prepared),
        Err(error) => {
            compilation.diagnostics.push(error);
            compilation.report.conclude(&compilation.diagnostics, sources);
            Err(Box::new(compilation))
        }
    }
}

/// Whether a backward in two halves may be of use: not where all of `W` takes no time, and `BW` no more than `B`.
fn may_split(costs: &Costs) -> bool {
    let of = |stage: &[Ticks; TaskKind::ALL.len()], kind: TaskKind| stage[kind.index()];
    costs.tasks.iter().any(|stage| {
        let takes_time = of(stage, TaskKind::BackwardWeight) > Ticks::ZERO;
        takes_time || of(stage, TaskKind::Backward) > of(stage, TaskKind::BackwardInput)
    })
}

/// Whether a pipeline says what its devices hold in bytes, and not in activations.
fn counts_bytes(judged: &Judged) -> bool {
    let Some(pipeline) = judged.pipeline.as_ref().filter(|_| judged.has_model()) else { return false };
    let is_peak = |limit: &Limit| matches!(limit, Limit::Peak(_) | Limit::PeakOf { .. });
    pipeline.byte_limit().is_some() && !pipeline.requirements.iter().any(|one| is_peak(&one.limit))
}

/// Where the root's pipeline names its schedule.
fn call(root: &Source, loader: &Loader<'_>, request: &Request) -> Option<(usize, usize)> {
    let files = files::load(&mut Sources::default(), root.clone(), loader).ok()?;
    let (_, call) = schedule_of(&files, &request.choice)?;
    call.map(|call| (call.span.start as usize, call.span.end as usize))
}

impl Prepared {
    /// Counts what the pipeline's model saves, in the memory that the pipeline's devices have.
    fn with_bytes(mut self, judged: &Judged, report: &Report, loader: &Loader<'_>) -> Result<Self, Diagnostic> {
        let files = files::load(&mut Sources::default(), self.root.clone(), loader);
        let stages = files.and_then(|files| stage_set(&files, &elaborate(&files, &self.request.choice)?));
        let Ok(stages) = stages else { return Ok(self) };
        let limit = judged.pipeline.as_ref().and_then(Pipeline::byte_limit);
        let Some((limit, _)) = limit else { return Ok(self) };
        self.limit = Some(limit);
        let counted = in_bytes(&mut self.problem, &stages, report, limit);
        self.problem.set_bound(&self.costs);
        counted.map_err(|missing| {
            let span =
                judged.pipeline.as_ref().and_then(|pipeline| pipeline.memory).map_or(judged.schedule.span, |at| at.1);
            let (device, bytes) = missing.first().copied().unwrap_or_default();
            let (device, bytes) = (DeviceId::from_index(device), Bytes(bytes.unsigned_abs()));
            let message = format!("{device} has {bytes} too little for a single microbatch, in whatever order");
            let error = Diagnostic::error(Code::MemoryExceeded, span, "of each device", message);
            error.help("use more devices, smaller microbatches, or devices with more memory")
        })?;
        Ok(self)
    }

    /// Leaves less room where what was found needs more bytes than were thought. Whether another search makes sense.
    pub fn tighten(&mut self, compilation: &Compilation) -> bool {
        let is_memory = |code: Code| matches!(code, Code::MemoryExceeded | Code::RequirementFailed);
        let is_full = compilation.diagnostics.iter().any(|found| is_memory(found.code));
        self.limit.is_some_and(|limit| is_full && tighten(&mut self.problem, &compilation.report, limit))
    }

    /// Searches. `report` hears of every improvement. `None` if the workers stop before anything was found.
    pub fn search(
        &self,
        options: Options,
        workers: &dyn Workers,
        report: &mut dyn FnMut(&Progress),
    ) -> Option<Progress> {
        let known = |microbatches| self.known(microbatches);
        search(&self.problem.job, self.problem.bound, &known, options, workers, report)
    }

    /// The target's own order, and those of the standard library with the same placement.
    fn known(&self, microbatches: usize) -> Vec<Orders> {
        let own = &self.problem.schedule;
        let job = self.problem.job.with_microbatches(microbatches);
        let mut known = Vec::new();
        if microbatches == own.n_microbatches as usize {
            known.extend(job.orders(own));
        }
        let settings = |more: &[(&str, usize)]| {
            let all = [("devices", own.n_devices()), ("microbatches", microbatches)];
            all.iter().chain(more).map(|(name, value)| ((*name).to_owned(), *value as i64)).collect::<Vec<_>>()
        };
        let chunks = own.n_stages() / own.n_devices().max(1);
        for (name, text) in stdlib::SCHEDULES {
            for more in [&[][..], &[("chunks", chunks)], &[("waves", chunks / 2)]] {
                let found = self.standard(name, text, settings(more));
                known.extend(found.and_then(|schedule| job.orders(&schedule)));
            }
        }
        known.retain(|orders| job.fits(orders));
        known.sort();
        known.dedup();
        known
    }

    /// A schedule of the standard library with these settings, if it has the same placement and is sound.
    fn standard(&self, name: &str, text: &str, settings: Vec<(String, i64)>) -> Option<Schedule> {
        let root = Source { name: format!("std:{name}"), text: text.to_owned() };
        let files = files::load(&mut Sources::default(), root, &|_| Err(String::new())).ok()?;
        let request = elaborate::Request { settings, ..elaborate::Request::default() };
        let schedule = elaborate(&files, &request).ok()?.schedule;
        let own = &self.problem.schedule;
        let same = schedule.placement == own.placement && schedule.slices == own.slices && schedule.window.is_none();
        let schedule = same.then(|| Schedule { graph: own.graph.clone(), ..schedule })?;
        let order = check(&schedule).ok()?;
        let better = if schedule.reorder.is_some() { reorder(schedule, order, &self.costs).0 } else { schedule };
        Some(better)
    }

    /// Writes what was found as source, and compiles that like any other: the report, the verdict and the program are
    /// those of the ordinary compiler.
    pub fn finish(&self, found: &Progress, sources: &mut Sources, loader: &Loader<'_>) -> (String, Compilation) {
        let schedule = self.problem.schedule(&found.orders);
        let name = self.free_name();
        let declared = source(&schedule, &name, &self.about(found));
        let text = match self.call {
            Some((start, end)) => {
                let (before, after) = (&self.root.text[..start], &self.root.text[end..]);
                format!("{before}{name}{after}\n{declared}")
            }
            None => declared,
        };
        let mut request = self.request.clone();
        request.certificate = Certificates::Beside;
        if self.call.is_none() {
            let all = [("devices", schedule.n_devices()), ("microbatches", schedule.n_microbatches as usize)];
            request.choice = elaborate::Request {
                settings: all.iter().map(|(name, value)| ((*name).to_owned(), *value as i64)).collect(),
                ..elaborate::Request::default()
            };
        }
        let root = Source { name: self.root.name.clone(), text: text.clone() };
        let mut compilation = compile(sources, root, loader, &request);
        if self.problem.objective == Objective::Makespan && !self.problem.fusing_pays {
            let reason =
                if self.problem.is_proved(found) { "proved by the search" } else { "any order in this memory" };
            compilation.report.bound(self.problem.ticks(found.bound), reason);
        }
        (text, compilation)
    }

    /// What the schedule is called that is found: `found`, unless the file has one of that name already.
    fn free_name(&self) -> String {
        let is_free = |name: &String| self.call.is_none() || !self.root.text.contains(&format!("schedule {name} "));
        let names = std::iter::once(NAME.to_owned()).chain((2..).map(|number: u64| format!("{NAME}_{number}")));
        names.into_iter().find(is_free).unwrap_or_default()
    }

    /// The first lines of the source.
    fn about(&self, found: &Progress) -> String {
        let Problem { schedule, objective, activations, .. } = &self.problem;
        let (length, bound) = (self.problem.ticks(found.length), self.problem.ticks(found.bound));
        let proof = match self.problem.is_proved(found) {
            true => "proved optimal, ".to_owned(),
            false if self.problem.fusing_pays => String::new(),
            false => format!("at least {bound}, "),
        };
        let limits: Vec<Units> = activations.iter().map(|activations| schedule.units(*activations)).collect();
        let memory = match limits.split_first() {
            _ if self.limit.is_some() => "the pipeline's memory".to_owned(),
            Some((first, others)) if others.iter().any(|other| other != first) => {
                format!("{} units", limits.iter().map(Units::to_string).collect::<Vec<_>>().join(", "))
            }
            first => first.map_or_else(String::new, |(first, _)| first.words()),
        };
        format!(
            "Found by `pipec search {}`: {} {length}, {proof}for devices that hold {memory}.",
            self.root.name,
            objective.words()
        )
    }
}

/// What the schedule that is found is called.
const NAME: &str = "found";
