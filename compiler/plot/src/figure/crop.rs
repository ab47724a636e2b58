//! Cropping: which part of the time a figure shows.

use crate::tracks::Track;

/// The shortest piece of the steady state, in tasks of median length.
const LEAST: f64 = 2.0;

/// What is shown of a timeline.
#[derive(Clone, PartialEq, Debug)]
pub enum Crop {
    /// The warm-up, a piece of the steady state and the cool-down.
    Fitting,
    /// The pieces that are shown, as start and end; no end means the end of the timeline.
    Pieces(Vec<(f64, Option<f64>)>),
}

impl Crop {
    /// Pieces of time in order, without overlap. The longest timeline ends at `end`; `room` is the time that fits into
    /// the figure with readable numbers.
    ///
    /// # Errors
    /// If a piece is empty, or pieces overlap.
    pub(super) fn times(&self, timelines: &[&[Track]], end: f64, room: f64) -> Result<Vec<[f64; 2]>, String> {
        match self {
            Self::Fitting => Ok(fitting(timelines, end, room)),
            Self::Pieces(pieces) => {
                let shown: Vec<[f64; 2]> =
                    pieces.iter().map(|(from, to)| [*from, to.unwrap_or(end).min(end)]).collect();
                if let Some([from, _]) = shown.iter().find(|[from, to]| from >= to) {
                    return Err(format!("no time is left of the piece from {from} on: everything ends at {end}"));
                }
                if let Some(pair) = shown.windows(2).find(|pair| pair[0][1] > pair[1][0]) {
                    let [[_, to], [from, _]] = [pair[0], pair[1]];
                    return Err(format!("pieces of time overlap: one ends at {to}, and the next begins at {from}"));
                }
                Ok(shown)
            }
        }
    }
}

fn fitting(timelines: &[&[Track]], end: f64, room: f64) -> Vec<[f64; 2]> {
    let whole = vec![[0.0, end]];
    if end <= room {
        return whole;
    }
    let tracks = || timelines.iter().flat_map(|tracks| tracks.iter());
    let first = |track: &Track| track.marks.first().map(|mark| super::units(mark.start));
    let last = |track: &Track| track.marks.last().map(|mark| super::units(mark.end));
    // The warm-up ends when every device has started. The cool-down begins when a device of the longest timeline has
    // finished, and is at least as long as the warm-up, because `W` may fill it.
    let warm_up = tracks().filter_map(first).fold(0.0, f64::max);
    let ends = |tracks: &&&[Track]| tracks.iter().filter_map(last).fold(0.0, f64::max);
    let longest = timelines.iter().max_by(|one, other| ends(one).total_cmp(&ends(other)));
    let drained = longest.into_iter().flat_map(|tracks| tracks.iter()).filter_map(last).fold(end, f64::min);
    let cool_down = (end - drained).max(warm_up);
    let mut times: Vec<f64> =
        tracks().flat_map(|track| &track.marks).map(|mark| super::units(mark.end - mark.start)).collect();
    times.retain(|time| *time > 0.0);
    times.sort_by(f64::total_cmp);
    let (Some(&slot), Some(&usual)) = (times.first(), times.get((times.len().max(1) - 1) / 2)) else { return whole };
    // Each of the three pieces shows some of the steady state.
    let steady = ((room - warm_up - cool_down) / 3.0).max(LEAST * usual);
    let steady = (steady / slot).floor() * slot;
    let round = |time: f64| (time / slot).round() * slot;
    let middle = round((warm_up + end - cool_down) / 2.0 - steady / 2.0);
    let pieces = [[0.0, round(warm_up + steady)], [middle, middle + steady], [end - round(cool_down + steady), end]];
    // Without enough time to leave out, show all of it.
    let is_apart = pieces.windows(2).all(|pair| pair[0][1] + 2.0 * slot < pair[1][0]);
    if is_apart { pieces.to_vec() } else { whole }
}
