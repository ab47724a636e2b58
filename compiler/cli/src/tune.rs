//! How a tuning is shown: a line of progress, and the tables of what was found.

use crate::cluster_table;
use crate::output::{Failure, Style, paint, print_error};
use crate::run::progress::grouped;
use crate::search::progress::spinner;
use crate::table::{count, number, percent};
use indicatif::ProgressBar;
use pipe_ir::units::Bytes;
use pipe_search::tune::report::{CandidateReport, OtherReport, RefusalReport, TuneReport};
use pipe_search::tune::{Problem, Progress};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

/// Of each table behind that of the best, how many rows are shown.
const ROWS: usize = 5;
/// Time between two lines where standard error is no terminal.
const PAUSE: Duration = Duration::from_secs(5);

/// Progress on standard error: a line that changes on a terminal, elsewhere a line now and then.
pub(crate) struct Shown {
    bar: Option<ProgressBar>,
    /// When the last line was written, if any are.
    last: Option<Mutex<Duration>>,
}

impl Shown {
    /// A quiet one shows nothing.
    #[must_use]
    pub(crate) fn new(quiet: bool) -> Self {
        let bar = spinner(quiet);
        Self { last: (bar.is_none() && !quiet).then(|| Mutex::new(Duration::ZERO)), bar }
    }

    /// Something was looked at.
    pub(crate) fn show(&self, progress: &Progress<'_>, elapsed: Duration) {
        let counts = &progress.counts;
        let best = progress.best.map_or_else(
            || "nothing fits yet".to_owned(),
            |(candidate, time)| format!("best {time} ms, {}", candidate.variant.call()),
        );
        let text = format!(
            "{} bounded, {} timed, {} settled; {best}; nothing is below {} ms",
            counts.bounded, counts.timed, progress.found, progress.bound
        );
        if let Some(bar) = &self.bar {
            bar.set_message(text);
        } else if let Some(last) = &self.last {
            let mut last = last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if elapsed.saturating_sub(*last) >= PAUSE {
                *last = elapsed;
                print_error(&format!("{:6.1} s  {text}\n", elapsed.as_secs_f64()));
            }
        }
    }

    /// Removes the line.
    pub(crate) fn finish(&self) {
        self.bar.iter().for_each(ProgressBar::finish_and_clear);
    }
}

/// Where the model's `config.json` has to lie so that a source in another folder finds it; none where it lies there.
///
/// # Errors
/// If another file is there.
pub(crate) fn beside(path: &Path, problem: &Problem, folder: &Path) -> Result<Option<PathBuf>, Failure> {
    let name = &problem.transformer.config.path;
    let own = path.parent().map_or_else(PathBuf::new, Path::to_owned);
    let wanted = own.join(name);
    if folder.join(name) == wanted {
        return Ok(None);
    }
    match std::fs::read_to_string(&wanted) {
        Ok(text) if text.trim_start_matches('\u{feff}') == problem.config => Ok(None),
        Ok(_) => {
            let message =
                format!("{} is another file than the target's; write the source to another folder", wanted.display());
            Err(Failure::Usage(message))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            crate::output::can_write(&wanted)?;
            Ok(Some(wanted))
        }
        Err(error) => Err(Failure::Io(wanted.display().to_string(), error)),
    }
}

/// Everything in a report but its diagnostics.
pub(crate) fn table(report: &TuneReport, colours: bool) -> String {
    let mut text = heading(report, colours);
    if !report.best.is_empty() {
        text.push_str(&best(report, colours));
    }
    let rows = |rows: &[OtherReport], more: usize, remark: &dyn Fn(usize) -> String| {
        let lines = rows.iter().take(ROWS).enumerate();
        let lines: String = lines.map(|(index, row)| other(&row.candidate, row.step, &remark(index))).collect();
        lines + &hidden(rows.len().saturating_sub(ROWS), more)
    };
    if !report.searched.is_empty() {
        text.push_str(&title("searched", colours));
        report.searched.iter().for_each(|row| {
            let own = report.best.iter().find(|best| best.candidate == row.candidate).map(|best| best.step);
            let figures = format!("mean bubble {}, peak {}", percent(row.bubble_mean), Bytes(row.peak_bytes));
            text.push_str(&other(&row.candidate, row.step, &improvement(row.step, own, &figures)));
        });
    }
    if !report.slower.is_empty() {
        text.push_str(&title("slower", colours));
        text.push_str(&rows(&report.slower, report.slower_more, &|index| {
            let slower = report.slower[index].slower.unwrap_or_default();
            format!("slower by {}", percent(slower))
        }));
    }
    if !report.does_not_fit.is_empty() {
        text.push_str(&title("does not fit", colours));
        text.push_str(&rows(&report.does_not_fit, report.does_not_fit_more, &|index| {
            let row = &report.does_not_fit[index];
            let needs = match row.excess_bytes {
                0 => format!(
                    "a host's part needs {}, {} too much",
                    Bytes(row.host_peak_bytes),
                    Bytes(row.host_excess_bytes)
                ),
                excess => format!("d{} needs {}, {} too much", row.device, Bytes(row.peak_bytes), Bytes(excess)),
            };
            match row.slower {
                Some(slower) if slower < 0.0 => format!("{needs}; faster by {}", percent(-slower)),
                Some(slower) => format!("{needs}; slower by {}", percent(slower)),
                None => needs,
            }
        }));
    }
    if !report.not_allowed.is_empty() {
        text.push_str(&title("not allowed", colours));
        report.not_allowed.iter().for_each(|row| text.push_str(&refusal(row)));
    }
    text
}

fn title(words: &str, colours: bool) -> String {
    format!("\n{}\n", paint(&format!("  {words}"), Style::Faint, colours))
}

fn heading(report: &TuneReport, colours: bool) -> String {
    let Some(setting) = &report.setting else { return String::new() };
    let name = report.pipeline.as_deref().unwrap_or(&report.target);
    let mut text = format!(
        "{} on {}: {} of {}, {} rows of {} tokens a step, {} on each device\n",
        paint(name, Style::Strong, colours),
        setting.cluster,
        count(setting.nodes as usize, "node"),
        count(setting.devices_per_node as usize, "device"),
        grouped(setting.batch),
        grouped(setting.sequence),
        Bytes(setting.limit_bytes)
    );
    if let Some(rates) = &setting.rates {
        let (_, unit, remark) = cluster_table::rates(rates);
        text.push_str(&format!("{unit} of devices {remark}\n"));
    }
    let counts = &report.counts;
    let verdict = match (report.ok, report.complete) {
        (true, true) if !setting.not_modelled.is_empty() => {
            paint("best by these times, which are rough", Style::Warning, colours)
        }
        (true, true) => paint("complete: nothing that was pruned can be faster", Style::Good, colours),
        (true, false) => paint(&left(report), Style::Warning, colours),
        (false, true) => paint("nothing fits", Style::Warning, colours),
        (false, false) => paint("nothing that fits was found, and not everything was tried", Style::Warning, colours),
    };
    text.push_str(&format!(
        "{verdict} ({} groups, {} candidates bounded, {} timed, in {:.1} s)\n",
        grouped(counts.groups as u64),
        grouped(counts.bounded as u64),
        grouped((counts.timed + counts.unseated) as u64),
        report.seconds
    ));
    if let (Some(bound), Some(gap)) = (report.lower_bound, report.gap) {
        text.push_str(&format!(
            "\n  {}{:<12}gap {}: no candidate that may fit is shorter{}\n",
            paint(&format!("{:<15}", "lower bound"), Style::Faint, colours),
            number(bound),
            percent(gap),
            if setting.not_modelled.is_empty() { "" } else { " by these times" }
        ));
    }
    text
}

/// What is known of the first rows when something was left out.
fn left(report: &TuneReport) -> String {
    let why = if report.node_orders_complete { "stopped early" } else { "not every order of nodes was tried" };
    let left = match report.final_rows {
        0 => "something better may be left".to_owned(),
        1 => "the first row is the best, something better than the others may be left".to_owned(),
        n => format!("the first {n} rows are the best, something better than the others may be left"),
    };
    format!("{why}: {left}")
}

fn best(report: &TuneReport, colours: bool) -> String {
    let head = format!(
        "  {:>2} {:>11} {:>6} {:>12} {:>8} {:>10} {:>9}  {}",
        "", "step ms", "MFU", "mean bubble", "busiest", "exchange", "peak", COLUMNS
    );
    let mut text = format!("\n{}\n", paint(&head, Style::Faint, colours));
    for (number_of, row) in (1..).zip(&report.best) {
        let mfu = row.mfu.map_or_else(|| "-".to_owned(), percent);
        text.push_str(&format!(
            "  {number_of:>2} {:>11} {mfu:>6} {:>12} {:>8} {:>10} {:>9}  {}\n",
            format!("{:.3}", row.step),
            percent(row.bubble_mean),
            percent(row.bubble),
            format!("{:.3}", row.exchange),
            Bytes(row.peak_bytes).to_string(),
            layout(&row.candidate)
        ));
    }
    text
}

/// Over the columns of a layout.
const COLUMNS: &str = "tensor devices data rows microbatches  schedule";

fn layout(row: &CandidateReport) -> String {
    let mut keeps = vec![row.schedule.clone()];
    keeps.extend((row.layout.expert > 1).then(|| format!("expert {}", row.layout.expert)));
    keeps.extend((row.recompute != "none").then(|| format!("recompute {}", row.recompute)));
    keeps.extend((row.zero > 0).then(|| format!("zero {}", row.zero)));
    keeps.extend(row.sequence_parallel.then(|| "sequence parallel".to_owned()));
    keeps.extend((row.offload != "none").then(|| format!("offload {}", row.offload)));
    keeps.extend((!row.nodes.is_empty()).then(|| format!("nodes {:?}", row.nodes)));
    format!(
        "{:>6} {:>7} {:>4} {:>4} {:>12}  {}",
        row.layout.tensor,
        row.layout.devices,
        row.layout.data,
        row.layout.rows,
        row.layout.microbatches,
        keeps.join(", ")
    )
}

/// A row of what is not among the best, with what speaks against it.
fn other(row: &CandidateReport, step: f64, remark: &str) -> String {
    format!("     {:>11}  {}; {remark}\n", format!("{step:.3}"), layout(row))
}

/// What a search made of a row that took so long: its figures, if it is shorter.
fn improvement(step: f64, own: Option<f64>, figures: &str) -> String {
    match own {
        Some(own) if step >= own => "no shorter order was found".to_owned(),
        _ => format!("in another order, {figures}"),
    }
}

/// How many rows are not shown: some that are in JSON, and more that are nowhere.
fn hidden(listed: usize, more: usize) -> String {
    let all = grouped((listed + more) as u64);
    let narrower = "`--set` holds settings fast, so that others are listed";
    match (listed, more) {
        (0, 0) => String::new(),
        (0, _) => format!("       and {all} more; {narrower}\n"),
        (_, 0) => format!("       and {all} more with `--format json`\n"),
        _ => format!("       and {all} more, the next {listed} with `--format json`; {narrower}\n"),
    }
}

fn refusal(row: &RefusalReport) -> String {
    let many = row.candidates.map(|number| format!(" ({})", count(number, "candidate"))).unwrap_or_default();
    format!("     {}: {}{many}\n", row.what, row.reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_shorter_orders_are_called_others() {
        assert_eq!(improvement(2.0, Some(2.0), "peak 1MiB"), "no shorter order was found");
        assert_eq!(improvement(2.5, Some(2.0), "peak 1MiB"), "no shorter order was found");
        assert_eq!(improvement(1.5, Some(2.0), "peak 1MiB"), "in another order, peak 1MiB");
        assert_eq!(improvement(1.5, None, "peak 1MiB"), "in another order, peak 1MiB");
    }

    #[test]
    fn rows_that_are_not_shown_are_counted() {
        assert_eq!(hidden(0, 0), "");
        assert_eq!(hidden(3, 0), "       and 3 more with `--format json`\n");
        assert!(hidden(0, 1200).starts_with("       and 1,200 more; `--set`"));
        assert!(hidden(5, 1200).starts_with("       and 1,205 more, the next 5 with `--format json`; `--set`"));
    }
}
