//! Quantities with units: `"80GiB"`, `"450GB/s"`, `"3us"`, `"989TFLOPS"`, read as whole numbers.

use pipe_schedule::units::parse_decimal;

/// What a quantity is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Dimension {
    /// Bytes.
    Memory,
    /// Bytes per second.
    Bandwidth,
    /// Nanoseconds.
    Time,
    /// Floating-point operations per second.
    Operations,
}

/// A unit, and how much one of it is.
type Unit = (&'static str, u64);

const K: u64 = 1_000;
const M: u64 = 1_000_000;
const G: u64 = 1_000_000_000;
const T: u64 = 1_000_000_000_000;
const P: u64 = 1_000_000_000_000_000;

const MEMORY: [Unit; 10] = [
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", G),
    ("TB", T),
    ("MB", M),
    ("KB", K),
    ("kB", K),
    ("B", 1),
];
/// A byte has eight bits.
const BANDWIDTH: [Unit; 15] = [
    ("GB/s", G),
    ("TB/s", T),
    ("MB/s", M),
    ("KB/s", K),
    ("kB/s", K),
    ("B/s", 1),
    ("GiB/s", 1 << 30),
    ("TiB/s", 1 << 40),
    ("MiB/s", 1 << 20),
    ("KiB/s", 1 << 10),
    ("Gbit/s", G / 8),
    ("Mbit/s", M / 8),
    ("Tbit/s", T / 8),
    ("Gbps", G / 8),
    ("Mbps", M / 8),
];
const TIME: [Unit; 5] = [("us", K), ("ns", 1), ("ms", M), ("s", G), ("µs", K)];
const OPERATIONS: [Unit; 6] =
    [("TFLOPS", T), ("GFLOPS", G), ("PFLOPS", P), ("TFLOP/s", T), ("GFLOP/s", G), ("PFLOP/s", P)];

impl Dimension {
    const fn units(self) -> &'static [Unit] {
        match self {
            Self::Memory => &MEMORY,
            Self::Bandwidth => &BANDWIDTH,
            Self::Time => &TIME,
            Self::Operations => &OPERATIONS,
        }
    }

    /// One as it is written.
    pub(super) const fn example(self) -> &'static str {
        match self {
            Self::Memory => "80GiB",
            Self::Bandwidth => "450GB/s",
            Self::Time => "3us",
            Self::Operations => "600TFLOPS",
        }
    }

    /// What it is, in words.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Memory => "a number of bytes",
            Self::Bandwidth => "a bandwidth",
            Self::Time => "a time",
            Self::Operations => "a number of operations per second",
        }
    }

    /// How much one of a unit is.
    pub(super) fn unit(self, name: &str) -> Option<u64> {
        self.units().iter().find(|(unit, _)| *unit == name).map(|(_, size)| *size)
    }

    /// The names of its units.
    pub(super) fn unit_names(self) -> impl Iterator<Item = &'static str> {
        self.units().iter().map(|(name, _)| *name)
    }
}

/// Splits `80 GiB` into its number and its unit.
pub(super) fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|mark: char| !mark.is_ascii_digit() && mark != '.' && mark != '_').unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

/// So many of a unit, rounded to the nearest whole; none where it is no number, or too large.
pub(super) fn scaled(number: &str, unit: u64) -> Option<u64> {
    let millionths = parse_decimal(&number.replace('_', ""))?;
    u64::try_from((u128::from(millionths) * u128::from(unit) + 500_000) / 1_000_000).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_whole_numbers() {
        let read = |text: &str, dimension: Dimension| {
            let (number, unit) = split(text);
            scaled(number, dimension.unit(unit)?)
        };
        assert_eq!(read("80GiB", Dimension::Memory), Some(80 << 30));
        assert_eq!(read("1.5 kB", Dimension::Memory), Some(1_500));
        assert_eq!(read("0.5us", Dimension::Time), Some(500));
        assert_eq!(read("400Gbit/s", Dimension::Bandwidth), Some(50_000_000_000));
        assert_eq!(read("989.5TFLOPS", Dimension::Operations), Some(989_500_000_000_000));
        assert_eq!(read("1_000 ns", Dimension::Time), Some(1_000));
        for text in ["", "GB", "-1GB", "1e3GB", "1.2.3GB", "1Gb", "999999999TiB", "1"] {
            assert_eq!(read(text, Dimension::Memory), None, "{text}");
        }
    }
}
