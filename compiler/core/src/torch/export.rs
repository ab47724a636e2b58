//! Writes a schedule in the form of PyTorch.
//!
//! Transfers are put in one line, by the time at which what they carry is there, and stand at that
//! time in the rows of both ranks: so every pair of ranks sends and receives in one order, and no
//! rank waits forever. Which of PyTorch's own orders that would be is not said there; the rules for
//! tables judge what was written here like any other.

use super::refusals::refusals;
use crate::analyze::Analysis;
use pipe_ir::ids::{MicrobatchId, StageId};
use pipe_schedule::order::Position;
use pipe_schedule::schedule::{Schedule, ScheduledTask};
use pipe_schedule::units::Ticks;
use pipe_syntax::diagnostic::Diagnostics;
use pipe_syntax::torch::Runtime;
use pipe_syntax::torch::action::{Action, ActionKind};
use pipe_syntax::torch::gatherings::gathered;
use pipe_syntax::torch::table::{Cell, Row, Table};
use pipe_syntax::torch::version::Version;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Tasks of the sender that a send has time for, before it is waited for: enough that a receiver
/// which is in the middle of one holds nobody up.
const TASKS_OF_A_SEND: usize = 2;

/// What is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Tasks only: PyTorch puts transfers in.
    Tasks,
    /// Transfers as well.
    Transfers,
}

/// The table of a schedule for a runtime, of the newest version unless it names one, with what to know of it.
///
/// # Errors
/// Everything that PyTorch cannot run.
pub fn export(analysis: &Analysis, form: Form, runtime: Runtime) -> Result<(Table, Diagnostics), Diagnostics> {
    let version = runtime.version.unwrap_or_default();
    let found = refusals(analysis);
    if !found.is_empty() {
        return Err(found);
    }
    let mut writer = Writer::new(analysis, form, version);
    for slot in in_time(analysis) {
        writer.node(slot);
    }
    let table = writer.finish();
    let (warnings, verdict) = pipe_syntax::torch::check(&table, Runtime { version: Some(version), ..runtime });
    verdict.map(|()| (table, warnings))
}

/// All nodes by the time at which they start, each after what it reads.
fn in_time(analysis: &Analysis) -> Vec<Position> {
    let start = |slot: &Position| analysis.timeline.starts[slot.device.index()][slot.position as usize];
    let mut slots = analysis.order.sequence.clone();
    slots.sort_by_key(start);
    slots
}

/// What follows a task when it has ended, in this order where several end at once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// What it computed leaves.
    Transfer { send: Action },
    /// It was the last that added to the gradients of its stage.
    Reduce { stage: u32 },
}

struct Writer<'a> {
    analysis: &'a Analysis,
    form: Form,
    version: Version,
    rows: Vec<Vec<Cell>>,
    /// By end, then in the order in which they came to be.
    events: BinaryHeap<Reverse<(Ticks, usize, usize, Event)>>,
    n_events: usize,
    /// By rank: sends that nothing waits for yet, with the tasks that were written before.
    sent: Vec<Vec<(usize, Action)>>,
    /// By rank: tasks that are written, two that share it as one.
    n_nodes: Vec<usize>,
    /// By stage: tasks that are yet to add to its gradients.
    unreduced: BTreeMap<StageId, u32>,
}

impl<'a> Writer<'a> {
    fn new(analysis: &'a Analysis, form: Form, version: Version) -> Self {
        let n = analysis.schedule.n_devices();
        let n_microbatches = analysis.schedule.n_microbatches;
        Self {
            analysis,
            form,
            version,
            rows: vec![Vec::new(); n],
            events: BinaryHeap::new(),
            n_events: 0,
            sent: vec![Vec::new(); n],
            n_nodes: vec![0; n],
            unreduced: analysis.schedule.placement.stages().map(|stage| (stage, n_microbatches)).collect(),
        }
    }

    fn schedule(&self) -> &'a Schedule {
        &self.analysis.schedule
    }

    /// Writes a task, or two that share the rank, behind what has ended before.
    fn node(&mut self, slot: Position) {
        let (rank, position) = (slot.device.index(), slot.position as usize);
        let timeline = &self.analysis.timeline;
        self.happen(timeline.starts[rank][position]);
        let tasks = self.schedule().node(slot.device, position);
        let actions: Vec<Action> = tasks.iter().filter_map(action).collect();
        match actions.as_slice() {
            [first, second] if self.version.has_pairs() => self.put(rank, *first, Some(*second)),
            _ => actions.iter().for_each(|action| self.put(rank, *action, None)),
        }
        if self.form == Form::Tasks || actions.is_empty() {
            return;
        }
        self.n_nodes[rank] += 1;
        self.wait_for_sends(rank, TASKS_OF_A_SEND);
        for action in &actions {
            self.follow(rank, *action, timeline.ends[rank][position]);
        }
    }

    /// Notes what follows a task.
    fn follow(&mut self, rank: usize, action: Action, end: Ticks) {
        let device = |stage: u32| self.schedule().placement.device(StageId(stage), MicrobatchId(0)).index();
        let n_stages = self.schedule().n_stages();
        let leaves = |send: &Action| {
            let other = send.other_end().filter(|other| (other.stage as usize) < n_stages);
            other.is_some_and(|other| device(other.stage) != rank)
        };
        if let Some(send) = action.send().filter(leaves) {
            self.note(end, rank, Event::Transfer { send });
        }
        if !action.kind.has_weight_gradients() || !self.version.reduces() {
            return;
        }
        let left = self.unreduced.entry(StageId(action.stage)).or_default();
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.note(end, rank, Event::Reduce { stage: action.stage });
        }
    }

    fn note(&mut self, end: Ticks, rank: usize, event: Event) {
        self.events.push(Reverse((end, self.n_events, rank, event)));
        self.n_events += 1;
    }

    /// Writes everything that has ended by then.
    fn happen(&mut self, now: Ticks) {
        while self.events.peek().is_some_and(|Reverse((end, ..))| *end <= now) {
            let Some(Reverse((_, _, rank, event))) = self.events.pop() else { return };
            match event {
                Event::Transfer { send } => {
                    let Some(receive) = send.other_end() else { continue };
                    let to = self.schedule().placement.device(StageId(receive.stage), MicrobatchId(0)).index();
                    self.put(rank, send, None);
                    self.put(to, receive, None);
                    self.sent[rank].push((self.n_nodes[rank], send));
                }
                Event::Reduce { stage } => {
                    self.put(rank, Action { stage, kind: ActionKind::ReduceGradient, microbatch: None }, None);
                    if self.version.waits() {
                        self.put(rank, Action { stage, kind: ActionKind::WaitReduceGradient, microbatch: None }, None);
                    }
                }
            }
        }
    }

    /// Waits for the sends that have had so many tasks of time to leave.
    fn wait_for_sends(&mut self, rank: usize, tasks: usize) {
        if !self.version.waits() {
            return;
        }
        let n_nodes = self.n_nodes[rank];
        let (gone, under_way) = self.sent[rank].iter().partition(|(then, _)| then + tasks <= n_nodes);
        self.sent[rank] = under_way;
        let gone: Vec<(usize, Action)> = gone;
        for (_, send) in gone {
            let kind = if send.kind == ActionKind::SendForward {
                ActionKind::WaitSendForward
            } else {
                ActionKind::WaitSendBackward
            };
            self.put(rank, Action { kind, ..send }, None);
        }
    }

    fn put(&mut self, rank: usize, action: Action, partner: Option<Action>) {
        let span = self.schedule().span;
        self.rows[rank].push(Cell { action, partner, span });
    }

    fn finish(mut self) -> Table {
        self.happen(Ticks::END);
        (0..self.rows.len()).for_each(|rank| self.wait_for_sends(rank, 0));
        let span = self.schedule().span;
        let rows = self.rows.into_iter().map(|cells| Row { cells, span });
        Table { rows: rows.map(|row| if self.form == Form::Tasks { row } else { gathered(row) }).collect() }
    }
}

/// The action for a task; PyTorch leaves updates to the optimizer.
fn action(scheduled: &ScheduledTask) -> Option<Action> {
    let task = scheduled.task;
    Some(Action { stage: task.stage.0, kind: ActionKind::of_task(task.kind)?, microbatch: Some(task.microbatch.0) })
}
