//! The timelines that are drawn above each other: the plan, the plan under refitted costs, and the run.

use super::losses::Loss;
use super::measured::Measured;
use super::refit::Refit;
use pipe_compiler::analyze::Analysis;
use pipe_ir::ids::DeviceId;
use pipe_schedule::timing::critical_path::{CriticalPath, critical_path};
use pipe_schedule::timing::durations::Costs;
use pipe_schedule::timing::timeline::{Timeline, simulate};
use pipe_schedule::units::Ticks;

/// The order that ran, under some costs.
pub(crate) fn planned(analysis: &Analysis, costs: &Costs) -> Analysis {
    let timeline = simulate(&analysis.schedule, &analysis.order, costs);
    let critical_path = critical_path(&analysis.schedule, &analysis.order, costs, &timeline);
    Analysis { costs: costs.clone(), timeline, critical_path, ..analysis.clone() }
}

/// The same as it ran. `path` is its critical path; transfers take their refitted time.
pub(crate) fn ran(analysis: &Analysis, refit: &Refit, measured: &Measured, path: &[Loss]) -> Analysis {
    let tasks = path.iter().map(|loss| loss.slot).collect();
    Analysis {
        costs: refit.costs.clone(),
        timeline: timeline(analysis, measured),
        critical_path: CriticalPath { tasks, ..CriticalPath::default() },
        ..analysis.clone()
    }
}

/// What was measured. Two tasks that shared their device have it from the first start to the last end of both.
fn timeline(analysis: &Analysis, measured: &Measured) -> Timeline {
    let rows = (0..).map(DeviceId).zip(&measured.spans).map(|(device, spans)| {
        let mut row: Vec<(Ticks, Ticks)> = Vec::new();
        let end = |row: &Vec<(Ticks, Ticks)>| row.last().map_or(0, |span| span.1.0);
        while row.len() < spans.len() {
            let positions = row.len()..row.len() + analysis.schedule.node(device, row.len()).len();
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
