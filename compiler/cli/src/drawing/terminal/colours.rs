//! Maps the colours of the palette to the nearest ones of a terminal.

use pipe_ir::task::TaskKind;
use pipe_plot::palette::{Colour, Ground, shade};

/// A text on the background of a kind.
pub(super) fn on_background(kind: TaskKind, nth_stage: usize, n_stages: usize, text: &str) -> String {
    let (index, colour) = background(kind, nth_stage, n_stages);
    let ink = if colour.ink() == Colour::LIGHT_INK { 231 } else { 16 };
    format!("\x1b[48;5;{index};38;5;{ink}m{text}\x1b[0m")
}

/// A text on grey: what moves beside tasks.
pub(super) fn on_grey(text: &str) -> String {
    format!("\x1b[48;5;250;38;5;16m{text}\x1b[0m")
}

/// What speaks against a target, in red where there are colours.
pub(super) fn alarm(text: &str, colours: bool) -> String {
    if colours { format!("\x1b[1;31m{text}\x1b[0m") } else { text.to_owned() }
}

/// Columns of a text without its colours.
pub(super) fn visible(text: &str) -> usize {
    let pieces = text.split('\x1b').enumerate();
    let shown = pieces.map(|(place, piece)| match (place, piece.split_once('m')) {
        (0, _) | (_, None) => piece,
        (_, Some((_, rest))) => rest,
    });
    shown.map(|piece| piece.chars().count()).sum()
}

/// The background of a task: of the colours that every terminal has, the nearest one to its own.
fn background(kind: TaskKind, nth_stage: usize, n_stages: usize) -> (u8, Colour) {
    nearest(shade(kind, Ground::Dark, nth_stage, n_stages))
}

/// The nearest of the fixed colours among the 256 of a terminal: a cube of six levels, and 24 greys.
fn nearest(colour: Colour) -> (u8, Colour) {
    const LEVELS: [u8; 6] = [0, 95, 135, 175, 215, 255];
    let at = |index: u8| {
        let place = usize::from(index);
        match place.checked_sub(16) {
            Some(cube) if cube < 216 => Colour { parts: [LEVELS[cube / 36], LEVELS[cube / 6 % 6], LEVELS[cube % 6]] },
            _ => Colour { parts: [(8 + 10 * place.saturating_sub(232)) as u8; 3] },
        }
    };
    let distance = |index: &u8| colour.distance(at(*index));
    let index = (16..=255).min_by(|one, other| distance(one).total_cmp(&distance(other))).unwrap_or(16);
    (index, at(index))
}

#[cfg(test)]
mod tests {
    use super::{TaskKind, background};
    use std::collections::BTreeSet;

    #[test]
    fn kinds_and_stages_have_colours_of_their_own_in_a_terminal() {
        let shades = TaskKind::ALL.into_iter().flat_map(|kind| [0, 1].map(|nth| background(kind, nth, 2)));
        let shades: Vec<_> = shades.collect();
        let indices: BTreeSet<u8> = shades.iter().map(|(index, _)| *index).collect();
        assert_eq!(indices.len(), shades.len(), "{shades:?}");
        assert!(shades.iter().all(|(_, colour)| colour.contrast(colour.ink()) >= 4.5), "{shades:?}");
    }
}
