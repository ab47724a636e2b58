//! Places as editors count them: lines and UTF-16 units from 0, where the compiler counts bytes.

use lsp_types::{Position, Range};

/// Where the lines of a text begin.
#[derive(Clone, Debug, Default)]
pub(super) struct Lines(Vec<usize>);

impl Lines {
    pub(super) fn new(text: &str) -> Self {
        let starts = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(index, _)| index + 1);
        Self(std::iter::once(0).chain(starts).collect())
    }

    /// The place of a byte of the text.
    pub(super) fn position(&self, text: &str, byte: usize) -> Position {
        let mut byte = byte.min(text.len());
        while !text.is_char_boundary(byte) {
            byte -= 1;
        }
        let line = self.0.partition_point(|start| *start <= byte).saturating_sub(1);
        let start = self.0.get(line).copied().unwrap_or(0);
        let character = text[start..byte].chars().map(char::len_utf16).sum::<usize>();
        Position::new(u32::try_from(line).unwrap_or(u32::MAX), u32::try_from(character).unwrap_or(u32::MAX))
    }

    pub(super) fn range(&self, text: &str, start: usize, end: usize) -> Range {
        Range::new(self.position(text, start), self.position(text, end))
    }

    /// The byte at a place; behind the end of a line it is that end, behind the last line that of the text.
    pub(super) fn byte(&self, text: &str, position: Position) -> usize {
        let Some(start) = self.0.get(position.line as usize).copied() else { return text.len() };
        let line = text[start..].split('\n').next().unwrap_or_default();
        let line = line.strip_suffix('\r').unwrap_or(line);
        let mut units = position.character as usize;
        for (byte, letter) in line.char_indices() {
            if units < letter.len_utf16() {
                return start + byte;
            }
            units -= letter.len_utf16();
        }
        start + line.len()
    }

    /// The byte behind the last one of the line in which a byte is.
    pub(super) fn line_end(&self, text: &str, byte: usize) -> usize {
        let rest = text.get(byte..).unwrap_or_default();
        let line = rest.split('\n').next().unwrap_or_default();
        byte + line.trim_end().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_utf_16_units() {
        let text = "// é 🦀 x\r\nsecond\n";
        let lines = Lines::new(text);
        let x = text.find('x').expect("it is there");
        assert_eq!(lines.position(text, x), Position::new(0, 8));
        assert_eq!(lines.byte(text, Position::new(0, 8)), x);
        // In the middle of the crab is before it; behind the end of a line is its end.
        assert_eq!(lines.byte(text, Position::new(0, 6)), text.find('🦀').expect("it is there"));
        assert_eq!(lines.byte(text, Position::new(0, 99)), x + 1);
        assert_eq!(lines.byte(text, Position::new(7, 0)), text.len());
        assert_eq!(lines.position(text, 999), Position::new(2, 0));
        for (byte, _) in text.char_indices().filter(|(_, letter)| *letter != '\n') {
            assert_eq!(lines.byte(text, lines.position(text, byte)), byte);
        }
    }
}
