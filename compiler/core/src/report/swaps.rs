//! Swaps in the report: where activations wait, how many at once, and what that costs.

use super::time;
use crate::analyze::Analysis;
use pipe_ir::ids::DeviceId;
use pipe_schedule::swaps::places::{Places, Reserve};
use pipe_schedule::swaps::{Home, SwapKind};
use pipe_schedule::timing::swaps::cost;
use pipe_schedule::units::{Ticks, Units};
use serde::Serialize;

/// What a device evicts and fetches.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SwapReport {
    /// The device.
    pub device: u32,
    /// How many activations leave in a step; as many come back.
    pub evicts: usize,
    /// Where they wait.
    pub places: Vec<PlacesReport>,
    /// Time in copies out, by the cost of `evict`.
    pub evict_time: f64,
    /// Time in copies back, by the cost of `fetch`.
    pub fetch_time: f64,
    /// Time that the device waits for them, while its inputs have arrived.
    pub waited: f64,
}

/// Places that a device or a host keeps for the activations of a device, all step long.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PlacesReport {
    /// The device, or `host`.
    pub home: String,
    /// How many: as many as ever wait there at once.
    pub places: u64,
    /// What they hold together, in units of activations.
    pub units: f64,
}

impl SwapReport {
    /// One for each device that evicts something.
    pub fn all(analysis: &Analysis) -> Vec<Self> {
        let Analysis { schedule, order, costs, .. } = analysis;
        if schedule.swaps.is_empty() {
            return Vec::new();
        }
        let places = Places::of(schedule);
        let devices = (0..schedule.n_devices()).map(DeviceId::from_index).zip(cost(schedule, order, costs));
        let evicting = devices.filter(|(device, _)| !schedule.swaps.of(*device).is_empty());
        let of_device = |(device, cost): (DeviceId, pipe_schedule::timing::copies::Cost)| {
            let [fetch, evict] = cost.copying.map(|sum| time(Ticks(sum)));
            let own = places.reserves.iter().filter(|one| one.from == device);
            let report = |one: &Reserve| PlacesReport {
                home: match one.home {
                    Home::Host => "host".to_owned(),
                    Home::Peer(peer) => peer.to_string(),
                },
                places: one.places,
                units: units(schedule.units(one.places.saturating_mul(one.each))),
            };
            Self {
                device: device.0,
                evicts: schedule.swaps.of(device).iter().filter(|swap| swap.kind == SwapKind::Evict).count(),
                places: own.map(report).collect(),
                evict_time: evict,
                fetch_time: fetch,
                waited: time(Ticks(cost.waited)),
            }
        };
        evicting.map(of_device).collect()
    }
}

fn units(units: Units) -> f64 {
    units.0 as f64 / Units::UNIT.0 as f64
}
