//! Reads a table. PyTorch itself takes the beginning of a cell for the whole and says nothing; here
//! every character counts.

use super::action::{Action, ActionKind};
use super::table::{Cell, Row, Table};
use crate::diagnostic::{Code, Diagnostic, Diagnostics};
use crate::limits::{MAX_MICROBATCHES, MAX_STAGES};
use crate::parse::MAX_BYTES;
use crate::source::{FileId, Span};

const FORM: &str = "a row per rank and a cell per action, as in `0F0,0SEND_F0,1F0`, and no header or comment";

/// Cells that are no actions which are told; the rest is counted.
const MOST_SHOWN: usize = 5;

/// Takes a text apart.
///
/// # Errors
/// Every cell that is no action, and every row without one.
pub fn read(file: FileId, text: &str) -> Result<Table, Diagnostics> {
    let span = |start: usize, end: usize| {
        let place = |byte: usize| u32::try_from(byte).unwrap_or(u32::MAX);
        Span { file, start: place(start), end: place(end) }
    };
    if text.len() > MAX_BYTES {
        let message = format!("the file has more than {MAX_BYTES} bytes");
        return Err(vec![Diagnostic::error(Code::TooLarge, span(0, 0), "", message)]);
    }
    let (mut rows, mut found, mut start) = (Vec::new(), Diagnostics::new(), 0);
    for line in text.split_inclusive('\n') {
        let row = line.trim_end_matches(['\n', '\r']);
        let mut cells = Vec::new();
        let (mut begin, mut empty) = (start, None);
        for written in row.split(',') {
            let cell = written.trim();
            let at = begin + written.len() - written.trim_start().len();
            let place = span(at, at + cell.len());
            begin += written.len() + 1;
            match cell_of(cell) {
                Ok(Some((action, partner))) => cells.push(Cell { action, partner, span: place }),
                Ok(None) => empty = empty.or(Some(place)),
                Err(message) => {
                    found.push(
                        Diagnostic::error(Code::Syntax, place, "this cell", message).help(format!("write {FORM}")),
                    );
                }
            }
        }
        let whole = span(start, start + row.len());
        if cells.is_empty() && found.is_empty() {
            let message = format!("rank {} has no action", rows.len());
            let error = Diagnostic::error(Code::Syntax, whole, "PyTorch takes this line for a rank", message);
            found.push(error.help("a rank without a stage cannot be in a schedule of PyTorch"));
        }
        rows.push((Row { cells, span: whole }, empty));
        start += line.len();
    }
    if found.len() > MOST_SHOWN {
        let more = found.len() - MOST_SHOWN;
        found.truncate(MOST_SHOWN);
        let last = found.pop();
        let are = if more == 1 { "cell is not an action" } else { "cells are not actions" };
        found.extend(last.map(|last| last.note(format!("and {more} more {are} either"))));
    }
    if rows.is_empty() {
        let error = Diagnostic::error(Code::Syntax, span(0, 0), "", "the file has no row");
        found.push(error.help(format!("write {FORM}")));
    }
    let empty: Vec<Span> = rows.iter().filter_map(|(_, empty)| *empty).collect();
    let table = Table { rows: rows.into_iter().map(|(row, _)| row).collect() };
    if let Some(place) = empty.first().filter(|_| table.has_transfers()) {
        let message = "a cell is empty in a schedule with transfers, and PyTorch does not load it";
        found.push(Diagnostic::error(Code::Syntax, *place, "here", message).help("leave the cell out"));
    }
    if found.is_empty() { Ok(table) } else { Err(found) }
}

/// The actions of a cell; none of an empty one.
fn cell_of(text: &str) -> Result<Option<(Action, Option<Action>)>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let Some(pair) = text.strip_prefix('(') else { return action(text).map(|action| Some((action, None))) };
    let Some(halves) = pair.strip_suffix(")OVERLAP_F_B") else {
        return Err(format!("`{text}` is not a pair of PyTorch's pipelining, such as `(0F1;2B0)OVERLAP_F_B`"));
    };
    let halves: Vec<&str> = halves.split(';').map(str::trim).collect();
    let [first, second] = halves.as_slice() else {
        return Err(format!("`{text}` joins {} actions, not a forward and a backward", halves.len()));
    };
    Ok(Some((action(first)?, Some(action(second)?))))
}

fn action(text: &str) -> Result<Action, String> {
    let wrong = || format!("`{text}` is not an action of PyTorch's pipelining, such as `2F0`");
    let (stage, rest) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let word = rest.trim_end_matches(|c: char| c.is_ascii_digit());
    let microbatch = &rest[word.len()..];
    let kind = ActionKind::from_word(word).ok_or_else(wrong)?;
    let number = |digits: &str, most: u32| {
        let number = digits.parse::<u64>().map_err(|_| wrong())?;
        let fits = u32::try_from(number).ok().filter(|number| *number < most);
        fits.ok_or_else(|| format!("`{text}` names number {number}, but numbers go up to {}", most - 1))
    };
    if kind.is_of_stage() != microbatch.is_empty() {
        let has = if microbatch.is_empty() { "names no microbatch" } else { "is about a stage, not a microbatch" };
        return Err(format!("`{text}` {has}"));
    }
    let microbatch = (!kind.is_of_stage()).then(|| number(microbatch, MAX_MICROBATCHES)).transpose()?;
    Ok(Action { stage: number(stage, MAX_STAGES)?, kind, microbatch })
}
