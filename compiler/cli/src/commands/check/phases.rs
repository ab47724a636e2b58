//! A pipeline with phases: the report of each, and what they come to together.

use super::Arguments;
use super::table::table;
use crate::Outcome;
use crate::input::Format;
use crate::output::figures::{bytes, count, time};
use crate::output::findings::{json, outcome, show, show_diagnostics, show_notes};
use crate::output::table::{Fact, Table, apart, facts};
use crate::output::{Failure, Style, colours_out, paint, print, print_page};
use crate::training::files;
use pipe_compiler::phases::{DeviceTogether, Together, exceeded, together};
use pipe_compiler::report::{Finding, Report, SCHEMA};
use pipe_compiler::{Certificates, Compilation};
use pipe_syntax::diagnostic::{self, Code, Diagnostic};
use pipe_syntax::source::{Sources, Span};
use serde::Serialize;

/// The report of a pipeline with phases.
#[derive(Serialize)]
struct PhasesReport<'r> {
    schema: &'static str,
    ok: bool,
    target: &'r str,
    /// The report of each phase, in the order in which they run.
    phases: Vec<&'r Report>,
    #[serde(flatten)]
    together: &'r Together,
    /// What speaks against all phases together.
    diagnostics: Vec<Finding>,
}

/// Checks all phases of a pipeline.
pub(super) fn run(arguments: &Arguments, names: &[String]) -> Result<Outcome, Failure> {
    let target = &arguments.timed.target;
    if target.format() == Format::Sarif {
        return Err(Failure::Usage(format!("name one phase: `--pipeline {}`", names.join("`, `--pipeline "))));
    }
    let mut all: Vec<(Compilation, Sources)> = Vec::new();
    for name in names {
        let (mut compilation, sources) = arguments.timed.of_pipeline(name).compile(Certificates::Beside)?;
        files::check(&mut compilation, &sources, &target.folder(), true);
        all.push((compilation, sources));
    }
    let (mut compilations, sources): (Vec<Compilation>, Vec<Sources>) = all.into_iter().unzip();
    leave_out_shared(&mut compilations);
    let sum = together(&compilations);
    let found = exceeded(&sum, &compilations);
    let fits = sum.per_device.iter().all(|one| one.limit_bytes.is_none_or(|limit| one.peak_bytes <= limit));
    let ok = fits && compilations.iter().all(|phase| phase.report.ok);
    match target.format() {
        Format::Json => {
            let report = PhasesReport {
                schema: SCHEMA,
                ok,
                target: &target.target,
                phases: compilations.iter().map(|phase| &phase.report).collect(),
                together: &sum,
                diagnostics: found.iter().map(|(phase, one)| Finding::new(one, &sources[*phase])).collect(),
            };
            print(&json(&report)?)?;
        }
        _ => {
            for (compilation, sources) in compilations.iter().zip(&sources) {
                show_diagnostics(compilation, sources);
                show_notes(compilation, sources, target);
            }
            // All phases read the same files.
            let joined = diagnostic::joined(found.iter().map(|(_, one)| one.clone()).collect());
            sources.first().into_iter().for_each(|sources| show(&joined, sources));
            if !target.quiet {
                let tables = compilations.iter().map(|phase| table(&phase.report, colours_out()) + "\n");
                let text = tables.collect::<String>() + &all_together((names, &compilations), &sum, ok);
                print_page(&text)?;
            }
        }
    }
    let worst = compilations.iter().map(outcome).find(|outcome| *outcome != Outcome::Accepted);
    Ok(worst.unwrap_or(if ok { Outcome::Accepted } else { Outcome::Rejected }))
}

/// Removes warnings about costs that all phases share and that some phase uses.
fn leave_out_shared(phases: &mut [Compilation]) {
    let key = |one: &Diagnostic| {
        let said = one.message.split(", but").next().unwrap_or_default().to_owned();
        (one.code == Code::UnusedCost).then(|| (one.labels.first().map(|label| label.span), said))
    };
    let of_phase = |phase: &Compilation| phase.diagnostics.iter().filter_map(key).collect::<Vec<_>>();
    let all: Vec<Vec<_>> = phases.iter().map(of_phase).collect();
    for phase in phases {
        let own = phase.analysis.as_ref().and_then(|analysis| analysis.pipeline.as_ref()).map(|pipeline| pipeline.span);
        let is_own =
            |span: Span| own.is_some_and(|own| own.file == span.file && (own.start..own.end).contains(&span.start));
        let is_kept = |one: &Diagnostic| {
            let Some(key) = key(one) else { return true };
            key.0.is_some_and(is_own) || all.iter().all(|found| found.iter().any(|(_, said)| *said == key.1))
        };
        let kept: Vec<bool> = phase.diagnostics.iter().map(is_kept).collect();
        let mut places = kept.iter();
        phase.diagnostics.retain(|_| places.next().copied().unwrap_or(true));
        let mut places = kept.iter();
        phase.report.diagnostics.retain(|_| places.next().copied().unwrap_or(true));
    }
}

/// What all phases come to.
fn all_together((names, phases): (&[String], &[Compilation]), sum: &Together, ok: bool) -> String {
    let colours = colours_out();
    let name = |phase: usize| names[phase].clone();
    let whole = name(0).split('.').next().unwrap_or_default().to_owned();
    let verdict = if ok { paint("accepted", Style::Good, colours) } else { paint("rejected", Style::Error, colours) };
    let heading = format!(
        "{}: {}, one after the other\n{verdict}\n",
        paint(&whole, Style::Strong, colours),
        count(phases.len(), "phase")
    );
    let each = phases.iter().filter_map(|phase| {
        let name = phase.report.pipeline.as_ref()?.split('.').next_back()?.to_owned();
        Some(format!("{name} {}", time(phase.report.figures.makespan?, sum.time_unit)))
    });
    let each = each.collect::<Vec<_>>().join(", ");
    let mut lines = vec![match sum.makespan {
        Some(all) => Fact::new("makespan", time(all, sum.time_unit), each),
        None if phases.iter().any(|phase| phase.analysis.is_none()) => {
            Fact::new("makespan", "not known", "a phase is rejected")
        }
        None => Fact::new("makespan", "not known", "units of time differ: give the phases costs, or models"),
    }];
    if sum.per_device.is_empty() {
        lines.push(Fact::new("bytes", "not known", "only phases that all have a model are added up"));
    }
    let limit = |row: &DeviceTogether| row.limit_bytes.map_or_else(String::new, |limit| format!("of {}", bytes(limit)));
    let rows = &sum.per_device;
    let devices = Table::new(colours)
        .left("device", 0, 7, |row: &DeviceTogether| format!("d{}", row.device))
        .right("bytes", 0, 9, |row| bytes(row.peak_bytes))
        .left("", 1, 0, limit)
        .left("fullest in", 2, 10, |row| name(row.phase))
        .right("kept by others", 2, 14, |row| bytes(row.kept_bytes))
        .at_most(super::table::ROWS, "device")
        .draw(rows);
    apart([heading, facts(&lines, colours), if rows.is_empty() { String::new() } else { devices }])
}
