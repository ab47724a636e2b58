//! `pipec check x.ir`: verifies a program that somebody's compiler wrote.

use super::Checked;
use super::table::table;
use crate::Outcome;
use crate::input::stream::{MOST_INSTRUCTIONS, whole_text};
use crate::input::{Format, TargetArguments};
use crate::output::diagnostics::shortened;
use crate::output::findings::json;
use crate::output::{Failure, Style, colours_error, colours_out, paint, print_error, print_page, sarif};
use crate::training::is_computable;
use pipe_compiler::report::{Finding, Report};
use pipe_ir::text::Rejected;
use pipe_ir::verify::{Note, Place, VerifyError};
use pipe_syntax::diagnostic::Severity;

/// The most of a line that is shown, in characters.
const LONGEST_LINE: usize = 200;

/// Checks a program in the textual form, and prints its report.
pub(crate) fn run(target: &TargetArguments) -> Result<Outcome, Failure> {
    let (outcome, checked) = check(target)?;
    checked.print()?;
    Ok(outcome)
}

/// Checks a program in the textual form.
pub(super) fn check(target: &TargetArguments) -> Result<(Outcome, Checked), Failure> {
    let name = &target.target;
    let text = whole_text(name, MOST_INSTRUCTIONS).map_err(|error| Failure::Io(name.clone(), error))?;
    let mut report = Report::new(name);
    let mut has_graphs = true;
    match pipe_ir::text::check(&text) {
        Ok(verified) => {
            has_graphs = is_computable(verified.program());
            report.program(verified.program());
            report.ok = true;
        }
        Err(rejected) => report.diagnostics = findings(name, rejected),
    }
    let outcome = if report.ok { Outcome::Accepted } else { Outcome::Rejected };
    if target.format() == Format::Json {
        return Ok((outcome, Checked::Json(json(&report)?)));
    }
    if target.format() == Format::Sarif {
        return Ok((outcome, Checked::Sarif(sarif::of_program(name, &text, &report.diagnostics))));
    }
    for finding in &report.diagnostics {
        let head = paint(&format!("error[{}]", finding.code), Style::Error, colours_error());
        let line = text.lines().nth(finding.line.saturating_sub(1) as usize).unwrap_or_default().trim();
        let line = shortened(line, LONGEST_LINE);
        // Where several instructions make the mistake together, the first of them is the one at this line.
        let places = match &finding.notes[..] {
            [] => format!("  {name}:{}: {line}\n", finding.line),
            notes => notes.iter().map(|note| format!("  {}\n", shortened(note, LONGEST_LINE))).collect(),
        };
        print_error(&format!("{head}: {}\n{places}\n", finding.message));
    }
    if !target.quiet {
        print_page(&table(&report, colours_out()))?;
        if report.ok && !has_graphs {
            print_page("\n  no tensor graphs: sizes are those that the program states\n")?;
        }
    }
    Ok((outcome, Checked::Printed))
}

fn findings(name: &str, rejected: Rejected) -> Vec<Finding> {
    let finding = |code: &str, message: String, (line, column): (u32, u32), notes: Vec<String>| Finding {
        code: code.to_owned(),
        severity: Severity::Error,
        message,
        file: name.to_owned(),
        line,
        column,
        end_line: line,
        end_column: column,
        notes,
        help: None,
        fix: Vec::new(),
    };
    match rejected {
        Rejected::Parse(error) => {
            let message = format!("expected {}, found {}", error.expected, error.found);
            vec![finding("ir-form", message, (error.line, error.column), Vec::new())]
        }
        Rejected::Verify(errors) => {
            let broken = |error: VerifyError| {
                let notes = error.notes.iter().map(|note| described(name, note)).collect();
                finding("ir-rule", error.message, (error.line.unwrap_or(1), 1), notes)
            };
            errors.into_iter().map(broken).collect()
        }
    }
}

/// `x.ir:12: d0 `wait !3` waits for`
fn described(name: &str, note: &Note) -> String {
    let line = note.line.map(|line| format!(":{line}")).unwrap_or_default();
    let device = match note.place {
        Place::Instruction(device, ..) => format!("{device} "),
        _ => String::new(),
    };
    format!("{name}{line}: {device}`{}`{}", note.instruction, note.words)
}
