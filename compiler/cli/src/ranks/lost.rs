//! Lost ranks, told to people: which ended or fell silent, and what its devices were doing, with
//! the lines of the source.

use pipe_distributed::{How, Lost, Position};
use pipe_ir::instruction::Instruction;
use pipe_ir::program::Program;
use pipe_ir::task::{Task, TaskKind};
use pipe_ir::text;
use pipe_ir::verify::{List, Place, Verified};
use pipe_schedule::schedule::{Schedule, ScheduledTask};
use pipe_syntax::source::Sources;
use std::fmt::Write;
use std::sync::Arc;

/// Where the instructions of a program come from.
pub(crate) struct Origins {
    pub(crate) program: Arc<Verified>,
    pub(crate) written: ProgramSource,
}

/// In which form it was written.
pub(crate) enum ProgramSource {
    /// As a schedule.
    Schedule(Box<Schedule>, Sources),
    /// As instructions: the name of the file, and its text.
    Instructions(String, String),
}

/// Says who is lost; with the origins of the program, once there are any, also where.
pub(crate) fn message(lost: &[Lost], origins: Option<&Origins>) -> String {
    let mut text = String::new();
    for lost in lost {
        let seconds = |time: std::time::Duration| format!("{:.1}s", time.as_secs_f64());
        let how = match lost.how {
            How::Ended => "has ended".to_owned(),
            How::Stopped(silence) => format!("was stopped, and has said nothing for {}", seconds(silence)),
            How::Silent(silence) => format!("has said nothing for {}", seconds(silence)),
            How::Absent(silence) => format!("has not joined the others for {}", seconds(silence)),
        };
        let process = lost.process.as_ref().map(|process| format!(" (process {} on {})", process.id, process.host));
        let separator = if text.is_empty() { "" } else { "\n" };
        let _ = write!(text, "{separator}{}{} {how}", lost.rank, process.unwrap_or_default());
        for position in
            origins.iter().flat_map(|origins| lost.positions.iter().map(|position| place(position, origins)))
        {
            let _ = write!(text, "\n  {position}");
        }
    }
    text + "\n  the job cannot go on without it; what was saved before is complete"
}

/// What a device was doing: its instruction, and the task that it belongs to.
fn place(position: &Position, origins: &Origins) -> String {
    let Position { device, list, index } = *position;
    let program = origins.program.program();
    let Some(code) = program.devices.get(device.index()) else { return String::new() };
    let instructions = if list == List::Setup { &code.setup } else { &code.step };
    let Some(instruction) = instructions.get(index) else { return String::new() };
    let (instruction, source) = (instruction.text(program, code), source(position, origins));
    format!("{device} was at instruction {index} of its {list}, `{}`{source}", instruction.trim())
}

/// The task that an instruction belongs to, and the line that asks for it: to be put behind what is said of it.
pub(crate) fn source(position: &Position, origins: &Origins) -> String {
    let Position { device, list, index } = *position;
    let program = origins.program.program();
    let Some(code) = program.devices.get(device.index()) else { return String::new() };
    let instructions = if list == List::Setup { &code.setup } else { &code.step };
    if index >= instructions.len() {
        return String::new();
    }
    let source = match &origins.written {
        ProgramSource::Schedule(schedule, sources) => task(program, instructions, index)
            .map(|(word, task)| format!(", {word} {task}{}", line(schedule, sources, task))),
        ProgramSource::Instructions(name, written) => {
            let place = Place::Instruction(device, list, u32::try_from(index).unwrap_or(u32::MAX));
            let lines = text::parse(written).ok().map(|parsed| parsed.lines);
            lines.and_then(|lines| lines.of(place)).map(|line| format!(" ({name}:{line})"))
        }
    };
    source.unwrap_or_default()
}

/// The task that an instruction is, or comes before; at the end of a list the one that it comes after.
fn task(program: &Program, instructions: &[Instruction], index: usize) -> Option<(&'static str, Task)> {
    let task = |instruction: &Instruction| match *instruction {
        Instruction::Run { exec, microbatch, .. } => {
            let exec = program.exec(exec);
            (exec.kind != TaskKind::Update).then_some(Task { kind: exec.kind, stage: exec.stage, microbatch })
        }
        Instruction::Alloc { .. }
        | Instruction::Free { .. }
        | Instruction::Fill { .. }
        | Instruction::Load { .. }
        | Instruction::Emit { .. }
        | Instruction::SendStart { .. }
        | Instruction::RecvStart { .. }
        | Instruction::CollStart { .. }
        | Instruction::GatherStart { .. }
        | Instruction::CopyStart { .. }
        | Instruction::LaneStart { .. }
        | Instruction::Wait { .. } => None,
    };
    let (before, from) = instructions.split_at(index);
    let own = from.first().and_then(task).map(|task| ("in", task));
    let next = || from.iter().find_map(task).map(|task| ("before", task));
    own.or_else(next).or_else(|| before.iter().rev().find_map(task).map(|task| ("after", task)))
}

/// The line of the source that asks for a task.
fn line(schedule: &Schedule, sources: &Sources, task: Task) -> String {
    let scheduled = schedule.orders.iter().find_map(|order| ScheduledTask::of_run(order, task));
    let origin = scheduled.map(|scheduled| scheduled.origin);
    let span = origin.and_then(|origin| schedule.origins.get(usize::from(origin)));
    span.map_or_else(String::new, |span| {
        let (line, column) = sources.line_column(span.file, span.start);
        format!(" ({}:{line}:{column})", sources.get(span.file).name)
    })
}
