//! What `--memory` says: units of activations, or bytes of each device.

use pipe_ir::units::Bytes;
use pipe_schedule::memory_limit::MemoryLimit;
use pipe_schedule::units::parse_decimal;
use std::str::FromStr;

/// The most that devices may hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Memory {
    /// Of activations, in units.
    Units(MemoryLimit),
    /// Of everything.
    Bytes(Bytes),
}

impl Memory {
    pub(crate) fn units(&self) -> Option<&MemoryLimit> {
        if let Self::Units(limit) = self { Some(limit) } else { None }
    }

    pub(crate) const fn bytes(&self) -> Option<Bytes> {
        if let Self::Bytes(bytes) = self { Some(*bytes) } else { None }
    }
}

impl FromStr for Memory {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if !text.ends_with('B') {
            return MemoryLimit::parse(text)
                .map(Self::Units)
                .map_err(|reason| reason + "; bytes have a unit, as in `30MiB`");
        }
        bytes(text).map(Self::Bytes)
    }
}

/// A size in bytes, with its unit.
pub(crate) fn bytes(text: &str) -> Result<Bytes, String> {
    let (number, unit) = text.split_at(text.find(|mark: char| mark.is_ascii_alphabetic()).unwrap_or(text.len()));
    let Some((_, size)) = Bytes::UNITS.into_iter().find(|(name, _)| *name == unit) else {
        return Err(format!("there is no unit `{unit}`: sizes are counted in `KiB`, `MiB`, `GiB` and `TiB`"));
    };
    let millionths = parse_decimal(number.trim()).filter(|number| *number > 0);
    let bytes = millionths.and_then(|number| u64::try_from(u128::from(number) * u128::from(size) / 1_000_000).ok());
    bytes.map(Bytes).ok_or_else(|| "expected one size, as in `30MiB` or `1.5GiB`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_numbers_and_bytes_have_a_unit() {
        let bytes = |text: &str| text.parse::<Memory>().ok().and_then(|memory| memory.bytes());
        assert_eq!(bytes("30MiB"), Some(Bytes(30 << 20)));
        assert_eq!(bytes("1.5GiB"), Some(Bytes(3 << 29)));
        assert_eq!(bytes("4"), None);
        assert!("4,3".parse::<Memory>().is_ok_and(|memory| memory.units().is_some()));
        for (text, reason) in [("3MB", "no unit `MB`"), ("4,3MiB", "one size"), ("0KiB", "one size"), ("x", "30MiB")] {
            assert!(text.parse::<Memory>().is_err_and(|error| error.contains(reason)), "{text}");
        }
    }
}
