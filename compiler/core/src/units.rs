//! Ticks: durations as exact integers, so that a timeline is the same on every machine.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A duration or a moment: millionths of the unit that costs are given in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Ticks(pub u64);

impl Ticks {
    /// No time.
    pub const ZERO: Self = Self(0);
    /// One unit of the costs.
    pub const UNIT: Self = Self(1_000_000);
}

impl Add for Ticks {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Ticks {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Ticks {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Ticks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / Self::UNIT.0, self.0 % Self::UNIT.0);
        if rest == 0 {
            return f.pad(&whole.to_string());
        }
        let digits = format!("{rest:06}");
        f.pad(&format!("{whole}.{}", digits.trim_end_matches('0')))
    }
}
