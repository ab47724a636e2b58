//! The whole of `pipec search`: a target in, a source and its report out. The clock is the caller's.

use super::job::Orders;
use super::target::{Problem, problem};
use super::write::source;
use super::{Objective, Options, Progress, Workers, search};
use crate::check::check;
use crate::elaborate::{self, elaborate, schedule_of};
use crate::files::{self, Loader};
use crate::reorder::reorder;
use crate::schedule::{Costs, Schedule};
use crate::source::{Source, Sources};
use crate::{Certificates, Compilation, Request, compile, stdlib};

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
    let Some(judged) = compilation.judged.take() else { return Err(Box::new(compilation)) };
    match problem(&judged, request.memory, objective, true) {
        Ok(problem) => {
            let call = call(&root, loader, request);
            Ok(Prepared { problem, costs: judged.costs, root, request: request.clone(), call })
        }
        Err(error) => {
            compilation.diagnostics.push(error);
            compilation.report.conclude(&compilation.diagnostics, sources);
            Err(Box::new(compilation))
        }
    }
}

/// Where the root's pipeline names its schedule.
fn call(root: &Source, loader: &Loader<'_>, request: &Request) -> Option<(usize, usize)> {
    let files = files::load(&mut Sources::default(), root.clone(), loader).ok()?;
    let (_, call) = schedule_of(&files, &request.choice)?;
    call.map(|call| (call.span.start as usize, call.span.end as usize))
}

impl Prepared {
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
        let declared = source(&schedule, NAME, &self.about(found));
        let text = match self.call {
            Some((start, end)) => {
                let (before, after) = (&self.root.text[..start], &self.root.text[end..]);
                format!("{before}{NAME}{after}\n{declared}")
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
        if self.problem.objective == Objective::Makespan {
            let is_proved = found.bound == found.length;
            let reason = if is_proved { "proved by the search" } else { "any order in this memory" };
            compilation.report.bound(self.problem.ticks(found.bound), reason);
        }
        (text, compilation)
    }

    /// The first lines of the source.
    fn about(&self, found: &Progress) -> String {
        let Problem { schedule, objective, activations, .. } = &self.problem;
        let (length, bound) = (self.problem.ticks(found.length), self.problem.ticks(found.bound));
        let proof = if length == bound { "proved optimal".to_owned() } else { format!("at least {bound}") };
        let memory = schedule.units(*activations).words();
        format!(
            "Found by `pipec search {}`: {} {length}, {proof}, for devices that hold {memory}.",
            self.root.name,
            objective.words()
        )
    }
}

/// What the schedule that is found is called.
const NAME: &str = "found";
