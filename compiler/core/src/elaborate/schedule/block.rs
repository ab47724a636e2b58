//! Building blocks: the start slots of their microbatches, then every task of every microbatch in
//! the order of its slot.

use super::fill::{Fill, FreeSlots};
use super::parts;
use super::{Writer, WrittenOrders};
use pipe_ir::ids::{MicrobatchId, StageId};
use pipe_ir::task::{Task, TaskKind};
use pipe_schedule::block::period::turn;
use pipe_schedule::parts::divided::has_weights;
use pipe_schedule::schedule::{Block, BlockTask, ScheduledTask};
use pipe_syntax::ast::{self, Expr, ExprKind, SlotDuration};
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::expr::scope::Fault;
use pipe_syntax::limits::{MAX_MICROBATCHES, MAX_SLOT, is_turn, tasks, turn_tasks, within};
use pipe_syntax::source::Span;
use std::collections::BTreeMap;
use std::ops::Range;

/// Slots that one task of a kind takes, by [`TaskKind::index`].
pub(super) type Durations = [u64; TaskKind::ALL.len()];

/// The longest task.
const MAX_DURATION: i64 = 1_000_000;

/// What a `slots` line says, by [`TaskKind::index`].
type Said = [Option<u64>; TaskKind::ALL.len()];

/// Durations from the `slots` line, of whole stages and of each part: 1 for each kind, `BW` as long as `B` and `W`
/// together, and `R` as long as `F`, unless it says otherwise. A kind alone is about parts on compute.
pub(super) fn durations<'a>(writer: &mut Writer<'a>, lines: &'a [SlotDuration]) -> (Durations, Vec<Durations>) {
    let mut general: Said = [None; TaskKind::ALL.len()];
    let mut of_names: BTreeMap<&str, Said> = BTreeMap::new();
    for SlotDuration { kind, part, slots } in lines {
        let value = writer.number(slots).and_then(|value| in_range("a task takes", value, 1, MAX_DURATION, slots.span));
        let value = writer.report.take(value);
        let (known, name) = match part {
            None => (&mut general, kind.letters().to_owned()),
            Some(part) => {
                if !writer.parts.has(&part.text) {
                    writer.report.add(parts::unknown(&writer.parts, part, None));
                }
                (of_names.entry(&part.text).or_default(), format!("{}.{}", kind.letters(), part.text))
            }
        };
        if known[kind.index()].is_some() {
            let message = format!("`slots` gives `{name}` twice");
            writer.report.add(Diagnostic::error(Code::RepeatedItem, slots.span, "given again", message));
        }
        known[kind.index()] = value.or(known[kind.index()]);
    }
    let of_row = |row: usize| {
        let part = writer.parts.part(StageId::from_index(row))?;
        let said = of_names.get(&*part.name).copied().unwrap_or_default();
        Some(match part.lane {
            Some(_) => on_lane(said),
            None => on_compute(TaskKind::ALL.map(|kind| said[kind.index()].or(general[kind.index()]))),
        })
    };
    (on_compute(general), (0..writer.placement.n_stages()).map_while(of_row).collect())
}

/// Of a part on a lane, `BW` is `B`.
fn on_lane(said: Said) -> Durations {
    let of = |kind: TaskKind| said[kind.index()];
    let backward = of(TaskKind::BackwardInput).or(of(TaskKind::Backward)).unwrap_or(1);
    TaskKind::ALL.map(|kind| match kind {
        TaskKind::Forward => of(kind).unwrap_or(1),
        TaskKind::BackwardInput | TaskKind::Backward => backward,
        TaskKind::BackwardWeight | TaskKind::Recompute | TaskKind::Update => 0,
    })
}

fn on_compute(known: Said) -> Durations {
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
    (durations, of_parts): (Durations, Vec<Durations>),
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
    let mut seen: BTreeMap<(TaskKind, &str), usize> = BTreeMap::new();
    for line in &block.tasks {
        let origin = writer.origin(line.span)?;
        let nth = line.part.as_ref().map_or(0, |part| {
            let count = seen.entry((line.kind, &part.text)).or_default();
            *count += 1;
            *count - 1
        });
        let rows = rows(writer, line, nth);
        let Some(rows) = writer.report.take(rows) else { continue };
        match &line.at {
            Some(at) => {
                let placed = place(writer, (line, &rows, &of_parts), (at, microbatches), origin, &mut slots);
                writer.report.take(placed);
            }
            None => {
                let mut is_filled = vec![false; writer.placement.n_stages()];
                rows.iter().flatten().cloned().flatten().for_each(|row| is_filled[row] = true);
                waiting.push(Fill { kind: line.kind, rows: is_filled, origin, span: line.span });
            }
        }
    }
    let only = (writer.is_varied && writer.weights.is_none()).then_some(writer.n_microbatches);
    let per_step = std::mem::replace(&mut writer.n_microbatches, n_microbatches);
    let every = matches!(block.period.kind, ExprKind::Integer(_)).then_some(block.period.span);
    let mut block = Block { microbatches, period, every, slots, durations, of_parts, only };
    if writer.report.is_empty() {
        let size = (n_queues(writer), filled(writer, microbatches, of_kinds));
        let graph = (!waiting.is_empty()).then(|| writer.graph());
        let free = FreeSlots::new(&block, (&writer.placement, &*writer.parts), size);
        free.fill(&waiting, &graph.unwrap_or_default(), &mut block.slots, &mut writer.report);
    }
    let window = if writer.report.is_empty() { super::window::window(writer, &block, per_step) } else { None };
    Ok(WrittenOrders { orders: repeated(writer, &block), block: Some(block), window, ..WrittenOrders::default() })
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

/// Devices, and lanes of devices.
fn n_queues(writer: &Writer<'_>) -> usize {
    writer.n_devices as usize * (1 + writer.parts.lanes().len())
}

/// By stage: the rows of the parts that a line is about, position by position in the order in which they run. If a
/// stage has several parts of the name, the line is about the `nth`.
fn rows(writer: &Writer<'_>, line: &ast::BlockTask, nth: usize) -> Result<Vec<Vec<Range<usize>>>, Fault> {
    let stages = 0..writer.n_stages();
    let Some(part) = &line.part else {
        return Ok(stages.map(|stage| writer.parts.of_task(line.kind, StageId::from_index(stage)).collect()).collect());
    };
    let named = |stage| writer.parts.of_named(line.kind, StageId::from_index(stage), &part.text);
    let all: Vec<_> = stages.map(|stage| named(stage).skip(nth).take(1).collect::<Vec<_>>()).collect();
    let Some(rows) = all.iter().flatten().next() else {
        return Err(Box::new(match nth {
            0 => parts::unknown(&writer.parts, part, None),
            _ => {
                let name = format!("{}.{}", line.kind.letters(), part.text);
                let message = format!("`{name}` is written once more than any stage has it");
                Diagnostic::error(Code::WrongPart, part.span, "one too many", message)
            }
        }));
    };
    if has_weights(line.kind) && writer.parts.is_on_lane(rows.start) {
        return Err(Box::new(parts::no_weights(line.kind, part)));
    }
    Ok(all)
}

/// Evaluates a line's slot for every stage, and for every microbatch of a block. Parts of a stage run one after the
/// other from there.
fn place<'a>(
    writer: &mut Writer<'a>,
    (line, rows, of_parts): (&'a ast::BlockTask, &[Vec<Range<usize>>], &[Durations]),
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
        for (stage, rows) in (0..).map(StageId::from_index).zip(rows).filter(|(_, rows)| !rows.is_empty()) {
            writer.machine.set(of_stage, i64::from(stage.0));
            writer.machine.spend(1, at)?;
            let slot = writer.eval(&code)?;
            let mut start = u64::try_from(slot).ok().filter(|_| slot <= MAX_SLOT).ok_or_else(|| {
                let kind = line.kind.letters();
                let which = if microbatches == 1 { stage.to_string() } else { format!("{stage} {microbatch}") };
                let message = format!("{kind} of {which} starts at slot {slot}; slots go from 0 to {MAX_SLOT}");
                let code = if slot < 0 { Code::OutOfRange } else { Code::TooLarge };
                Box::new(Diagnostic::error(code, at.span, format!("{slot} for {which}"), message))
            })?;
            for rows in rows {
                let task = |row| {
                    let stage = StageId::from_index(row);
                    BlockTask { kind: line.kind, stage, microbatch, slot: start, origin }
                };
                slots.extend(rows.clone().map(task));
                start += of_parts.get(rows.start).map_or(0, |durations| durations[line.kind.index()]);
            }
        }
    }
    [Some(of_stage), of_microbatch].into_iter().flatten().for_each(|variable| writer.machine.restore(variable, None));
    Ok(())
}

/// The tasks of all microbatches, for each device in the order of their slots.
fn repeated(writer: &Writer<'_>, block: &Block) -> Vec<Vec<ScheduledTask>> {
    let n_microbatches = u64::from(writer.n_microbatches);
    let turn = turn(block, &writer.placement, (n_queues(writer), writer.n_microbatches));
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
                    starts.push((slot.saturating_add(moved), ScheduledTask::new(task, origin)));
                }
            }
        }
        starts.sort_by_key(|(start, _)| *start);
        starts
    };
    let mut queues: Vec<Vec<(u64, ScheduledTask)>> = turn.tasks.into_iter().map(order).collect();
    if !writer.parts.lanes().is_empty() {
        number_lists(block, &mut queues, writer.n_devices as usize);
    }
    queues.into_iter().map(|tasks| tasks.into_iter().map(|(_, task)| task).collect()).collect()
}

/// Numbers the list of each device: a task on a lane stands right behind the last compute task that has ended by its
/// slot.
fn number_lists(block: &Block, queues: &mut [Vec<(u64, ScheduledTask)>], n_devices: usize) {
    for device in 0..n_devices {
        let ends: Vec<u64> = queues[device]
            .iter()
            .map(|(start, one)| start.saturating_add(block.durations_of(one.task.stage)[one.task.kind.index()]))
            .collect();
        // By how many compute tasks stand before: first what is on lanes, by its slot, then the next compute task.
        let mut list: Vec<(usize, bool, u64, usize, usize)> =
            (0..ends.len()).map(|position| (position, true, 0, device, position)).collect();
        for lane in (device + n_devices..queues.len()).step_by(n_devices) {
            let placed = queues[lane].iter().enumerate().map(|(position, (start, _))| {
                (ends.partition_point(|end| end <= start), false, *start, lane, position)
            });
            list.extend(placed);
        }
        list.sort_unstable();
        for (at, (_, _, _, queue, position)) in (0..).zip(list) {
            queues[queue][position].1.at = at;
        }
    }
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
