//! Versions of the weights for steps of every length: which are read, and how many are kept,
//! without going through a step.
//!
//! A step has k blocks of R microbatches, and the update of step 0 comes at `E + (k - 1) T`, where
//! `E` is the end of the last weight gradient of the first block. Of a microbatch `c` blocks before
//! the last of its step, `E - F + c T` slots lie between its forward `F` and that update: so the
//! version that it reads, and how many are made until its last task, follow from `c`, and only the
//! smallest `c` of those that read equally old versions counts. As `c T` is less than a step, there
//! are two of these at most. Longer steps update at some of the moments at which steps of one block
//! do, so they never keep more versions.

use crate::block::async_window::Late;
use crate::dependencies::Dependencies;
use crate::schedule::Block;
use crate::stage_graph::StageGraph;
use pipe_ir::ids::StageId;
use pipe_ir::task::TaskKind;
use pipe_syntax::ast::Weights;

/// How old the versions are that a stage reads, and how many are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Kept {
    /// Updates that are missing from the version that is read, at most.
    pub most_behind: u64,
    /// Buffers that versions take turns in.
    pub buffers: u64,
}

/// The slots of a stage that decide about its versions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cycle {
    stage: StageId,
    /// By microbatch of the block: where its forward and its last task start.
    tasks: Vec<(u64, u64)>,
    /// The kind of its last task, which computes the weight gradient.
    last: TaskKind,
    /// The slot after the last weight gradient of the block.
    end: u64,
    period: u64,
}

/// The cycles of all stages of a block.
pub fn cycles(block: &Block, n_stages: usize) -> Vec<Cycle> {
    // Which task of a stage is its last one does not depend on who feeds whom.
    let dependencies = Dependencies::of_block(block, &StageGraph::chain(n_stages));
    let empty = |stage| {
        let (stage, tasks) = (StageId::from_index(stage), vec![(0, 0); block.microbatches as usize]);
        Cycle { stage, tasks, last: dependencies.last(stage), end: 0, period: block.period.max(1) }
    };
    let mut all: Vec<Cycle> = (0..n_stages).map(empty).collect();
    for task in &block.slots {
        let cycle = &mut all[task.stage.index()];
        let slots = &mut cycle.tasks[task.microbatch.index()];
        if task.kind == TaskKind::Forward {
            slots.0 = task.slot;
        } else if task.kind == cycle.last {
            slots.1 = task.slot;
            cycle.end = cycle.end.max(block.end(task));
        }
    }
    all
}

impl Cycle {
    /// The fewest blocks of a step with which the version before that of its beginning is always there in time.
    pub fn blocks_for_previous(&self) -> u64 {
        let longest = self.tasks.iter().map(|(forward, _)| self.end.saturating_sub(*forward)).max().unwrap_or(0);
        longest.div_ceil(self.period).saturating_sub(1).max(1)
    }

    /// The same in microbatches.
    pub fn enough_for_previous(&self) -> u64 {
        self.blocks_for_previous().saturating_mul(self.tasks.len() as u64)
    }

    /// Whether the weight gradients of a stage start in the order of the microbatches, in steps of every length.
    pub fn is_in_order(&self) -> bool {
        let starts = || self.tasks.iter().map(|(_, last)| *last);
        let next_block = starts().next().map(|first| first.saturating_add(self.period));
        starts().is_sorted() && starts().next_back() <= next_block
    }

    /// Whether all weight gradients of a step end before those of the next one start: that is so
    /// for all lengths of steps or for none, as both are moved by one block for each block of a
    /// step.
    ///
    /// # Errors
    /// The first weight gradient of a step, if it is too early.
    pub fn unmixed(&self) -> Result<(), Late> {
        let start = self.tasks.iter().map(|(_, last)| *last).min().unwrap_or(0);
        let update = self.end.saturating_sub(self.period);
        let late = Late { stage: self.stage, kind: self.last, start, update, enough: 0 };
        if start < update { Err(late) } else { Ok(()) }
    }

    /// What steps of so many blocks read and keep.
    ///
    /// # Errors
    /// If a forward comes before the version that it must read, or a weight gradient before those
    /// of the step before are complete.
    pub fn kept(&self, weights: Weights, blocks: u64) -> Result<Kept, Late> {
        self.unmixed()?;
        let (period, step) = (i128::from(self.period), i128::from(self.period) * i128::from(blocks.max(1)));
        let mut kept = Kept { most_behind: 0, buffers: 1 };
        for (forward, last) in &self.tasks {
            let before = |slot: &u64| i128::from(self.end) - i128::from(*slot);
            let oldest = (before(forward) - 1).max(0) / step;
            // The first microbatch, counted from the end of the step, that reads a version one update older.
            let older = ((oldest + 1) * step - before(forward)) / period + 1;
            let both = [Some((0, oldest)), (older < i128::from(blocks)).then_some((older, oldest + 1))];
            for (distance, behind) in both.into_iter().flatten() {
                let (distance, behind) = match weights {
                    Weights::Flush => (distance, 0),
                    Weights::Newest => (distance, behind),
                    Weights::Previous if behind <= 1 => (0, 1),
                    Weights::Previous => return Err(self.late(*forward, blocks)),
                };
                let update = before(last) + distance * period;
                let buffers = if behind * step < update { 1 } else { (behind * step - update) / step + 2 };
                kept.most_behind = kept.most_behind.max(count(behind));
                kept.buffers = kept.buffers.max(count(buffers));
            }
        }
        Ok(kept)
    }

    /// The forward of the first block of a step, and the update that comes after it.
    fn late(&self, forward: u64, blocks: u64) -> Late {
        let moved = self.period.saturating_mul(blocks + 1);
        let update = self.end.saturating_sub(moved);
        let enough = self.enough_for_previous();
        Late { stage: self.stage, kind: TaskKind::Forward, start: forward, update, enough }
    }

    /// What is read and kept at most, over steps of all lengths in which versions are there in time.
    pub fn most(&self, weights: Weights) -> Kept {
        match weights {
            Weights::Previous => Kept { most_behind: 1, buffers: 2 },
            Weights::Flush | Weights::Newest => self.kept(weights, 1).unwrap_or_default(),
        }
    }
}

fn count(number: i128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
