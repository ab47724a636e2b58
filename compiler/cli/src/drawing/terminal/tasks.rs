//! The tasks of a device in a line of text.
//!
//! With colours, a task is a block of its kind's colour, lighter for later stages of a device, with
//! the letters of its kind and the microbatch where they fit. Without, it is a letter, small for
//! later stages, with the microbatch where it fits.

use super::colours::on_background;
use super::scale::{BREAK, Piece, Scale};
use pipe_ir::task::TaskKind;
use pipe_plot::tracks::{Mark, Occupancy, Track};

/// What a fused backward is called where there is room for a single letter, so that it is no `B`.
pub(super) const FUSED: &str = "X";

/// How tasks are written.
pub(super) struct Style<'a> {
    pub(super) scale: &'a Scale,
    pub(super) colours: bool,
    /// Without colours: what fused backwards are called, `BW` where all of them have room for it.
    pub(super) fused: &'static str,
}

impl<'a> Style<'a> {
    pub(super) fn new(scale: &'a Scale, colours: bool, tracks: &[Track]) -> Self {
        let fused = TaskKind::Backward;
        let marks = tracks.iter().flat_map(|track| track.marks.iter().map(move |mark| (track, mark)));
        let mut fused_ones = marks.filter(|(_, mark)| mark.task.kind == fused);
        let has_room = |(track, mark): (&Track, &Mark)| {
            let columns = scale.columns_of(mark.end - mark.start).unwrap_or_default();
            let columns = if mark.share == Occupancy::Whole { columns } else { columns / 2 };
            columns >= fused.letters().len() + track.number(mark).len()
        };
        Self { scale, colours, fused: if fused_ones.all(has_room) { fused.letters() } else { FUSED } }
    }

    /// What a kind is called without colours.
    pub(super) fn letters(&self, kind: TaskKind) -> &'static str {
        if kind == TaskKind::Backward { self.fused } else { kind.letters() }
    }

    /// The row of a device.
    pub(super) fn row(&self, track: &Track) -> String {
        let pieces = self.scale.pieces.iter().enumerate().map(|(nth, piece)| {
            let is_last = nth + 1 == self.scale.pieces.len();
            self.piece(track, piece, !is_last)
        });
        pieces.collect::<Vec<_>>().join(BREAK)
    }

    /// What is shown of a row of a piece of time, up to its end if more comes behind it.
    fn piece(&self, track: &Track, piece: &Piece, is_full: bool) -> String {
        let mut text = String::new();
        let mut column = 0;
        for mark in &track.marks {
            let (first, last) = (piece.column(mark.start), piece.column(mark.end));
            // Two tasks that share the device stand side by side.
            let (first, last) = match mark.share {
                Occupancy::Whole => (first, last),
                Occupancy::First => (first, first.midpoint(last)),
                Occupancy::Second => (first.midpoint(last), last),
            };
            let (start, end) = (first.max(column), last);
            if end <= start {
                continue;
            }
            text += &self.idle(start - column);
            text += &if self.colours {
                coloured(mark, &track.number(mark), end - start, track.n_shades)
            } else {
                self.plain(mark, &track.number(mark), end - start)
            };
            column = end;
        }
        if is_full { text + &self.idle(piece.width().saturating_sub(column)) } else { text }
    }

    /// Idle time: without colours a dot for each slot.
    fn idle(&self, columns: usize) -> String {
        match self.scale.per_slot() {
            _ if self.colours => " ".repeat(columns),
            Some(per_slot) => format!("{:per_slot$}", ".").repeat(columns / per_slot),
            None => ".".repeat(columns),
        }
    }

    fn plain(&self, mark: &Mark, number: &str, columns: usize) -> String {
        let letters = self.letters(mark.task.kind);
        let letters = if mark.nth_stage == 0 { letters.to_owned() } else { letters.to_ascii_lowercase() };
        let long = format!("{letters}{number}");
        if mark.share != Occupancy::Whole {
            let sign = if long.len() <= columns { &long } else { &letters };
            return format!("{sign:-<columns$}");
        }
        let Some(per_slot) = self.scale.per_slot() else { return letters.repeat(columns) };
        if per_slot <= long.len() && (long.len() < columns || letters.len() > 1) {
            // Too tight to repeat: the microbatch once, then dashes to the end.
            return format!("{long:-<columns$}");
        }
        let cell = if long.len() <= per_slot { &long } else { &letters };
        let mut text = format!("{cell:per_slot$}").repeat(columns.div_ceil(per_slot));
        text.truncate(columns);
        text
    }
}

fn coloured(mark: &Mark, number: &str, columns: usize, n_stages: usize) -> String {
    let kind = mark.task.kind;
    // A thin line at the right tells neighbours apart.
    let (body, edge) = if columns > 1 { (columns - 1, "▕") } else { (1, "") };
    let named = format!("{}{number}", kind.letters());
    let texts = [named.as_str(), number, ""];
    let text = texts.into_iter().find(|text| text.len() <= body).unwrap_or_default();
    on_background(kind, mark.nth_stage, n_stages, &format!("{text:^body$}{edge}"))
}
