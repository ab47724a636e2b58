//! Tables for people: a column knows its heading, its place in a line, and the cell that a row has there.

use super::wrap::{columns, fit, hanging};
use super::{Style, columns_out, paint};
use std::fmt::Display;

/// Columns for rows of one type.
pub(crate) struct Table<'a, R> {
    columns: Vec<Column<'a, R>>,
    /// The most rows that are drawn, and what a row is about.
    most: Option<(usize, &'static str)>,
    colours: bool,
    /// Columns of the terminal, if lines have to fit.
    limit: Option<usize>,
}

struct Column<'a, R> {
    heading: &'static str,
    /// Spaces before a cell.
    gap: usize,
    /// The fewest characters of a cell.
    width: usize,
    is_right: bool,
    style: Option<Style>,
    /// Where lines are too long, columns with the greatest rank are left out first; 0 stays.
    rank: u8,
    cell: Box<dyn Fn(&R) -> String + 'a>,
}

impl<'a, R> Table<'a, R> {
    pub(crate) fn new(colours: bool) -> Self {
        Self { columns: Vec::new(), most: None, colours, limit: columns_out() }
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
        self.columns.push(Column { heading, gap, width, is_right: false, style: None, rank: 0, cell });
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

    /// The column that was added last may be left out where lines are too long: those with the greatest rank first.
    pub(crate) fn rank(self, rank: u8) -> Self {
        self.change(|column| column.rank = rank)
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
        let heading = self.line(self.most_rank(rows), |column| (column.heading.to_owned(), None));
        paint(&heading, Style::Faint, self.colours) + "\n" + &self.rows(rows)
    }

    /// The rows alone.
    pub(crate) fn rows(&self, rows: &[R]) -> String {
        let (most, noun) = self.most.unwrap_or((rows.len(), ""));
        let hidden = if rows.len() > most { most / 2..rows.len() - most / 2 + 1 } else { 0..0 };
        let rank = self.most_rank(rows);
        let line = |(index, row)| match hidden.contains(&index) {
            false => self.line(rank, |column| ((column.cell)(row), column.style)) + "\n",
            true if index == hidden.start => {
                paint(&format!("  ..     {} more {noun}s", hidden.len()), Style::Faint, self.colours) + "\n"
            }
            true => String::new(),
        };
        rows.iter().enumerate().map(line).collect()
    }

    /// The greatest rank of columns that have room.
    fn most_rank(&self, rows: &[R]) -> u8 {
        let Some(limit) = self.limit else { return u8::MAX };
        let widths: Vec<(u8, usize)> = self.columns.iter().map(|column| (column.rank, column.columns(rows))).collect();
        let has_room = |most: u8| {
            2 + widths.iter().filter(|(rank, _)| *rank <= most).map(|(_, width)| width).sum::<usize>() <= limit
        };
        (0..=u8::MAX).rev().find(|most| has_room(*most)).unwrap_or_default()
    }

    fn line(&self, most_rank: u8, cell: impl Fn(&Column<'a, R>) -> (String, Option<Style>)) -> String {
        let mut line = "  ".to_owned();
        // What stands before the last cell that says anything, and that cell.
        let mut last = (String::new(), String::new());
        for column in self.columns.iter().filter(|column| column.rank <= most_rank) {
            let (width, (text, style)) = (column.width, cell(column));
            line.push_str(&" ".repeat(column.gap));
            let says = !text.trim().is_empty();
            let text = if column.is_right { format!("{text:>width$}") } else { format!("{text:width$}") };
            let text = style.map_or(text.clone(), |style| paint(&text, style, self.colours));
            if says {
                last = (line.clone(), text.trim_end().to_owned());
            }
            line.push_str(&text);
        }
        let line = line.trim_end();
        let Some(limit) = self.limit.filter(|limit| columns(line) > *limit) else { return line.to_owned() };
        let (before, cell) = last;
        let hang = columns(&before);
        if limit.saturating_sub(hang) < NARROWEST { fit(line, limit) } else { hanging(&before, &cell, hang, limit) }
    }
}

/// The fewest columns that words of a last cell are broken into.
const NARROWEST: usize = 16;

impl<R> Column<'_, R> {
    /// What it takes in a line, with the gap before it. Words of its cells may be broken if it has no width of its own.
    fn columns(&self, rows: &[R]) -> usize {
        let cells = rows.iter().map(|row| columns(&(self.cell)(row))).max().unwrap_or_default();
        let most = if self.width == 0 { NARROWEST } else { usize::MAX };
        self.gap + columns(self.heading).max(cells.min(most)).max(self.width)
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

    #[test]
    fn columns_are_left_out_by_rank_and_the_last_one_is_broken_between_words() {
        let table = |limit: usize| {
            let table = Table { limit: Some(limit), ..Table::new(false) };
            let table = table.left("name", 0, 5, |row: &u64| format!("d{row}"));
            let table =
                table.right("bar", 1, 9, |_| "#########").rank(2).right("square", 1, 7, |row| row * row).rank(1);
            table.left("", 2, 0, |_| "words that go on and on").draw(&[12])
        };
        assert_eq!(table(60).lines().nth(1), Some("  d12   #########     144  words that go on and on"));
        assert_eq!(table(35).lines().nth(1), Some("  d12       144  words that go on"));
        assert_eq!(table(35).lines().nth(2), Some("                 and on"));
        assert_eq!(table(28).lines().nth(1), Some("  d12    words that go on"));
    }
}
