//! `pipec check A B ..`: checks each target separately and exits with the highest exit code.

use super::{Arguments, Checked, check};
use crate::Outcome;
use crate::input::Format;
use crate::input::stream::STANDARD_INPUT;
use crate::output::figures::count;
use crate::output::findings::json;
use crate::output::{Failure, Style, colours_out, complain, paint, print};
use pipe_compiler::report::SCHEMA;
use serde_json::Value;

/// Checks all targets; what is wrong with one does not keep the others from it.
pub(super) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let target = &arguments.timed.target;
    let targets: Vec<&str> = std::iter::once(&target.target).chain(&arguments.more).map(String::as_str).collect();
    if targets.iter().filter(|target| **target == STANDARD_INPUT).count() > 1 {
        return Err(Failure::Usage("`-` is standard input, which is read once".to_owned()));
    }
    let (mut outcomes, mut reports) = (Vec::new(), Vec::new());
    let is_shown = target.format() == Format::Human && !target.quiet;
    // Phases of a pipeline are targets of their own.
    let mut entries: Vec<(&str, Option<String>)> = Vec::new();
    for target in targets {
        let phases = arguments.with_target(target).timed.target.phases().unwrap_or_default();
        entries.extend(phases.iter().map(|phase| (target, Some(phase.clone()))));
        if phases.is_empty() {
            entries.push((target, None));
        }
    }
    for (index, (target, phase)) in entries.iter().enumerate() {
        let mut own = arguments.with_target(target);
        own.timed.target.pipeline = phase.clone().or(own.timed.target.pipeline);
        if is_shown {
            let space = if index > 0 { "\n" } else { "" };
            print(&format!("{space}{}\n", paint(target, Style::Faint, colours_out())))?;
        }
        let (outcome, checked) = check(&own).or_else(|failure| failed(arguments, target, &failure))?;
        outcomes.push(outcome);
        reports.push(checked);
    }
    joined(&reports)?;
    let of = |outcome: Outcome| outcomes.iter().filter(|one| **one == outcome).count();
    if is_shown {
        print(&format!("\n{}\n", summary([Outcome::Accepted, Outcome::Rejected, Outcome::Usage].map(of))))?;
    }
    let worst = [Outcome::Usage, Outcome::Rejected].into_iter().find(|outcome| of(*outcome) > 0);
    Ok(worst.unwrap_or(Outcome::Accepted))
}

/// A target that cannot be checked.
fn failed(arguments: &Arguments, target: &str, failure: &Failure) -> Result<(Outcome, Checked), Failure> {
    let message = failure.to_string();
    complain(&message);
    let checked = match arguments.timed.target.format() {
        Format::Human | Format::Sarif => Checked::Printed,
        Format::Json => {
            let report = serde_json::json!({"schema": SCHEMA, "ok": false, "target": target, "error": message});
            Checked::Json(json(&report)?)
        }
    };
    Ok((Outcome::Usage, checked))
}

/// Prints a list of reports, or a log of SARIF with a run for each.
fn joined(reports: &[Checked]) -> Result<(), Failure> {
    let (mut texts, mut log) = (Vec::new(), None::<Value>);
    for report in reports {
        match report {
            Checked::Printed => {}
            Checked::Json(text) => texts.push(format!("  {}", text.trim_end().replace('\n', "\n  "))),
            Checked::Sarif(own) => match log.as_mut().and_then(|log| log["runs"].as_array_mut()) {
                Some(runs) => runs.extend(own["runs"].as_array().into_iter().flatten().cloned()),
                None => log = Some(own.clone()),
            },
        }
    }
    if !texts.is_empty() {
        print(&format!("[\n{}\n]\n", texts.join(",\n")))?;
    }
    log.map_or(Ok(()), |log| Checked::Sarif(log).print())
}

/// `3 targets: 2 accepted, 1 rejected`
fn summary([accepted, rejected, failed]: [usize; 3]) -> String {
    let parts = [(accepted, "accepted"), (rejected, "rejected"), (failed, "not checked")];
    let parts = parts.iter().filter(|(number, _)| *number > 0).map(|(number, word)| format!("{number} {word}"));
    format!("{}: {}", count(accepted + rejected + failed, "target"), parts.collect::<Vec<_>>().join(", "))
}
