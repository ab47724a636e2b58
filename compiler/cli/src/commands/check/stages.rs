//! What `pipec check` prints of a model from a `config.json`: its stages, what is alive at the
//! peak, and what would fit.

use super::table::ROWS;
use crate::output::figures::{bytes, grouped, percent};
use crate::output::table::{Fact, Table};
use crate::output::{Style, paint};
use pipe_compiler::report::costs::stage_costs::{ChangeReport, StageReport};
use pipe_compiler::report::{DeviceReport, Report};

/// What is named of a device's peak.
const CONTRIBUTORS: usize = 4;
/// Changes that are shown.
const CHANGES: usize = 10;

/// What is said of the model.
pub(crate) fn summary(report: &Report) -> Vec<Fact> {
    let account = report.counted.map(|counted| match counted {
        "run" => Fact::new("counted", "run", "what `pipec run` runs: tensor graphs, and all buffers of the program"),
        _ => Fact::new(
            "counted",
            "megatron",
            "a job of Megatron-LM; with `train` in the pipeline, what `pipec run` runs",
        ),
    });
    let Some(model) = &report.account.model else { return account.into_iter().collect() };
    let mut sizes = vec![format!("{} parameters", grouped(model.parameters))];
    if model.total_devices > report.per_device.len() as u64 {
        let part = |name: &str, size: u64| (size > 1).then(|| format!("{name} {size}"));
        let parts: Vec<String> =
            [part("tensor", model.tensor), part("data", model.data)].into_iter().flatten().collect();
        sizes.push(format!("{} devices with {}", grouped(model.total_devices), parts.join(" and ")));
    }
    sizes.push(format!("{} tokens a step", grouped(model.tokens)));
    let mut lines = vec![Fact::new("model", model.family, sizes.join(", "))];
    lines.extend(account);
    let fullest = report.per_device.iter().max_by_key(|row| (row.peak_bytes, std::cmp::Reverse(row.device)));
    lines.extend(fullest.filter(|row| !row.holds.is_empty()).map(contributors));
    lines
}

/// What the fullest device holds at its peak.
fn contributors(row: &DeviceReport) -> Fact {
    let largest = row.holds.iter().take(CONTRIBUTORS);
    let words: Vec<String> = largest.map(|hold| format!("{} {}", bytes(hold.bytes), hold.what)).collect();
    let more = if row.holds.len() > CONTRIBUTORS { ", .." } else { "" };
    Fact::new("fullest", format!("d{}", row.device), words.join(", ") + more)
}

/// A row per stage. The device's limit is said where the device has no other stage.
pub(crate) fn stages(report: &Report, colours: bool) -> String {
    let rows = &report.account.per_stage;
    let is_alone = |row: &StageReport| rows.iter().filter(|other| other.device == row.device).count() == 1;
    let limit =
        |row: &StageReport| row.limit_bytes.filter(|_| is_alone(row)).map(|limit| format!(" of {}", bytes(limit)));
    Table::new(colours)
        .left("stage", 0, 7, |row: &StageReport| format!("s{}", row.stage))
        .left("device", 0, 8, |row| format!("d{}", row.device))
        .left("layers", 0, 20, layers)
        .right("parameters", 2, 14, |row| grouped(row.parameters))
        .rank(5)
        .right("state", 2, 9, |row| bytes(row.state_bytes))
        .rank(2)
        .right("per microbatch", 2, 15, |row| bytes(row.activation_bytes))
        .rank(4)
        .right("alive", 2, 5, |row| row.live_microbatches)
        .rank(3)
        .right("held", 2, 9, |row| bytes(row.live_bytes))
        .rank(1)
        .right("sum", 2, 9, |row| bytes(row.sum_bytes))
        .left("", 0, 0, |row| limit(row).unwrap_or_default())
        .at_most(2 * ROWS, "stage")
        .draw(rows)
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
    // Both words are as long, so that colours do not count.
    let verdict =
        |row: &ChangeReport| if row.fits { paint("fits    ", Style::Good, colours) } else { "too much".to_owned() };
    let change = |row: &ChangeReport| match row.times_devices {
        0 | 1 => row.change.clone(),
        more => format!("{}, {more} times the devices", row.change),
    };
    let rows = &report.account.changes;
    Table::new(colours)
        .left("device", 0, 6, |row: &ChangeReport| format!("d{}", row.device))
        .rank(2)
        .right("peak", 2, 9, |row| bytes(row.peak_bytes))
        .right("device time", 2, 12, |row| format!("+{}", percent(row.extra)))
        .rank(1)
        .left("", 2, 8, verdict)
        .left("with", 2, 0, change)
        .draw(&rows[..rows.len().min(CHANGES)])
}
