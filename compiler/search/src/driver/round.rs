//! What a round of the search consists of: priorities, changes of single tasks, and attempts at a
//! proof, each round more of them.

use super::portfolio::{BLOCK_EFFORT, Portfolio};
use crate::driver::subtasks::Subtask;
use crate::heuristics::priority::{Effort, Origin};
use crate::heuristics::warmup_depth::has_depths;
use pipe_schedule::dispatch::Objective;
use pipe_schedule::dispatch::job::{Job, Time};

/// Tasks that all schedules of an annealing of the first round have together.
const EFFORT: u64 = 8_000_000;
/// Smaller steps are not changed more often than those of so many tasks: they have fewer schedules.
const FEWEST_TASKS: usize = 400;
/// How many more changes of single tasks than of priorities are tried: most are refused before they are measured.
const SHIFTS: u64 = 4;
/// Starts that each round improves.
const FINALISTS: usize = 4;
/// How often a pipeline is halved where slopes are looked for, in rounds of odd and of even numbers.
const HALVINGS: [[usize; 3]; 2] = [[usize::MAX, 0, 1], [usize::MAX, 1, 2]];
/// Until which round blocks are searched again.
const BLOCK_ROUNDS: u32 = 3;
/// Steps with more tasks are not tried to be proved.
const PROVABLE_TASKS: usize = 1_000;
/// Those of smaller steps are tried to be proved before the first round: then there often is none.
const SMALL_TASKS: usize = 64;
/// Steps with more tasks are not tried to be proved where only one or two devices count.
const RELAXED_TASKS: usize = 200;
/// Partial schedules that the first attempt at a proof keeps.
const PROOF_WIDTH: u64 = 2_000;
/// How often the first attempts may ask whether to go on: rounds must not wait for proofs.
const QUESTIONS: u64 = 8_000;
/// The most that any attempt keeps.
const MOST_WIDTH: u64 = 512_000;
/// Rounds in which devices are looked at alone only; pairs may have too many states.
const PAIRLESS_ROUNDS: u32 = 1;

/// How many schedules an effort is good for.
fn tries(effort: u64, job: &Job) -> u64 {
    (effort / job.n_tasks().max(FEWEST_TASKS) as u64).max(1)
}

impl Portfolio<'_> {
    /// Looks at all schedules of a small step.
    pub(crate) fn prove_small(&mut self) {
        let is_small = self.context.long.n_tasks() <= SMALL_TASKS && self.context.objective == Objective::Makespan;
        let best = self.best.as_ref().map(|(best, _)| best.length).filter(|_| is_small && self.goes_on());
        if let Some(below) = best {
            self.perform(&[Subtask::Prove { below, width: PROOF_WIDTH as usize, questions: QUESTIONS }]);
        }
    }

    /// A round: better starts, a better long step, and an attempt at a proof.
    pub(crate) fn improve(&mut self) {
        if (2..=BLOCK_ROUNDS).contains(&self.round) {
            self.add_blocks(BLOCK_EFFORT << (2 * (self.round - 1)));
        }
        let effort = self.grown(EFFORT);
        let (mut priorities, mut changes) = (self.priorities(effort).into_iter(), self.changes(effort).into_iter());
        let mut works = Vec::new();
        while priorities.len() + changes.len() > 0 {
            // Time may end a round: nobody should always be the last.
            works.extend(priorities.next().into_iter().chain(changes.next()));
        }
        if let Some(best) = self.best.as_ref().map(|(best, _)| best.length)
            && self.context.objective == Objective::Makespan
        {
            works.extend(self.proofs(best));
        }
        self.perform(&works);
    }

    /// What is doubled every other round.
    fn grown(&self, first: u64) -> u64 {
        let before = u64::from((self.round - 1).min(40));
        (first * (2 + before % 2)) << (before / 2) >> 1
    }

    /// Changes of single tasks: of the best starts, and of the best long step.
    fn changes(&mut self, effort: u64) -> Vec<Subtask> {
        let context = &self.context;
        let durations = || context.short.series.iter().map(|series| series.duration);
        let mean = durations().sum::<Time>() / context.short.series.len().max(1) as Time;
        let tries = |job: &Job| SHIFTS * tries(effort, job);
        // Where single tasks do not help, as with equal durations, that is not tried at length.
        let finalists = if self.shifts_help { FINALISTS } else { 1 };
        let mut works = Vec::new();
        for (place, start) in self.starts.iter().take(finalists).enumerate() {
            let heat = [mean / 2, mean / 4, mean, mean / 2][(place + self.round as usize) % 4].max(1);
            let tries = tries(&context.short);
            works.push(Subtask::Anneal { start: start.clone(), tries, heat, seed: self.random.draw() });
        }
        if let Some((_, orders)) = self.best.as_ref().filter(|_| self.is_short()) {
            let heat = durations().min().unwrap_or(0) / 4 + 1;
            let tries = tries(&context.long);
            works.push(Subtask::Polish { orders: orders.clone(), tries, heat, seed: self.random.draw() });
        }
        if has_depths(&context.long) {
            let tries = tries(&context.long) / SHIFTS;
            works.push(Subtask::Deepen { tries, seed: self.random.draw() });
        }
        works
    }

    /// Looks for priorities: those of slopes, also with fewer devices, of rules that are good
    /// already, and of a good schedule or, every other round, of one that does not fit.
    fn priorities(&mut self, effort: u64) -> Vec<Subtask> {
        let tries = tries(effort, &self.context.short);
        let turn = self.round as usize / 2 % self.guides.len().max(1);
        let guide = self.guides.get(turn).map(|(_, orders)| orders).filter(|_| self.round.is_multiple_of(2));
        let behind = guide.or(self.starts.first().map(|start| &start.orders)).cloned().map(Origin::Orders);
        let known = self.rules.iter().map(|(_, rule)| Origin::Rule(rule.clone()));
        let all: Vec<Origin> = HALVINGS[(self.round as usize + 1) % 2]
            .map(Origin::Slopes)
            .into_iter()
            .chain(known)
            .chain(behind)
            .collect();
        let heat = |origin: &Origin| if matches!(origin, Origin::Rule(_)) { 1 } else { 3 };
        let work = |origin: Origin| {
            let effort = Effort { tries, heat: heat(&origin) };
            Subtask::Prioritize { origin, effort, seed: self.random.draw() }
        };
        all.into_iter().map(work).collect()
    }

    /// Attempts at a proof that nothing is shorter. Devices alone are quickly done; in pairs, and
    /// all together, a part of the gap is more than nothing.
    fn proofs(&self, best: Time) -> Vec<Subtask> {
        let job = &self.context.long;
        let width = self.grown(PROOF_WIDTH).min(MOST_WIDTH) as usize;
        let questions = self.grown(QUESTIONS);
        let gap = (best - self.bound).max(1);
        let part = |parts: Time| self.bound + (gap * parts / 4).max(1);
        let below = if self.round.is_multiple_of(2) { best } else { part(1) };
        let mut works = Vec::new();
        let busiest = job.on_device.iter().map(Vec::len).max().unwrap_or(0);
        if busiest * job.microbatches <= RELAXED_TASKS {
            let below = [part(1), best, part(2)][self.round as usize % 3];
            works.push(Subtask::Refute { below, width, questions, in_pairs: self.round > PAIRLESS_ROUNDS });
        }
        if job.n_tasks() <= PROVABLE_TASKS && self.round > 1 {
            works.push(Subtask::Prove { below, width, questions });
        }
        works
    }
}
