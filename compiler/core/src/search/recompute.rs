//! Recomputation in the search: stages recompute where nothing fits in the memory without, or, if that is wanted, where it makes the step
//! shorter.
//!
//! Stages that hold much for long, and are recomputed cheaply, come first: by the bytes that they save (all the same without a model), times how
//! long they hold them in the target's own order, per duration of a forward. Only the first so many of them are tried.

use super::find::{Prepared, prepare};
use super::{Objective, Options, Workers};
use crate::diagnostic::Code;
use crate::elaborate::elaborate;
use crate::files::{self, Loader};
use crate::model::stage_set;
use crate::recompute::{Recomputation, recomputing};
use crate::source::{Source, Sources};
use crate::{Certificates, Compilation, Request, compile};
use pipe_ir::ids::StageId;
use pipe_ir::task::{Task, TaskKind};
use pipe_ir::value::ValueKind;
use std::cmp::Reverse;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Numbers of stages that are tried at most.
const TRIES: usize = 8;

/// A target, and how it is to be searched.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// Its text.
    pub root: &'a Source,
    /// Where imports come from.
    pub loader: &'a Loader<'a>,
    /// What is asked of it.
    pub request: &'a Request,
    /// What is to be short.
    pub objective: Objective,
}

impl Target<'_> {
    /// The target where these stages recompute.
    fn with(&self, sources: &mut Sources, stages: &[StageId]) -> Result<Prepared, Box<Compilation>> {
        let mut request = self.request.clone();
        if !stages.is_empty() {
            let ranges = stages.iter().map(|stage| stage.0..stage.0 + 1);
            request.choice.recompute = Some(Recomputation::Stages(ranges.collect()));
        }
        prepare(sources, self.root.clone(), self.loader, &request, self.objective)
    }

    /// Prepares the search. Where not even one microbatch fits in the memory, as few stages recompute as it takes.
    ///
    /// # Errors
    /// The compilation, with what speaks against it also if all stages recompute.
    pub fn prepare(&self, sources: &mut Sources) -> Result<Prepared, Box<Compilation>> {
        let refused = match self.with(sources, &[]) {
            Ok(prepared) => return Ok(prepared),
            Err(compilation) => compilation,
        };
        let is_full = refused.diagnostics.iter().any(|found| found.code == Code::MemoryExceeded);
        let order = if is_full { self.order() } else { None };
        let Some(order) = order else { return Err(refused) };
        let mut found = self.with(sources, &order)?;
        // Whatever fits, fits as well if more stages recompute.
        let (mut low, mut high) = (1, order.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.with(&mut Sources::default(), &order[..middle]) {
                Ok(prepared) => (high, found) = (middle, prepared),
                Err(_) => low = middle + 1,
            }
        }
        Ok(found)
    }

    /// The same target where stages recompute, if a first look finds something shorter than without.
    #[must_use]
    pub fn shorter(&self, prepared: Prepared, options: Options, workers: &dyn Workers) -> Prepared {
        let look = |prepared: &Prepared| {
            let glance = Glance { workers, batches: AtomicUsize::new(0), is_busy: AtomicBool::new(false) };
            let found = prepared.search(Options { rounds: 0, ..options }, &glance, &mut |_| ());
            found.map(|found| prepared.problem.ticks(found.length))
        };
        let Some(order) = self.order().filter(|_| !recomputing(&prepared.problem.schedule).contains(&true)) else {
            return prepared;
        };
        let (mut best, mut length) = (prepared.clone(), look(&prepared));
        for number in numbers(order.len()) {
            let Ok(other) = self.with(&mut Sources::default(), &order[..number]) else { continue };
            let found = if workers.go_on() { look(&other) } else { None };
            let is_shorter = |found| length.is_none_or(|length| found < length);
            let is_as_short_with_less = |found| length == Some(found) && number < count(&best);
            if found.is_some_and(|found| is_shorter(found) || is_as_short_with_less(found)) {
                (best, length) = (other, found);
            }
        }
        best
    }

    /// The stages, those first whose recomputation saves most for what it costs. None if the caller says which recompute, or the schedule.
    fn order(&self) -> Option<Vec<StageId>> {
        let files = files::load(&mut Sources::default(), self.root.clone(), self.loader).ok()?;
        let stages = stage_set(&files, &elaborate(&files, &self.request.choice).ok()?).ok()?;
        let unlimited = Request { memory: None, certificate: Certificates::Beside, ..self.request.clone() };
        let judged = compile(&mut Sources::default(), self.root.clone(), self.loader, &unlimited).judged?;
        if self.request.choice.recompute.is_some() || recomputing(&judged.schedule).contains(&true) {
            return None;
        }
        let mut held = vec![0_u128; judged.schedule.n_stages()];
        for (device, order) in judged.schedule.orders.iter().enumerate() {
            for (position, Task { kind, stage, .. }) in order.iter().map(|scheduled| scheduled.task).enumerate() {
                let held = &mut held[stage.index()];
                match kind {
                    TaskKind::Forward => *held = held.wrapping_sub(judged.timeline.starts[device][position].0.into()),
                    _ if judged.order.dependencies.is_last(order[position].task) => {
                        *held = held.wrapping_add(judged.timeline.ends[device][position].0.into());
                    }
                    _ => {}
                }
            }
        }
        let saved = |stage: StageId| {
            let is_saved = |kind| matches!(kind, ValueKind::SavedForInput | ValueKind::SavedForWeight);
            let own = stages.values.iter().filter(|value| value.stage == stage && is_saved(value.kind));
            own.fold(0_u64, |sum, value| sum.saturating_add(value.bytes.0))
                .saturating_mul(judged.schedule.activations.of(stage).saved)
        };
        let worth = |stage: &StageId| {
            let cost = judged.costs.of(TaskKind::Forward, *stage).0.max(1);
            Reverse(held[stage.index()].saturating_mul(saved(*stage).into()) / u128::from(cost))
        };
        let mut order: Vec<StageId> = judged.schedule.placement.stages().collect();
        order.sort_by_key(worth);
        Some(order)
    }
}

/// How many stages of a prepared target recompute.
fn count(prepared: &Prepared) -> usize {
    recomputing(&prepared.problem.schedule).into_iter().filter(|recomputes| *recomputes).count()
}

/// The numbers of stages that are tried, from far apart to close together: the time may be over before the last one.
fn numbers(n_stages: usize) -> Vec<usize> {
    let tries = n_stages.min(TRIES);
    let mut steps: Vec<u32> = (1..).take(tries).collect();
    steps.sort_by_key(|step| Reverse(step.trailing_zeros()));
    steps.into_iter().map(|step| step as usize * n_stages / tries).collect()
}

/// How many pieces of work a first look does: orders that are known, schedules built task by task, and a few blocks.
const BATCHES: usize = 3;

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
