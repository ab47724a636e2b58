//! Refitted costs: what tasks and transfers took, in the form of `--cost` and of a profile.

use super::measured::{Measured, median};
use crate::commands::profile::steps::waits;
use pipe_compiler::analyze::Analysis;
use pipe_ir::ids::StageId;
use pipe_ir::task::TaskKind;
use pipe_schedule::timing::costs::{CostName, Entry, StageCosts, of_stages};
use pipe_schedule::timing::durations::Costs;
use pipe_schedule::timing::latency::Latency;
use pipe_schedule::timing::sharing::Sharing;
use pipe_schedule::units::Ticks;
use std::collections::BTreeMap;

/// Costs in milliseconds whose ticks are nanoseconds.
pub(crate) struct Refit {
    /// What each kind of task of each stage took, in the median over its microbatches.
    pub(crate) tasks: BTreeMap<(TaskKind, u32), u64>,
    /// What a transfer took, where any task waited for one; else what the plan says, if it is the same for all.
    pub(crate) transfer: Option<u64>,
    /// All costs, with those of the plan for what did not run.
    pub(crate) costs: Costs,
    entries: Vec<Entry>,
}

/// Four digits say as much as medians mean.
fn rounded(nanos: u64) -> u64 {
    let mut unit = 1;
    while nanos / unit >= 10_000 {
        unit *= 10;
    }
    (nanos + unit / 2) / unit * unit
}

/// Fits costs to what was measured; `plan` has those of what was not.
pub(crate) fn refit(analysis: &Analysis, measured: &Measured, plan: &Costs) -> Refit {
    let schedule = &analysis.schedule;
    let mut all: BTreeMap<(TaskKind, u32), Vec<u64>> = BTreeMap::new();
    let mut pairs: BTreeMap<TaskKind, Vec<u64>> = BTreeMap::new();
    for (order, spans) in schedule.orders.iter().zip(&measured.spans) {
        let mut shared = false;
        for (place, (one, (start, end))) in order.iter().zip(spans).enumerate() {
            // Two tasks that share their device have no time of their own.
            let next = spans.get(place + 1).filter(|next| one.with_next && next.0 < *end);
            if let (Some((_, last)), Some(partner)) = (next, order.get(place + 1)) {
                pairs.entry(partner.task.kind).or_default().push((*end).max(*last) - start);
            } else if !shared {
                all.entry((one.task.kind, one.task.stage.0)).or_default().push(end - start);
            }
            shared = next.is_some();
        }
    }
    let tasks: BTreeMap<_, _> = all.into_iter().map(|(key, times)| (key, rounded(median(times)))).collect();
    let waited: Vec<u64> = measured.steps.iter().flat_map(|step| waits(&analysis.order.dependencies, step)).collect();
    // Where nothing waited for a transfer, the plan's time says as much as any other.
    let planned: Vec<u64> = plan.latency.times().map(|time| time.0).collect();
    let transfer = match (waited.is_empty(), &planned[..]) {
        (false, _) => Some(rounded(median(waited))),
        (true, [usual]) => Some(*usual),
        (true, _) => None,
    };
    // Measured times have in them what tasks wait for each other on a processor that devices share.
    let mut costs = Costs { sharing: Sharing::default(), each: Vec::new(), ..plan.clone() };
    for ((kind, stage), nanos) in &tasks {
        costs.tasks[*stage as usize][kind.index()] = Ticks(*nanos);
    }
    costs.pairs = TaskKind::ALL.map(|kind| pairs.remove(&kind).map(|times| Ticks(rounded(median(times)))));
    if let Some(transfer) = transfer {
        costs.latency = Latency::uniform(Ticks(transfer));
    }
    let mut refit = Refit { entries: Vec::new(), tasks, transfer, costs };
    refit.entries = refit.all_entries();
    // What is not said follows from what is, as in every list of costs; only the order at hand does not need it.
    let said = of_stages(&refit.stage_costs(), schedule.n_stages());
    for (stage, row) in refit.costs.tasks.iter_mut().enumerate() {
        for kind in TaskKind::ALL {
            let index = u32::try_from(stage).unwrap_or(u32::MAX);
            if !refit.tasks.contains_key(&(kind, index)) {
                row[kind.index()] = said.of(kind, StageId(index));
            }
        }
    }
    refit
}

impl Refit {
    /// By kind: runs of stages that take as long.
    fn all_entries(&self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::new();
        let entry = |name, nanos| Entry::new(name, Ticks(nanos));
        for kind in TaskKind::ALL {
            let own: Vec<(u32, u64)> = self
                .tasks
                .iter()
                .filter(|((one, _), _)| *one == kind)
                .map(|((_, stage), nanos)| (*stage, *nanos))
                .collect();
            if own.len() == self.costs.tasks.len() && own.windows(2).all(|pair| pair[0].1 == pair[1].1) {
                entries.extend(own.first().map(|(_, nanos)| entry(CostName::Tasks(kind), *nanos)));
                continue;
            }
            for run in own.chunk_by(|one, next| one.0 + 1 == next.0 && one.1 == next.1) {
                let stages = run[0].0..run[run.len() - 1].0 + 1;
                entries.push(entry(CostName::Stages(kind, stages), run[0].1));
            }
        }
        let pairs = [TaskKind::BackwardInput, TaskKind::Backward];
        let pairs = pairs.into_iter().filter_map(|kind| self.costs.pairs[kind.index()].map(|time| (kind, time)));
        entries.extend(pairs.map(|(kind, time)| entry(CostName::Pair(kind), time.0)));
        entries.extend(self.transfer.map(|nanos| entry(CostName::Transfer, nanos)));
        entries
    }

    /// As `--cost` has them, in milliseconds.
    pub(crate) fn stage_costs(&self) -> StageCosts {
        StageCosts::of(self.entries.clone())
    }

    /// The text for `--cost`, in milliseconds.
    pub(crate) fn text(&self) -> String {
        let name = |entry: &Entry| entry.name.to_string().replace(' ', "");
        let pairs: Vec<String> = self.entries.iter().map(|entry| format!("{}={}", name(entry), entry.time)).collect();
        pairs.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::rounded;

    #[test]
    fn four_digits_are_kept() {
        let cases =
            [(0, 0), (9_999, 9_999), (10_004, 10_000), (10_005, 10_010), (123_456_789, 123_500_000), (99_996, 100_000)];
        for (nanos, expected) in cases {
            assert_eq!(rounded(nanos), expected);
        }
    }
}
