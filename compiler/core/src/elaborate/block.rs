//! Building blocks: the start slots of one microbatch, then every task of every microbatch in the order of its slot.

use super::fill::{Fill, FreeSlots};
use super::limits::{MAX_SLOT, tasks};
use super::schedule::{Writer, Written};
use super::scope::Fault;
use crate::diagnostic::{Code, Diagnostic};
use crate::schedule::{Block, BlockTask, ScheduledTask};
use crate::source::Span;
use crate::syntax::ast::{self, Expr};
use pipe_ir::ids::{MicrobatchId, StageId};
use pipe_ir::task::{Task, TaskKind};

/// Slots that one task of a kind takes, by [`TaskKind::index`].
pub(super) type Durations = [u64; TaskKind::ALL.len()];

/// The longest task.
const MAX_DURATION: i64 = 1_000_000;

/// Durations from the `slots` line: 1 for each kind, and `BW` as long as `B` and `W` together, unless it says otherwise.
pub(super) fn durations<'a>(writer: &mut Writer<'a>, lines: &'a [(TaskKind, Expr)]) -> Durations {
    let mut known: [Option<u64>; TaskKind::ALL.len()] = [None; TaskKind::ALL.len()];
    for (kind, expr) in lines {
        let value = writer.number(expr).and_then(|value| in_range("a task takes", value, 1, MAX_DURATION, expr.span));
        let value = writer.report.take(value);
        if known[kind.index()].is_some() {
            let message = format!("`slots` says twice how long `{}` takes", kind.letters());
            writer.report.add(Diagnostic::error(Code::RepeatedItem, expr.span, "said again", message));
        }
        known[kind.index()] = value.or(known[kind.index()]);
    }
    let of = |kind: TaskKind| known[kind.index()].unwrap_or(1);
    let both = of(TaskKind::BackwardInput) + of(TaskKind::BackwardWeight);
    TaskKind::ALL.map(|kind| match kind {
        TaskKind::Backward => known[kind.index()].unwrap_or(both),
        TaskKind::Update => 0,
        TaskKind::Forward | TaskKind::BackwardInput | TaskKind::BackwardWeight => of(kind),
    })
}

/// Writes a block out.
pub(super) fn write<'a>(
    writer: &mut Writer<'a>,
    block: &'a ast::Block,
    durations: Durations,
) -> Result<Written, Fault> {
    let n_tasks = writer.placement.n_stages() as u128 * block.tasks.len() as u128 * u128::from(writer.n_microbatches);
    tasks(n_tasks, block.span)?;
    let period = writer.number(&block.period)?;
    let period = in_range("a block repeats every", period, 1, MAX_SLOT, block.period.span)?;
    let mut slots = Vec::new();
    let mut waiting = Vec::new();
    for line in &block.tasks {
        let origin = writer.origin(line.span)?;
        match &line.at {
            Some(at) => {
                let placed = place(writer, line, at, origin, &mut slots);
                writer.report.take(placed);
            }
            None => waiting.push(Fill { kind: line.kind, origin, span: line.span }),
        }
    }
    if writer.report.is_empty() {
        let mut free = FreeSlots::new(period, durations, &writer.placement, writer.n_devices, &slots);
        free.fill(&waiting, &mut slots, &mut writer.report);
    }
    let block = Block { period, slots, durations };
    let window = if writer.report.is_empty() { super::window::window(writer, &block) } else { None };
    Ok(Written { orders: repeated(writer, &block), block: Some(block), window })
}

/// Evaluates a line's slot for every stage.
fn place<'a>(
    writer: &mut Writer<'a>,
    line: &'a ast::BlockTask,
    at: &'a Expr,
    origin: u16,
    slots: &mut Vec<BlockTask>,
) -> Result<(), Fault> {
    let variable = writer.variable(&line.stage)?;
    let code = writer.scope.number(at)?;
    for stage in 0..writer.placement.n_stages() {
        let stage = StageId::from_index(stage);
        writer.machine.set(variable, i64::from(stage.0));
        writer.machine.spend(1, at)?;
        let slot = writer.eval(&code)?;
        let start = u64::try_from(slot).ok().filter(|_| slot <= MAX_SLOT).ok_or_else(|| {
            let message =
                format!("{} of {stage} starts at slot {slot}; slots go from 0 to {MAX_SLOT}", line.kind.letters());
            let code = if slot < 0 { Code::OutOfRange } else { Code::TooLarge };
            Box::new(Diagnostic::error(code, at.span, format!("{slot} for {stage}"), message))
        })?;
        slots.push(BlockTask { kind: line.kind, stage, slot: start, origin });
    }
    writer.machine.restore(variable, None);
    Ok(())
}

/// The tasks of all microbatches, for each device in the order of their slots.
fn repeated(writer: &Writer<'_>, block: &Block) -> Vec<Vec<ScheduledTask>> {
    let mut starts: Vec<Vec<(u64, ScheduledTask)>> = vec![Vec::new(); writer.n_devices as usize];
    // By device: the tasks that run there, with their microbatch modulo the period of the placement, ascending.
    let mut per_device: Vec<Vec<(u32, &BlockTask)>> = vec![Vec::new(); writer.n_devices as usize];
    let phases = writer.placement.period();
    for phase in 0..phases.min(writer.n_microbatches) {
        for task in &block.slots {
            let device = writer.placement.device(task.stage, MicrobatchId(phase));
            per_device[device.index()].push((phase, task));
        }
    }
    for (starts, tasks) in starts.iter_mut().zip(per_device) {
        starts.reserve_exact(tasks.len() * writer.n_microbatches.div_ceil(phases) as usize);
        for microbatch in 0..writer.n_microbatches {
            let moved = u64::from(microbatch).saturating_mul(block.period);
            let phase = microbatch % phases;
            let first = tasks.partition_point(|(other, _)| *other < phase);
            let own = tasks[first..].iter().take_while(|(other, _)| *other == phase);
            for (_, BlockTask { kind, stage, slot, origin }) in own {
                let task = Task { kind: *kind, stage: *stage, microbatch: MicrobatchId(microbatch) };
                starts.push((slot.saturating_add(moved), ScheduledTask { task, origin: *origin }));
            }
        }
        starts.sort_by_key(|(start, _)| *start);
    }
    starts.into_iter().map(|starts| starts.into_iter().map(|(_, task)| task).collect()).collect()
}

/// A number of slots within bounds.
fn in_range(what: &str, value: i64, low: i64, high: i64, span: Span) -> Result<u64, Fault> {
    match u64::try_from(value) {
        Ok(slots) if (low..=high).contains(&value) => Ok(slots),
        _ => {
            let message = format!("{what} {value} slots; from {low} to {high} are possible");
            let code = if value < low { Code::OutOfRange } else { Code::TooLarge };
            Err(Box::new(Diagnostic::error(code, span, format!("this is {value}"), message)))
        }
    }
}
