//! Rates: how fast a device computes, in floating-point operations a second.
//!
//! A `cluster.toml` has one figure for all tasks. A profile has one for each kind: all operations
//! of the kind, over all stages, by all of their time
//! ([`Profile::rates`](crate::profile::Profile::rates)).

use super::ticks;
use pipe_ir::task::TaskKind;
use pipe_schedule::units::Ticks;

/// How many operations a device does in a second.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rates {
    /// By [`TaskKind::index`].
    of_kind: [u64; TaskKind::ALL.len()],
    /// Of all tasks together.
    mean: u64,
    /// The profile that says so, if one does.
    profile: Option<String>,
}

impl Rates {
    /// The same for all tasks.
    pub const fn even(flops: u64) -> Self {
        Self { of_kind: [flops; TaskKind::ALL.len()], mean: flops, profile: None }
    }

    /// Of a profile: by kind, in the order of [`TaskKind::ALL`], and of all tasks together.
    pub(crate) const fn measured(profile: String, of_kind: [u64; TaskKind::ALL.len()], mean: u64) -> Self {
        Self { of_kind, mean, profile: Some(profile) }
    }

    /// Of a kind of task.
    pub const fn of(&self, kind: TaskKind) -> u64 {
        self.of_kind[kind.index()]
    }

    /// Of all tasks together.
    pub const fn mean(&self) -> u64 {
        self.mean
    }

    /// The file that says so, if it is a profile.
    pub fn profile(&self) -> Option<&str> {
        self.profile.as_deref()
    }

    /// How long a task of a kind takes with so many operations.
    pub fn time(&self, kind: TaskKind, flops: u128) -> Ticks {
        ticks(flops, self.of(kind))
    }

    /// How long so many operations of a backward take at least, however it is divided.
    pub fn least_backward(&self, flops: u128) -> Ticks {
        let kinds = [TaskKind::BackwardInput, TaskKind::BackwardWeight, TaskKind::Backward, TaskKind::Recompute];
        ticks(flops, kinds.map(|kind| self.of(kind)).into_iter().max().unwrap_or(u64::MAX))
    }
}
