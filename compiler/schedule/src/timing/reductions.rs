//! Reductions as data: where the gradients of replicated weights are added up over the devices that hold them.

use crate::order::Position;
use crate::timing::latency::Latency;
use crate::timing::timeline::Timeline;
use crate::units::Ticks;
use pipe_ir::ids::{DeviceId, StageId, ValueId};

/// The gradients of one group of weights, added up over its devices.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reduction {
    /// A value of the stage set.
    pub gradients: ValueId,
    /// The stage of that value.
    pub stage: StageId,
    /// The devices that hold the weights, ascending.
    pub members: Vec<Member>,
    /// When lanes begin to carry it, if they do.
    pub begins: Option<Ticks>,
    /// When all have the sum.
    pub end: Ticks,
    /// The task after which a member joins that the others wait for longest.
    pub last: Option<Position>,
}

/// A device's part of a reduction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// Which device.
    pub device: DeviceId,
    /// The task after which it joins, a position in its order; none where it joins as the step begins.
    pub after: Option<u32>,
}

impl Member {
    /// When it joins.
    pub fn joins(self, timeline: &Timeline) -> Ticks {
        self.after.map_or(Ticks::ZERO, |after| timeline.ends[self.device.index()][after as usize])
    }
}

impl Reduction {
    /// Ends when what the last member adds has come to all others.
    pub fn conclude(&mut self, timeline: &Timeline, latency: &Latency) {
        let all = || self.members.iter().map(|member| member.device);
        let ends = |member: &&Member| member.joins(timeline) + latency.of_sum(member.device, all());
        // Of several that the others wait for, the first device.
        let last = self.members.iter().rev().max_by_key(ends);
        let end = last.as_ref().map_or(Ticks::ZERO, ends);
        let last = last.and_then(|member| Some(Position { device: member.device, position: member.after? }));
        (self.end, self.last) = (end, last);
    }
}
