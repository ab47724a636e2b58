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
        let cells = self.cells(rows);
        let heading = self.line(&cells, None);
        paint(&heading, Style::Faint, self.colours) + "\n" + &self.lines(&cells, rows.len())
    }

    /// The rows alone.
    pub(crate) fn rows(&self, rows: &[R]) -> String {
        self.lines(&self.cells(rows), rows.len())
    }

    fn lines(&self, cells: &[Cells<'_, R>], rows: usize) -> String {
        let (most, noun) = self.most.unwrap_or((rows, ""));
        let hidden = if rows > most { most / 2..rows - most / 2 + 1 } else { 0..0 };
        let line = |row| match hidden.contains(&row) {
            false => self.line(cells, Some(row)) + "\n",
            true if row == hidden.start => {
                paint(&format!("  ..     {} more {noun}s", hidden.len()), Style::Faint, self.colours) + "\n"
            }
            true => String::new(),
        };
        (0..rows).map(line).collect()
    }

    /// The columns that have room, with their cells. Those with the greatest rank are left out first.
    fn cells(&self, rows: &[R]) -> Vec<Cells<'_, R>> {
        let mut cells: Vec<_> = self.columns.iter().map(|column| column.cells(rows)).collect();
        let Some(limit) = self.limit else { return cells };
        let has_room = |most: u8| {
            let there = cells.iter().filter(|cells| cells.column.rank <= most);
            2 + there.map(Cells::columns).sum::<usize>() <= limit
        };
        let most = (0..=u8::MAX).rev().find(|most| has_room(*most)).unwrap_or_default();
        cells.retain(|cells| cells.column.rank <= most);
        cells
    }

    /// A row, or the headings.
    fn line(&self, cells: &[Cells<'_, R>], row: Option<usize>) -> String {
        let mut line = "  ".to_owned();
        // What stands before the last cell that says anything, and that cell.
        let mut last = (String::new(), String::new());
        for Cells { column, width, texts } in cells {
            let (text, style) = match row {
                Some(row) => (texts[row].as_str(), column.style),
                None => (column.heading, None),
            };
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

/// A column with what rows have there.
struct Cells<'a, R> {
    column: &'a Column<'a, R>,
    /// Characters of each cell.
    width: usize,
    texts: Vec<String>,
}

impl<R> Column<'_, R> {
    /// Its cells. Numbers that end at the same place have their points at the same place, too.
    fn cells(&self, rows: &[R]) -> Cells<'_, R> {
        let mut texts: Vec<String> = rows.iter().map(&self.cell).collect();
        let mut width = self.width;
        if self.is_right {
            align_points(&mut texts);
            width = texts.iter().map(|text| columns(text)).fold(width, usize::max);
        }
        Cells { column: self, width, texts }
    }
}

impl<R> Cells<'_, R> {
    /// What it takes in a line, with the gap before it. Words of its cells may be broken if it has no width of its own.
    fn columns(&self) -> usize {
        let cells = self.texts.iter().map(|text| columns(text)).max().unwrap_or_default();
        let most = if self.column.width == 0 { NARROWEST } else { usize::MAX };
        self.column.gap + columns(self.column.heading).max(cells.min(most)).max(self.width)
    }
}

/// Puts spaces behind numbers with fewer decimals than others of their column. Other words stay as they are.
fn align_points(texts: &mut [String]) {
    // A point and its decimals, where a text is a number.
    let behind = |text: &str| {
        let is_number = text.starts_with(|letter: char| letter.is_ascii_digit())
            && text.bytes().all(|byte| byte.is_ascii_digit() || b".,".contains(&byte));
        is_number.then(|| text.find('.').map_or(0, |point| text.len() - point))
    };
    let most = texts.iter().filter_map(|text| behind(text)).max().unwrap_or_default();
    for text in texts {
        if let Some(own) = behind(text) {
            text.push_str(&" ".repeat(most - own));
        }
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

/// A line for each fact. All remarks begin in one column; only a very long figure pushes its remark to the right.
pub(crate) fn facts(facts: &[Fact], colours: bool) -> String {
    const USUAL: std::ops::RangeInclusive<usize> = 10..=16;
    let remarked = facts.iter().filter(|fact| !fact.remark.is_empty());
    let widths = remarked.map(|fact| columns(&fact.figure)).filter(|width| USUAL.contains(width));
    Table::new(colours)
        .left("", 0, 15, |fact: &Fact| fact.name)
        .style(Style::Faint)
        .left("", 0, widths.max().unwrap_or(*USUAL.start()), |fact| fact.figure.clone())
        .left("", 2, 0, |fact| fact.remark.clone())
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
    fn points_of_numbers_stand_below_each_other() {
        let rows = ["9.587", "0", "1,204.5", "none", "12.25"];
        let table = Table::new(false).right("ms", 0, 4, |row: &&str| *row).left("", 2, 0, |row| row.len());
        let lines =
            ["         ms", "      9.587  5", "      0      1", "  1,204.5    7", "       none  4", "     12.25   5"];
        let drawn = table.draw(&rows);
        assert_eq!(drawn.lines().collect::<Vec<_>>(), lines);
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
