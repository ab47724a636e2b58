//! Standard schedules written out for so many devices and microbatches, and checked. Small ones are
//! kept: many candidates share them.

use super::candidate::Layout;
use super::families::Variant;
use super::problem::Problem;
use super::trained::{self, Trained};
use pipe_compiler::Request;
use pipe_compiler::cluster::DeviceSlot;
use pipe_compiler::elaborate::{self, elaborate};
use pipe_model::pipeline::Pipeline;
use pipe_model::stage_set::StageSet;
use pipe_model::{Kinds, transformer};
use pipe_schedule::check::check;
use pipe_schedule::order::Order;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::units::Ticks;
use pipe_syntax::diagnostic::{Code, Diagnostics};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A schedule with the evidence that it runs to its end.
#[derive(Debug)]
pub(super) struct Sound {
    pub schedule: Schedule,
    pub order: Order,
}

/// Name and parameters of a schedule, devices and microbatches.
type Key = (Variant, u64, u64);

/// What is asked of all candidates, and the schedules that were written out.
#[derive(Debug)]
pub(super) struct Instance {
    /// With the cluster, or, where the order of its nodes is free, with one on which no order is slower.
    pub request: Request,
    /// Whether all links between nodes are alike.
    pub are_nodes_alike: bool,
    kept: Mutex<BTreeMap<Key, Result<Arc<Sound>, String>>>,
    /// By rows of a microbatch: what it takes at least, of a target that trains.
    work: Mutex<BTreeMap<u64, Ticks>>,
}

impl Instance {
    pub(super) fn new(problem: &Problem) -> Self {
        let cluster = &problem.cluster;
        let firsts = || (0..cluster.n_nodes()).map(|node| DeviceSlot(node * cluster.per_node));
        let mut links =
            firsts().flat_map(|from| firsts().filter(move |to| *to != from).map(move |to| cluster.link(from, to)));
        // Where one link is said for all, there is nothing to compare, however many nodes there are.
        let are_nodes_alike = cluster.is_even() || links.next().is_none_or(|first| links.all(|link| link == first));
        let cluster = if problem.is_order_free() { cluster.at_best() } else { cluster.clone() };
        let request = Request { cluster: Some(cluster), ..problem.request.clone() };
        Self { request, are_nodes_alike, kept: Mutex::default(), work: Mutex::default() }
    }

    /// What a microbatch of so many rows takes at least on all devices together, of a target that trains.
    pub(super) fn work(&self, problem: &Problem, trained: &Trained, layout: Layout) -> Ticks {
        let known = self.work.lock().unwrap_or_else(PoisonError::into_inner).get(&layout.rows).copied();
        known.unwrap_or_else(|| {
            let found = trained::work((problem, trained), &self.request, layout);
            self.work.lock().unwrap_or_else(PoisonError::into_inner).insert(layout.rows, found);
            found
        })
    }

    /// A small schedule, written out once. An error says why there is none.
    pub(super) fn sketch(
        &self,
        problem: &Problem,
        variant: &Variant,
        devices: u64,
        microbatches: u64,
    ) -> Result<Arc<Sound>, String> {
        let key = (variant.clone(), devices, microbatches);
        let known = self.kept.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if let Some(known) = known {
            return known;
        }
        let found = self.write(problem, variant, devices, microbatches).map(Arc::new);
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).insert(key, found.clone());
        found
    }

    /// A schedule. An error says why there is none.
    pub(super) fn write(
        &self,
        problem: &Problem,
        variant: &Variant,
        devices: u64,
        microbatches: u64,
    ) -> Result<Sound, String> {
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let sizes = [("devices", devices), ("microbatches", microbatches)];
        let settings =
            sizes.iter().chain(&variant.parameters).map(|(name, value)| ((*name).to_owned(), number(*value)));
        let schedule = Some(variant.name.to_owned());
        let choice = elaborate::Request { schedule, settings: settings.collect(), ..elaborate::Request::default() };
        let schedule = elaborate(&problem.files, &choice).map_err(|found| required(problem, found))?.schedule;
        let order = check(&schedule).map_err(first)?;
        Ok(Sound { schedule, order })
    }

    /// What the stages of a pipeline take under a schedule. An error says why it has none.
    pub(super) fn stages(&self, pipeline: &Pipeline, schedule: &Schedule) -> Result<StageSet, String> {
        let transformer = pipeline.transformer.as_ref().ok_or("no model")?;
        transformer::stage_set(transformer, schedule, &Kinds::of_schedule(schedule)).map_err(first)
    }
}

/// What a standard schedule requires of its sizes, in its own words, or the first of several reasons.
fn required(problem: &Problem, found: Diagnostics) -> String {
    let condition = found.first().filter(|first| first.code == Code::ConditionFailed).and_then(|first| {
        let span = first.labels.first()?.span;
        problem.sources.get(span.file).text.get(span.start as usize..span.end as usize)
    });
    condition.map_or_else(|| first(found.clone()), |condition| format!("`{}` does not hold", condition.trim()))
}

/// The first of several reasons.
pub(super) fn first(found: Diagnostics) -> String {
    found.into_iter().next().map(|first| first.message).unwrap_or_default()
}
