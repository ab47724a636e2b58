//! `pipec check x.ir`: verifies a program that somebody's compiler wrote.

use crate::Outcome;
use crate::diagnostics::shortened;
use crate::input::{Format, TargetArguments};
use crate::output::{Failure, Style, colours_error, colours_out, paint, print, print_error};
use crate::table::table;
use pipe_compiler::diagnostic::Severity;
use pipe_compiler::report::{Finding, Report};
use pipe_ir::text::Rejected;

/// The most of a line that is shown, in characters.
const LONGEST_LINE: usize = 200;

/// Checks a program in the textual form.
pub(crate) fn run(target: &TargetArguments) -> Result<Outcome, Failure> {
    let name = &target.target;
    let text = std::fs::read_to_string(name).map_err(|error| Failure::Io(name.clone(), error))?;
    let mut report = Report::new(name);
    match pipe_ir::text::check(&text) {
        Ok(verified) => {
            report.program(verified.program());
            report.ok = true;
        }
        Err(rejected) => report.diagnostics = findings(name, rejected),
    }
    let outcome = if report.ok { Outcome::Accepted } else { Outcome::Rejected };
    if target.format == Format::Json {
        let text = serde_json::to_string_pretty(&report).map_err(|error| Failure::Usage(error.to_string()))?;
        print(&(text + "\n"))?;
        return Ok(outcome);
    }
    for finding in &report.diagnostics {
        let head = paint(&format!("error[{}]", finding.code), Style::Error, colours_error());
        let line = text.lines().nth(finding.line.saturating_sub(1) as usize).unwrap_or_default().trim();
        let line = shortened(line, LONGEST_LINE);
        print_error(&format!("{head}: {}\n  {name}:{}: {line}\n\n", finding.message, finding.line));
    }
    if !target.quiet {
        print(&table(&report, colours_out()))?;
    }
    Ok(outcome)
}

fn findings(name: &str, rejected: Rejected) -> Vec<Finding> {
    let finding = |code: &str, message: String, line: u32, column: u32| Finding {
        code: code.to_owned(),
        severity: Severity::Error,
        message,
        file: name.to_owned(),
        line,
        column,
        end_line: line,
        end_column: column,
        notes: Vec::new(),
        help: None,
    };
    match rejected {
        Rejected::Parse(error) => {
            let message = format!("expected {}, found {}", error.expected, error.found);
            vec![finding("ir-form", message, error.line, error.column)]
        }
        Rejected::Verify(errors) => {
            let errors = errors.into_iter();
            errors.map(|error| finding("ir-rule", error.message, error.line.unwrap_or(1), 1)).collect()
        }
    }
}
