//! Units: a quantity carries its unit in its type.

pub mod capacity;

use serde::{Deserialize, Serialize};
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub, SubAssign};

/// A number of bytes. Prints in the largest binary unit that divides it to at most two decimals: `64MiB`, `1.50KiB`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// Arena offsets are multiples of this, so that every buffer starts on a cache line.
pub const ALIGNMENT: Bytes = Bytes(64);

impl Bytes {
    /// Names and sizes of the units, largest first.
    pub const UNITS: [(&'static str, u64); 4] =
        [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

    /// None at all.
    pub const ZERO: Self = Self(0);

    /// Whether it is none at all.
    pub const fn is_zero(&self) -> bool {
        self.0 == 0
    }

    /// The smallest multiple of [`ALIGNMENT`] that holds this many bytes.
    #[must_use]
    pub const fn aligned(self) -> Self {
        Self(self.0.next_multiple_of(ALIGNMENT.0))
    }

    /// The number of bytes as an index into memory of this process.
    pub const fn to_usize(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((name, unit)) = Self::UNITS.into_iter().find(|(_, unit)| self.0 >= *unit) else {
            return f.pad(&format!("{}B", self.0));
        };
        let hundredths = (u128::from(self.0) * 100 + u128::from(unit) / 2) / u128::from(unit);
        let (whole, rest) = (hundredths / 100, hundredths % 100);
        if rest == 0 { f.pad(&format!("{whole}{name}")) } else { f.pad(&format!("{whole}.{rest:02}{name}")) }
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for Bytes {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl SubAssign for Bytes {
    fn sub_assign(&mut self, other: Self) {
        self.0 -= other.0;
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
        items.fold(Self::ZERO, Add::add)
    }
}
