//! Moves: what of a target may be otherwise so that something fits in the memory, or, if that is
//! wanted, so that the step is shorter: stages recompute, or state lives with the hosts.
//!
//! Every choice is looked at for a short time, and the best of them is searched. Stages that hold
//! much for long, and are recomputed cheaply, come first: by the bytes that they save (all the same
//! without a model), times how long they hold them in the target's own order, per duration of a
//! forward. Only the first so many of them are tried.

use crate::driver::run::{Prepared, prepare};
use crate::{Options, Progress, Workers};
use pipe_compiler::elaborate::elaborate;
use pipe_compiler::{Compilation, Request, compile};
use pipe_ir::ids::StageId;
use pipe_ir::task::{Task, TaskKind};
use pipe_ir::value::ValueKind;
use pipe_model::stage_set;
use pipe_schedule::dispatch::Objective;
use pipe_schedule::policy::offload::{Offload, Wanted};
use pipe_schedule::policy::recompute::{Recomputation, recomputing};
use pipe_schedule::schedule::Schedule;
use pipe_schedule::units::Ticks;
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::files::{self, Loader};
use pipe_syntax::source::{Source, Sources};
use std::cmp::Reverse;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Numbers of stages that are tried at most.
const TRIES: usize = 8;

/// A target, and how it is to be searched.
#[derive(Clone, Copy)]
pub struct SearchTarget<'a> {
    /// Its text.
    pub root: &'a Source,
    /// Where imports come from.
    pub loader: &'a Loader<'a>,
    /// What is asked of it.
    pub request: &'a Request,
    /// What is to be short.
    pub objective: Objective,
    /// What may be otherwise.
    pub may: Moves,
}

/// What may be otherwise where that makes the step shorter. Where nothing fits without, stages recompute anyway.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moves {
    /// Which stages recompute.
    pub recompute: bool,
    /// What of the state lives with the hosts, also where nothing fits without.
    pub offload: bool,
}

/// What is otherwise: the stages that recompute, and what lives with the hosts.
type Change<'a> = (&'a [StageId], Option<Offload>);

impl SearchTarget<'_> {
    /// The target with a change.
    fn with(&self, sources: &mut Sources, (stages, offload): Change<'_>) -> Result<Prepared, Box<Compilation>> {
        let mut request = self.request.clone();
        if !stages.is_empty() {
            let ranges = stages.iter().map(|stage| stage.0..stage.0 + 1);
            request.choice.recompute = Some(Recomputation::Stages(ranges.collect()));
        }
        request.choice.offload = offload.map(Wanted::This).or(request.choice.offload);
        prepare(sources, self.root.clone(), self.loader, &request, self.objective)
    }

    /// Prepares the search. Where not even one microbatch fits in the memory, state lives with the
    /// hosts, if it may, or else as few stages recompute as it takes.
    ///
    /// # Errors
    /// The compilation, with what speaks against it also if all stages recompute, or that nobody
    /// says how long the copies take that may be made.
    pub fn prepare(&self, sources: &mut Sources) -> Result<Prepared, Box<Compilation>> {
        let offloads = self.offloads(sources)?;
        let refused = match self.with(sources, (&[], None)) {
            Ok(prepared) if self.may.recompute && !prepared.problem.schedule.parts.is_empty() => {
                return Err(self.cannot_recompute_parts(sources, &prepared.problem.schedule));
            }
            Ok(prepared) => return Ok(prepared),
            Err(compilation) => compilation,
        };
        if !refused.diagnostics.iter().any(|found| found.code == Code::MemoryExceeded) {
            return Err(refused);
        }
        let with = |change: Change<'_>| self.with(&mut Sources::default(), change);
        if let Some(found) = offloads.iter().find_map(|offload| with((&[], Some(*offload))).ok()) {
            return Ok(found);
        }
        let Some(order) = self.order() else { return Err(refused) };
        let all = self.with(sources, (&order, None)).map(|found| (found, None));
        let away = |offload: &Offload| Some((with((&order, Some(*offload))).ok()?, Some(*offload)));
        let (mut found, offload) = all.or_else(|refused| offloads.iter().find_map(away).ok_or(refused))?;
        // Whatever fits, fits as well if more stages recompute.
        let (mut low, mut high) = (1, order.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            match with((&order[..middle], offload)) {
                Ok(prepared) => (high, found) = (middle, prepared),
                Err(_) => low = middle + 1,
            }
        }
        Ok(found)
    }

    /// The same target with a change that may be made, if a first look finds something shorter than without.
    pub fn shorter(&self, prepared: Prepared, options: Options, workers: &dyn Workers) -> Prepared {
        let options = Options { rounds: 0, ..options };
        let recomputes = recomputing(&prepared.problem.schedule).contains(&true);
        let order = if self.may.recompute && !recomputes { self.order() } else { None }.unwrap_or_default();
        let offloads = self.offloads(&mut Sources::default()).unwrap_or_default();
        let offloads = || std::iter::once(None).chain(offloads.iter().copied().map(Some));
        let numbers = std::iter::once(0).chain(numbers(order.len()));
        let changes = numbers.flat_map(|number| offloads().map(move |offload| (number, offload))).skip(1);
        let (mut best, mut made) = (prepared.clone(), (0, None));
        let mut length = self.look(&mut best, options, workers);
        for change in changes {
            if !workers.go_on() {
                break;
            }
            let (number, offload) = change;
            let Ok(mut other) = self.with(&mut Sources::default(), (&order[..number], offload)) else { continue };
            let found = self.look(&mut other, options, workers);
            let is_shorter = |found| length.is_none_or(|length| found < length);
            let is_as_short_with_less = |found| length == Some(found) && change < made;
            if found.is_some_and(|found| is_shorter(found) || is_as_short_with_less(found)) {
                (best, length, made) = (other, found, change);
            }
        }
        // Of what never fits, nothing was learned.
        if length.is_some() { best } else { prepared }
    }

    /// How long a step takes, its copies included, that a first look finds and that fits; where
    /// memory is an estimate, that is corrected on the way.
    fn look(&self, prepared: &mut Prepared, options: Options, workers: &dyn Workers) -> Option<Ticks> {
        loop {
            let glance = Glance { workers, batches: AtomicUsize::new(0), is_busy: AtomicBool::new(false) };
            let found = prepared.search(options, &glance, &mut |_| ())?;
            if !prepared.estimates_memory() {
                return Some(prepared.problem.ticks(found.length));
            }
            let (_, compilation) = prepared.finish(&found, &mut Sources::default(), self.loader);
            let length = compilation.report.ok.then(|| self.length(prepared, &found, &compilation));
            if length.is_some() || !workers.go_on() || !prepared.tighten(&found, &compilation) {
                // Orders that the estimate thought too large may fit.
                let others = prepared.all_instead_of(&found).into_iter();
                let shorter =
                    others.filter(|other| length.is_none() || other.length < found.length).find_map(|other| {
                        let (_, compilation) = prepared.finish(&other, &mut Sources::default(), self.loader);
                        compilation.report.ok.then(|| self.length(prepared, &other, &compilation))
                    });
                return shorter.or(length);
            }
        }
    }

    /// How long what was found takes, with its copies where the whole step counts.
    fn length(&self, prepared: &Prepared, found: &Progress, compilation: &Compilation) -> Ticks {
        let whole = compilation.analysis.as_ref().filter(|_| self.objective == Objective::Makespan);
        whole.map_or_else(|| prepared.problem.ticks(found.length), |analysis| analysis.timeline.makespan())
    }

    /// The target with what may be otherwise where nothing fits without, however well it was
    /// thought to fit: state lives with the hosts, all stages recompute, or both.
    pub fn otherwise(&self, prepared: &Prepared) -> impl Iterator<Item = Prepared> + '_ {
        let recomputes = recomputing(&prepared.problem.schedule).contains(&true);
        let order = if recomputes { None } else { self.order() };
        let offloads = self.offloads(&mut Sources::default()).unwrap_or_default();
        let offloads: Vec<_> = std::iter::once(None).chain(offloads.into_iter().map(Some)).collect();
        let all = order.map(|order| offloads.iter().map(|offload| (order.clone(), *offload)).collect());
        let changes = offloads.iter().map(|offload| (Vec::new(), *offload)).chain(all.unwrap_or_else(Vec::new));
        let changes: Vec<(Vec<StageId>, Option<Offload>)> = changes.skip(1).collect();
        changes.into_iter().filter_map(|(stages, offload)| self.with(&mut Sources::default(), (&stages, offload)).ok())
    }

    /// What of the state could live with the hosts: nothing if that may not be, or the target says it.
    fn offloads(&self, sources: &mut Sources) -> Result<Vec<Offload>, Box<Compilation>> {
        if !self.may.offload || self.request.choice.offload.is_some() {
            return Ok(Vec::new());
        }
        let unlimited = Request { memory: None, ..self.request.of_search() };
        let mut compilation = compile(sources, self.root.clone(), self.loader, &unlimited);
        let Some(analysis) = &compilation.analysis else { return Err(Box::new(compilation)) };
        let Some(pipeline) =
            analysis.pipeline.as_ref().filter(|own| own.has_model() && !own.offload.any() && !own.may_offload)
        else {
            return Ok(Vec::new());
        };
        if analysis.costs.copy > Ticks::ZERO {
            return Ok(Offload::STATE.to_vec());
        }
        let message =
            format!("the time of copies between the devices of `{}` and their hosts is not known", pipeline.name);
        let error = Diagnostic::error(Code::CannotOffload, pipeline.span, "may live with the hosts", message);
        compilation.diagnostics = vec![error.help("say it by `--cost copy=..` (for 1 MiB), a profile or a cluster")];
        compilation.conclude(sources);
        Err(Box::new(compilation))
    }

    /// The error for `--may-recompute` if stages have parts.
    fn cannot_recompute_parts(&self, sources: &mut Sources, schedule: &Schedule) -> Box<Compilation> {
        let mut compilation = compile(sources, self.root.clone(), self.loader, &self.request.of_search());
        let message =
            format!("the stages of `{}` have parts, and the search does not choose which recompute", schedule.name);
        let error = Diagnostic::error(Code::CannotSearch, schedule.placement_span, "this schedule", message);
        let help = "leave `--may-recompute` out, and name parts in the pipeline, as in `recompute F.mlp`";
        compilation.diagnostics = vec![error.help(help)];
        compilation.conclude(sources);
        Box::new(compilation)
    }

    /// The stages, those first whose recomputation saves most for what it costs. None if the caller
    /// says which recompute, or the schedule, or if stages have parts.
    fn order(&self) -> Option<Vec<StageId>> {
        let files = files::load(&mut Sources::default(), self.root.clone(), self.loader).ok()?;
        let stages = stage_set(&files, &elaborate(&files, &self.request.choice).ok()?).ok()?;
        let unlimited = Request { memory: None, ..self.request.of_search() };
        let analysis = compile(&mut Sources::default(), self.root.clone(), self.loader, &unlimited).analysis?;
        let is_said = self.request.choice.recompute.is_some() || recomputing(&analysis.schedule).contains(&true);
        if is_said || !analysis.schedule.parts.is_empty() {
            return None;
        }
        let mut held = vec![0_u128; analysis.schedule.n_stages()];
        for (device, order) in analysis.schedule.orders.iter().enumerate() {
            for (position, Task { kind, stage, .. }) in order.iter().map(|scheduled| scheduled.task).enumerate() {
                let held = &mut held[stage.index()];
                match kind {
                    TaskKind::Forward => *held = held.wrapping_sub(analysis.timeline.starts[device][position].0.into()),
                    _ if analysis.order.dependencies.is_last(order[position].task) => {
                        *held = held.wrapping_add(analysis.timeline.ends[device][position].0.into());
                    }
                    _ => {}
                }
            }
        }
        let saved = |stage: StageId| {
            let is_saved = |kind| matches!(kind, ValueKind::SavedForInput | ValueKind::SavedForWeight);
            let own = stages.values.iter().filter(|value| value.stage == stage && is_saved(value.kind));
            own.fold(0_u64, |sum, value| sum.saturating_add(value.bytes.0))
                .saturating_mul(analysis.schedule.activations.of(stage).saved)
        };
        let worth = |stage: &StageId| {
            let cost = analysis.costs.of(TaskKind::Forward, *stage).0.max(1);
            Reverse(held[stage.index()].saturating_mul(saved(*stage).into()) / u128::from(cost))
        };
        let all = analysis.schedule.placement.stages();
        let mut order: Vec<StageId> = all.filter(|stage| analysis.schedule.frozen.has_backward(*stage)).collect();
        order.sort_by_key(worth);
        Some(order)
    }
}

/// The numbers of stages that are tried, from far apart to close together: the time may be over before the last one.
fn numbers(n_stages: usize) -> Vec<usize> {
    let tries = n_stages.min(TRIES);
    let mut steps: Vec<u32> = (1..).take(tries).collect();
    steps.sort_by_key(|step| Reverse(step.trailing_zeros()));
    steps.into_iter().map(|step| step as usize * n_stages / tries).collect()
}

/// How many pieces of work a first look does: orders that are known, forwards and backwards in
/// turn, schedules built task by task, and a few blocks.
const BATCHES: usize = 4;

/// Workers that have time for a first look only.
struct Glance<'a> {
    workers: &'a dyn Workers,
    batches: AtomicUsize,
    is_busy: AtomicBool,
}

impl Workers for Glance<'_> {
    fn go_on(&self) -> bool {
        let is_left = || self.batches.load(Ordering::Relaxed) < BATCHES;
        self.workers.go_on() && (self.is_busy.load(Ordering::Relaxed) || is_left())
    }

    fn each(&self, n: usize, work: &(dyn Fn(usize) + Sync)) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.is_busy.store(true, Ordering::Relaxed);
        self.workers.each(n, work);
        self.is_busy.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_stages_are_tried_from_far_apart_to_close_together() {
        assert_eq!(numbers(1), [1]);
        assert_eq!(numbers(4), [4, 2, 1, 3]);
        assert_eq!(numbers(8), [8, 4, 2, 6, 1, 3, 5, 7]);
        assert_eq!(numbers(16), [16, 8, 4, 12, 2, 6, 10, 14]);
    }
}
