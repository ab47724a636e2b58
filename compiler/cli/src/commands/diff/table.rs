//! The difference between a plan and its run as a table for people.

use super::report::{BetterReport, DiffReport, LossReport, PartReport};
use crate::output::figures::{Sum, count, duration};
use crate::output::table::Table;
use crate::output::{Style, paint};
use std::fmt::Write;

/// So many stages of a kind are named.
const NAMED: usize = 3;

/// How figures are written.
#[derive(Clone, Copy)]
struct Figures {
    sum: Sum,
    /// What is less, in milliseconds, is not worth a word.
    least: f64,
}

impl Figures {
    fn of(report: &DiffReport) -> Self {
        Self { sum: Sum::of(report.measured_ms), least: (report.measured_ms / 10_000.0).max(1e-6) }
    }

    fn plain(self, ms: f64) -> String {
        self.sum.plain(ms)
    }

    fn signed(self, ms: f64) -> String {
        self.sum.signed(ms)
    }

    /// `4.000 -> 5.100`.
    fn change(self, part: &PartReport) -> String {
        let planned = part.planned_ms.map(|planned| format!("{} -> ", self.plain(planned)));
        let measured = part.measured_ms.map(|measured| self.plain(measured));
        measured.map(|measured| planned.unwrap_or_default() + &measured).unwrap_or_default()
    }
}

/// Everything in a report.
pub(crate) fn table(report: &DiffReport, colours: bool) -> String {
    let figures = Figures::of(report);
    let parts = Table::new(colours)
        .left("", 0, 26, |(name, ..): &(String, String, String)| name.clone())
        .right("", 2, 12, |(_, figure, _)| figure.clone())
        .left("", 3, 0, |(.., remark)| remark.clone())
        .rows(&rows(report, figures));
    let losses = losses(&report.losses, figures);
    format!(
        "{}\n  times in {}\n{parts}{losses}{}",
        heading(report, colours),
        figures.sum.unit,
        refitted(report, figures)
    )
}

fn heading(report: &DiffReport, colours: bool) -> String {
    let (steps, left_out) = (report.steps.len(), report.left_out);
    let all = if left_out == 0 { String::new() } else { format!(" of {}", steps + left_out) };
    let told = match &report.steps[..] {
        [one] => format!("step {one}{all}"),
        _ => format!("medians over {}{all}", count(steps, "step")),
    };
    let DiffReport { target, trace, costs_from, .. } = report;
    let target = paint(target, Style::Strong, colours);
    let mut text = format!("{target}: plan against {trace}, {told}; costs from {costs_from}\n");
    if let Some(unit) = report.unit_ms {
        let _ = writeln!(
            text,
            "a unit of the costs is taken for {}, with which the plan has as much work as was measured",
            duration(unit)
        );
    }
    text
}

/// Name, figure and remark of each row.
fn rows(report: &DiffReport, figures: Figures) -> Vec<(String, String, String)> {
    let mut rows = Vec::new();
    let mut row = |name: &str, figure: String, remark: String| rows.push((name.to_owned(), figure, remark));
    let sum = |parts: &[&PartReport]| parts.iter().map(|part| part.ms).sum::<f64>();
    row("plan", figures.plain(report.plan_ms), String::new());
    for kind in kinds(report, "cost") {
        let own = of(report, |part| part.what == "cost" && part.kind == Some(kind));
        row(&format!("+ cost of {kind}"), figures.signed(sum(&own)), stages(&own, figures));
    }
    for part in of(report, |part| part.what == "pairs") {
        row("+ pairs", figures.signed(part.ms), "tasks that share a device".to_owned());
    }
    for part in of(report, |part| part.what == "sharing") {
        row(
            "+ sharing",
            figures.signed(part.ms),
            "what tasks on one GPU wait for each other is in measured times".to_owned(),
        );
    }
    for part in of(report, |part| part.what == "transfers") {
        row("+ transfers", figures.signed(part.ms), figures.change(part));
    }
    row("= plan, refitted costs", figures.plain(report.refitted_ms), String::new());
    for kind in kinds(report, "variation") {
        let own = of(report, |part| part.what == "variation" && part.kind == Some(kind));
        row(&format!("+ variation of {kind}"), figures.signed(sum(&own)), String::new());
    }
    let mut devices: Vec<u32> = report.parts.iter().filter_map(|part| part.device).collect();
    devices.dedup();
    let mut late = |name: &str, is_about: &dyn Fn(u32) -> bool| {
        let own = |what| of(report, |part| part.what == what && part.device.is_some_and(is_about));
        let (inputs, starts) = (sum(&own("late_input")), sum(&own("late_start")));
        let remark = format!("inputs {}, device {}", figures.signed(inputs), figures.signed(starts));
        row(&format!("+ late starts on {name}"), figures.signed(inputs + starts), remark);
    };
    // Of many devices, those are named that make a difference.
    let is_small =
        |device: &u32| of(report, |part| part.device == Some(*device)).iter().all(|part| part.ms.abs() < figures.least);
    let (small, large): (Vec<u32>, Vec<u32>) = devices.into_iter().partition(|device| is_small(device));
    large.iter().for_each(|device| late(&format!("d{device}"), &|one| one == *device));
    if !small.is_empty() {
        let others = if large.is_empty() { count(small.len(), "device") } else { format!("{} others", small.len()) };
        late(&others, &|one| small.contains(&one));
    }
    let [shortest, longest] = report.range_ms.map(|ms| figures.plain(ms));
    let range = if report.steps.len() > 1 { format!("steps take {shortest} to {longest}") } else { String::new() };
    row("= measured", figures.plain(report.measured_ms), range);
    row("  behind the last task", figures.plain(report.behind_ms), "sums of gradients and updates".to_owned());
    if let Some(between) = report.between_ms {
        row("  between two steps", figures.plain(between), String::new());
    }
    rows
}

fn of(report: &DiffReport, is_wanted: impl Fn(&PartReport) -> bool) -> Vec<&PartReport> {
    report.parts.iter().filter(|part| is_wanted(part)).collect()
}

/// The kinds of parts, in their order.
fn kinds(report: &DiffReport, what: &str) -> Vec<&'static str> {
    let mut kinds: Vec<_> = of(report, |part| part.what == what).iter().filter_map(|part| part.kind).collect();
    kinds.dedup();
    kinds
}

/// The stages that make most of it.
fn stages(parts: &[&PartReport], figures: Figures) -> String {
    let is_worth = |part: &&&PartReport| part.stage.is_some() && part.ms.abs() >= figures.least;
    let mut parts: Vec<&&PartReport> = parts.iter().filter(is_worth).collect();
    parts.sort_by(|one, other| other.ms.abs().total_cmp(&one.ms.abs()));
    let name = |part: &&&PartReport| {
        format!("s{} {} ({})", part.stage.unwrap_or_default(), figures.signed(part.ms), figures.change(part))
    };
    let mut names: Vec<String> = parts.iter().take(NAMED).map(name).collect();
    if parts.len() > NAMED {
        names.push("..".to_owned());
    }
    names.join(", ")
}

fn losses(losses: &[LossReport], figures: Figures) -> String {
    let is_worth = |loss: &&LossReport| loss.longer_ms + loss.later_ms >= figures.least;
    let losses: Vec<&LossReport> = losses.iter().filter(is_worth).collect();
    if losses.is_empty() {
        return String::new();
    }
    let lines = Table::new(false)
        .left("", 0, 14, |loss: &&LossReport| loss.task.clone())
        .left("", 0, 4, |loss| format!("d{}", loss.device))
        .left("", 2, 0, |loss| told(loss, figures))
        .rows(&losses);
    format!("\n  what cost most on the critical path of the run\n{lines}")
}

fn told(loss: &LossReport, figures: Figures) -> String {
    let word = if loss.longer_ms < 0.0 { "less" } else { "more" };
    let longer = format!("took {} {word} than usual", figures.plain(loss.longer_ms.abs()));
    let by = figures.plain(loss.later_ms.abs());
    let later = match (&loss.waited_for, loss.later_ms < 0.0) {
        (Some(input), false) => format!("waited {by} longer than usual for `{input}`"),
        (Some(input), true) => format!("got `{input}` {by} earlier than usual"),
        (None, _) => format!("began {by} after its device could have"),
    };
    // What is small beside the rest says nothing.
    let least = figures.least.max(loss.longer_ms.abs().max(loss.later_ms.abs()) / 20.0);
    let told = [(loss.longer_ms, longer), (loss.later_ms, later)].into_iter().filter(|(ms, _)| ms.abs() >= least);
    told.map(|(_, words)| words).collect::<Vec<_>>().join("; ")
}

fn refitted(report: &DiffReport, figures: Figures) -> String {
    let mut text = format!("\n  refitted costs, in milliseconds\n  --cost {}\n", report.cost);
    for better in &report.better {
        let BetterReport { what, makespan_ms, gain_ms, gain_percent, proved_optimal, .. } = better;
        let what = match *what {
            "reorder" => "the same schedule, reordered for these costs",
            _ if *proved_optimal => "the shortest order in the same memory (proved)",
            _ => "the shortest order that was found in the same memory",
        };
        let (makespan, ran) = (figures.plain(*makespan_ms), figures.plain(report.refitted_ms));
        let gain = match *gain_ms {
            gain if gain < figures.least => "no shorter".to_owned(),
            gain => format!("{} or {gain_percent:.1}% shorter", figures.plain(gain)),
        };
        let _ = writeln!(text, "  {what}: {makespan}, {gain} than the {ran} of the order that ran");
    }
    text
}
