//! Time from left to right: one or several pieces of it, whose scale is the same.

/// The time axis of a figure.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Axis {
    /// In order.
    pieces: Vec<Piece>,
    /// Lengths per unit of time.
    pub(super) scale: f64,
    /// Between two pieces.
    cut: f64,
    /// What it counts in, and how long that is.
    pub(super) unit: (&'static str, f64),
}

/// A piece of time that is shown.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Piece {
    /// Since when.
    pub(super) from: f64,
    /// Until when.
    pub(super) to: f64,
    /// Where it begins.
    pub(super) x: f64,
}

impl Axis {
    /// Pieces of time in order, one behind the other from `left` on, with `cut` between them.
    pub(super) fn new(times: &[[f64; 2]], left: f64, scale: f64, cut: f64, unit: (&'static str, f64)) -> Self {
        let place = |x: &mut f64, [from, to]: &[f64; 2]| {
            let own = *x;
            *x += (to - from) * scale + cut;
            Some(Piece { from: *from, to: *to, x: own })
        };
        Self { pieces: times.iter().scan(left, place).collect(), scale, cut, unit }
    }

    /// The pieces, in order.
    pub(super) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Where a moment stands: one that is left out between what is before it and behind it.
    pub(super) fn x(&self, time: f64) -> f64 {
        let last = self.pieces.iter().rev().find(|piece| piece.from <= time).or(self.pieces.first());
        last.map_or(0.0, |piece| match time <= piece.to {
            true => piece.x + (time - piece.from) * self.scale,
            false => piece.x + (piece.to - piece.from) * self.scale + self.cut / 2.0,
        })
    }

    /// Whether a moment is shown.
    pub(super) fn shows(&self, time: f64) -> bool {
        self.pieces.iter().any(|piece| (piece.from..=piece.to).contains(&time))
    }

    /// What is shown of a span of time: where each part begins and ends.
    pub(super) fn parts(&self, from: f64, to: f64) -> impl Iterator<Item = [f64; 2]> + '_ {
        self.pieces.iter().filter_map(move |piece| {
            let (from, to) = (from.max(piece.from), to.min(piece.to));
            let x = |time: f64| piece.x + (time - piece.from) * self.scale;
            (from < to).then(|| [x(from), x(to)])
        })
    }

    /// Where time is left out: the end of a piece, and the begin of the next.
    pub(super) fn cuts(&self) -> impl Iterator<Item = [f64; 2]> + '_ {
        self.pieces.windows(2).map(|pair| [pair[0].x + (pair[0].to - pair[0].from) * self.scale, pair[1].x])
    }

    /// Where the last piece ends.
    pub(super) fn end(&self) -> f64 {
        self.pieces.last().map_or(0.0, |piece| piece.x + (piece.to - piece.from) * self.scale)
    }
}

/// The next of 1, 2, 5, 10, 20, ..
pub fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.max(1e-9).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= least * 0.999_999)
        .unwrap_or(least)
}
