//! What `pipec check` prints of a model from a `config.json`: its stages, what is alive at the
//! peak, and what would fit.

use crate::output::{Style, paint};
use crate::run::progress::grouped;
use crate::table::{ROWS, percent};
use pipe_compiler::report::stage_costs::{ChangeReport, StageReport};
use pipe_compiler::report::{DeviceReport, Report};
use pipe_ir::units::Bytes;

/// What is named of a device's peak.
const CONTRIBUTORS: usize = 4;
/// Changes that are shown.
const CHANGES: usize = 10;

/// Name, figure and remark of the lines about the model.
pub(crate) fn summary(report: &Report) -> Vec<(&'static str, String, String)> {
    let Some(model) = &report.account.model else { return Vec::new() };
    let mut sizes = vec![format!("{} parameters", grouped(model.parameters))];
    if model.total_devices > report.per_device.len() as u64 {
        let part = |name: &str, size: u64| (size > 1).then(|| format!("{name} {size}"));
        let parts: Vec<String> =
            [part("tensor", model.tensor), part("data", model.data)].into_iter().flatten().collect();
        sizes.push(format!("{} devices with {}", grouped(model.total_devices), parts.join(" and ")));
    }
    sizes.push(format!("{} tokens a step", grouped(model.tokens)));
    let mut lines = vec![("model", model.family.to_owned(), sizes.join(", "))];
    let fullest = report.per_device.iter().max_by_key(|row| (row.peak_bytes, std::cmp::Reverse(row.device)));
    lines.extend(fullest.filter(|row| !row.holds.is_empty()).map(contributors));
    lines
}

/// What the fullest device holds at its peak.
fn contributors(row: &DeviceReport) -> (&'static str, String, String) {
    let largest = row.holds.iter().take(CONTRIBUTORS);
    let words: Vec<String> = largest.map(|hold| format!("{} {}", Bytes(hold.bytes), hold.what)).collect();
    let more = if row.holds.len() > CONTRIBUTORS { ", .." } else { "" };
    ("fullest", format!("d{}", row.device), words.join(", ") + more)
}

/// A row per stage.
pub(crate) fn stages(report: &Report, colours: bool) -> String {
    let rows = &report.account.per_stage;
    if rows.is_empty() {
        return String::new();
    }
    let head = format!(
        "  {:<7}{:<8}{:<20}{:>16}{:>11}{:>17}{:>7}{:>11}{:>11}",
        "stage", "device", "layers", "parameters", "state", "per microbatch", "alive", "held", "sum"
    );
    let mut text = format!("\n{}\n", paint(&head, Style::Faint, colours));
    let hidden = if rows.len() > 2 * ROWS { ROWS..rows.len() - ROWS + 1 } else { 0..0 };
    for (index, row) in rows.iter().enumerate() {
        if index == hidden.start && !hidden.is_empty() {
            text.push_str(&paint(&format!("  ..     {} more stages", hidden.len()), Style::Faint, colours));
            text.push('\n');
        }
        if !hidden.contains(&index) {
            let is_alone = rows.iter().filter(|other| other.device == row.device).count() == 1;
            text.push_str(&stage(row, row.limit_bytes.filter(|_| is_alone)));
        }
    }
    text
}

/// The device's limit is said where the device has no other stage.
fn stage(row: &StageReport, limit: Option<u64>) -> String {
    let bytes = |bytes: u64| Bytes(bytes).to_string();
    let limit = limit.map_or_else(String::new, |limit| format!(" of {}", Bytes(limit)));
    format!(
        "  {:<7}{:<8}{:<20}{:>16}{:>11}{:>17}{:>7}{:>11}{:>11}{limit}\n",
        format!("s{}", row.stage),
        format!("d{}", row.device),
        layers(row),
        grouped(row.parameters),
        bytes(row.state_bytes),
        bytes(row.activation_bytes),
        row.live_microbatches,
        bytes(row.live_bytes),
        bytes(row.sum_bytes)
    )
}

/// `embedding, 0 to 4`.
fn layers(row: &StageReport) -> String {
    let own = match row.layers {
        [first, end] if end > first + 1 => Some(format!("{first} to {}", end - 1)),
        [first, end] if end > first => Some(first.to_string()),
        _ => None,
    };
    let ends = [row.embedding.then(|| "embedding".to_owned()), own, row.head.then(|| "head".to_owned())];
    ends.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// What was tried where it does not fit.
pub(crate) fn changes(report: &Report, colours: bool) -> String {
    if report.account.changes.is_empty() {
        return String::new();
    }
    let head = format!("  {:<44}{:<8}{:>11}{:>14}", "with", "device", "peak", "device time");
    let mut text = format!("\n{}\n", paint(&head, Style::Faint, colours));
    report.account.changes.iter().take(CHANGES).for_each(|row| text.push_str(&change(row, colours)));
    text
}

fn change(row: &ChangeReport, colours: bool) -> String {
    let verdict = if row.fits { paint("fits", Style::Good, colours) } else { "too much".to_owned() };
    let devices =
        if row.times_devices > 1 { format!(", {} times the devices", row.times_devices) } else { String::new() };
    format!(
        "  {:<44}{:<8}{:>11}{:>14}  {verdict}{devices}\n",
        row.change,
        format!("d{}", row.device),
        Bytes(row.peak_bytes).to_string(),
        format!("+{}", percent(row.extra))
    )
}
