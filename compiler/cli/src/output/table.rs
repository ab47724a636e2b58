//! Tables for people: a column knows its heading, its place in a line, and the cell that a row has there.

use super::{Style, paint};
use std::fmt::Display;

/// Columns for rows of one type.
pub(crate) struct Table<'a, R> {
    columns: Vec<Column<'a, R>>,
    /// The most rows that are drawn, and what a row is about.
    most: Option<(usize, &'static str)>,
    colours: bool,
}

struct Column<'a, R> {
    heading: &'static str,
    /// Spaces before a cell.
    gap: usize,
    /// The fewest characters of a cell.
    width: usize,
    is_right: bool,
    style: Option<Style>,
    cell: Box<dyn Fn(&R) -> String + 'a>,
}

impl<'a, R> Table<'a, R> {
    pub(crate) fn new(colours: bool) -> Self {
        Self { columns: Vec::new(), most: None, colours }
    }

    /// Adds a column whose cells begin at the same place, after a gap and with at least this width.
    pub(crate) fn left<C: Display>(
        mut self,
        heading: &'static str,
        gap: usize,
        width: usize,
        cell: impl Fn(&R) -> C + 'a,
    ) -> Self {
        let cell = Box::new(move |row: &R| cell(row).to_string());
        self.columns.push(Column { heading, gap, width, is_right: false, style: None, cell });
        self
    }

    /// Adds a column whose cells end at the same place.
    pub(crate) fn right<C: Display>(
        self,
        heading: &'static str,
        gap: usize,
        width: usize,
        cell: impl Fn(&R) -> C + 'a,
    ) -> Self {
        self.left(heading, gap, width, cell).change(|column| column.is_right = true)
    }

    /// The style of the cells of the column that was added last.
    pub(crate) fn style(self, style: Style) -> Self {
        self.change(|column| column.style = Some(style))
    }

    fn change(mut self, change: impl FnOnce(&mut Column<'a, R>)) -> Self {
        self.columns.last_mut().map(change);
        self
    }

    /// Adds columns only under a condition.
    pub(crate) fn when(self, is_wanted: bool, columns: impl FnOnce(Self) -> Self) -> Self {
        if is_wanted { columns(self) } else { self }
    }

    /// Of more rows than this, only the first and the last ones are drawn.
    pub(crate) fn at_most(self, rows: usize, noun: &'static str) -> Self {
        Self { most: Some((rows, noun)), ..self }
    }

    /// The headings and the rows; nothing without rows.
    pub(crate) fn draw(&self, rows: &[R]) -> String {
        if rows.is_empty() {
            return String::new();
        }
        let heading = self.line(|column| (column.heading.to_owned(), None));
        paint(&heading, Style::Faint, self.colours) + "\n" + &self.rows(rows)
    }

    /// The rows alone.
    pub(crate) fn rows(&self, rows: &[R]) -> String {
        let (most, noun) = self.most.unwrap_or((rows.len(), ""));
        let hidden = if rows.len() > most { most / 2..rows.len() - most / 2 + 1 } else { 0..0 };
        let line = |(index, row)| match hidden.contains(&index) {
            false => self.line(|column| ((column.cell)(row), column.style)) + "\n",
            true if index == hidden.start => {
                paint(&format!("  ..     {} more {noun}s", hidden.len()), Style::Faint, self.colours) + "\n"
            }
            true => String::new(),
        };
        rows.iter().enumerate().map(line).collect()
    }

    fn line(&self, cell: impl Fn(&Column<'a, R>) -> (String, Option<Style>)) -> String {
        let filled = self.columns.iter().map(|column| {
            let (width, (text, style)) = (column.width, cell(column));
            let text = if column.is_right { format!("{text:>width$}") } else { format!("{text:width$}") };
            " ".repeat(column.gap) + &style.map_or(text.clone(), |style| paint(&text, style, self.colours))
        });
        let line: String = std::iter::once("  ".to_owned()).chain(filled).collect();
        line.trim_end().to_owned()
    }
}

/// Puts an empty line between the parts of a text that there are.
pub(crate) fn apart<const N: usize>(parts: [String; N]) -> String {
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
}

/// What is said of one thing: its name, a figure, and a remark.
pub(crate) struct Fact {
    pub(crate) name: &'static str,
    pub(crate) figure: String,
    pub(crate) remark: String,
}

impl Fact {
    pub(crate) fn new(name: &'static str, figure: impl Display, remark: impl Display) -> Self {
        Self { name, figure: figure.to_string(), remark: remark.to_string() }
    }
}

/// A line for each.
pub(crate) fn facts(facts: &[Fact], colours: bool) -> String {
    Table::new(colours)
        .left("", 0, 15, |fact: &Fact| fact.name)
        .style(Style::Faint)
        .left("", 0, 11, |fact| fact.figure.clone())
        .left("", 1, 0, |fact| fact.remark.clone())
        .rows(facts)
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn lines_end_with_their_last_character_and_rows_in_the_middle_are_counted() {
        let rows: Vec<u64> = (8..13).collect();
        let table = Table::new(false)
            .left("name", 0, 5, |row: &u64| format!("d{row}"))
            .right("square", 0, 7, |row| row * row)
            .when(false, |table| table.left("hidden", 0, 9, |_| "hidden"))
            .left("", 2, 4, |row| if *row < 9 { "few" } else { "" })
            .at_most(4, "device");
        let drawn = "  name  square\n  d8        64  few\n  d9        81\n  ..     2 more devices\n  d12      144\n";
        assert_eq!(table.draw(&rows), drawn);
        assert_eq!(table.draw(&[]), "");
    }
}
