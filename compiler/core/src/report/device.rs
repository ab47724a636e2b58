//! What a report says of one device.

use crate::report::costs::stage_costs::HoldReport;
use crate::report::lanes::LaneReport;
use serde::Serialize;

/// Figures of one device.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct DeviceReport {
    /// Which.
    pub device: u32,
    /// When its first task starts.
    pub first_start: Option<f64>,
    /// When its last task ends.
    pub last_end: Option<f64>,
    /// Time in tasks.
    pub busy: Option<f64>,
    /// The most activation memory, exact.
    pub peak_activation: Option<f64>,
    /// Of that, what it keeps for activations that others evict, where they do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved_activation: Option<f64>,
    /// Σ ceil(l / T), where the schedule has a period.
    pub bound_activation: Option<f64>,
    /// The most activation memory that it may hold, where that was said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_activation: Option<f64>,
    /// The most bytes of activations alive, what waits for `W` included, where a model is bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_activation_bytes: Option<u64>,
    /// The most bytes alive, where a model is bound.
    pub peak_bytes: Option<u64>,
    /// What the device has, where the pipeline says so.
    pub limit_bytes: Option<u64>,
    /// The most bytes alive in the memory of its host, where any are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_peak_bytes: Option<u64>,
    /// What it may use of that, where the pipeline says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_limit_bytes: Option<u64>,
    /// What it does on lanes, where there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lanes: Vec<LaneReport>,
    /// What is alive when most bytes are, the largest first, where the model is a `config.json`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<HoldReport>,
}
