//! Pages for a terminal: the Markdown of `pipec explain` as text that fits.

use super::wrap::{columns, fit, hanging};
use super::{Style, paint};

/// Draws a page: headings, paragraphs, lists, tables and code.
pub(crate) fn render(page: &str, width: usize, colours: bool) -> String {
    let mut text = String::new();
    for block in blocks(page) {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&match block {
            Block::Heading(words) => paint(&inline(words, colours), Style::Strong, colours) + "\n",
            Block::Paragraph(lines) => below("", &inline(&lines.join(" "), colours), 0, width),
            Block::Item(mark, lines) => {
                below(&format!("  {mark} "), &inline(&lines.join(" "), colours), mark.len() + 3, width)
            }
            Block::Table(rows) => table(&rows, width, colours),
            Block::Code(lines) => {
                lines.iter().map(|line| fit(format!("    {line}").trim_end(), width) + "\n").collect()
            }
        });
    }
    text
}

fn below(before: &str, cell: &str, hang: usize, width: usize) -> String {
    hanging(before, cell, hang, width) + "\n"
}

/// A piece of a page.
enum Block<'p> {
    Heading(&'p str),
    Paragraph(Vec<&'p str>),
    /// An item of a list, with what marks it.
    Item(&'p str, Vec<&'p str>),
    Table(Vec<Vec<&'p str>>),
    Code(Vec<&'p str>),
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    let (mut is_code, mut is_apart) = (false, true);
    for line in page.lines() {
        let trimmed = line.trim();
        if trimmed.starts_with("```") {
            is_code = !is_code;
            if is_code {
                blocks.push(Block::Code(Vec::new()));
            }
            is_apart = true;
            continue;
        }
        match blocks.last_mut() {
            Some(Block::Code(lines)) if is_code => lines.push(line),
            _ if trimmed.is_empty() => is_apart = true,
            _ if trimmed.starts_with('#') => {
                blocks.push(Block::Heading(trimmed.trim_start_matches('#').trim()));
                is_apart = true;
            }
            Some(Block::Table(rows)) if trimmed.starts_with('|') && !is_apart => rows.extend(cells(trimmed)),
            _ if trimmed.starts_with('|') => {
                blocks.push(Block::Table(cells(trimmed).into_iter().collect()));
                is_apart = false;
            }
            _ if marked(trimmed).is_some() => {
                let (mark, words) = marked(trimmed).expect("it was just found");
                blocks.push(Block::Item(mark, vec![words]));
                is_apart = false;
            }
            Some(Block::Paragraph(lines) | Block::Item(_, lines)) if !is_apart => lines.push(trimmed),
            _ => {
                blocks.push(Block::Paragraph(vec![trimmed]));
                is_apart = false;
            }
        }
    }
    blocks
}

/// The mark of a list's item, and its words.
fn marked(line: &str) -> Option<(&str, &str)> {
    let (mark, words) = line.split_once(' ')?;
    let is_number = mark.strip_suffix('.').is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    (mark == "-" || mark == "*" || is_number).then_some((mark, words))
}

/// The cells of a row; none of the line below a table's head.
fn cells(line: &str) -> Option<Vec<&str>> {
    let is_rule = line.chars().all(|mark| "|-: ".contains(mark));
    (!is_rule).then(|| line.trim_matches('|').split('|').map(str::trim).collect())
}

fn table(rows: &[Vec<&str>], width: usize, colours: bool) -> String {
    let n_columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let widest = |index: usize| rows.iter().filter_map(|row| Some(columns(&inline(row.get(index)?, false)))).max();
    let line = |(number, row): (usize, &Vec<&str>)| {
        let mut before = " ".to_owned();
        let (last, others) = row.split_last().map_or(("", &[][..]), |(last, others)| (*last, others));
        for (index, cell) in others.iter().enumerate() {
            let cell = inline(cell, colours);
            let room = widest(index).unwrap_or_default().saturating_sub(columns(&cell));
            before.push_str(&format!(" {cell}{} ", " ".repeat(room)));
        }
        before.push(' ');
        let hang = columns(&before);
        let last = inline(last, colours);
        let text = if width.saturating_sub(hang) >= 16 || n_columns == 1 {
            below(&before, &last, hang, width)
        } else {
            fit(&(before + &last), width) + "\n"
        };
        if number == 0 { paint(text.trim_end(), Style::Faint, colours) + "\n" } else { text }
    };
    rows.iter().enumerate().map(line).collect()
}

/// Words in which code is coloured; it keeps its marks, as in messages.
fn inline(text: &str, colours: bool) -> String {
    let part = |(index, part): (usize, &str)| match index % 2 {
        0 => part.to_owned(),
        _ => paint(&format!("`{part}`"), Style::Good, colours),
    };
    text.split('`').enumerate().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::render;

    const PAGE: &str = "\
# A page

Words that go
on `here`.

- an item of
  two lines
1. another

| name | words |
|---|---|
| a | many words that go on |
| long name | few |

```pipe
schedule x {
    stages D
```
";

    #[test]
    fn pages_are_drawn_as_wide_as_they_may_be() {
        let drawn = "\
A page

Words that go on `here`.

  - an item of two lines

  1. another

  name       words
  a          many words that
             go on
  long name  few

    schedule x {
        stages D
";
        assert_eq!(render(PAGE, 30, false), drawn);
        let coloured = render(PAGE, 30, true);
        assert!(coloured.starts_with("\u{1b}[1mA page\u{1b}[0m\n"), "{coloured}");
        assert!(coloured.contains("on \u{1b}[32m`here`\u{1b}[0m."), "{coloured}");
    }
}
