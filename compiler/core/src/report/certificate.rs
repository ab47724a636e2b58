//! What a report says about all numbers of microbatches.

use super::{time, units};
use crate::certificate::Certified;
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
    /// Whether peaks are reached; where `reorder` improves the block, they may be less.
    pub exact: bool,
    /// The most activation memory of any device.
    pub peak_activation: f64,
    /// Figures of a step that were not computed, because the certificate stands alone.
    pub not_computed: Vec<&'static str>,
    /// What each device holds.
    pub per_device: Vec<DeviceCertificate>,
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
}

impl CertificateReport {
    /// The figures of a certificate.
    #[must_use]
    pub fn new(certified: &Certified) -> Self {
        let Certified { schedule, turn, devices, pace } = certified;
        let activations = |count: u64| units(schedule.units(count));
        let per_device = (0..).zip(devices).map(|(device, held)| DeviceCertificate {
            device,
            peak_activation: activations(held.exact),
            peak_from_microbatches: held.from,
            bound_activation: activations(held.bound),
        });
        let of_turn = |pace: &crate::pace::Pace| time(pace.time) / pace.turns as f64;
        Self {
            turn_microbatches: turn.microbatches,
            turn_slots: turn.period,
            steady_period: pace.as_ref().map(|pace| of_turn(pace) / turn.microbatches as f64),
            steady_bubble: pace.as_ref().map(|pace| match of_turn(pace) {
                0.0 => 0.0,
                all => 1.0 - time(pace.busiest) / all,
            }),
            exact: schedule.reorder.is_none(),
            peak_activation: activations(devices.iter().map(|held| held.exact).max().unwrap_or_default()),
            not_computed: Vec::new(),
            per_device: per_device.collect(),
        }
    }
}
