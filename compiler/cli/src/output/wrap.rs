//! Lines that fit: a text is broken between words, never in one.

/// The lines of a text, each of at most so many columns unless it is one longer word.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut left = 0;
    for word in text.split_whitespace() {
        let columns = columns(word);
        match lines.last_mut().filter(|_| columns < left) {
            Some(line) => {
                line.push(' ');
                line.push_str(word);
                left -= columns + 1;
            }
            None => {
                lines.push(word.to_owned());
                left = width.saturating_sub(columns);
            }
        }
    }
    lines
}

/// The columns that a text takes: escape sequences take none.
pub(crate) fn columns(text: &str) -> usize {
    let mut is_escape = false;
    let shown = text.chars().filter(|mark| {
        let hidden = is_escape || *mark == '\u{1b}';
        is_escape = hidden && *mark != 'm';
        !hidden
    });
    shown.count()
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
    fn colours_take_no_columns() {
        assert_eq!(columns("\u{1b}[1;31merror\u{1b}[0m: é"), 8);
    }
}
