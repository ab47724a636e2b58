//! How wide texts are, in Arimo, which is as wide as Helvetica and Arial. The tests compare with the font in `fonts/`.

/// From the baseline to the top of capitals, by the size of the font.
pub const CAPITALS: f64 = 0.688;

/// Widths of the letters from space to `~`, in thousandths of the size.
#[rustfmt::skip]
const REGULAR: [u16; 95] = [
    278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556, 556, 556, 556,
    556, 556, 278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778,
    667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556, 333, 556, 556, 500, 556, 556, 278, 556,
    556, 222, 222, 500, 222, 833, 556, 556, 556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584,
];

#[rustfmt::skip]
const BOLD: [u16; 95] = [
    278, 333, 474, 556, 556, 889, 722, 238, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556, 556, 556, 556,
    556, 556, 333, 333, 584, 584, 584, 611, 975, 722, 722, 722, 722, 667, 611, 778, 722, 278, 556, 722, 611, 833, 722, 778,
    667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 333, 278, 333, 584, 556, 333, 556, 611, 556, 611, 556, 333, 611,
    611, 278, 278, 556, 278, 889, 611, 611, 611, 611, 389, 556, 333, 611, 556, 778, 556, 556, 500, 389, 280, 389, 584,
];

/// Letters beyond those that figures write, and their widths in both fonts.
const MORE: [(char, u16); 5] = [('·', 333), ('×', 584), ('–', 556), ('—', 1000), ('…', 1000)];

/// How wide a letter is, in thousandths of the size. One that the font lacks is drawn as `?`.
pub fn advance(letter: char, bold: bool) -> u16 {
    let table = if bold { &BOLD } else { &REGULAR };
    let plain = (letter as usize).checked_sub(' ' as usize).and_then(|place| table.get(place));
    let more = || MORE.iter().find(|(other, _)| *other == letter).map(|(_, width)| *width);
    plain.copied().or_else(more).unwrap_or(table['?' as usize - ' ' as usize])
}

/// How wide a text is.
pub fn width(words: &str, size: f64, bold: bool) -> f64 {
    words.chars().map(|letter| f64::from(advance(letter, bold))).sum::<f64>() / 1000.0 * size
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
    use super::{BOLD, CAPITALS, MORE, REGULAR, advance};
    use crate::render::pdf::{ASCENT, BOUNDS, DESCENT};
    use ttf_parser::Face;

    #[test]
    fn widths_are_those_of_the_fonts_in_the_folder() {
        let fonts: [&[u8]; 2] =
            [include_bytes!("../../fonts/Arimo-Regular.ttf"), include_bytes!("../../fonts/Arimo-Bold.ttf")];
        for (bold, file) in [false, true].into_iter().zip(fonts) {
            let face = Face::parse(file, 0).expect("a font");
            let per_mille = 1000.0 / f64::from(face.units_per_em());
            let letters = (' '..='~').chain(MORE.map(|(letter, _)| letter));
            for letter in letters {
                let glyph = face.glyph_index(letter).expect("the font has it");
                let width = f64::from(face.glyph_hor_advance(glyph).expect("a width")) * per_mille;
                assert!((width - f64::from(advance(letter, bold))).abs() <= 0.5, "{letter} {bold}: {width}");
            }
            assert_eq!(advance('é', bold), advance('?', bold));
            let capitals = f64::from(face.capital_height().expect("a height")) * per_mille;
            assert!((capitals - 1000.0 * CAPITALS).abs() < 1.0, "{capitals}");
            let bounds = face.global_bounding_box();
            let own = [bounds.x_min, bounds.y_min, bounds.x_max, bounds.y_max].map(|side| f64::from(side) * per_mille);
            let within = |place: usize, own: f64| {
                if place < 2 { own >= BOUNDS[place].into() } else { own <= BOUNDS[place].into() }
            };
            assert!(own.iter().enumerate().all(|(place, own)| within(place, own.round())), "{own:?}");
            let lines = [face.ascender(), face.descender()].map(|line| (f64::from(line) * per_mille).round());
            assert_eq!(lines, [ASCENT, DESCENT].map(f64::from));
        }
        assert_eq!(REGULAR.len(), BOLD.len());
    }
}
