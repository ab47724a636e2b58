//! Tables: the (microbatch, chunk) pairs that every rank of Megatron-LM's interleaved 1F1B takes in turn, forwards as they stand and
//! backwards with the chunks from the last to the first (`megatron/core/pipeline_parallel/schedules.py`, `get_schedule_table`).
//!
//! Megatron's table follows from one number, `--microbatch-group-size-per-virtual-pipeline-stage`. A schedule has a table if some such
//! number makes Megatron run every rank of it in the same order.

use super::in_turn;
use crate::diagnostic::{Code, Diagnostic, Diagnostics};
use crate::judge::Judged;
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use pipe_ir::task::{Task, TaskKind};
use std::fmt;

/// What Megatron runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// Microbatches that pass a chunk before the next one begins.
    pub group: usize,
    /// Microbatches with chunks of their rank, in order.
    pub pairs: Vec<(u32, usize)>,
}

impl Table {
    /// Megatron's own.
    fn new(n_microbatches: u32, n_chunks: usize, group: usize) -> Self {
        let of_group = |first: u32| {
            let end = first.saturating_add(u32::try_from(group).unwrap_or(u32::MAX)).min(n_microbatches);
            (0..n_chunks).flat_map(move |chunk| (first..end).map(move |microbatch| (microbatch, chunk)))
        };
        Self { group, pairs: (0..n_microbatches).step_by(group.max(1)).flat_map(of_group).collect() }
    }

    /// The table that makes Megatron run a schedule.
    ///
    /// # Errors
    /// If there is none.
    pub fn of(judged: &Judged) -> Result<Self, Diagnostics> {
        if let Some(wrong) = in_turn(judged) {
            return Err(vec![wrong]);
        }
        let schedule = &judged.schedule;
        let (ranks, chunks) = (schedule.n_devices(), schedule.n_stages() / schedule.n_devices().max(1));
        // Forwards of the first chunk before the first of the second; without a second one, one group is like another.
        let order = schedule.orders.first().map(Vec::as_slice).unwrap_or_default();
        let forwards = order.iter().filter(|one| one.task.kind == TaskKind::Forward);
        let group = if chunks > 1 { forwards.take_while(|one| one.task.stage == StageId(0)).count() } else { ranks };
        let table = Self::new(schedule.n_microbatches, chunks, group.max(1));
        for rank in 0..ranks {
            let tasks: Vec<Task> = schedule.orders[rank].iter().map(|one| one.task).collect();
            let theirs = table.tasks(rank, ranks, chunks);
            let differs = (0..tasks.len().max(theirs.len())).find(|place| tasks.get(*place) != theirs.get(*place));
            let Some(place) = differs else { continue };
            let name = |task: Option<&Task>| task.map_or("nothing".to_owned(), |task| format!("`{task}`"));
            let (own, other) = (name(tasks.get(place)), name(theirs.get(place)));
            let device = DeviceId::from_index(rank);
            let message = format!(
                "{device} runs {own} as its task {place}, and Megatron {other}, with groups of {}",
                table.group
            );
            let span = schedule.orders[rank].get(place).and_then(|one| schedule.origins.get(usize::from(one.origin)));
            let error = Diagnostic::error(
                Code::CannotExport,
                span.copied().unwrap_or(schedule.span),
                "not Megatron's order",
                message,
            );
            let error =
                error.note("Megatron's own loops run 1F1B, or interleaved 1F1B of every group size, and nothing else");
            return Err(vec![error.help("`interleaved_1f1b` and `1f1b` are what it runs")]);
        }
        Ok(table)
    }

    /// What a rank does with it: forwards of the warm-up, one forward and one backward in turn, and the backwards that are left.
    fn tasks(&self, rank: usize, ranks: usize, chunks: usize) -> Vec<Task> {
        let total = self.pairs.len();
        let behind = ranks - rank - 1;
        let warmup = if chunks > 1 { 2 * behind + (chunks - 1) * self.group } else { behind }.min(total);
        let task = |kind: TaskKind, chunk: usize, microbatch: u32| Task {
            kind,
            stage: StageId::from_index(chunk * ranks + rank),
            microbatch: MicrobatchId(microbatch),
        };
        let forward = |place: usize| task(TaskKind::Forward, self.pairs[place].1, self.pairs[place].0);
        let backward = |place: usize| task(TaskKind::Backward, chunks - 1 - self.pairs[place].1, self.pairs[place].0);
        let mut tasks: Vec<Task> = (0..warmup).map(forward).collect();
        tasks.extend((warmup..total).flat_map(|place| [forward(place), backward(place - warmup)]));
        tasks.extend((total - warmup..total).map(backward));
        tasks
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("microbatch,chunk\n")?;
        self.pairs.iter().try_for_each(|(microbatch, chunk)| writeln!(f, "{microbatch},{chunk}"))
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    /// The example in Megatron-LM's own description: 2 ranks with 2 chunks each, groups of 3, 5 microbatches.
    #[test]
    fn the_table_is_megatrons() {
        let pairs = [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (3, 0), (4, 0), (3, 1), (4, 1)];
        assert_eq!(Table::new(5, 2, 3).pairs, pairs);
    }
}
