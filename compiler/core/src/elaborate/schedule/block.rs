//! Building blocks: the start slots of their microbatches, then every task of every microbatch in
//! the order of its slot.

use super::fill::{Fill, FreeSlots};
use super::{Writer, WrittenOrders};
use pipe_ir::ids::{MicrobatchId, StageId};
use pipe_ir::task::{Task, TaskKind};
use pipe_schedule::block::period::turn;
use pipe_schedule::schedule::{Block, BlockTask, ScheduledTask};
use pipe_syntax::ast::{self, Expr, ExprKind};
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::expr::scope::Fault;
use pipe_syntax::limits::{MAX_MICROBATCHES, MAX_SLOT, is_turn, tasks, turn_tasks, within};
use pipe_syntax::source::Span;

/// Slots that one task of a kind takes, by [`TaskKind::index`].
pub(super) type Durations = [u64; TaskKind::ALL.len()];

/// The longest task.
const MAX_DURATION: i64 = 1_000_000;

/// Durations from the `slots` line: 1 for each kind, `BW` as long as `B` and `W` together, and `R`
/// as long as `F`, unless it says otherwise.
pub(super) fn durations<'a>(writer: &mut Writer<'a>, lines: &'a [(TaskKind, Expr)]) -> Durations {
    let mut known: [Option<u64>; TaskKind::ALL.len()] = [None; TaskKind::ALL.len()];
    for (kind, expr) in lines {
        let value = writer.number(expr).and_then(|value| in_range("a task takes", value, 1, MAX_DURATION, expr.span));
        let value = writer.report.take(value);
        if known[kind.index()].is_some() {
            let message = format!("`slots` gives `{}` twice", kind.letters());
            writer.report.add(Diagnostic::error(Code::RepeatedItem, expr.span, "given again", message));
        }
        known[kind.index()] = value.or(known[kind.index()]);
    }
    let of = |kind: TaskKind| known[kind.index()].unwrap_or(1);
    let both = of(TaskKind::BackwardInput) + of(TaskKind::BackwardWeight);
    TaskKind::ALL.map(|kind| match kind {
        TaskKind::Backward => known[kind.index()].unwrap_or(both),
        TaskKind::Recompute => known[kind.index()].unwrap_or(of(TaskKind::Forward)),
        TaskKind::Update => 0,
        TaskKind::Forward | TaskKind::BackwardInput | TaskKind::BackwardWeight => of(kind),
    })
}

/// Writes a block out.
pub(super) fn write<'a>(
    writer: &mut Writer<'a>,
    block: &'a ast::Block,
    durations: Durations,
) -> Result<WrittenOrders, Fault> {
    let of_kinds = writer.placement.n_places() as u128 * block.tasks.len() as u128;
    let microbatches = match &block.microbatches {
        None => 1,
        Some(size) => within("microbatches in a block", writer.number(size)?, 1..=MAX_MICROBATCHES, size.span)?,
    };
    let n_microbatches = shown(writer, microbatches);
    let n_tasks = of_kinds * u128::from(n_microbatches.max(microbatches));
    if writer.turn {
        turn_tasks(n_tasks, block.span)?
    } else {
        tasks(n_tasks, block.span)?
    }
    let period = writer.number(&block.period)?;
    let period = in_range("a block repeats every", period, 1, MAX_SLOT, block.period.span)?;
    let mut slots = Vec::new();
    let mut waiting = Vec::new();
    for line in &block.tasks {
        let origin = writer.origin(line.span)?;
        match &line.at {
            Some(at) => {
                let placed = place(writer, line, (at, microbatches), origin, &mut slots);
                writer.report.take(placed);
            }
            None => waiting.push(Fill { kind: line.kind, origin, span: line.span }),
        }
    }
    let only = (writer.is_varied && writer.weights.is_none()).then_some(writer.n_microbatches);
    let per_step = std::mem::replace(&mut writer.n_microbatches, n_microbatches);
    let every = matches!(block.period.kind, ExprKind::Integer(_)).then_some(block.period.span);
    let mut block = Block { microbatches, period, every, slots, durations, only };
    if writer.report.is_empty() {
        let size = (writer.n_devices, filled(writer, microbatches, of_kinds));
        let graph = (!waiting.is_empty()).then(|| writer.graph());
        let free = FreeSlots::new(&block, &writer.placement, size);
        free.fill(&waiting, &graph.unwrap_or_default(), &mut block.slots, &mut writer.report);
    }
    let window = if writer.report.is_empty() { super::window::window(writer, &block, per_step) } else { None };
    Ok(WrittenOrders { orders: repeated(writer, &block), block: Some(block), window })
}

/// How many microbatches are written out: all, or those of a turn.
fn shown(writer: &Writer<'_>, size: u32) -> u32 {
    let all = writer.n_microbatches;
    let repeats = writer.placement.repeats().filter(|_| writer.turn);
    let turn = repeats.and_then(|repeats| super::common(u64::from(size), u64::from(repeats)));
    let turn = turn.and_then(|turn| u32::try_from(turn).ok());
    // A block of its own for every number of microbatches is never repeated further than that, unless it runs on.
    let is_short = writer.is_varied && writer.weights.is_none();
    turn.map_or(all, |turn| if is_short { turn.min(all) } else { turn })
}

/// How many microbatches decide where `fill` puts tasks. Blocks that run on meet all others of a
/// turn, also where a step is shorter.
fn filled(writer: &Writer<'_>, size: u32, of_kinds: u128) -> u32 {
    let repeats = writer.placement.repeats().filter(|_| writer.weights.is_some());
    let turn = repeats.and_then(|repeats| super::common(u64::from(size), u64::from(repeats)));
    let turn = turn.and_then(|turn| u32::try_from(turn).ok()).filter(|turn| is_turn(of_kinds * u128::from(*turn)));
    turn.unwrap_or(0).max(writer.n_microbatches)
}

/// Evaluates a line's slot for every stage, and for every microbatch of a block.
fn place<'a>(
    writer: &mut Writer<'a>,
    line: &'a ast::BlockTask,
    (at, microbatches): (&'a Expr, u32),
    origin: u16,
    slots: &mut Vec<BlockTask>,
) -> Result<(), Fault> {
    let of_stage = writer.variable(&line.stage)?;
    let of_microbatch = line.microbatch.as_ref().map(|name| writer.variable(name)).transpose()?;
    let code = writer.scope.number(at)?;
    for microbatch in (0..microbatches).map(MicrobatchId) {
        if let Some(variable) = of_microbatch {
            writer.machine.set(variable, i64::from(microbatch.0));
        }
        for stage in (0..writer.placement.n_stages()).map(StageId::from_index) {
            writer.machine.set(of_stage, i64::from(stage.0));
            writer.machine.spend(1, at)?;
            let slot = writer.eval(&code)?;
            let start = u64::try_from(slot).ok().filter(|_| slot <= MAX_SLOT).ok_or_else(|| {
                let kind = line.kind.letters();
                let which = if microbatches == 1 { stage.to_string() } else { format!("{stage} {microbatch}") };
                let message = format!("{kind} of {which} starts at slot {slot}; slots go from 0 to {MAX_SLOT}");
                let code = if slot < 0 { Code::OutOfRange } else { Code::TooLarge };
                Box::new(Diagnostic::error(code, at.span, format!("{slot} for {which}"), message))
            })?;
            slots.push(BlockTask { kind: line.kind, stage, microbatch, slot: start, origin });
        }
    }
    [Some(of_stage), of_microbatch].into_iter().flatten().for_each(|variable| writer.machine.restore(variable, None));
    Ok(())
}

/// The tasks of all microbatches, for each device in the order of their slots.
fn repeated(writer: &Writer<'_>, block: &Block) -> Vec<Vec<ScheduledTask>> {
    let n_microbatches = u64::from(writer.n_microbatches);
    let turn = turn(block, &writer.placement, (writer.n_devices as usize, writer.n_microbatches));
    let n_turns = n_microbatches.div_ceil(turn.microbatches);
    let order = |mut tasks: Vec<BlockTask>| {
        tasks.sort_by_key(|task| task.slot);
        let mut starts: Vec<(u64, ScheduledTask)> = Vec::with_capacity(tasks.len() * n_turns as usize);
        for index in 0..n_turns {
            let (first, moved) = (index * turn.microbatches, turn.period.unwrap_or(0).saturating_mul(index));
            for BlockTask { kind, stage, microbatch, slot, origin } in tasks.iter().copied() {
                let number = first + u64::from(microbatch.0);
                if number < n_microbatches {
                    let task = Task { kind, stage, microbatch: MicrobatchId(number as u32) };
                    starts.push((slot.saturating_add(moved), ScheduledTask { task, origin, with_next: false }));
                }
            }
        }
        starts.sort_by_key(|(start, _)| *start);
        starts.into_iter().map(|(_, task)| task).collect()
    };
    turn.tasks.into_iter().map(order).collect()
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
