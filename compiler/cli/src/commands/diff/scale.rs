//! Units: what one unit of a plan's costs is taken for, where it has no name.

use super::measured::Measured;
use pipe_compiler::analyze::Analysis;
use pipe_ir::ids::DeviceId;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::timing::durations::{Costs, Times};
use pipe_schedule::timing::latency::Latency;
use pipe_schedule::units::Ticks;
use std::sync::Arc;

/// Costs of a plan whose units have no name, and what one unit is taken for so that all tasks
/// together take as long as was measured, in nanoseconds.
pub(crate) fn scaled(schedule: &Schedule, costs: &Costs, measured: &Measured) -> (Costs, f64) {
    let (mut ran, mut planned) = (0_u128, 0_u128);
    for (device, order) in (0..).map(DeviceId).zip(&schedule.orders) {
        let mut position = 0;
        while position < order.len() {
            let node = schedule.node(device, position);
            planned += u128::from(costs.of_node(node).0);
            let (start, end) = measured.span(device, position..position + node.len());
            ran += u128::from(end - start);
            position += node.len();
        }
    }
    let (part, whole) = if planned == 0 { (1, 1) } else { (ran, planned) };
    let scale =
        |time: &Ticks| Ticks(u64::try_from((u128::from(time.0) * part + whole / 2) / whole).unwrap_or(u64::MAX));
    let tasks = costs.tasks.iter().map(|row| row.each_ref().map(scale)).collect();
    let scaled_each = |each: &Arc<[Times]>| each.iter().map(|row| row.each_ref().map(scale)).collect();
    let each = costs.each.iter().map(|each| each.as_ref().map(scaled_each)).collect();
    let pairs = costs.pairs.map(|pair| pair.as_ref().map(scale));
    let latency = scaled_latency(schedule, &costs.latency, &scale);
    let unit = Ticks::UNIT.0 as f64 * (part as f64 / whole as f64);
    let (copy, swaps) = (scale(&costs.copy), costs.swaps.each_ref().map(scale));
    (Costs { tasks, each, pairs, latency, copy, swaps, sharing: costs.sharing.clone() }, unit)
}

fn scaled_latency(schedule: &Schedule, latency: &Latency, scale: &dyn Fn(&Ticks) -> Ticks) -> Latency {
    let times: Vec<Ticks> = latency.times().map(scale).collect();
    let [rest @ .., usual] = &times[..] else { return Latency::default() };
    let sum = latency.sum().as_ref().map(scale);
    if rest.is_empty() {
        return Latency::uniform(*usual).with_sum(sum);
    }
    let devices = || (0..schedule.n_devices()).map(DeviceId::from_index);
    let pairs = devices().flat_map(|one| devices().filter(move |other| one < *other).map(move |other| (one, other)));
    let links = pairs.map(|(one, other)| (one, other, scale(&latency.between(one, other))));
    Latency::with_links(*usual, links).with_sum(sum)
}

/// Whether two compilations order the same tasks alike.
pub(crate) fn same_order(one: &Analysis, other: &Analysis) -> bool {
    let tasks = |analysis: &Analysis| -> Vec<Vec<_>> {
        analysis.schedule.orders.iter().map(|order| order.iter().map(|one| one.task).collect()).collect()
    };
    tasks(one) == tasks(other)
}
