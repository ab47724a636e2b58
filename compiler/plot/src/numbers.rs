//! Numbers, shares, times and sizes as people read them. JSON has them exactly.

use pipe_compiler::report::Report;
use pipe_ir::units::Bytes;

/// Units of time with their lengths in milliseconds, shortest first.
const TIMES: [(&str, f64); 4] = [("ns", 1e-6), ("us", 1e-3), (MILLISECONDS, 1.0), ("s", 1e3)];
/// The unit of measured times, and of those that follow from a cluster.
const MILLISECONDS: &str = "ms";
/// From so many milliseconds on, a time has two units.
const MINUTE: f64 = 60_000.0;
/// Sums of less are written in milliseconds.
const FEW_SECONDS: f64 = 10_000.0;
/// Minutes of an hour, and so on: each unit with how many of the one before it has.
const LONGER: [(&str, u64); 3] = [("min", 60), ("h", 60), ("d", 24)];
/// Digits of a rounded figure.
const DIGITS: i32 = 3;

/// A figure with at most three decimals.
pub fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Activations in units: `1 unit`, `4.5 units`.
pub fn units(value: f64) -> String {
    format!("{} {}", number(value), if value == 1.0 { "unit" } else { "units" })
}

/// A share in percent, with one decimal.
pub fn percent(share: f64) -> String {
    format!("{:.1}%", 100.0 * share)
}

/// A time in three digits and the unit that suits, `9.59 ms`; from a minute on in two units, `1 min 28 s`.
pub fn duration(milliseconds: f64) -> String {
    let length = milliseconds.abs();
    let sign = if milliseconds < 0.0 { "-" } else { "" };
    if length == 0.0 {
        return "0 ms".to_owned();
    }
    // What would be rounded to a minute is one.
    if length >= MINUTE - 50.0 {
        return format!("{sign}{}", in_two_units((length / 1e3).round() as u64));
    }
    let each = TIMES.iter().map(|(unit, size)| (*unit, length / size));
    format!("{sign}{}", in_unit(each, 1000.0))
}

/// Units of operations, each with its size in the first one.
const OPERATIONS: [(&str, f64); 5] = [("MFLOP", 1.0), ("GFLOP", 1e3), ("TFLOP", 1e6), ("PFLOP", 1e9), ("EFLOP", 1e12)];

/// Values from here on are printed in a larger unit.
const MOST_OPERATIONS: f64 = 1e5;

/// A time of a timeline: as [`duration`] if it is in milliseconds, in three digits if its unit has another name, and as
/// [`number`] where costs are in units of their own. Large numbers of operations are in a larger unit.
pub fn time(value: f64, unit: Option<&str>) -> String {
    let Some(unit) = unit else { return number(value) };
    if unit == MILLISECONDS {
        return duration(value);
    }
    let own = OPERATIONS.iter().position(|(name, _)| *name == unit).filter(|_| value >= MOST_OPERATIONS);
    match own.map(|own| &OPERATIONS[own..]) {
        Some(units) => in_unit(units.iter().map(|(name, size)| (*name, value * units[0].1 / size)), MOST_OPERATIONS),
        None => format!("{} {unit}", rounded(value)),
    }
}

/// The unit in which an axis counts on which times go up to `most`, and how long it is in `unit`.
pub fn unit_of_axis(most: f64, unit: Option<&'static str>) -> (&'static str, f64) {
    match unit {
        Some(MILLISECONDS) => {
            let suits = TIMES.iter().rev().find(|(_, size)| *size <= most);
            suits.copied().unwrap_or((MILLISECONDS, 1.0))
        }
        unit => (unit.unwrap_or("time"), 1.0),
    }
}

/// How times are written that add up to one: all in the unit that suits this, with as many decimals.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sum {
    /// The unit.
    pub unit: &'static str,
    /// How long it is in milliseconds.
    long: f64,
    decimals: usize,
}

impl Sum {
    /// That of a time in milliseconds, which has five digits. Parts of a few seconds are milliseconds.
    pub fn of(milliseconds: f64) -> Self {
        let most = if milliseconds < FEW_SECONDS { milliseconds.min(999.0) } else { milliseconds };
        let (unit, long) = unit_of_axis(most, Some(MILLISECONDS));
        Self { unit, long, decimals: decimals(milliseconds / long, DIGITS + 2) }
    }

    /// A time in milliseconds, without the unit.
    pub fn plain(self, milliseconds: f64) -> String {
        format!("{:.*}", self.decimals, milliseconds / self.long)
    }

    /// The same with its sign. What is nothing has no minus.
    pub fn signed(self, milliseconds: f64) -> String {
        let text = format!("{:+.*}", self.decimals, milliseconds / self.long);
        if text.bytes().any(|byte| (b'1'..=b'9').contains(&byte)) { text } else { text.replace('-', "+") }
    }
}

/// The name of the unit of a target's times, if it has one.
pub fn unit_of_times(report: &Report) -> Option<&'static str> {
    let profile = report.profile.as_ref().map(|own| own.time_unit);
    report.time_unit.or(profile).or(report.cluster.as_ref().map(|own| own.time_unit))
}

/// A size in three digits and the unit that suits: `36.8 GiB`. Sources have it otherwise, see [`Bytes`].
pub fn bytes(bytes: u64) -> String {
    let larger = Bytes::UNITS.iter().rev().map(|(unit, size)| (*unit, bytes as f64 / *size as f64));
    in_unit([("B", bytes as f64)].into_iter().chain(larger), 1024.0)
}

/// The first unit in which a figure is less than `most`, or else the last one.
fn in_unit<'a>(each: impl Iterator<Item = (&'a str, f64)>, most: f64) -> String {
    let mut text = String::new();
    for (unit, value) in each {
        let rounded = rounded(value);
        text = format!("{rounded} {unit}");
        if rounded.parse::<f64>().is_ok_and(|rounded| rounded < most) {
            break;
        }
    }
    text
}

/// A figure with three digits, without decimals where it is whole.
fn rounded(value: f64) -> String {
    if value.fract() == 0.0 {
        return format!("{value:.0}");
    }
    let text = format!("{value:.*}", decimals(value, DIGITS));
    // 99.96 is rounded to 100, which has a digit more before the point.
    let decimals = text.parse().map_or(0, |value| decimals(value, DIGITS));
    format!("{value:.decimals$}")
}

/// The decimals of a figure that has so many digits.
fn decimals(value: f64, digits: i32) -> usize {
    let before = if value >= 1.0 { value.log10().floor() as i32 + 1 } else { 1 };
    (digits - before).max(0) as usize
}

/// `1 min 28 s`, `2 h`: the two largest units, without the smaller one where it is zero.
fn in_two_units(seconds: u64) -> String {
    let (mut large, mut small) = ((seconds, "s"), (0, ""));
    for (unit, times) in LONGER {
        if large.0 < times {
            break;
        }
        small = (large.0 % times, large.1);
        large = (large.0 / times, unit);
    }
    if small.0 == 0 {
        return format!("{} {}", large.0, large.1);
    }
    format!("{} {} {} {}", large.0, large.1, small.0, small.1)
}

#[cfg(test)]
mod tests {
    use super::{Sum, bytes, duration, number, time};

    #[test]
    fn times_and_sizes_have_three_digits_and_the_unit_that_suits() {
        let times = [
            (0.0, "0 ms"),
            (0.000_123, "123 ns"),
            (0.001_5, "1.50 us"),
            (9.587_123, "9.59 ms"),
            (-9.587_123, "-9.59 ms"),
            (99.96, "100 ms"),
            (999.7, "1.00 s"),
            (70.04 * 1e3, "1 min 10 s"),
            (12_340.0, "12.3 s"),
            (59_970.0, "1 min"),
            (7_500_000.0, "2 h 5 min"),
            (93_600_000.0, "1 d 2 h"),
        ];
        for (milliseconds, text) in times {
            assert_eq!(duration(milliseconds), text);
        }
        let sizes = [
            (0, "0 B"),
            (1000, "1000 B"),
            (1536, "1.50 KiB"),
            (39_513_699_123, "36.8 GiB"),
            (80 << 30, "80 GiB"),
            ((1 << 30) - 1, "1.00 GiB"),
            (1 << 60, "1048576 TiB"),
        ];
        for (size, text) in sizes {
            assert_eq!(bytes(size), text);
        }
    }

    #[test]
    fn many_operations_are_in_a_larger_unit() {
        let counts = [(385.4, "385 MFLOP"), (99_999.0, "99999 MFLOP"), (131_210_530.0, "131 TFLOP")];
        for (count, text) in counts {
            assert_eq!(time(count, Some("MFLOP")), text);
        }
        assert_eq!(time(30_886.0, Some("TFLOP")), "30886 TFLOP");
        assert_eq!(time(250_000.0, Some("TFLOP")), "250 PFLOP");
        assert_eq!(time(250_000.0, None), "250000");
    }

    #[test]
    fn parts_of_a_sum_have_one_unit_and_as_many_decimals() {
        let sum = Sum::of(0.245_395);
        assert_eq!((sum.unit, sum.plain(0.142_816), sum.signed(-0.000_642)), ("us", "142.82".into(), "-0.64".into()));
        assert_eq!((sum.signed(-0.000_001), Sum::of(5.1).plain(4.0)), ("+0.00".into(), "4.0000".into()));
        assert_eq!((Sum::of(2481.742).plain(43.224), Sum::of(70_532.1).unit), ("43.2".into(), "s"));
    }

    #[test]
    fn units_of_costs_stay_as_they_are() {
        assert_eq!((number(8.0), number(8.666_66)), ("8".to_owned(), "8.667".to_owned()));
        assert_eq!((time(1234.5, None), time(1234.5, Some("ms"))), ("1234.5".to_owned(), "1.23 s".to_owned()));
    }
}
