//! Judges command lists by brute force: what is before what, and who meets, from every pair of calls.
//! Shares nothing with the check of the runtime.

use crate::cases::{compile_text, files, read, root};
use crate::mutation::subjects::pipelines;
use crate::programs::{divided, program_of, stages_with_updates, stages_with_weights};
use crate::schedules::{Dice, Size, random, replicated};
use crate::slice::slice;
use pipe_compiler::Request;
use pipe_cuda::commands::{Call, CommandList, EventId, Home, Queue, Work};
use pipe_ir::ids::{BufferId, DeviceId, GroupId};
use pipe_ir::program::{Access, Program, Space};
use pipe_ir::verify::{Verified, verify};
use pipe_schedule::policy::zero::Zero;
use pipe_syntax::stdlib::SCHEDULES;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::LazyLock;

/// Bytes that a call touches: of which memory, and whether it writes them.
type Touched = (DeviceId, Space, Range<u64>, bool);

fn place(program: &Program, device: DeviceId, buffer: BufferId, writes: bool) -> Touched {
    let place = program.devices[device.index()].buffers[buffer.index()];
    (device, place.space, place.offset.0..place.offset.0 + place.bytes.0, writes)
}

fn touched(program: &Program, call: &Call) -> Vec<Touched> {
    let at = |home: &Home, writes| place(program, home.device, home.buffer, writes);
    let Call::Work(_, work) = call else { return Vec::new() };
    match work {
        Work::Run { device, exec, operands, .. } => {
            let buffers = program.devices[device.index()].operands(*operands).iter();
            let accesses = program.exec(*exec).operands.iter().map(|operand| operand.access);
            buffers.zip(accesses).map(|(buffer, one)| place(program, *device, *buffer, one != Access::Read)).collect()
        }
        Work::Fill { home, .. } | Work::Load { home, .. } | Work::Spoil { home } => vec![at(home, true)],
        Work::Emit { home, .. } | Work::Send { from: home, .. } => vec![at(home, false)],
        Work::Receive { to, .. } => vec![at(to, true)],
        Work::Copy { from, to } => vec![at(from, false), at(to, true)],
        Work::Together { parts, .. } => {
            let own = parts.iter().map(|part| at(&part.home, true));
            own.chain(parts.iter().filter_map(|part| part.share.map(|share| at(&share, false)))).collect()
        }
    }
}

/// For each call, all calls before it: the closure of what queues and events say.
#[must_use]
pub fn before(commands: &CommandList) -> Vec<Vec<bool>> {
    let mut closure: Vec<Vec<bool>> = Vec::with_capacity(commands.calls.len());
    let mut last = BTreeMap::new();
    let mut recorded: BTreeMap<EventId, usize> = BTreeMap::new();
    for (index, call) in commands.calls.iter().enumerate() {
        let mut causes: Vec<usize> = last.insert(call.queue(), index).into_iter().collect();
        match call {
            Call::Wait(_, event) => causes.extend(recorded.get(event)),
            Call::Record(_, event) => drop(recorded.insert(*event, index)),
            Call::Work(..) => {}
        }
        let mut own = vec![false; commands.calls.len()];
        for cause in causes {
            own[cause] = true;
            own.iter_mut().zip(&closure[cause]).for_each(|(own, other)| *own |= other);
        }
        closure.push(own);
    }
    closure
}

/// All pairs of calls that touch the same bytes, one of them writing, and that nothing orders.
#[must_use]
pub fn meetings(program: &Program, commands: &CommandList) -> BTreeSet<[usize; 2]> {
    let before = before(commands);
    let touched: Vec<Vec<Touched>> = commands.calls.iter().map(|call| touched(program, call)).collect();
    let meet = |one: &Touched, other: &Touched| {
        let overlap = one.2.start.max(other.2.start) < one.2.end.min(other.2.end);
        (one.0, one.1) == (other.0, other.1) && overlap && (one.3 || other.3)
    };
    let mut found = BTreeSet::new();
    for second in 0..touched.len() {
        for first in (0..second).filter(|first| !before[second][*first]) {
            if touched[first].iter().any(|one| touched[second].iter().any(|other| meet(one, other))) {
                found.insert([first, second]);
            }
        }
    }
    found
}

/// Sound programs of every kind with their names: all standard schedules without and with models, with lanes,
/// variants, offload, replicas that divide their state, windows, slices, random ones, and the
/// examples.
///
/// They are made once for all tests.
///
/// # Panics
/// If one is not sound.
pub fn programs() -> &'static [(String, Verified)] {
    static PROGRAMS: LazyLock<Vec<(String, Verified)>> = LazyLock::new(|| all().unwrap_or_else(|why| panic!("{why}")));
    &PROGRAMS
}

fn all() -> Result<Vec<(String, Verified)>, String> {
    let mut found = Vec::new();
    let mut push = |name: String, program: Program| match verify(program) {
        Ok(verified) => {
            found.push((name, verified));
            Ok(())
        }
        Err(errors) => Err(format!("{name}: {}", errors.first().map(ToString::to_string).unwrap_or_default())),
    };
    for (family, _) in SCHEDULES {
        for (devices, microbatches) in [(2, 4), (4, 8), (3, 6), (1, 3)] {
            let text = format!("pipeline test {{ devices {devices} microbatches {microbatches} schedule {family} }}");
            let (compilation, _) = compile_text("test.pipe", &text, Path::new("."), &Request::default());
            let Some((analysis, verified)) = compilation.analysis.zip(compilation.program) else { continue };
            let (name, schedule) = (format!("{family}, {devices} devices"), analysis.schedule);
            push(name.clone(), verified.program().clone())?;
            if schedule.window.is_none() {
                push(format!("{name}, with weights"), program_of(&schedule, &stages_with_weights(&schedule)))?;
            }
        }
    }
    for (family, _) in SCHEDULES {
        let parts = "lane there lane back parts s = begin, out on there, middle, home on back, end";
        let text = format!("pipeline test {{ devices 3 microbatches 6 schedule {family} {parts} }}");
        let (compilation, _) = compile_text("test.pipe", &text, Path::new("."), &Request::default());
        let program = compilation.program.map(|verified| verified.program().clone());
        program.map(|program| push(format!("{family}, lanes"), program)).transpose()?;
    }
    let experts = root().join("tests/data/lanes/experts.pipe");
    let (compilation, _) = compile_text("test.pipe", &read(&experts), Path::new("."), &Request::default());
    compilation.program.map(|verified| push("experts".to_owned(), verified.program().clone())).transpose()?;
    for (name, text) in slice(3, pipelines(2, 4).into_iter().chain(pipelines(4, 6))) {
        let (compilation, _) = compile_text("test.pipe", &text, Path::new("."), &Request::default());
        compilation.program.map(|verified| push(name, verified.program().clone())).transpose()?;
    }
    for seed in 0..20 {
        let (mut dice, size) = (Dice(seed), Size { devices: 3, stages: 4, microbatches: 4 });
        let schedule = random(size, &mut dice);
        push(format!("random {seed}"), program_of(&schedule, &stages_with_weights(&schedule)))?;
        let schedule = replicated(size, &mut dice);
        for zero in Zero::ALL {
            let program = divided(&schedule, &stages_with_updates(&schedule), (zero, None));
            push(format!("replicated {seed}, {zero:?}"), program)?;
        }
    }
    let folder = root().join("examples");
    for path in files(&folder, "pipe") {
        let (compilation, _) = compile_text("test.pipe", &read(&path), &folder, &Request::default());
        let small = compilation.program.filter(|verified| verified.program().n_instructions() < 20_000);
        small.map(|verified| push(path.display().to_string(), verified.program().clone())).transpose()?;
    }
    Ok(found)
}

/// How long a command list takes where every queue has a processor of its own.
#[must_use]
pub fn makespan(commands: &CommandList, cost: impl Fn(&Work) -> f64) -> f64 {
    let mut queues = vec![0.0_f64; commands.queues.len()];
    let mut events = vec![0.0_f64; commands.n_events as usize];
    for call in &commands.calls {
        let queue = &mut queues[call.queue().0 as usize];
        match call {
            Call::Wait(_, event) => *queue = queue.max(events[event.0 as usize]),
            Call::Record(_, event) => events[event.0 as usize] = *queue,
            Call::Work(_, work) => *queue += cost(work),
        }
    }
    queues.into_iter().fold(0.0, f64::max)
}

/// What a process does together with others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Meeting {
    /// Of a transfer: its queue, and the bytes.
    Transfer(Queue, u64),
    /// Of a group with members elsewhere, and the bytes.
    Group(GroupId, u64),
}

/// What the command list of a process, which has these devices, does together with others, in its order.
fn together(program: &Program, own: &Range<usize>, commands: &CommandList) -> Vec<Meeting> {
    let bytes = |home: &Home| program.devices[home.device.index()].buffers[home.buffer.index()].bytes.0;
    let meeting = |call: &Call| match call {
        Call::Work(queue, Work::Send { from: home, .. } | Work::Receive { to: home, .. }) => {
            Some(Meeting::Transfer(commands.queue(*queue), bytes(home)))
        }
        Call::Work(queue, Work::Together { parts, .. }) => match commands.queue(*queue) {
            Queue::Group(group) if program.group(group).iter().any(|member| !own.contains(&member.index())) => {
                Some(Meeting::Group(group, parts.first().map_or(0, |part| bytes(&part.home))))
            }
            _ => None,
        },
        _ => None,
    };
    commands.calls.iter().filter_map(meeting).collect()
}

/// Lets processes do one thing at a time, each in the order of its command list, where transfers and
/// collectives need all who take part to stand at them. How many there were.
///
/// # Errors
/// What the processes stand at, if they get stuck.
pub fn in_lockstep(program: &Program, ranks: &[(Range<usize>, CommandList)]) -> Result<usize, String> {
    let lists: Vec<Vec<Meeting>> = ranks.iter().map(|(own, commands)| together(program, own, commands)).collect();
    let mut next = vec![0; lists.len()];
    let rank_of = |device: &DeviceId| ranks.iter().position(|(own, _)| own.contains(&device.index())).unwrap_or(0);
    let mut count = 0;
    loop {
        let heads: Vec<Option<Meeting>> =
            lists.iter().zip(&next).map(|(list, next)| list.get(*next).copied()).collect();
        let members = |meeting: &Meeting| -> BTreeSet<usize> {
            match meeting {
                Meeting::Transfer(Queue::Transfer(from, to, _), _) => [from, to].into_iter().map(rank_of).collect(),
                Meeting::Transfer(..) => BTreeSet::new(),
                Meeting::Group(group, _) => program.group(*group).iter().map(rank_of).collect(),
            }
        };
        let meets = |head: &&Meeting| members(head).iter().all(|rank| heads[*rank] == Some(**head));
        let Some(meeting) = heads.iter().flatten().find(meets) else {
            return if heads.iter().all(Option::is_none) { Ok(count) } else { Err(format!("{heads:?}")) };
        };
        members(meeting).into_iter().for_each(|rank| next[rank] += 1);
        count += 1;
    }
}
