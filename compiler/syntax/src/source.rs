//! Sources: the texts that take part in a compilation, and places in them.

/// Which text of a compilation: a position in [`Sources::files`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FileId(pub u32);

/// A half-open range of bytes in one file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Span {
    /// Which file.
    pub file: FileId,
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

/// One text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// What diagnostics call it: a path as the user wrote it, `std:1f1b` or `<stdin>`.
    pub name: String,
    /// Everything in it.
    pub text: String,
}

/// All texts of a compilation; the first is the one that the user named.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// By [`FileId`].
    pub files: Vec<Source>,
}

impl Sources {
    /// Takes a text in and names it.
    pub fn add(&mut self, source: Source) -> FileId {
        self.files.push(source);
        FileId(u32::try_from(self.files.len() - 1).expect("a compilation has few files"))
    }

    /// The text with this id.
    pub fn get(&self, file: FileId) -> &Source {
        &self.files[file.0 as usize]
    }

    /// Line and column, both from 1, of a byte of a file. Columns count characters.
    pub fn line_column(&self, file: FileId, byte: u32) -> (u32, u32) {
        let text = &self.get(file).text;
        let before = text.get(..byte as usize).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        let column = before[line_start..].chars().count() + 1;
        (u32::try_from(line).unwrap_or(u32::MAX), u32::try_from(column).unwrap_or(u32::MAX))
    }
}
