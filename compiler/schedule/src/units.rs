//! Durations and shares of memory as exact integers, so that every machine finds the same figures.

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
    /// The end of time: sums stop here.
    pub const END: Self = Self(u64::MAX);
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
        f.pad(&decimal(self.0))
    }
}

/// Activation memory: millionths of a unit, which is one device's share of the activations of one microbatch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Units(pub u64);

impl Units {
    /// One device's share of the activations of one microbatch.
    pub const UNIT: Self = Self(1_000_000);

    /// What some activations of single stages come to, rounded to the next millionth.
    pub fn of_stages(activations: u64, n_stages: usize, n_devices: usize) -> Self {
        let stages = (n_stages as u128).max(1);
        let millionths = u128::from(activations) * n_devices as u128 * u128::from(Self::UNIT.0);
        Self(u64::try_from((millionths + stages / 2) / stages).unwrap_or(u64::MAX))
    }

    /// With the word: `1 unit`, `2.5 units`.
    pub fn words(self) -> String {
        if self == Self::UNIT { "1 unit".to_owned() } else { format!("{self} units") }
    }

    /// How many activations of single stages come to no more, rounded as they are by [`Units::of_stages`].
    pub fn to_stages(self, n_stages: usize, n_devices: usize) -> u64 {
        let devices = (n_devices as u128).max(1) * u128::from(Self::UNIT.0);
        let halves = (2 * u128::from(self.0) + 1) * n_stages as u128;
        u64::try_from(halves.saturating_sub(1) / (2 * devices)).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Units {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&decimal(self.0))
    }
}

fn decimal(millionths: u64) -> String {
    let (whole, rest) = (millionths / 1_000_000, millionths % 1_000_000);
    if rest == 0 {
        return whole.to_string();
    }
    let digits = format!("{rest:06}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

/// Reads a decimal number, such as `12` or `0.5`, as millionths; `None` where it has another form, more than 6 digits
/// after the point, or is larger than 10^9.
pub fn parse_decimal(text: &str) -> Option<u64> {
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() + rest.len() == 0 || !digits(whole) || !digits(rest) || rest.len() > 6 {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let rest: u64 = format!("{rest:0<6}").parse().ok()?;
    (whole <= 1_000_000_000).then(|| whole * 1_000_000 + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact_and_round_trip() {
        for (text, millionths) in [("0", 0), ("1", 1_000_000), ("0.5", 500_000), ("18522.000001", 18_522_000_001)] {
            assert_eq!(parse_decimal(text), Some(millionths));
            assert_eq!(decimal(millionths), text);
        }
        assert_eq!(parse_decimal(".25"), Some(250_000));
        for text in ["", ".", "-1", "1e3", "1.0000001", "2000000000", "99999999999999999999", "1.+2", "+1"] {
            assert_eq!(parse_decimal(text), None, "{text}");
        }
    }

    #[test]
    fn units_convert_exactly() {
        assert_eq!(Units::of_stages(5, 8, 4), Units(2_500_000));
        assert_eq!(Units(2_500_000).to_stages(8, 4), 5);
        assert_eq!(Units(2_499_999).to_stages(8, 4), 4);
        // What is said of a number of activations is enough for them.
        for activations in 0..20 {
            assert_eq!(Units::of_stages(activations, 3, 4).to_stages(3, 4), activations);
        }
        assert_eq!([Units(1_000_000), Units(500_000)].map(Units::words), ["1 unit", "0.5 units"]);
    }
}
