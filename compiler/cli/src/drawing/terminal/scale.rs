//! How time becomes columns. Every column stands for as much time as the shortest tasks take, or less, so that none of
//! them falls between two columns; where the terminal is too narrow for that, the middle of the timeline is left out.

use crate::output::figures::number;
use pipe_plot::figure::round_step;
use pipe_plot::numbers::unit_of_axis;
use pipe_plot::tracks::{Track, common_slot};
use pipe_schedule::units::Ticks;

/// The most columns that one slot takes.
const WIDEST_SLOT: u64 = 5;
/// Columns from one moment below the tracks to the next, at least.
const BETWEEN: f64 = 10.0;
/// What stands where time is left out.
pub(super) const BREAK: &str = " ⋯ ";
/// Its columns.
const BREAK_COLUMNS: u64 = 3;

/// How time becomes columns.
pub(super) struct Scale {
    /// One or two pieces of time, in order.
    pub(super) pieces: Vec<Piece>,
    /// The largest duration that divides every start and end.
    slot: Ticks,
    /// Columns of a slot, if that is a whole number.
    per_slot: Option<u64>,
}

/// A piece of time that is shown.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    from: Ticks,
    to: Ticks,
    /// Where it begins, and how many columns it takes.
    first: u64,
    columns: u64,
}

impl Piece {
    /// Its columns.
    pub(super) fn width(&self) -> usize {
        self.columns as usize
    }

    /// Where a moment stands, from the begin of the piece: at its begin or its end if it is outside.
    pub(super) fn column(&self, time: Ticks) -> usize {
        let (own, whole) = (time.clamp(self.from, self.to) - self.from, (self.to - self.from).0.max(1));
        let column = (u128::from(own.0) * u128::from(self.columns) + u128::from(whole) / 2) / u128::from(whole);
        usize::try_from(column).unwrap_or(usize::MAX)
    }
}

impl Scale {
    pub(super) fn new(tracks: &[Track], makespan: Ticks, width: u64) -> Self {
        let slot = common_slot(tracks);
        let n_slots = (makespan.0 / slot.0).max(1);
        let whole = |columns| vec![Piece { from: Ticks::ZERO, to: makespan, first: 0, columns }];
        let per_slot = (width / n_slots).min(WIDEST_SLOT);
        if per_slot > 0 {
            return Self { pieces: whole(n_slots * per_slot), slot, per_slot: Some(per_slot) };
        }
        // The time of a column.
        let cell = slot.0 * (shortest(tracks).0 / slot.0).max(1);
        if makespan.0 <= width * cell {
            return Self { pieces: whole(width), slot, per_slot: None };
        }
        let half = (width - BREAK_COLUMNS) / 2;
        let begin = Piece { from: Ticks::ZERO, to: Ticks(half * cell), first: 0, columns: half };
        let end = Piece { from: Ticks(makespan.0 - half * cell), to: makespan, first: half + BREAK_COLUMNS, ..begin };
        Self { pieces: vec![begin, end], slot, per_slot: (cell == slot.0).then_some(1) }
    }

    /// Columns of a slot, if that is a whole number.
    pub(super) fn per_slot(&self) -> Option<usize> {
        self.per_slot.map(|columns| columns as usize)
    }

    /// Columns of a task that is not cut.
    pub(super) fn columns_of(&self, time: Ticks) -> Option<usize> {
        Some(self.per_slot()? * (time.0 / self.slot.0) as usize)
    }

    /// Where a moment stands; one that is left out stands at the end of what is before it.
    pub(super) fn column(&self, time: Ticks) -> usize {
        let own = self.pieces.iter().rev().find(|piece| piece.from <= time).or(self.pieces.first());
        own.map_or(0, |piece| piece.first as usize + piece.column(time))
    }

    /// All columns.
    pub(super) fn columns(&self) -> u64 {
        self.pieces.last().map_or(0, |last| last.first + last.columns)
    }

    /// The time of a column.
    fn cell(&self) -> f64 {
        self.pieces.first().map_or(0.0, |piece| units(piece.to - piece.from) / piece.columns.max(1) as f64)
    }

    /// What the legend says of it.
    pub(super) fn remarks(&self, unit: Option<&'static str>) -> Vec<String> {
        let (word, long) = self.unit(unit);
        let named = |time: f64| match unit {
            Some(_) => format!("{} {word}", number(time / long)),
            None => number(time),
        };
        let left_out = self.pieces.windows(2).map(|pair| {
            let [from, to] = [pair[0].to, pair[1].from].map(|time| named(units(time)));
            format!("⋯ {from} to {to} is left out: a wider terminal or `-o x.html` shows it")
        });
        let scaled = self.per_slot.is_none().then(|| format!("scaled: one column is {}", named(self.cell())));
        left_out.chain(scaled).collect()
    }

    /// The unit in which times are written, and how long it is.
    fn unit(&self, unit: Option<&'static str>) -> (&'static str, f64) {
        unit_of_axis(self.pieces.last().map_or(0.0, |last| units(last.to)), unit)
    }

    /// The time axis: round times, and no number that is cut off.
    pub(super) fn axis(&self, unit: Option<&'static str>) -> String {
        let (word, long) = self.unit(unit);
        let step = round_step(self.cell() * BETWEEN / long) * long;
        let mut text = String::new();
        for piece in &self.pieces {
            let end = (piece.first + piece.columns) as usize;
            let nth = (units(piece.from) / step - 1e-6).ceil().max(0.0);
            let moments = (0..).map(|multiple| (nth + f64::from(multiple)) * step);
            for time in moments.take_while(|time| *time <= units(piece.to) * 1.000_001) {
                let ticks = Ticks((time * Ticks::UNIT.0 as f64).round() as u64);
                let column = piece.first as usize + piece.column(ticks);
                let (written, words) = (text.chars().count(), number(time / long));
                if written <= column && column + words.len() <= end {
                    text.push_str(&" ".repeat(column - written));
                    text.push_str(&words);
                    text.push(' ');
                }
            }
        }
        let text = text.trim_end();
        let has_room = unit.is_some() && text.chars().count() + 1 + word.len() <= self.columns() as usize;
        if has_room { format!("{text} {word}") } else { text.to_owned() }
    }
}

/// What nine of ten tasks take, or more.
fn shortest(tracks: &[Track]) -> Ticks {
    let tasks = tracks.iter().flat_map(|track| &track.marks).map(|mark| mark.end - mark.start);
    let mut times: Vec<Ticks> = tasks.filter(|time| *time > Ticks::ZERO).collect();
    times.sort_unstable();
    times.get(times.len() / 10).copied().unwrap_or(Ticks::UNIT)
}

fn units(ticks: Ticks) -> f64 {
    ticks.0 as f64 / Ticks::UNIT.0 as f64
}
