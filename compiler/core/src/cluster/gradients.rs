//! Gradients on a cluster: what follows the last backward of a step, before weights can change. And
//! weights, where devices keep shares of them.
//!
//! Devices with the same weights add up their gradients: those on which a stage lives, in all
//! pipelines side by side. Each device starts when its last task has ended, and what it exchanges
//! for several stages follows each other. A group waits for its last member.

use super::collective;
use super::durations::TimedTarget;
use pipe_ir::ids::{DeviceId, StageId};
use pipe_ir::units::Bytes;
use pipe_model::stage_set::WeightGroup;
use pipe_model::transformer::exchanges::{self, Collective};
use pipe_schedule::order::Position;
use pipe_schedule::timing::timeline::{Collected, Timeline, Together};
use pipe_schedule::units::Ticks;

/// What some devices exchange of one stage's gradients, or of weights that stages share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exchange {
    stage: Option<StageId>,
    devices: Vec<DeviceId>,
    start: Ticks,
    end: Ticks,
    /// The last task before it.
    after: Option<Position>,
}

impl Exchange {
    /// What each device does of it.
    pub fn parts(&self) -> impl Iterator<Item = Collected> {
        let Self { stage, start, end, .. } = *self;
        self.devices.iter().map(move |device| Collected {
            device: *device,
            what: Together::Sum,
            stage,
            lane: None,
            start,
            end,
        })
    }
}

/// When the last exchange ends, and the last task before it; none where nothing is exchanged, or
/// where steps do not flush.
pub fn exchanged(target: &TimedTarget<'_>, timeline: &Timeline) -> Option<(Ticks, Position)> {
    last_of(&exchanges(target, timeline))
}

/// The same of some exchanges.
pub fn last_of(exchanges: &[Exchange]) -> Option<(Ticks, Position)> {
    exchanges.iter().filter_map(|one| Some((one.end, one.after?))).max_by_key(|(end, _)| *end)
}

/// All of them, in the order in which devices come to them.
pub fn exchanges(target: &TimedTarget<'_>, timeline: &Timeline) -> Vec<Exchange> {
    if target.schedule.window.is_some() {
        return Vec::new();
    }
    let devices = (0..target.schedule.n_devices()).map(DeviceId::from_index);
    let mut free: Vec<Ticks> = devices.map(|device| timeline.last_end(device)).collect();
    let mut last: Vec<Option<Position>> =
        (0..free.len()).map(|device| slot(target, DeviceId::from_index(device))).collect();
    let mut found = Vec::new();
    for group in target.stages.weights.iter().filter(|group| group.update.is_some()) {
        let homes = homes(target, group);
        let time = time(target, group, &homes);
        let latest = homes.iter().copied().max_by_key(|home| free[home.index()]);
        let Some(latest) = latest.filter(|_| time > Ticks::ZERO) else { continue };
        let (start, after) = (free[latest.index()], last[latest.index()]);
        let end = start + time;
        homes.iter().for_each(|home| (free[home.index()], last[home.index()]) = (end, after));
        found.push(Exchange { stage: group.stages.first().copied(), devices: homes, start, end, after });
    }
    found
}

/// The last task of a device.
fn slot(target: &TimedTarget<'_>, device: DeviceId) -> Option<Position> {
    let position = target.schedule.orders[device.index()].len().checked_sub(1)?;
    Some(Position { device, position: u32::try_from(position).ok()? })
}

/// The devices that hold some weights.
fn homes(target: &TimedTarget<'_>, group: &WeightGroup) -> Vec<DeviceId> {
    let of = |stage: &StageId| target.schedule.placement.devices_of(*stage);
    let mut homes: Vec<DeviceId> = group.stages.iter().flat_map(of).copied().collect();
    homes.sort_unstable();
    homes.dedup();
    homes
}

fn time(target: &TimedTarget<'_>, group: &WeightGroup, homes: &[DeviceId]) -> Ticks {
    let account = |stage: &StageId| target.stages.accounts.get(stage.index()).map(|account| (*stage, account));
    let transformer = target.pipeline.transformer.as_ref();
    match (transformer, group.stages.first().and_then(account)) {
        (Some(transformer), Some((stage, account))) => {
            target.exchanged(stage, &exchanges::at_end(transformer, account))
        }
        _ => {
            let value = group.gradients.map(|gradients| &target.stages.values[gradients.index()]);
            let bytes = value.map_or(0, |value| u128::from(value.bytes.0));
            // Where weights are gathered before they are read, they are not gathered here.
            let is_gathered = target.pipeline.zero.parameters();
            let what = if is_gathered { Collective::ReduceScatter } else { Collective::AllReduce };
            collective::time(target.cluster, &target.layout.alike(homes, 0), what, bytes)
        }
    }
}

/// How long some devices take to gather weights of so many bytes that each has a share of.
pub fn gathered(target: &TimedTarget<'_>, members: &[DeviceId], bytes: Bytes) -> Ticks {
    collective::time(target.cluster, &target.layout.alike(members, 0), Collective::AllGather, bytes.0.into())
}
