//! Which values of microbatches leave a device between two uses, in what its memory and its timeline leave.
//!
//! A device is written without that first. Its list says which buffers no task uses for a while,
//! and how many bytes are alive at each moment; the plan of what leaves
//! ([`crate::offload::activations`]) is found for these, and the device is written again with it.

use super::emit::{Code, Elsewhere, Emitter};
use super::{ATTEMPTS, Options, arena};
use crate::offload::activations::{Course, Gap, plan};
use crate::program_tables::ProgramTables;
use crate::state_swaps::Residency;
use pipe_ir::ids::{DeviceId, MicrobatchId, ValueId};
use pipe_ir::instruction::Instruction;
use pipe_ir::program::DeviceProgram;
use pipe_ir::value::ValueKind;
use pipe_schedule::timing::timeline::Timeline;

/// What leaves and comes back, by point of the device.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Absences {
    pub(super) values: Vec<(ValueId, MicrobatchId)>,
    /// By point: what is copied out from here on, in this order.
    pub(super) leave: Vec<Vec<usize>>,
    /// By point: what has been copied out, and gives its room back.
    pub(super) gone: Vec<Vec<usize>>,
    /// By point: what takes room again, and is copied back from here on, in this order.
    pub(super) come: Vec<Vec<usize>>,
    /// By point: what has come back, because the task uses it.
    pub(super) back: Vec<Vec<usize>>,
}

/// The program of a device from which activations leave where that hides: as many as its memory
/// asks for, or all where nothing says how much it has.
pub(super) fn leave(
    emitter: &mut Emitter<'_>,
    device: DeviceId,
    timeline: &Timeline,
    (state, stays): (Option<Residency>, DeviceProgram),
    options: &Options,
) -> DeviceProgram {
    let limits = [&options.budget, &options.host].map(|limit| limit.as_ref().map(|limit| limit.of(device)));
    let over = |code: &DeviceProgram| {
        let needed = [(code.arena, limits[0]), (code.host.arena, limits[1])];
        needed.map(|(needed, limit)| limit.map_or(0, |limit| needed.0.saturating_sub(limit.0)))
    };
    if limits[0].is_some() && over(&stays)[0] == 0 {
        return stays;
    }
    let bare = emitter.device(device, Elsewhere { state: state.clone(), activations: Absences::default() });
    let (values, mut course) = course(emitter.work, &bare);
    let traffic = options.traffic.as_ref();
    course.tasks = tasks(emitter, device, traffic.map_or(timeline, |traffic| &traffic.timeline));
    course.busy = traffic.map(|traffic| traffic.busy[device.index()].clone()).unwrap_or_default();
    course.copy = options.copy.0;
    course.limits = limits.map(|limit| limit.map(|limit| limit.0));
    let mut best = stays;
    for attempt in 0..=ATTEMPTS {
        if attempt == ATTEMPTS {
            // All that hide.
            course.limits[0] = course.limits[0].map(|_| 0);
        }
        let activations = Absences::new(&course, &values, bare.points.len());
        let code =
            arena::place(device, emitter.device(device, Elsewhere { state: state.clone(), activations }), options);
        let over = over(&code);
        if over[1] == 0 && (over[0] == 0 || code.arena < best.arena) {
            best = code;
        }
        if over == [0, 0] {
            break;
        }
        // Not everything can be packed without holes.
        for (limit, over) in course.limits.iter_mut().zip(over) {
            *limit = limit.map(|limit| limit.saturating_sub(over));
        }
    }
    best
}

impl Absences {
    fn new(course: &Course, values: &[(ValueId, MicrobatchId)], n_points: usize) -> Self {
        let aways = plan(course);
        let none = || vec![Vec::new(); n_points];
        let mut all = Self { values: Vec::new(), leave: none(), gone: none(), come: none(), back: none() };
        for (one, away) in aways.iter().enumerate() {
            all.values.push(values[away.gap]);
            all.leave[away.leaves].push(one);
            all.gone[away.gone].push(one);
            all.back[2 * course.gaps[away.gap].after + 1].push(one);
        }
        let mut order: Vec<usize> = (0..aways.len()).collect();
        order.sort_by_key(|one| aways[*one].copies[1]);
        order.into_iter().for_each(|one| all.come[aways[one].comes].push(one));
        all
    }
}

/// When a device runs its tasks; two that share it are one.
fn tasks(emitter: &Emitter<'_>, device: DeviceId, timeline: &Timeline) -> Vec<(u64, u64)> {
    let tasks = &emitter.schedule.orders[device.index()];
    let is_second = |position: usize| position > 0 && tasks[position - 1].with_next;
    let times = timeline.starts[device.index()].iter().zip(&timeline.ends[device.index()]);
    let firsts = times.enumerate().filter(|(position, _)| !is_second(*position));
    firsts.map(|(_, (start, end))| (start.0, end.0)).collect()
}

/// What is known of one buffer so far.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// The last task that used it.
    used: Option<usize>,
    /// How many sends read it that were not waited for.
    sends: u32,
    /// The first point behind the last of those that were.
    unsent: usize,
}

/// The gaps of a device with the value of each, and what is alive at its moments.
fn course(work: &ProgramTables, code: &Code) -> (Vec<(ValueId, MicrobatchId)>, Course) {
    let (mut values, mut course) = (Vec::new(), Course::default());
    let mut seen = vec![Seen::default(); code.buffers.len()];
    let mut sent = vec![None; code.n_tokens as usize];
    let mut alive = [0_u64; 2];
    let setup = code.setup.iter();
    setup.for_each(|instruction| code.count(instruction, &mut alive));
    course.alive = [vec![alive[0]], vec![alive[1]]];
    let mut points = code.points.iter().copied().skip(1).peekable();
    for (index, instruction) in code.step.iter().enumerate() {
        while points.next_if(|point| *point <= index).is_some() {
            course.alive.iter_mut().zip(alive).for_each(|(levels, alive)| levels.push(alive));
        }
        code.count(instruction, &mut alive);
        let moment = course.alive[0].len() - 1;
        for (levels, alive) in course.alive.iter_mut().zip(alive) {
            levels[moment] = levels[moment].max(alive);
        }
        match *instruction {
            Instruction::SendStart { buffer, token, .. } => {
                sent[token.index()] = Some(buffer);
                seen[buffer.index()].sends += 1;
            }
            Instruction::Wait { token } => {
                if let Some(buffer) = sent[token.index()] {
                    seen[buffer.index()].sends -= 1;
                    seen[buffer.index()].unsent = moment + 1;
                }
            }
            Instruction::Run { exec, microbatch, operands } => {
                let (task, buffers) = (moment / 2, &code.operands[operands.start as usize..][..operands.len as usize]);
                for (operand, buffer) in work.execs[exec.index()].operands.iter().zip(buffers) {
                    if !leaves(work, operand.value) {
                        continue;
                    }
                    let Seen { used, sends, unsent } = seen[buffer.index()];
                    if let Some(before) = used.filter(|before| before + 1 < task && sends == 0) {
                        let bytes = code.buffers[buffer.index()].0.0;
                        course.gaps.push(Gap { bytes, before, after: task, unsent });
                        values.push((operand.value, operand.microbatch(microbatch)));
                    }
                    seen[buffer.index()].used = Some(task);
                }
            }
            _ => {}
        }
    }
    points.for_each(|_| course.alive.iter_mut().zip(alive).for_each(|(levels, alive)| levels.push(alive)));
    (values, course)
}

/// Whether a value is one of a microbatch that tasks make for later ones.
fn leaves(work: &ProgramTables, value: ValueId) -> bool {
    let kind = work.values[value.index()].kind;
    !kind.is_persistent() && !matches!(kind, ValueKind::Data | ValueKind::Loss)
}
