//! What speaks against a target: on standard error for people, on standard output for programs.

use super::diagnostics::{Look, draw, draw_fitting};
use super::{Failure, colours_error, columns_error, complain, print, print_error, terminal_width};
use crate::Outcome;
use crate::input::{Format, TargetArguments};
use pipe_compiler::Compilation;
use pipe_compiler::report::Finding;
use pipe_syntax::diagnostic::{Diagnostic, Severity};
use pipe_syntax::source::Sources;

/// Draws what speaks against a target on standard error, without notes.
pub(crate) fn show_diagnostics(compilation: &Compilation, sources: &Sources) {
    let is_note = |found: &&Diagnostic| found.severity == Severity::Note;
    let found: Vec<Diagnostic> = compilation.diagnostics.iter().filter(|found| !is_note(found)).cloned().collect();
    show(&found, sources);
    compilation.mistakes().for_each(|mistake| print_error(&format!("{mistake}\n")));
}

/// Draws notes on standard error, unless a user wants nothing but errors and warnings.
pub(crate) fn show_notes(compilation: &Compilation, sources: &Sources, target: &TargetArguments) {
    let is_note = |found: &&Diagnostic| found.severity == Severity::Note;
    if !target.quiet && target.format() == Format::Human {
        let notes: Vec<Diagnostic> = compilation.diagnostics.iter().filter(is_note).cloned().collect();
        show(&notes, sources);
    }
}

/// Draws diagnostics on standard error.
pub(crate) fn show(diagnostics: &[Diagnostic], sources: &Sources) {
    let look = Look { width: terminal_width(), colours: colours_error() };
    let draw = if columns_error().is_some() { draw_fitting } else { draw };
    print_error(&draw(diagnostics, sources, look));
}

/// Says what speaks against a target: to programs, for which a rejected target has no other output, as the report of
/// `check`.
pub(crate) fn show_findings(compilation: &Compilation, sources: &Sources, format: Format) -> Result<(), Failure> {
    if format == Format::Json && !compilation.report.ok {
        return print(&json(&compilation.report)?);
    }
    show_diagnostics(compilation, sources);
    Ok(())
}

/// Fails if a name is wrong that the command line gives, and not the target.
pub(crate) fn check_names(found: &[Diagnostic]) -> Result<(), Failure> {
    let words = |one: &Diagnostic| {
        let parts = std::iter::once(&one.message).chain(&one.notes).chain(&one.help);
        parts.map(String::as_str).collect::<Vec<_>>().join("; ")
    };
    let wrong: Vec<String> = found.iter().filter(|one| one.is_callers).map(words).collect();
    if wrong.is_empty() { Ok(()) } else { Err(Failure::Usage(wrong.join("; "))) }
}

/// Why a target is rejected, in a line, for others to say.
pub(crate) fn reason(compilation: &Compilation) -> Failure {
    let first = compilation.report.diagnostics.iter().find(|found| found.severity == Severity::Error);
    let of = |found: &Finding| format!("{}:{}:{}: {}", found.file, found.line, found.column, found.message);
    Failure::Usage(first.map_or_else(|| "the target is rejected".to_owned(), of))
}

/// Whether a compilation may go on.
pub(crate) fn outcome(compilation: &Compilation) -> Outcome {
    if compilation.report.ok { Outcome::Accepted } else { Outcome::Rejected }
}

/// A report for programs.
pub(crate) fn json(report: &impl serde::Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(report);
    text.map(|text| text + "\n").map_err(|error| Failure::Usage(error.to_string()))
}

/// Says why what was begun failed; programs get an object of this schema without figures.
pub(crate) fn reject(format: Format, schema: &str, message: &str) -> Result<Outcome, Failure> {
    complain(message);
    if format == Format::Json {
        print(&format!("{:#}\n", serde_json::json!({"schema": schema, "ok": false, "error": message})))?;
    }
    Ok(Outcome::Rejected)
}
