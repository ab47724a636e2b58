//! Where tasks come from: the statements of the source, and its texts.

use crate::Picture;
use pipe_compiler::Compilation;
use pipe_schedule::schedule::Schedule;
use pipe_syntax::source::{FileId, Sources, Span};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The text of a source with more bytes is left out. Its statements have their places all the same.
const LONGEST: usize = 1 << 18;

/// A statement that tasks come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Statement {
    /// The text that it stands in: a position in [`Picture::sources`].
    pub source: u32,
    /// Its first character.
    pub start: Place,
    /// The character behind its last one.
    pub end: Place,
}

/// A place in a text. Lines and columns are counted from 1, columns in characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    /// The line.
    pub line: u32,
    /// The column.
    pub column: u32,
}

/// A text that statements stand in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SourceText {
    /// What diagnostics call it.
    pub name: String,
    /// What it says, unless that is very long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

impl Picture {
    /// The picture of a compilation, if it has one, with the source of its tasks.
    pub fn with_sources(compilation: &Compilation, sources: &Sources) -> Option<Self> {
        let mut picture = Self::new(compilation)?;
        let analyzed = compilation.analysis.as_ref().map(|analysis| &analysis.schedule);
        if let Some(schedule) = analyzed.or(compilation.stuck.as_ref().map(|stuck| &stuck.schedule)) {
            picture.tell_sources(schedule, sources);
        }
        Some(picture)
    }

    /// Says of every task of a schedule that is drawn which statement it comes from.
    pub fn tell_sources(&mut self, schedule: &Schedule, sources: &Sources) {
        let drawn = schedule.orders.iter().flatten();
        let spans: Vec<Option<Span>> =
            drawn.map(|one| schedule.origins.get(usize::from(one.origin)).copied()).collect();
        let statements: BTreeSet<Span> = spans.iter().flatten().copied().collect();
        let files: BTreeSet<FileId> = statements.iter().map(|span| span.file).collect();
        let texts = (0..).zip(&files).map(|(position, file)| {
            let of_file = statements.iter().filter(|span| span.file == *file);
            let places = places(&sources.get(*file).text, of_file.flat_map(|span| [span.start, span.end]).collect());
            (*file, (position, places))
        });
        let texts: BTreeMap<FileId, (u32, BTreeMap<u32, Place>)> = texts.collect();
        let statement = |span: &Span| {
            let (source, places) = &texts[&span.file];
            Statement { source: *source, start: places[&span.start], end: places[&span.end] }
        };
        self.statements = statements.iter().map(statement).collect();
        self.sources = files.iter().map(|file| text(sources, *file)).collect();
        let positions: BTreeMap<Span, u32> = statements.into_iter().zip(0..).collect();
        for (task, span) in self.tasks.iter_mut().zip(&spans) {
            task.statement = span.and_then(|span| positions.get(&span).copied());
        }
    }
}

fn text(sources: &Sources, file: FileId) -> SourceText {
    let source = sources.get(file);
    let is_short = source.text.len() <= LONGEST;
    SourceText { name: source.name.clone(), text: is_short.then(|| source.text.clone()) }
}

/// The places of some bytes of a text, in one pass over it.
fn places(text: &str, bytes: BTreeSet<u32>) -> BTreeMap<u32, Place> {
    let mut letters = text.char_indices().peekable();
    let mut at = Place { line: 1, column: 1 };
    let place = |byte: u32| {
        while let Some((_, letter)) = letters.next_if(|(index, _)| *index < byte as usize) {
            at = match letter {
                '\n' => Place { line: at.line + 1, column: 1 },
                _ => Place { column: at.column + 1, ..at },
            };
        }
        (byte, at)
    };
    bytes.into_iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::{Place, places};

    #[test]
    fn columns_are_counted_in_characters() {
        let text = "a é\nxy\n";
        let found = places(text, [0, 2, 4, 5, 6, 8].into_iter().collect());
        let found: Vec<[u32; 3]> =
            found.into_iter().map(|(byte, Place { line, column })| [byte, line, column]).collect();
        assert_eq!(found, [[0, 1, 1], [2, 1, 3], [4, 1, 4], [5, 2, 1], [6, 2, 2], [8, 3, 1]]);
    }
}
