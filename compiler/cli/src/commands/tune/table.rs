//! The tables of what a tuning found.

use crate::commands::check::cluster;
use crate::output::figures::{bytes, count, duration, grouped, percent};
use crate::output::table::{Fact, Table, apart, facts};
use crate::output::{Style, paint};
use pipe_search::tune::report::{BestReport, CandidateReport, OtherReport, RefusalReport, TuneReport};

/// The most rows of each table after the first, which has the best layouts.
const ROWS: usize = 5;
/// Everything in a report but its diagnostics.
pub(crate) fn table(report: &TuneReport, colours: bool) -> String {
    let mut text = apart([heading(report, colours), best(report, colours)]);
    let searched = report.searched.iter().map(|row| {
        let own = report.best.iter().find(|best| best.candidate == row.candidate).map(|best| best.step);
        let figures = format!("mean bubble {}, peak {}", percent(row.bubble_mean), bytes(row.peak_bytes));
        (&row.candidate, row.step, format!("; {}", improvement(row.step, own, &figures)))
    });
    text += &others("searched", searched, "", colours);
    let slower = report
        .slower
        .iter()
        .take(ROWS)
        .map(|row| (&row.candidate, row.step, format!("; slower by {}", percent(row.slower.unwrap_or_default()))));
    text += &others("slower", slower, &hidden(report.slower.len(), report.slower_more), colours);
    let does_not_fit =
        report.does_not_fit.iter().take(ROWS).map(|row| (&row.candidate, row.step, format!("; {}", excess(row))));
    text +=
        &others("does not fit", does_not_fit, &hidden(report.does_not_fit.len(), report.does_not_fit_more), colours);
    if !report.not_allowed.is_empty() {
        text += &title("not allowed", colours);
        text.extend(report.not_allowed.iter().map(refusal));
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
        bytes(setting.limit_bytes)
    );
    if let Some(rates) = &setting.rates {
        let Fact { figure, remark, .. } = cluster::rates(rates);
        text.push_str(&format!("{figure} of devices {remark}\n"));
    }
    if setting.counted == "run" {
        text.push_str("counted as `pipec run` runs it: tensor graphs, all-reduces inside layers, transfers\n");
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
        "{verdict} ({} groups, {} candidates bounded, {} timed, in {})\n",
        grouped(counts.groups as u64),
        grouped(counts.bounded as u64),
        grouped((counts.timed + counts.unseated) as u64),
        duration(1e3 * report.seconds)
    ));
    if let (Some(bound), Some(gap)) = (report.lower_bound, report.gap) {
        let by = if setting.not_modelled.is_empty() { "" } else { " by these times" };
        let remark = format!("gap {}: no candidate that may fit is shorter{by}", percent(gap));
        text.push('\n');
        text.push_str(&facts(&[Fact::new("lower bound", duration(bound), remark)], colours));
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
    let rows: Vec<(usize, &BestReport)> = (1..).zip(&report.best).collect();
    let table = Table::new(colours)
        .right("", 0, 2, |(number, _): &(usize, &BestReport)| *number)
        .right("step", 2, 7, |(_, row)| duration(row.step))
        .right("MFU", 2, 5, |(_, row)| row.mfu.map_or_else(|| "-".to_owned(), percent))
        .rank(2)
        .right("mean bubble", 2, 11, |(_, row)| percent(row.bubble_mean))
        .rank(4)
        .right("busiest", 2, 7, |(_, row)| percent(row.bubble))
        .rank(5)
        .right("exchange", 1, 8, |(_, row)| duration(row.exchange))
        .rank(6)
        .right("peak", 2, 8, |(_, row)| bytes(row.peak_bytes))
        .rank(3);
    with_layout(table, |(_, row)| (&row.candidate, "")).draw(&rows)
}

/// Rows of what is not among the best, with what speaks against each.
fn others<'a>(
    words: &str,
    rows: impl Iterator<Item = (&'a CandidateReport, f64, String)>,
    hidden: &str,
    colours: bool,
) -> String {
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return String::new();
    }
    let step = |(_, step, _): &(&CandidateReport, f64, String)| duration(*step);
    let table = Table::new(colours).right("step", 3, 8, step);
    title(words, colours) + &with_layout(table, |(candidate, _, remark)| (candidate, remark)).rows(&rows) + hidden
}

/// Adds the columns of a layout and its schedule, with what is remarked of them.
fn with_layout<'a, R>(table: Table<'a, R>, of: impl Fn(&R) -> (&CandidateReport, &str) + Copy + 'a) -> Table<'a, R> {
    table
        .right("tensor", 2, 6, move |row| of(row).0.layout.tensor)
        .right("devices", 1, 7, move |row| of(row).0.layout.devices)
        .right("data", 1, 4, move |row| of(row).0.layout.data)
        .right("rows", 1, 4, move |row| of(row).0.layout.rows)
        .right("microbatches", 1, 12, move |row| of(row).0.layout.microbatches)
        .rank(1)
        .left("schedule", 2, 0, move |row| schedule(of(row).0) + of(row).1)
}

/// A schedule with what else is chosen beside a layout.
fn schedule(row: &CandidateReport) -> String {
    let mut keeps = vec![row.schedule.clone()];
    keeps.extend((row.layout.expert > 1).then(|| format!("expert {}", row.layout.expert)));
    keeps.extend((row.recompute != "none").then(|| format!("recompute {}", row.recompute)));
    keeps.extend((row.zero > 0).then(|| format!("zero {}", row.zero)));
    keeps.extend(row.sequence_parallel.then(|| "sequence parallel".to_owned()));
    keeps.extend((row.offload != "none").then(|| format!("offload {}", row.offload)));
    keeps.extend((!row.nodes.is_empty()).then(|| format!("nodes {:?}", row.nodes)));
    keeps.join(", ")
}

/// What it needs that is not there.
fn excess(row: &OtherReport) -> String {
    let (host, excess) = (bytes(row.host_peak_bytes), bytes(row.host_excess_bytes));
    let needs = match row.excess_bytes {
        0 => format!("a host's part needs {host}, {excess} too much"),
        excess => format!("d{} needs {}, {} too much", row.device, bytes(row.peak_bytes), bytes(excess)),
    };
    match row.slower {
        Some(slower) if slower < 0.0 => format!("{needs}; faster by {}", percent(-slower)),
        Some(slower) => format!("{needs}; slower by {}", percent(slower)),
        None => needs,
    }
}

/// What a search made of a row that took so long: its figures, if it is shorter.
fn improvement(step: f64, own: Option<f64>, figures: &str) -> String {
    match own {
        Some(own) if step >= own => "no shorter order was found".to_owned(),
        _ => format!("in another order, {figures}"),
    }
}

/// How many rows are not shown: of some that are in JSON, and more that are nowhere.
fn hidden(rows: usize, more: usize) -> String {
    let listed = rows.saturating_sub(ROWS);
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
        assert_eq!(hidden(8, 0), "       and 3 more with `--format json`\n");
        assert!(hidden(0, 1200).starts_with("       and 1,200 more; `--set`"));
        assert!(hidden(10, 1200).starts_with("       and 1,205 more, the next 5 with `--format json`; `--set`"));
    }
}
