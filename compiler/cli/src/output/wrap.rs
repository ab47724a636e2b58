//! Lines that fit: a text is broken between words, never in one.

/// What separates cells of a line, such as entries of a legend.
const GAP: &str = "  ";
/// The most columns of code that is not broken.
const SHORT_CODE: usize = 14;

/// Splits `text` between words into lines of at most `width` columns. A longer word gets a line of its own. Cells keep
/// a gap of two columns between them, and none is broken that fits on a line.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut left = 0;
    for cell in text.split(GAP).map(str::trim).filter(|cell| !cell.is_empty()) {
        let whole = columns(cell);
        let mut gap = if whole <= width && whole + GAP.len() > left { None } else { Some(GAP) };
        for word in words(cell) {
            let columns = columns(&word);
            match (lines.last_mut(), gap.replace(" ")) {
                (Some(line), Some(gap)) if columns + gap.len() <= left => {
                    line.push_str(gap);
                    line.push_str(&word);
                    left -= columns + gap.len();
                }
                _ => {
                    lines.push(word);
                    left = width.saturating_sub(columns);
                }
            }
        }
    }
    lines
}

/// The words of a cell. Code between backticks is one, if it is short, such as the name of a task.
fn words(cell: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in cell.split_whitespace() {
        let is_open =
            |last: &&mut String| last.matches('`').count() % 2 == 1 && columns(last) + 1 + columns(word) <= SHORT_CODE;
        match words.last_mut().filter(is_open) {
            Some(last) => last.extend([" ", word]),
            None => words.push(word.to_owned()),
        }
    }
    words
}

/// The number of columns that `text` takes; escape sequences take none.
pub(crate) fn columns(text: &str) -> usize {
    let mut shown = Shown::default();
    text.chars().filter(|mark| shown.is_shown(*mark)).count()
}

/// Tells visible characters from those inside escape sequences.
#[derive(Default)]
struct Shown {
    is_inside: bool,
}

impl Shown {
    fn is_shown(&mut self, mark: char) -> bool {
        let is_hidden = self.is_inside || mark == '\u{1b}';
        self.is_inside = is_hidden && mark != 'm';
        !is_hidden
    }
}

/// Wraps each line of `text` to `width` columns, between words. The rest of a line goes below it: aligned with its last
/// cell, or indented by two columns where the line has only one cell.
pub(crate) fn fit(text: &str, width: usize) -> String {
    let fitted = |line: &str| if columns(line) <= width { line.to_owned() } else { broken(line, width) };
    let with_end = |line: &str| line.strip_suffix('\n').map_or_else(|| fitted(line), |line| fitted(line) + "\n");
    text.split_inclusive('\n').map(with_end).collect()
}

fn broken(line: &str, width: usize) -> String {
    let (byte, column) = last_cell(line, width / 2);
    let (before, cell) = line.split_at(byte);
    hanging(before, cell, if before.trim().is_empty() { column + 2 } else { column }, width)
}

/// Wraps `cell`, which follows `before` on its line, to `width` columns. Its later lines begin at column `hang`.
pub(crate) fn hanging(before: &str, cell: &str, hang: usize, width: usize) -> String {
    before.to_owned() + &wrap(cell, width.saturating_sub(hang)).join(&format!("\n{}", " ".repeat(hang)))
}

/// The byte and column at which the last cell that begins within the first `most` columns begins. Two or more spaces
/// separate cells.
fn last_cell(line: &str, most: usize) -> (usize, usize) {
    let (mut cell, mut column, mut spaces) = ((0, 0), 0, 0);
    let mut shown = Shown::default();
    for (byte, mark) in line.char_indices() {
        if mark != ' ' && spaces >= 2 && column <= most {
            cell = (byte, column);
        }
        spaces = if mark == ' ' { spaces + 1 } else { 0 };
        column += usize::from(shown.is_shown(mark));
    }
    cell
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_between_words() {
        assert_eq!(wrap("one two  three\nfour", 8), ["one two", "three", "four"]);
        assert_eq!(wrap("one two", 7), ["one two"]);
        assert_eq!(wrap("one two", 6), ["one", "two"]);
        assert_eq!(wrap("a incomprehensible b", 5), ["a", "incomprehensible", "b"]);
        assert!(wrap(" ", 5).is_empty());
    }

    #[test]
    fn names_of_tasks_stay_whole() {
        assert_eq!(wrap("after `F s1 m1`, it", 12), ["after", "`F s1 m1`,", "it"]);
        assert_eq!(wrap("`pipec check x.pipe --memory 4`", 22), ["`pipec check x.pipe", "--memory 4`"]);
    }

    #[test]
    fn entries_keep_their_gap_and_stay_whole_where_they_can() {
        assert_eq!(wrap("F one  B two  W three", 14), ["F one  B two", "W three"]);
        assert_eq!(wrap("F one    B two", 14), ["F one  B two"]);
        assert_eq!(wrap("F one  B two three four", 14), ["F one  B two", "three four"]);
    }

    #[test]
    fn colours_take_no_columns() {
        assert_eq!(columns("\u{1b}[1;31merror\u{1b}[0m: é"), 8);
    }

    #[test]
    fn what_is_too_long_goes_on_under_its_cell() {
        let cases = [
            ("short\n", "short\n"),
            ("one two three four\n", "one two\n  three\n  four\n"),
            ("  a  one two three\n", "  a  one\n     two\n     three\n"),
            ("  a  \u{1b}[2mone\u{1b}[0m two", "  a  \u{1b}[2mone\u{1b}[0m\n     two"),
            // A cell that begins beyond the middle has too little room below it.
            ("  a    one two", "  a  one\n    two"),
            ("  one two three", "  one\n    two\n    three"),
        ];
        for (text, fitted) in cases {
            assert_eq!(fit(text, 10), fitted, "{text}");
        }
    }
}
