//! The sum of the squares of all gradients: begun in each step, added to by one device for the gradients of each
//! update, then added up by the members of each device, then by all devices. Updates read what comes of that.

use super::{Contents, Sum};
use crate::ids::{BufferId, GroupId, ValueId};
use crate::program::Exec;
use std::collections::BTreeSet;

/// How far the sum is on a device.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// From the step before.
    #[default]
    Stale,
    /// Zero, and what this device added.
    Begun,
    /// The same of all its members.
    Exchanged,
    /// Of all devices; or of this one, where there is one, and an update has read it.
    Whole,
    /// Anything: an error was reported already.
    Unknown,
}

/// The sum on a device.
#[derive(Default)]
pub(super) struct Norm {
    state: State,
    /// Gradients whose squares are in it: these may not change any more.
    counted: BTreeSet<ValueId>,
}

impl Contents<'_> {
    /// The sum begins.
    pub(super) fn begin_norm(&mut self) -> Result<(), String> {
        match std::mem::replace(&mut self.norm.state, State::Begun) {
            State::Stale | State::Unknown => Ok(()),
            State::Begun | State::Exchanged | State::Whole => Err("drops squares of this step".to_owned()),
        }
    }

    /// Squares of gradients are read: these are final.
    pub(super) fn count(&mut self, exec: &Exec, value: ValueId, buffer: BufferId) -> Result<(), String> {
        self.norm.counted.insert(value);
        let (sum, home) = self.sums.get(&value).copied().unwrap_or_default();
        let name = &self.program.value(value).name;
        if home != Some(buffer) {
            return Err(format!("`{name}` of this step is not in {buffer}"));
        }
        match sum {
            Sum::Stale => Err(format!("`{name}` was not filled with zeros in this step")),
            Sum::Zeroed | Sum::Added => match self.holders.shared(value) {
                Some(others) => Err(format!("`{name}` is held by {others} devices, but was not reduced before")),
                None => Ok(()),
            },
            Sum::Scattered(group) if exec.chunk.and_then(|chunk| chunk.group) != Some(group) => {
                Err(format!("only the share of {} in `{name}` was reduced before", self.device))
            }
            Sum::Reduced | Sum::Scattered(_) => Ok(()),
            Sum::Upto(_) => Err(format!("`{name}` travels, and has no norm")),
        }
    }

    /// Whether squares of gradients are in the sum.
    pub(super) fn is_counted(&self, value: ValueId) -> bool {
        self.norm.counted.contains(&value)
    }

    /// Squares are added to the sum.
    pub(super) fn add_squares(&mut self) -> Result<(), String> {
        let message = match self.norm.state {
            State::Begun | State::Unknown => return Ok(()),
            State::Stale => "the sum of squares was not filled with zeros in this step",
            State::Exchanged | State::Whole => "the sum of squares is whole already",
        };
        self.norm.state = State::Unknown;
        Err(message.to_owned())
    }

    /// The members of the device, or all devices, add up their sums.
    pub(super) fn reduce_norm(&mut self, group: GroupId) -> Result<(), String> {
        let has_members = self.program.members > 1;
        let by_members = has_members && self.program.group(group).len() == 1;
        let (expected, next) = match (by_members, has_members) {
            (true, _) => (State::Begun, State::Exchanged),
            (false, true) => (State::Exchanged, State::Whole),
            (false, false) => (State::Begun, State::Whole),
        };
        if self.norm.state == State::Unknown || std::mem::replace(&mut self.norm.state, next) == expected {
            return Ok(());
        }
        self.norm.state = State::Unknown;
        Err("sums of squares are added up once, by the members of each device and then by all devices".to_owned())
    }

    /// An update reads the sum.
    pub(super) fn read_norm(&mut self, value: ValueId) -> Result<(), String> {
        let is_alone = self.holders.shared(value).is_none();
        let is_whole = match self.norm.state {
            State::Stale => false,
            State::Begun => is_alone && self.program.members < 2,
            State::Exchanged => is_alone,
            State::Whole | State::Unknown => true,
        };
        self.norm.state = if is_whole { State::Whole } else { State::Unknown };
        if is_whole { Ok(()) } else { Err("the sum of squares of all gradients is not known before".to_owned()) }
    }
}
