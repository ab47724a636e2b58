//! The text of a command list: a line per call, its queue first.

use super::{Call, CommandList, Home, Work};
use pipe_ir::instruction::{Fill, Instruction};
use pipe_ir::program::Program;

/// All calls of a command list, a line each.
pub fn lines(program: &Program, commands: &CommandList) -> impl Iterator<Item = String> {
    let names: Vec<String> = commands.queues.iter().map(ToString::to_string).collect();
    let width = names.iter().map(String::len).max().unwrap_or(0);
    commands.calls.iter().map(move |call| {
        let name = &names[call.queue().0 as usize];
        format!("{name:width$}  {}", call_text(program, call))
    })
}

/// One call without its queue.
pub(super) fn call_text(program: &Program, call: &Call) -> String {
    match call {
        Call::Wait(_, event) => format!("wait {event}"),
        Call::Record(_, event) => format!("record {event}"),
        Call::Work(_, work) => work_text(program, work),
    }
}

fn work_text(program: &Program, work: &Work) -> String {
    let place = |home: &Home| format!("{} {}", home.device, home.buffer);
    match work {
        Work::Run { device, exec, microbatch, operands } => {
            let run = Instruction::Run { exec: *exec, microbatch: *microbatch, operands: *operands };
            run.text(program, &program.devices[device.index()])
        }
        Work::Fill { home, value, with } => {
            let with = match with {
                Fill::Zero => "zero",
                Fill::Init => "init",
            };
            format!("fill {} = {} {with}", home.buffer, program.value(*value).name)
        }
        Work::Load { home, value, microbatch } => {
            format!("load {} = {} {microbatch}", home.buffer, program.value(*value).name)
        }
        Work::Emit { home, microbatch, number } => format!("emit {} as loss {number}, {microbatch}", home.buffer),
        Work::Copy { from, to } => format!("copy {} to {}", place(from), place(to)),
        Work::Send { from, to } => format!("send {} to {to}", place(from)),
        Work::Receive { from, to } => format!("receive {} from {from}", place(to)),
        Work::Together { collective, dtype, parts } => {
            let part = |part: &super::MemberPart| match &part.share {
                Some(share) => format!("{} = {}", place(&part.home), share.buffer),
                None => place(&part.home),
            };
            let parts: Vec<String> = parts.iter().map(part).collect();
            format!("{} {dtype} ({})", collective.word(), parts.join(", "))
        }
        Work::Spoil { home } => format!("spoil {}", home.buffer),
    }
}
