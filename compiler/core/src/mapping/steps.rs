//! The order of nodes for a pipeline: what its step takes when nodes are filled so, as the report of that step has it.
//!
//! A schedule that asks to be reordered is reordered for every order of nodes, as `check` does it.
//! So what bounds orders that begin alike is the timeline of the one order of tasks where that is
//! fixed, and a bound for all orders of tasks ([`pipe_schedule::bounds`]) where it is not.

use super::{MappingResult, Objective, Options, best};
use crate::Request;
use crate::analyze::analyze;
use crate::cluster::Cluster;
use crate::cluster::durations::{TimedTarget, stage_costs, target};
use crate::elaborate::elaborate;
use crate::timing::Setting;
use pipe_lower::undivided;
use pipe_model::pipeline::Pipeline;
use pipe_schedule::bounds::lower_bound;
use pipe_schedule::check::check;
use pipe_schedule::check::memory::peaks;
use pipe_schedule::order::Order;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::timing::costs::StageCosts;
use pipe_schedule::timing::timeline::simulate;
use pipe_schedule::units::Ticks;
use pipe_syntax::files::{self, Loader};
use pipe_syntax::source::{Source, Sources};

/// A step whose nodes are to be ordered.
pub struct Steps<'a> {
    setting: Setting<'a>,
    order: &'a Order,
    target: TimedTarget<'a>,
    /// What the step takes on the cluster of a request.
    time: &'a dyn Fn(&Request) -> Ticks,
    /// What tasks take, where that does not depend on the order: nodes are alike inside, and tasks
    /// exchange nothing between them.
    tasks: Option<StageCosts>,
    /// What devices hold at most, in units, where tasks are ordered anew for each order of nodes.
    reordered_within: Option<Vec<u64>>,
    classes: Vec<u32>,
}

impl<'a> Steps<'a> {
    /// Those of a sound schedule, not reordered yet, whose step takes what `time` says for the
    /// cluster of a request; none without a cluster.
    pub fn new(
        setting: Setting<'a>,
        (schedule, order): (&'a Schedule, &'a Order),
        time: &'a dyn Fn(&Request) -> Ticks,
    ) -> Option<Self> {
        let target = target(setting.request, setting.pipeline, setting.stages, schedule)?;
        let tasks = is_inside(&target).then(|| target.tasks());
        let reordered_within = schedule.reorder.is_some().then(|| {
            let peaks = peaks(schedule, &order.dependencies);
            peaks.iter().map(|peak| peak.activations).collect()
        });
        let classes = classes(target.cluster);
        Some(Self { setting, order, target, time, tasks, reordered_within, classes })
    }
}

impl Objective for Steps<'_> {
    fn n_nodes(&self) -> usize {
        self.target.cluster.n_nodes() as usize
    }

    fn n_filled(&self) -> usize {
        usize::try_from(self.target.layout.n_nodes()).unwrap_or(usize::MAX)
    }

    fn first(&self) -> Vec<u32> {
        self.target.layout.nodes().to_vec()
    }

    fn time(&self, nodes: &[u32]) -> Ticks {
        let request = self.setting.request;
        let cluster = self.target.cluster.clone().filled(nodes.to_vec());
        (self.time)(&Request { cluster: Some(cluster), ..request.clone() })
    }

    /// Transfers that are not decided yet take no time, nor does the end of the step.
    fn least(&self, begun: &[u32]) -> Ticks {
        let Some(tasks) = &self.tasks else { return Ticks::ZERO };
        let known = u32::try_from(begun.len()).unwrap_or(u32::MAX);
        let layout = self.target.layout.clone().on_nodes(self.target.cluster, begun);
        let target = TimedTarget { layout, ..self.target.clone() };
        let schedule = self.target.schedule;
        let of = |way| {
            let costs = target.costs(self.setting.request, tasks.clone(), stage_costs(way));
            match &self.reordered_within {
                Some(peaks) => {
                    let held = (&schedule.activations, peaks.as_slice());
                    lower_bound(schedule, &self.order.dependencies, &costs, held).makespan
                }
                None => simulate(schedule, self.order, &costs).makespan(),
            }
        };
        target.ways(Some(known)).into_iter().map(of).max().unwrap_or_default()
    }

    fn class(&self, node: u32) -> u32 {
        self.classes[node as usize]
    }
}

/// Whether what tasks take is the same on whatever nodes.
fn is_inside(target: &TimedTarget<'_>) -> bool {
    let (tensor, per_node) = (target.layout.tensor, target.cluster.per_node);
    let settings = target.pipeline.transformer.as_ref().map(|transformer| &transformer.settings);
    let is_free = settings.is_none_or(|settings| settings.zero < 2 && settings.expert == 1);
    target.cluster.is_even_inside() && is_free && tensor <= per_node && per_node.is_multiple_of(tensor)
}

/// Of each node, the first one that it can change places with.
fn classes(cluster: &Cluster) -> Vec<u32> {
    let mut firsts: Vec<u32> = Vec::new();
    let first = |node: u32| match firsts.iter().copied().find(|first| cluster.are_alike(*first, node)) {
        Some(first) => first,
        None => {
            firsts.push(node);
            node
        }
    };
    (0..cluster.n_nodes()).map(first).collect()
}

/// The best order of the nodes for a target that is accepted without regard to its memory; none
/// where it has no cluster or is refused.
pub fn map(
    root: Source,
    loader: &Loader<'_>,
    request: &Request,
    options: Options,
    go_on: &mut dyn FnMut() -> bool,
) -> Option<MappingResult> {
    let files = files::load(&mut Sources::default(), root, loader).ok()?;
    let mut elaborated = elaborate(&files, &request.choice).ok()?;
    request.furnish(&mut elaborated);
    request.check(&elaborated).ok()?;
    let stages = pipe_model::stage_set(&files, &elaborated).ok()?;
    stages.tell(&mut elaborated.schedule);
    let order = check(&elaborated.schedule).ok()?;
    let pipeline = elaborated.pipeline.as_ref();
    let moves = |own: &Pipeline| own.may_offload || own.offload.any() || own.zero.parameters();
    // What copies and gatherings of weights take, only the program says.
    let has_program = undivided(&elaborated.schedule).is_none() && pipeline.is_some_and(moves);
    let time = |request: &Request| {
        if has_program {
            let mut analysis = analyze(&files, elaborated.clone(), order.clone(), &stages, request);
            analysis.carry_out(&stages, request);
            return analysis.timeline.makespan();
        }
        let setting = Setting { stages: &stages, pipeline, request };
        setting.timed(elaborated.schedule.clone(), order.clone()).timeline.makespan()
    };
    let setting = Setting { stages: &stages, pipeline, request };
    let steps = Steps::new(setting, (&elaborated.schedule, &order), &time)?;
    Some(best(&steps, options, go_on))
}
