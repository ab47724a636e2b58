//! The timelines that are drawn above each other: the plan, the plan under refitted costs, and the run.

use super::losses::Loss;
use super::measured::Measured;
use super::refit::Refit;
use pipe_compiler::critical_path::{CriticalPath, critical_path};
use pipe_compiler::judge::Judged;
use pipe_compiler::schedule::Costs;
use pipe_compiler::timeline::{Timeline, place};
use pipe_compiler::units::Ticks;
use pipe_ir::ids::DeviceId;

/// The order that ran, under some costs.
#[must_use]
pub(crate) fn planned(judged: &Judged, costs: &Costs) -> Judged {
    let timeline = place(&judged.schedule, &judged.order, costs);
    let critical_path = critical_path(&judged.schedule, &judged.order, costs, &timeline);
    Judged { costs: costs.clone(), timeline, critical_path, ..judged.clone() }
}

/// The same as it ran. `path` is its critical path; transfers take their refitted time.
#[must_use]
pub(crate) fn ran(judged: &Judged, refit: &Refit, measured: &Measured, path: &[Loss]) -> Judged {
    let tasks = path.iter().map(|loss| loss.slot).collect();
    Judged {
        costs: refit.costs.clone(),
        timeline: timeline(judged, measured),
        critical_path: CriticalPath { tasks, ..CriticalPath::default() },
        ..judged.clone()
    }
}

/// What was measured. Two tasks that shared their device have it from the first start to the last end of both.
fn timeline(judged: &Judged, measured: &Measured) -> Timeline {
    let rows = (0..).map(DeviceId).zip(&measured.spans).map(|(device, spans)| {
        let mut row: Vec<(Ticks, Ticks)> = Vec::new();
        let end = |row: &Vec<(Ticks, Ticks)>| row.last().map_or(0, |span| span.1.0);
        while row.len() < spans.len() {
            let positions = row.len()..row.len() + judged.schedule.node(device, row.len()).len();
            let is_shared = spans[positions.clone()].windows(2).any(|pair| pair[1].0 < pair[0].1);
            let (whole, before) = (measured.span(device, positions.clone()), end(&row));
            for span in &spans[positions] {
                let ((start, last), free) = if is_shared { (whole, before) } else { (*span, end(&row)) };
                // Moments are rounded: a task may seem to start before the end of the one before it.
                let start = start.max(free);
                row.push((Ticks(start), Ticks(last.max(start))));
            }
        }
        row.into_iter().unzip()
    });
    let (starts, ends) = rows.unzip();
    Timeline { starts, ends, ..Timeline::default() }
}
