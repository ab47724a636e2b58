//! What a report says about all numbers of microbatches.

use super::{time, units};
use crate::block_family::Numbers;
use crate::certificate::{Certified, VersionsCertified};
use pipe_schedule::block::weight_versions::Kept;
use pipe_schedule::check::memory::Certificate;
use serde::Serialize;

/// What holds for every number of microbatches.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CertificateReport {
    /// Microbatches until the same devices run the same tasks again.
    pub turn_microbatches: u64,
    /// Slots until then.
    pub turn_slots: Option<u64>,
    /// Time that one more microbatch takes in a long step, under the costs at hand.
    pub steady_period: Option<f64>,
    /// The share of that time in which the busiest device idles: the bubble in the limit of long steps.
    pub steady_bubble: Option<f64>,
    /// The share of that time in which devices idle, as a mean over all of them.
    pub steady_bubble_mean: Option<f64>,
    /// The links whose latencies make the steady period longer than the work of the busiest device,
    /// if any do: two devices each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steady_links: Vec<[u32; 2]>,
    /// What they add to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steady_links_add: Option<f64>,
    /// Whether peaks are reached; where `reorder` improves the block, they may be less.
    pub exact: bool,
    /// The most activation memory of any device.
    pub peak_activation: f64,
    /// Figures of a step that were not computed, because the certificate stands alone.
    pub not_computed: Vec<String>,
    /// Versions of the weights, where blocks run on across steps.
    pub weights: Option<WeightsCertificate>,
    /// What each device holds.
    pub per_device: Vec<DeviceCertificate>,
}

/// Versions of the weights, over all numbers of microbatches and steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct WeightsCertificate {
    /// `previous` or `newest`.
    pub mode: &'static str,
    /// Updates that are missing from what a task reads, at most: with the number of microbatches at hand.
    pub staleness_most: u64,
    /// The same with any number.
    pub staleness_most_of_all: u64,
}

/// What a device holds, over all numbers of microbatches.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct DeviceCertificate {
    /// Which.
    pub device: u32,
    /// The most activation memory.
    pub peak_activation: f64,
    /// The smallest number of microbatches that takes it.
    pub peak_from_microbatches: u64,
    /// Σ ceil(l / T).
    pub bound_activation: f64,
    /// Versions of its stages' weights that are kept, with the number of microbatches at hand; none where steps flush.
    pub versions: Option<u64>,
    /// The same with any number.
    pub versions_of_all: Option<u64>,
}

impl CertificateReport {
    /// The figures of a certificate.
    pub fn new(certified: &Certified) -> Self {
        let Certified { schedule, turn, devices, pace, numbers, n_microbatches, versions } = certified;
        let activations = |count: u64| units(schedule.units(count));
        let per_device = (0..).zip(devices).map(|(device, held)| DeviceCertificate {
            device,
            peak_activation: activations(held.exact),
            peak_from_microbatches: held.from,
            bound_activation: activations(held.bound),
            versions: versions.as_ref().map(|versions| versions.devices[device as usize].1),
            versions_of_all: versions.as_ref().map(|versions| versions.devices[device as usize].0),
        });
        // A block of one number of microbatches is not repeated further, so that it may not reach its own peak.
        let is_reached = |held: &Certificate| held.from <= u64::from(*n_microbatches);
        let is_one = matches!(numbers, Numbers::UpTo(_)) && versions.is_none();
        let of_turn = |pace: &pipe_schedule::block::throughput::Pace| time(pace.time) / pace.turns as f64;
        let idle = |pace: &pipe_schedule::block::throughput::Pace, work: f64| match of_turn(pace) {
            0.0 => 0.0,
            all => 1.0 - work / all,
        };
        let slow = pace.as_ref().filter(|pace| !pace.links.is_empty());
        Self {
            turn_microbatches: turn.microbatches,
            turn_slots: turn.period,
            steady_period: pace.as_ref().map(|pace| of_turn(pace) / turn.microbatches as f64),
            steady_bubble: pace.as_ref().map(|pace| idle(pace, time(pace.busiest))),
            steady_bubble_mean: pace.as_ref().map(|pace| {
                let sum = pace.work.iter().map(|work| time(*work)).sum::<f64>();
                idle(pace, sum / pace.work.len().max(1) as f64)
            }),
            steady_links: slow.iter().flat_map(|pace| &pace.links).map(|(one, other)| [one.0, other.0]).collect(),
            steady_links_add: slow.map(|pace| (of_turn(pace) - time(pace.busiest)) / turn.microbatches as f64),
            exact: schedule.reorder.is_none() && (!is_one || devices.iter().all(is_reached)),
            peak_activation: activations(devices.iter().map(|held| held.exact).max().unwrap_or_default()),
            not_computed: Vec::new(),
            weights: versions.as_ref().map(WeightsCertificate::new),
            per_device: per_device.collect(),
        }
    }
}

impl WeightsCertificate {
    fn new(versions: &VersionsCertified) -> Self {
        let most = |kept: &[Kept]| kept.iter().map(|kept| kept.most_behind).max().unwrap_or_default();
        Self {
            mode: versions.weights.word(),
            staleness_most: most(&versions.given),
            staleness_most_of_all: most(&versions.most),
        }
    }
}
