//! The order of nodes for a pipeline: what its step takes, by the timeline, when nodes are filled so.

use super::{Found, Objective, Options, best};
use crate::check::check;
use crate::check::dependencies::Order;
use crate::cluster::durations::{Target, stage_costs, target};
use crate::cluster::{Cluster, gradients};
use crate::elaborate::elaborate;
use crate::files::{self, Loader};
use crate::judge::{Judged, judge};
use crate::model::stage_set::StageSet;
use crate::pipeline::Pipeline;
use crate::pipeline::StageCosts;
use crate::schedule::Schedule;
use crate::source::{Source, Sources};
use crate::timeline::place;
use crate::units::Ticks;
use crate::{Request, model};

/// A step whose nodes are to be ordered.
pub struct Steps<'a> {
    request: &'a Request,
    order: &'a Order,
    target: Target<'a>,
    /// What tasks take, where that does not depend on the order: nodes are alike inside, and tasks exchange nothing between them.
    tasks: Option<StageCosts>,
    classes: Vec<u32>,
}

impl<'a> Steps<'a> {
    /// Those of a target that was judged; none without a cluster.
    #[must_use]
    pub fn new(request: &'a Request, judged: &'a Judged, stages: &'a StageSet) -> Option<Self> {
        Self::of(request, judged.pipeline.as_ref(), (&judged.schedule, &judged.order), stages)
    }

    /// Those of a sound schedule; none without a cluster.
    pub(crate) fn of(
        request: &'a Request,
        pipeline: Option<&'a Pipeline>,
        (schedule, order): (&'a Schedule, &'a Order),
        stages: &'a StageSet,
    ) -> Option<Self> {
        let target = target(request, pipeline, stages, schedule)?;
        let tasks = is_inside(&target).then(|| target.tasks());
        let classes = classes(target.cluster);
        Some(Self { request, order, target, tasks, classes })
    }

    fn on(&self, nodes: &[u32]) -> Target<'a> {
        let layout = self.target.layout.clone().on_nodes(self.target.cluster, nodes);
        Target { layout, ..self.target.clone() }
    }

    /// The step of the slowest pipeline, where only the links between so many nodes count, or all.
    fn timed(&self, target: &Target<'_>, known: Option<u32>) -> Ticks {
        let (schedule, order) = (self.target.schedule, self.order);
        let tasks = self.tasks.clone().unwrap_or_else(|| target.tasks());
        let of = |way| {
            let costs = target.costs(self.request, tasks.clone(), stage_costs(way));
            let mut timeline = place(schedule, order, &costs);
            if known.is_none() {
                timeline.exchange(gradients::exchanged(target, &timeline));
            }
            timeline.makespan()
        };
        target.ways(known).into_iter().map(of).max().unwrap_or_default()
    }
}

impl Objective for Steps<'_> {
    fn n_nodes(&self) -> usize {
        self.target.cluster.n_nodes() as usize
    }

    fn n_filled(&self) -> usize {
        usize::try_from(self.target.layout.n_nodes()).unwrap_or(usize::MAX)
    }

    fn time(&self, nodes: &[u32]) -> Ticks {
        self.timed(&self.on(nodes), None)
    }

    /// Transfers that are not decided yet take no time, nor does the end of the step.
    fn least(&self, begun: &[u32]) -> Ticks {
        if self.tasks.is_none() {
            return Ticks::ZERO;
        }
        let known = u32::try_from(begun.len()).unwrap_or(u32::MAX);
        self.timed(&self.on(begun), Some(known))
    }

    fn class(&self, node: u32) -> u32 {
        self.classes[node as usize]
    }
}

/// Whether what tasks take is the same on whatever nodes.
fn is_inside(target: &Target<'_>) -> bool {
    let (tensor, per_node) = (target.layout.tensor, target.cluster.per_node());
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

/// The best order of the nodes for a target that is accepted without regard to its memory; none where it has no cluster or is refused.
#[must_use]
pub fn map(
    root: Source,
    loader: &Loader<'_>,
    request: &Request,
    options: Options,
    go_on: &mut dyn FnMut() -> bool,
) -> Option<Found> {
    let files = files::load(&mut Sources::default(), root, loader).ok()?;
    let mut elaborated = elaborate(&files, &request.choice).ok()?;
    request.check(&elaborated).ok()?;
    let stages = model::stage_set(&files, &elaborated).ok()?;
    stages.tell(&mut elaborated.schedule);
    let order = check(&elaborated.schedule).ok()?;
    let judged = judge(&files, elaborated, order, &stages, request);
    Some(best(&Steps::new(request, &judged, &stages)?, options, go_on))
}
