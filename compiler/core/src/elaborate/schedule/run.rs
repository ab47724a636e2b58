//! Runs the statements of an `order` for every device, and writes down the tasks that they name.

use super::loops::idle::IdleLoop;
use super::marks::{Mark, Marks, stage_here};
use super::order::{Body, Line, Once, Step};
use super::refused_task::{self, Loop};
use super::swap::{Movement, WrittenSwaps};
use super::{Writer, WrittenOrders, parts};
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use pipe_ir::task::{Task, TaskKind};
use pipe_schedule::parts::divided::has_weights;
use pipe_schedule::placement::names;
use pipe_schedule::schedule::ScheduledTask;
use pipe_schedule::step_tasks::StepTask;
use pipe_syntax::ast;
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::expr::scope::{Fault, Resolved};
use pipe_syntax::limits::{MAX_TASKS, tasks};
use pipe_syntax::source::Span;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// What one turn of a loop costs, in operations.
const TURN: u64 = 16;
/// What it costs to refuse a task. Nothing comes of the schedule any more, so there need not be many.
const REFUSAL: u64 = 20_000;

/// The orders of all devices, followed by the orders of their lanes, and what stands between tasks. `place` is the
/// line with the homes of stages.
pub(super) fn run<'a>(
    writer: &mut Writer<'a>,
    (order, device, body): (&'a ast::Order, usize, &Body<'a>),
    place: Span,
) -> WrittenOrders {
    let is_counted_apart = writer.placement.is_replicated() || writer.placement.spread_stage().is_some();
    let next = TaskKind::ALL.map(|_| vec![0; writer.placement.n_stages()]);
    let swaps = WrittenSwaps::new(writer.n_stages());
    let mut run = Run {
        writer,
        variable: &order.device.text,
        place,
        device: DeviceId(0),
        next,
        fused: BTreeSet::new(),
        loops: Vec::new(),
        order: Vec::new(),
        several: BTreeMap::new(),
        swaps,
        marks: Marks::default(),
        n_tasks: 0,
    };
    let n_queues = run.writer.n_devices as usize * (1 + run.writer.parts.lanes().len());
    let mut orders = vec![Vec::new(); n_queues];
    for index in 0..run.writer.n_devices {
        run.writer.machine.set(device, i64::from(index));
        run.device = DeviceId(index);
        if let Err(fault) = run.body(body) {
            let hopeless = fault.code == Code::TooLarge;
            run.writer.report.add(*fault);
            if hopeless {
                break;
            }
        }
        let mut order = std::mem::take(&mut run.order);
        let has_lanes = n_queues > run.writer.n_devices as usize;
        run.marks.end_list(&mut order, has_lanes);
        if is_counted_apart {
            // Each replica, and each of several devices at once, counts its own microbatches.
            order.iter().for_each(|one| run.next.iter_mut().for_each(|next| next[one.task.stage.index()] = 0));
            run.fused.clear();
            run.several.clear();
        }
        if !has_lanes {
            orders[run.device.index()] = order;
            continue;
        }
        for one in order {
            orders[run.queue(one.task.stage).index()].push(one);
        }
    }
    let (swaps, step_tasks) = run.marks.finish();
    WrittenOrders { orders, swaps: run.swaps.finish(swaps), step_tasks, block: None, window: None }
}

/// The state of a run through the statements.
struct Run<'w, 'a> {
    writer: &'w mut Writer<'a>,
    /// What the order calls the device.
    variable: &'a str,
    /// The line that says where stages live.
    place: Span,
    /// The device at hand.
    device: DeviceId,
    /// By kind and stage: how many microbatches come before the next one, each slice counted as one, in the order in
    /// which tasks of that kind take them.
    next: [Vec<u32>; TaskKind::ALL.len()],
    /// Stages and microbatches that ran `BW`, and that `W` has not passed over yet.
    fused: BTreeSet<(usize, u32)>,
    /// The `for` loops around the statement at hand, outermost first.
    loops: Vec<Loop<'a>>,
    /// Its list: what it computes, and what it starts on lanes.
    order: Vec<ScheduledTask>,
    /// By kind, part, and microbatch and slice as they were named: how often parts ran whose stage has several of their
    /// name.
    several: BTreeMap<(TaskKind, usize, [i64; 2]), u32>,
    /// What leaves and comes back.
    swaps: WrittenSwaps,
    /// What stands between tasks.
    marks: Marks,
    /// Of all devices, what leaves and comes back counted too.
    n_tasks: u64,
}

impl<'a> Run<'_, 'a> {
    fn body(&mut self, body: &Body<'a>) -> Result<(), Fault> {
        if body.own.is_empty() {
            return body.steps.iter().try_for_each(|step| self.step(step));
        }
        let before: Vec<_> = body.own.iter().map(|slot| (*slot, self.writer.machine.get(*slot))).collect();
        let result = body.steps.iter().try_for_each(|step| self.step(step));
        before.into_iter().for_each(|(slot, value)| self.writer.machine.restore(slot, value));
        result
    }

    fn step(&mut self, step: &Step<'a>) -> Result<(), Fault> {
        match step {
            Step::Let { variable, value } => {
                let value = self.writer.eval(value)?;
                self.writer.machine.set(*variable, value);
                Ok(())
            }
            Step::Repeat { count, body } => {
                let turns = self.writer.eval(count)?;
                turns_allowed(turns, count)?;
                if turns < 0 {
                    self.note_idle(count.expr.span, format!("its count is {turns}"), body);
                }
                for _ in 0..turns {
                    self.writer.machine.spend(TURN, count.expr)?;
                    self.body(body)?;
                }
                Ok(())
            }
            Step::For { variable, name, start, end, body } => {
                let (first, last) = (self.writer.eval(start)?, self.writer.eval(end)?);
                turns_allowed(last.saturating_sub(first), end)?;
                if last < first {
                    let span = Span { end: end.expr.span.end, ..start.expr.span };
                    self.note_idle(span, format!("it counts up from {first}, but its end is {last}"), body);
                }
                let before = self.writer.machine.get(*variable);
                self.loops.push(Loop { name, start: start.expr, end: end.expr });
                for number in first..last {
                    self.writer.machine.set(*variable, number);
                    self.writer.machine.spend(TURN, end.expr)?;
                    self.body(body)?;
                }
                self.loops.pop();
                self.writer.machine.restore(*variable, before);
                Ok(())
            }
            Step::If { branches, otherwise } => {
                for (condition, body) in branches {
                    if self.writer.eval(condition)? == 1 {
                        return self.body(body);
                    }
                }
                self.body(otherwise)
            }
            Step::Task(line) => self.task(line),
            Step::Move(movement) => self.movement(movement),
            Step::Once(once) => self.once(once),
            Step::Call { called, body } => {
                let before = self.writer.machine.bind(&self.writer.scope, called.slot, &called.arguments)?;
                let result = self.body(body);
                self.writer.machine.unbind(before);
                result
            }
            Step::Pair { body, span } => {
                if self.writer.parts.is_empty() {
                    let first = self.order.len();
                    self.body(body)?;
                    self.join(first, *span);
                    return Ok(());
                }
                self.merge(body)
            }
        }
    }

    /// Notes a loop that ends before it begins, and what it would run.
    fn note_idle(&mut self, span: Span, reason: String, body: &Body<'a>) {
        self.writer.idle.entry((self.device, span)).or_insert_with(|| {
            let mut kinds = BTreeSet::new();
            body.kinds(&mut kinds);
            IdleLoop { reason, kinds }
        });
    }

    /// Lets the tasks from a position on share the device. The forward goes first: its activation
    /// is taken at the start.
    fn join(&mut self, first: usize, span: Span) {
        let [one, other] = &mut self.order[first..] else { return };
        if other.task.kind == TaskKind::Forward {
            std::mem::swap(one, other);
        }
        one.with_next = true;
        if (one.task.stage, one.task.microbatch) == (other.task.stage, other.task.microbatch) {
            let message =
                format!("`{}` and `{}` cannot share a device: the second needs the first", one.task, other.task);
            let error = Diagnostic::error(Code::WrongPair, span, "of one microbatch", message);
            self.writer.report.add(error.help("join the forward of a microbatch with the backward of an earlier one"));
        }
    }

    fn task(&mut self, line: &Line<'a>) -> Result<(), Fault> {
        let stage = self.writer.eval(&line.stage)?;
        let n_stages = self.writer.n_stages();
        let index = match usize::try_from(stage) {
            Ok(index) if index < n_stages => index,
            _ => {
                self.writer.machine.spend(REFUSAL, line.stage.expr)?;
                let error = refused_task::no_such_stage(stage, n_stages, line, self.device);
                self.writer.report.add(self.with_stage(line, error));
                return Ok(());
            }
        };
        if self.writer.parts.is_empty() && line.part.is_none() {
            return self.row(line, index);
        }
        if let Some(part) = line.part {
            return match self.part(line, part, index)? {
                Some(row) => self.row(line, row),
                None => self.writer.machine.spend(REFUSAL, line.stage.expr),
            };
        }
        let parts = Rc::clone(&self.writer.parts);
        let mut is_any = false;
        for rows in parts.of_task(line.kind, StageId::from_index(index)) {
            is_any = true;
            self.row(line, parts.of_device(&rows, self.device))?;
        }
        if is_any { Ok(()) } else { self.writer.machine.spend(REFUSAL, line.stage.expr) }
    }

    /// The row of the part that a line names; none if it is refused. If the stage has several of the name, the next of
    /// them.
    fn part(&mut self, line: &Line<'a>, part: &ast::Name, stage: usize) -> Result<Option<usize>, Fault> {
        let (parts, device) = (Rc::clone(&self.writer.parts), self.device);
        let mut all = parts
            .of_named(line.kind, StageId::from_index(stage), &part.text)
            .map(|rows| parts.of_device(&rows, device));
        let Some(first) = all.next() else {
            self.writer.report.add(parts::unknown(&parts, part, Some(stage)));
            return Ok(None);
        };
        if has_weights(line.kind) && parts.is_on_lane(first) {
            self.writer.report.add(parts::no_weights(line.kind, part));
            return Ok(None);
        }
        let rest: Vec<usize> = all.collect();
        if rest.is_empty() {
            return Ok(Some(first));
        }
        let all = || std::iter::once(first).chain(rest.iter().copied());
        let named = line.microbatch.as_ref().map(|code| self.writer.eval(code)).transpose()?;
        let slice = line.slice.as_ref().map(|code| self.writer.eval(code)).transpose()?;
        let Some(microbatch) = named else {
            return Ok(all().min_by_key(|row| self.next[line.kind.index()][*row]));
        };
        let work = [microbatch, slice.unwrap_or(-1)];
        // `BW` is `B`, and `W` as well.
        let halves = [TaskKind::BackwardInput, TaskKind::BackwardWeight];
        let counted = if line.kind == TaskKind::Backward { &halves[..] } else { &[line.kind] };
        let times = |row: &usize| self.several.get(&(counted[0], *row, work)).copied().unwrap_or(0);
        let row = all().min_by_key(times).unwrap_or(first);
        counted.iter().for_each(|kind| *self.several.entry((*kind, row, work)).or_default() += 1);
        Ok(Some(row))
    }

    /// Adds the task of a stage, or of one of its parts.
    fn row(&mut self, line: &Line<'a>, row: usize) -> Result<(), Fault> {
        let Some(microbatch) = self.microbatch(line, row)? else {
            self.writer.machine.spend(REFUSAL, line.stage.expr)?;
            return Ok(());
        };
        self.n_tasks += 1;
        if self.n_tasks > MAX_TASKS {
            return tasks(u128::from(self.n_tasks), line.span);
        }
        let task = Task { kind: line.kind, stage: StageId::from_index(row), microbatch };
        self.order.push(ScheduledTask::new(task, line.origin));
        Ok(())
    }

    /// Adds what leaves or comes back.
    fn movement(&mut self, movement: &Movement<'a>) -> Result<(), Fault> {
        self.n_tasks += 1;
        if self.n_tasks > MAX_TASKS {
            return tasks(u128::from(self.n_tasks), movement.span);
        }
        match self.swaps.run(self.writer, movement, self.device)? {
            Ok(swap) => self.marks.push(self.order.len(), Mark::Swap(swap)),
            Err(refused) => {
                self.writer.report.add(refused);
                self.writer.machine.spend(REFUSAL, movement.stage.expr)?;
            }
        }
        Ok(())
    }

    /// Adds a sum of gradients, an update or an all-gather: of each part that the device computes, if the stage has
    /// parts.
    fn once(&mut self, once: &Once<'a>) -> Result<(), Fault> {
        self.n_tasks += 1;
        if self.n_tasks > MAX_TASKS {
            return tasks(u128::from(self.n_tasks), once.span);
        }
        let stage = match stage_here(self.writer, (once.kind.word(), &once.stage, once.span), self.device)? {
            Ok(stage) => stage,
            Err(refused) => {
                self.writer.report.add(refused);
                return self.writer.machine.spend(REFUSAL, once.stage.expr);
            }
        };
        let parts = Rc::clone(&self.writer.parts);
        for rows in parts.positions(stage).filter(|rows| !parts.is_on_lane(rows.start)) {
            let stage = StageId::from_index(parts.of_device(&rows, self.device));
            let task = StepTask { kind: once.kind, stage, at: 0, origin: once.origin };
            self.marks.push(self.order.len(), Mark::StepTask(task));
        }
        Ok(())
    }

    /// The queue of the device at hand that runs a stage or part.
    fn queue(&self, row: StageId) -> DeviceId {
        self.writer.parts.queue(self.device, row, self.writer.n_devices as usize)
    }

    /// Runs a forward and a backward by turns: the backward first, each up to and including its next part on a lane.
    fn merge(&mut self, body: &Body<'a>) -> Result<(), Fault> {
        let first = self.order.len();
        let mut halves: Vec<VecDeque<ScheduledTask>> = Vec::new();
        for step in &body.steps {
            self.step(step)?;
            halves.push(self.order.split_off(first).into());
        }
        self.order.extend(self.writer.parts.by_turns(halves));
        Ok(())
    }

    /// What a task runs on: what it names, and the next of what it does not name. None where there is no such.
    fn microbatch(&mut self, line: &Line<'a>, stage: usize) -> Result<Option<MicrobatchId>, Fault> {
        let named = line.microbatch.as_ref().map(|code| self.writer.eval(code)).transpose()?;
        let slice = line.slice.as_ref().map(|code| self.writer.eval(code)).transpose()?;
        let (n_microbatches, slices) = (self.writer.n_microbatches, self.writer.slices);
        let next = match named {
            Some(_) => self.next[line.kind.index()][stage],
            None => self.next(line, stage)?,
        };
        let microbatch = named.unwrap_or(i64::from(next / slices.count()));
        let Some(number) = u32::try_from(microbatch).ok().filter(|number| *number < n_microbatches) else {
            let row = StageId::from_index(stage);
            let is_home = self.writer.placement.is_home(row, self.queue(row));
            let none_left = line.microbatch.is_none() && self.writer.placement.is_replicated();
            self.writer.report.add(if line.microbatch.is_none() && !is_home {
                self.elsewhere(line, StageId::from_index(stage))
            } else if none_left {
                refused_task::none_left_here(line, &self.writer.parts.name(row), self.device)
            } else if let Some(both) = self.twice_backward(line, stage) {
                both
            } else {
                let error =
                    refused_task::no_such_microbatch(line, &self.writer.parts.name(row), microbatch, n_microbatches);
                refused_task::with_range(line, &self.loops, error)
            });
            return Ok(None);
        };
        let first = number * slices.count();
        let nth = match slice {
            None if next / slices.count() == number => next,
            None => first,
            Some(slice) => {
                let Some(slice) = u32::try_from(slice).ok().filter(|slice| *slice < slices.count()) else {
                    let name = self.writer.parts.name(StageId::from_index(stage));
                    self.writer.report.add(refused_task::no_such_slice(line, &name, slice, slices));
                    return Ok(None);
                };
                // The order of slices is its own inverse.
                slices.nth(line.kind, first + slice).0
            }
        };
        self.took(line, stage, nth)?;
        Ok(Some(slices.nth(line.kind, nth)))
    }

    /// A task whose stage lives on other devices only.
    fn elsewhere(&self, line: &Line<'a>, stage: StageId) -> Diagnostic {
        let (kind, device) = (line.kind.letters(), self.device);
        let stage = self.writer.parts.stage_of(stage);
        let first = StageId::from_index(self.writer.parts.rows(stage).start);
        let devices = self.writer.placement.devices_of(first).iter();
        let devices = devices.map(|queue| self.writer.parts.device(*queue, self.writer.n_devices as usize));
        let homes = names(&devices.collect::<Vec<_>>());
        let message = format!("`{kind}` of {stage} is in the order of {device}, but {stage} lives on {homes}");
        let error = Diagnostic::error(Code::WrongDevice, line.span, format!("on {device} too"), message)
            .label(self.place, format!("places {stage} on {homes}"));
        self.with_stage(line, error)
    }

    /// The error if a stage runs `BW` and one of its halves on the same microbatches.
    fn twice_backward(&self, line: &Line<'a>, stage: usize) -> Option<Diagnostic> {
        let all = (self.writer.n_microbatches * self.writer.slices.count()) as usize;
        let of = |kind| self.order.iter().filter(move |one| one.task.kind == kind && one.task.stage.index() == stage);
        let count = |kind| of(kind).count();
        let half = match line.kind {
            TaskKind::BackwardInput | TaskKind::BackwardWeight => line.kind,
            TaskKind::Backward if count(TaskKind::BackwardWeight) == 0 => TaskKind::BackwardInput,
            TaskKind::Backward => TaskKind::BackwardWeight,
            TaskKind::Forward | TaskKind::Recompute | TaskKind::Update => return None,
        };
        let (fused, halves) = (count(TaskKind::Backward), count(half));
        let is_other = |kind| kind == half || count(kind) == 0;
        let is_twice = line.microbatch.is_none()
            && [TaskKind::BackwardInput, TaskKind::BackwardWeight].into_iter().all(is_other)
            && fused + halves >= all
            && fused > 0;
        let other = if line.kind == TaskKind::Backward { half } else { TaskKind::Backward };
        let first = self.writer.origins[usize::from(of(other).next().filter(|_| is_twice)?.origin)];
        let [both, one] = if other == half { [line.span, first] } else { [first, line.span] };
        Some(refused_task::twice_backward(half, one, both))
    }

    /// Adds a help to an error about the stage of a task: stage and microbatch are swapped, or the stage of the device
    /// was meant.
    fn with_stage(&self, line: &Line<'a>, error: Diagnostic) -> Diagnostic {
        if refused_task::is_swapped(line, self.variable, &self.loops) {
            return refused_task::with_swap(line, error);
        }
        self.own_stage(line, error)
    }

    /// An error about the stage of a task, with the stage that the device has, if it is the one of its number.
    fn own_stage(&self, line: &Line<'a>, error: Diagnostic) -> Diagnostic {
        let (kind, variable, device) = (line.kind.letters(), self.variable, self.device);
        let own = StageId::from_index(device.index());
        let row = StageId::from_index(self.writer.parts.rows(own).start);
        if own.index() >= self.writer.n_stages() || !self.writer.placement.is_home(row, self.queue(row)) {
            return error;
        }
        let help = format!("an order is what every device does: write `{kind}[{variable}]` for the stage of each");
        error.help(help).edit(line.stage.expr.span, variable)
    }

    /// How many microbatches come before the next one of a kind and stage; of those that live on
    /// this device, where some do. All of them where none is left.
    fn next(&mut self, line: &Line<'a>, stage: usize) -> Result<u32, Fault> {
        self.own(line, stage, self.next[line.kind.index()][stage])
    }

    /// The first of the microbatches from `next` on that lives on this device, where some do.
    fn own(&mut self, line: &Line<'a>, stage: usize, next: u32) -> Result<u32, Fault> {
        let (placement, stage, slices) = (&self.writer.placement, StageId::from_index(stage), self.writer.slices);
        let queue = self.queue(stage);
        if !placement.is_replicated() || !placement.is_home(stage, queue) {
            return Ok(next);
        }
        // Within one period there is one, or none is left.
        let all = self.writer.n_microbatches * slices.count();
        let ends = next.saturating_add(placement.period()).min(all);
        let devices = |nth: &u32| placement.devices(stage, slices.nth(line.kind, *nth));
        let found = (next..ends).find(|nth| devices(nth).binary_search(&queue).is_ok());
        self.writer.machine.spend(u64::from(found.unwrap_or(ends).saturating_sub(next)), line.stage.expr)?;
        Ok(found.unwrap_or(all))
    }

    /// Counts a task. `B` and `BW` share one count of microbatches. `W` skips a microbatch that ran `BW`.
    fn took(&mut self, line: &Line<'a>, stage: usize, nth: u32) -> Result<(), Fault> {
        let [input, weight, both] =
            [TaskKind::BackwardInput, TaskKind::BackwardWeight, TaskKind::Backward].map(TaskKind::index);
        self.next[line.kind.index()][stage] = nth + 1;
        match line.kind {
            TaskKind::BackwardInput => self.next[both][stage] = nth + 1,
            TaskKind::Backward => {
                self.next[input][stage] = nth + 1;
                self.fused.insert((stage, nth));
            }
            TaskKind::BackwardWeight => {}
            TaskKind::Forward | TaskKind::Recompute | TaskKind::Update => return Ok(()),
        }
        let mut next = self.own(line, stage, self.next[weight][stage])?;
        while self.fused.remove(&(stage, next)) {
            self.next[weight][stage] = next + 1;
            next = self.own(line, stage, next + 1)?;
        }
        Ok(())
    }
}

/// A loop with more turns than a schedule may have tasks is a mistake, and would take too long.
fn turns_allowed(turns: i64, code: &Resolved<'_>) -> Result<(), Fault> {
    if u64::try_from(turns).is_ok_and(|turns| turns > MAX_TASKS) {
        let message = format!("the loop has {turns} turns; at most {MAX_TASKS} are accepted");
        return Err(Box::new(Diagnostic::error(Code::TooLarge, code.expr.span, "too many turns", message)));
    }
    Ok(())
}
