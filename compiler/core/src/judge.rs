//! Judgement: when a sound schedule runs, how much it holds, how good it is, and whether that is allowed.

use crate::bounds::{Bound, lower_bound};
use crate::check::dependencies::Order;
use crate::check::memory::{Certificate, Peak, certificates, peaks};
use crate::check::{memory, requirements};
use crate::costs::of_stages;
use crate::critical_path::{CriticalPath, critical_path};
use crate::diagnostic::Diagnostics;
use crate::elaborate::Elaborated;
use crate::pipeline::{Pipeline, StageCosts};
use crate::reorder::reorder;
use crate::schedule::{Costs, Schedule};
use crate::timeline::{Timeline, place};
use crate::units::Units;

/// A schedule that runs to its end, with its times.
#[derive(Clone, PartialEq, Debug)]
pub struct Judged {
    /// What is done, where, in which order.
    pub schedule: Schedule,
    /// The pipeline that binds it, if one does.
    pub pipeline: Option<Pipeline>,
    /// Evidence that nothing waits forever.
    pub order: Order,
    /// What the times follow from.
    pub costs: Costs,
    /// When.
    pub timeline: Timeline,
    /// What each device holds at most.
    pub peaks: Vec<Peak>,
    /// The same for every number of microbatches, if it is a building block.
    pub certificates: Option<Vec<Certificate>>,
    /// How short a schedule could be.
    pub bound: Bound,
    /// What makes this one longer.
    pub critical_path: CriticalPath,
}

/// Times a schedule, reordered where it asks for it, and measures what follows. The request's costs come before the
/// pipeline's.
#[must_use]
pub fn judge(elaborated: Elaborated, order: Order, costs: Option<StageCosts>) -> Judged {
    let Elaborated { schedule, pipeline, .. } = elaborated;
    let costs = costs.or(pipeline.as_ref().and_then(|pipeline| pipeline.costs)).unwrap_or_default();
    let costs = of_stages(&costs, schedule.n_stages());
    let (schedule, order) =
        if schedule.reorder.is_some() { reorder(schedule, order, &costs) } else { (schedule, order) };
    let timeline = place(&schedule, &order, &costs);
    let peaks = peaks(&schedule, &order.dependencies);
    let most = peaks.iter().map(|peak| peak.activations).max().unwrap_or_default();
    Judged {
        certificates: certificates(&schedule),
        bound: lower_bound(&schedule, &order.dependencies, &costs, most),
        critical_path: critical_path(&schedule, &order, &costs, &timeline),
        schedule,
        pipeline,
        order,
        costs,
        timeline,
        peaks,
    }
}

/// Compares what a schedule holds and how long it idles with what is allowed.
///
/// # Errors
/// Every limit and requirement that is broken.
pub fn limits(judged: &Judged, memory: Option<Units>) -> Result<(), Diagnostics> {
    let Judged { schedule, pipeline, peaks, timeline, .. } = judged;
    let too_much = memory.map_or(Ok(()), |limit| memory::check(schedule, peaks, limit)).err();
    let required = pipeline.as_ref().map_or(&[][..], |pipeline| &pipeline.requirements);
    let broken = requirements::check(required, schedule, peaks, timeline).err();
    let found: Diagnostics = too_much.into_iter().chain(broken).flatten().collect();
    if found.is_empty() { Ok(()) } else { Err(found) }
}

impl Judged {
    /// Whether the verdict does not depend on the number of microbatches: the checks of a building block hold for all of
    /// them, and so does its exact count of activations.
    #[must_use]
    pub fn is_valid_for_all_microbatches(&self, memory: Option<Units>) -> bool {
        let (stages, devices) = (self.schedule.n_stages(), self.schedule.n_devices());
        let allowed = memory.map_or(u64::MAX, |limit| limit.to_stages(stages, devices));
        let fits = |certificates: &Vec<Certificate>| certificates.iter().all(|one| one.exact <= allowed);
        self.certificates.as_ref().is_some_and(fits)
    }
}
