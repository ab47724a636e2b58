//! Ranges of stages as users give them: `7`, or `0..4`.

use std::fmt;
use std::ops::Range;

/// Reads `7`, or `0..4`.
///
/// # Errors
/// Says what is no stage and no range.
pub fn stages(text: &str) -> Result<Range<u32>, String> {
    let number = |text: &str| text.trim().parse::<u32>().ok().filter(|number| *number < u32::MAX);
    let range = match text.split_once("..") {
        Some((first, end)) => number(first).zip(number(end)),
        None => number(text).map(|stage| (stage, stage + 1)),
    };
    match range {
        Some((first, end)) if first < end => Ok(first..end),
        Some((first, end)) => Err(format!("there are no stages from {first} to below {end}")),
        None => Err("expected a stage or a range of stages, as in `F[7]` or `F[0..4]`".to_owned()),
    }
}

/// Splits `F[7]` into its name and what stands in brackets, if any does.
pub(crate) fn in_brackets(text: &str) -> (&str, Option<&str>) {
    match text.trim().strip_suffix(']').and_then(|text| text.split_once('[')) {
        Some((name, place)) => (name.trim(), Some(place)),
        None => (text.trim(), None),
    }
}

/// Writes a name with the stages that it is about: `F[7]`, or `F[0..4]`.
pub(crate) fn write_stages(f: &mut fmt::Formatter<'_>, name: &str, stages: &Range<u32>) -> fmt::Result {
    match stages.len() {
        1 => write!(f, "{name}[{}]", stages.start),
        _ => write!(f, "{name}[{}..{}]", stages.start, stages.end),
    }
}
