//! How wide texts are, in Arimo, which is as wide as Helvetica and Arial.
//!
//! The fonts in `fonts/` have the Latin, Greek and Cyrillic letters and the signs of Arimo 1.33 (Debian's
//! fonts-croscore), as `pyftsubset --no-hinting` leaves them. Their licence is `fonts/OFL.txt`.

use std::sync::LazyLock;
use ttf_parser::Face;

/// From the baseline to the top of capitals, by the size of the font.
pub const CAPITALS: f64 = 0.688;

/// The files of the regular and the bold font.
pub(crate) const FILES: [&[u8]; 2] =
    [include_bytes!("../../fonts/Arimo-Regular.ttf"), include_bytes!("../../fonts/Arimo-Bold.ttf")];
/// What is in them.
static FACES: LazyLock<[Face<'static>; 2]> =
    LazyLock::new(|| FILES.map(|file| Face::parse(file, 0).expect("the folder has fonts")));

/// The regular or the bold font.
pub(crate) fn face(bold: bool) -> &'static Face<'static> {
    let [regular, heavy] = &*FACES;
    if bold { heavy } else { regular }
}

/// How wide a letter is, in thousandths of the size. One that the font lacks comes from another one: it is no wider
/// than high.
fn advance(letter: char, bold: bool) -> f64 {
    let face = face(bold);
    let width = face.glyph_index(letter).and_then(|glyph| face.glyph_hor_advance(glyph));
    width.map_or(1000.0, |width| (f64::from(width) * 1000.0 / f64::from(face.units_per_em())).round())
}

/// A letter as messages have it.
#[must_use]
pub fn named(letter: char) -> String {
    format!("`{letter}` (U+{:04X})", u32::from(letter))
}

/// How wide a text is.
pub fn width(words: &str, size: f64, bold: bool) -> f64 {
    words.chars().map(|letter| advance(letter, bold)).sum::<f64>() / 1000.0 * size
}

/// A text in lines no wider than `room`, divided between words; a word that is wider has a line of its own.
pub(super) fn wrap(words: &str, (size, bold): (f64, bool), room: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words.split(' ') {
        match lines.last_mut() {
            Some(line) if width(line, size, bold) + width(" ", size, bold) + width(word, size, bold) <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{CAPITALS, advance, face};

    #[test]
    fn letters_are_as_wide_as_those_of_helvetica() {
        let widths = |letters: &str, bold| letters.chars().map(|letter| advance(letter, bold)).collect::<Vec<f64>>();
        assert_eq!(widths("F1 …×é", false), [611.0, 556.0, 278.0, 1000.0, 584.0, 556.0]);
        assert_eq!(widths("F1 …×é", true), [611.0, 556.0, 278.0, 1000.0, 584.0, 556.0]);
        assert_eq!(widths("a≤λж", false), [556.0, 549.0, 500.0, 669.0]);
        // Chinese letters are squares.
        assert_eq!(widths("字", true), [1000.0]);
        for bold in [false, true] {
            let capitals = f64::from(face(bold).capital_height().expect("a height"));
            assert!((capitals / f64::from(face(bold).units_per_em()) - CAPITALS).abs() < 0.001, "{capitals}");
        }
    }
}
