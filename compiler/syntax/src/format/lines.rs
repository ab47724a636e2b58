//! Finished lines: what stands below each other, and the text that they make.

use crate::parse::Rule;

/// The column of comments behind code, from 0, where the code leaves it free.
const COMMENTS: usize = 43;

/// One line.
pub(super) struct Line<'t> {
    /// Spaces at its beginning.
    pub(super) indent: usize,
    /// Code, or a comment by itself; without it the line is empty.
    pub(super) text: String,
    /// Behind the code.
    pub(super) comment: Option<&'t str>,
    /// What begins the line, and the byte of its text that stands below that of neighbours of the same kind.
    pub(super) mark: Option<(Rule, usize)>,
}

impl Line<'_> {
    pub(super) fn new(indent: usize, text: &str) -> Self {
        Self { indent, text: text.to_owned(), comment: None, mark: None }
    }

    /// Columns of its code.
    pub(super) fn width(&self) -> usize {
        self.indent + self.text.chars().count()
    }
}

/// The text of some lines.
pub(super) fn join(mut lines: Vec<Line<'_>>, newline: &str) -> String {
    for run in lines.chunk_by_mut(|one, next| kind(one).is_some() && kind(one) == kind(next)) {
        let column = run.iter().filter_map(|line| line.mark).map(|(_, column)| column).max().unwrap_or(0);
        for line in run {
            if let Some((_, mark)) = line.mark {
                line.text.insert_str(mark, &" ".repeat(column - mark));
            }
        }
    }
    let mut text = String::new();
    for run in lines.chunk_by(|one, next| one.comment.is_some() && next.comment.is_some()) {
        let column = run.iter().map(|line| line.width() + 2).max().unwrap_or(0).max(COMMENTS);
        for line in run {
            let indent = if line.text.is_empty() { 0 } else { line.indent };
            text.push_str(&" ".repeat(indent));
            text.push_str(&line.text);
            if let Some(comment) = line.comment {
                text.push_str(&" ".repeat(column - line.width()));
                text.push_str(comment);
            }
            text.push_str(newline);
        }
    }
    text
}

fn kind(line: &Line<'_>) -> Option<(Rule, usize)> {
    line.mark.map(|(rule, _)| (rule, line.indent))
}
