//! Tables: the (microbatch, chunk) pairs that every rank of Megatron-LM's interleaved 1F1B takes in
//! turn, forwards as they stand and backwards with the chunks from the last to the first
//! (`megatron/core/pipeline_parallel/schedules.py`, `get_schedule_table`).
//!
//! Megatron's table follows from one number, `--microbatch-group-size-per-virtual-pipeline-stage`.
//! A schedule has a table if some number that Megatron takes makes it run every rank in the same
//! order, with or without `--overlap-moe-expert-parallel-comm`.

use super::in_turn;
use crate::analyze::Analysis;
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use pipe_ir::task::{Task, TaskKind};
use pipe_schedule::schedule::Schedule;
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use std::fmt;

/// What Megatron runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// Microbatches that pass a chunk before the next one begins: `--microbatch-group-size-per-virtual-pipeline-stage`.
    pub group: usize,
    /// Whether the warm-up has one forward more, and a forward and a backward run at once behind it:
    /// `--overlap-moe-expert-parallel-comm`.
    pub overlaps_experts: bool,
    /// Microbatches with chunks of their rank, in order.
    pub pairs: Vec<(u32, usize)>,
}

impl Table {
    /// Megatron's own.
    fn new(n_microbatches: u32, n_chunks: usize, group: usize, overlaps_experts: bool) -> Self {
        let of_group = |first: u32| {
            let end = first.saturating_add(u32::try_from(group).unwrap_or(u32::MAX)).min(n_microbatches);
            (0..n_chunks).flat_map(move |chunk| (first..end).map(move |microbatch| (microbatch, chunk)))
        };
        let pairs = (0..n_microbatches).step_by(group.max(1)).flat_map(of_group).collect();
        Self { group, overlaps_experts, pairs }
    }

    /// The table that makes Megatron run a schedule.
    ///
    /// # Errors
    /// If there is none, or Megatron refuses its numbers.
    pub fn of(analysis: &Analysis) -> Result<Self, Diagnostics> {
        if let Some(wrong) = in_turn(analysis) {
            return Err(vec![wrong]);
        }
        let schedule = &analysis.schedule;
        let (ranks, chunks) = (schedule.n_devices(), schedule.n_stages() / schedule.n_devices().max(1));
        // Forwards of the first chunk before the first of the second; without a second one, one group is like another.
        let order = schedule.orders.first().map(Vec::as_slice).unwrap_or_default();
        let forwards = order.iter().filter(|one| one.task.kind == TaskKind::Forward);
        let group = if chunks > 1 { forwards.take_while(|one| one.task.stage == StageId(0)).count() } else { ranks };
        let table = |overlaps_experts| Self::new(schedule.n_microbatches, chunks, group.max(1), overlaps_experts);
        let plain = table(false);
        let Some(difference) = plain.difference(schedule) else {
            return plain.accepted(schedule, ranks, chunks);
        };
        let overlapping = table(true);
        if chunks > 1 && overlapping.difference(schedule).is_none() {
            return overlapping.accepted(schedule, ranks, chunks);
        }
        let note = "Megatron's own loops run 1F1B, or interleaved 1F1B with one group size, and nothing else";
        Err(vec![difference.note(note).help("`interleaved_1f1b` and `1f1b` are what it runs")])
    }

    /// The first task that Megatron would not run.
    fn difference(&self, schedule: &Schedule) -> Option<Diagnostic> {
        let ranks = schedule.n_devices();
        let chunks = schedule.n_stages() / ranks.max(1);
        (0..ranks).find_map(|rank| {
            let own = &schedule.orders[rank];
            let theirs = self.tasks(rank, ranks, chunks);
            let length = own.len().max(theirs.len());
            let place = (0..length).find(|place| {
                let is_pair = own.get(*place).is_some_and(|one| one.with_next);
                own.get(*place).map(|one| one.task) != theirs.get(*place).copied()
                    || (is_pair && !self.overlaps_experts)
            })?;
            let name = |task: Option<Task>| task.map_or("nothing".to_owned(), |task| format!("`{task}`"));
            let (device, group) = (DeviceId::from_index(rank), self.group);
            let (mine, other) = (name(own.get(place).map(|one| one.task)), name(theirs.get(place).copied()));
            let message = if mine == other {
                format!("{device} runs {mine} at once with a backward, and Megatron one after the other")
            } else {
                format!("{device} runs {mine} as its task {place}, and Megatron {other}, with groups of {group}")
            };
            let span = own.get(place).and_then(|one| schedule.origins.get(usize::from(one.origin)));
            let span = span.copied().unwrap_or(schedule.span);
            Some(Diagnostic::error(Code::CannotExport, span, "not Megatron's order", message))
        })
    }

    /// The table itself, if Megatron takes its numbers
    /// (`forward_backward_pipelining_with_interleaving`, its first checks).
    fn accepted(self, schedule: &Schedule, ranks: usize, chunks: usize) -> Result<Self, Diagnostics> {
        let rest = schedule.n_microbatches as usize % self.group;
        let message = if chunks == 1 {
            return Ok(self);
        } else if ranks == 1 {
            format!("{chunks} chunks are on one rank, and Megatron interleaves chunks of 2 ranks or more")
        } else if self.group < ranks {
            format!(
                "{} microbatches pass a chunk, and Megatron lets {ranks} or more pass, one for each rank",
                self.group
            )
        } else if 0 < rest && rest < ranks {
            format!("the last group has {rest} microbatches, and Megatron wants {ranks} or more, one for each rank")
        } else {
            return Ok(self);
        };
        let error = Diagnostic::error(Code::CannotExport, schedule.span, "Megatron refuses this", message);
        let sizes = format!("groups of {ranks} and microbatches that {ranks} divides");
        Err(vec![error.help(if ranks == 1 { "give it more devices".to_owned() } else { format!("choose {sizes}") })])
    }

    /// What a rank does with it: forwards of the warm-up, one forward and one backward in turn, and
    /// the backwards that are left.
    fn tasks(&self, rank: usize, ranks: usize, chunks: usize) -> Vec<Task> {
        let total = self.pairs.len();
        let behind = ranks - rank - 1;
        let extra = usize::from(self.overlaps_experts);
        let warmup = if chunks > 1 { 2 * behind + (chunks - 1) * self.group + extra } else { behind }.min(total);
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

    /// The options that make Megatron run it, beside those of sizes.
    pub fn options(&self) -> String {
        let group = format!("--microbatch-group-size-per-virtual-pipeline-stage {}", self.group);
        if self.overlaps_experts { format!("{group} --overlap-moe-expert-parallel-comm") } else { group }
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
        assert_eq!(Table::new(5, 2, 3, false).pairs, pairs);
    }
}
