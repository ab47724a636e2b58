//! Exact numbers that are not negative, as fractions: `0.366`, `11/30`.

use crate::units::{Units, parse_decimal};
use std::fmt;
use std::str::FromStr;

/// A number that is not negative, in lowest terms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ratio {
    pub(crate) above: u64,
    pub(crate) below: u64,
}

impl Ratio {
    /// The number 1.
    pub const ONE: Self = Self::whole(1);

    /// A whole number.
    pub const fn whole(number: u64) -> Self {
        Self { above: number, below: 1 }
    }

    /// One number divided by another, both in the same unit. `None` where that is nothing.
    pub fn new(above: u64, below: u64) -> Option<Self> {
        let common = gcd(above, below).max(1);
        (below > 0).then(|| Self { above: above / common, below: below / common })
    }

    /// So large a part of a number, rounded down.
    pub fn of(self, whole: u64) -> u128 {
        u128::from(whole) * u128::from(self.above) / u128::from(self.below)
    }

    /// The number in millionths, where it is a whole number of them.
    pub fn millionths(self) -> Option<u64> {
        let scaled = u128::from(self.above) * u128::from(Units::UNIT.0);
        let whole = scaled.is_multiple_of(self.below.into()).then(|| scaled / u128::from(self.below))?;
        whole.try_into().ok()
    }

    /// Whether it is smaller than another one.
    pub fn is_below(self, other: Self) -> bool {
        u128::from(self.above) * u128::from(other.below) < u128::from(other.above) * u128::from(self.below)
    }

    /// Whether it is larger than a whole number.
    pub fn is_above(self, most: u64) -> bool {
        u128::from(self.above) > u128::from(self.below) * u128::from(most)
    }
}

impl FromStr for Ratio {
    type Err = ();

    /// Reads `0.366`, or `11/30`.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (above, below) = text.split_once('/').unwrap_or((text, "1"));
        let number = |text: &str| parse_decimal(text.trim()).ok_or(());
        Self::new(number(above)?, number(below)?).ok_or(())
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millionths = u128::from(self.above) * u128::from(Units::UNIT.0) / u128::from(self.below);
        match u64::try_from(millionths) {
            Ok(exact) if Units::UNIT.0.is_multiple_of(self.below) => Units(exact).fmt(f),
            _ => write!(f, "{}/{}", self.above, self.below),
        }
    }
}

/// The greatest common divisor.
pub fn gcd<T: Copy + Default + PartialEq + std::ops::Rem<Output = T>>(one: T, other: T) -> T {
    if other == T::default() { one } else { gcd(other, one % other) }
}
