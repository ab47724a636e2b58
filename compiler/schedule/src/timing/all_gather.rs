//! Gatherings of weights while tasks run: who has joined which of them when, and when it ends.

use crate::order::Position;
use crate::timing::latency::Latency;
use crate::units::Ticks;
use pipe_ir::ids::{DeviceId, GroupId};
use pipe_ir::program::Program;
use pipe_ir::units::Bytes;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A gathering: the group, and how many it has before.
pub type Which = (GroupId, u32);

/// A member that has joined one.
struct Joined {
    device: DeviceId,
    at: Ticks,
    /// The task that it did last; none before the first one.
    after: Option<Position>,
}

/// How long devices take to gather so many bytes, where machines say that.
pub type Takes<'a> = dyn Fn(&[DeviceId], Bytes) -> Ticks + 'a;

/// The gatherings of a step, as far as devices have come.
pub struct Gatherings<'a> {
    program: &'a Program,
    latency: &'a Latency,
    takes: &'a Takes<'a>,
    joined: BTreeMap<Which, Vec<Joined>>,
}

impl<'a> Gatherings<'a> {
    /// The gatherings of a program, each of which takes what `takes` says.
    pub const fn new(program: &'a Program, latency: &'a Latency, takes: &'a Takes<'a>) -> Self {
        Self { program, latency, takes, joined: BTreeMap::new() }
    }

    /// A device joins one, behind a task.
    pub fn join(&mut self, which: Which, (device, after): (DeviceId, Option<Position>), at: Ticks) {
        self.joined.entry(which).or_default().push(Joined { device, at, after });
    }

    /// When a device joined one.
    pub fn joined(&self, which: Which, device: DeviceId) -> Option<Ticks> {
        self.joined.get(&which)?.iter().find(|one| one.device == device).map(|one| one.at)
    }

    /// When one of so many bytes ends, which is when what the last member has is with all others,
    /// and that member's task before it; none while members are missing.
    pub fn end(&self, which: Which, bytes: Bytes) -> Option<(Ticks, Option<Position>)> {
        let members = self.program.group(which.0);
        let joined = self.joined.get(&which).filter(|joined| joined.len() == members.len())?;
        let takes = (self.takes)(members, bytes);
        let ends = joined.iter().map(|one| {
            let end = one.at + self.latency.farthest(one.device, members.iter().copied()).max(takes);
            (end, Reverse(one.device), one.after)
        });
        ends.max_by_key(|(end, device, _)| (*end, *device)).map(|(end, _, after)| (end, after))
    }
}
