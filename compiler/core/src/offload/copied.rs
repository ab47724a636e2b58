//! The timeline of a step whose devices also wait for copies: who waits for a device then waits for its copies, too.
//!
//! The program says between which tasks copies are queued and waited for. A copy starts when its device has come to it and those before it in its
//! queue have ended; a task starts when its inputs have arrived and its device is free. At the end come the updates, chunk by chunk.

use super::activations::copied;
use super::timing::{Clock, Cost, Event};
use crate::check::dependencies::Order;
use crate::schedule::{Costs, Schedule};
use crate::timeline::{Timeline, Updated};
use crate::units::Ticks;
use pipe_ir::ids::DeviceId;
use pipe_ir::instruction::Instruction;
use pipe_ir::program::{Exec, Program};
use pipe_ir::task::{Task, TaskKind};
use std::cmp::Reverse;
use std::iter::Peekable;
use std::vec::IntoIter;

/// What a device does.
enum Act {
    /// The task at this position of its order.
    Task(usize),
    /// An update that takes so long.
    Update(u64),
    /// It queues a copy, or waits for one.
    Copy(Event),
}

/// When tasks run and queues are busy, where tasks also wait for copies.
#[derive(Clone, PartialEq, Debug)]
pub struct Traffic {
    pub(crate) timeline: Timeline,
    /// By device: times at which nothing can be queued to the device, and from there, without anything else being later. Until the task starts
    /// behind which a copy was queued, nothing else goes in between.
    pub(crate) busy: Vec<[Vec<(u64, u64)>; 2]>,
}

struct Device {
    acts: Peekable<IntoIter<Act>>,
    clock: Clock,
    busy: [Vec<(u64, u64)>; 2],
}

impl Device {
    /// Comes to the task at a position: queues copies, and waits for them.
    fn come(&mut self, position: usize) {
        while let Some(act) = self.acts.next_if(|act| !matches!(act, Act::Task(other) if *other > position)) {
            match act {
                Act::Task(other) if other == position => return,
                Act::Task(_) | Act::Update(_) => {}
                Act::Copy(event) => self.clock.run(event),
            }
        }
    }

    /// Notes when the copies were carried that it queued since it did so last, and that this is so until it works.
    fn note(&mut self, until: u64) {
        for (direction, start, end) in self.clock.carried() {
            self.busy[direction as usize].push((start, end.max(until)));
        }
    }

    /// Does what is left when all tasks are done and gradients are added up. How long it then updates, and whether there are copies among that.
    fn finish(&mut self, from: u64) -> (u64, bool) {
        let (mut work, mut copies) = (0_u64, false);
        for act in self.acts.by_ref() {
            match act {
                Act::Copy(event) => {
                    copies = true;
                    self.clock.run(event);
                }
                Act::Update(length) => {
                    work = work.saturating_add(length);
                    self.clock.run(Event::Work { from, length });
                }
                Act::Task(_) => {}
            }
        }
        (work, copies)
    }
}

/// Times every task, and then the updates; `conclude` notes in the timeline when gradients are added up between devices.
pub(crate) fn place(
    schedule: &Schedule,
    order: &Order,
    costs: &Costs,
    program: &Program,
    conclude: &dyn Fn(&mut Timeline),
) -> (Timeline, Vec<Cost>) {
    let (mut timeline, mut devices) = run(schedule, order, costs, program);
    conclude(&mut timeline);
    let from = timeline.reduced.map_or(0, |(end, _)| end.0);
    let mut any = false;
    let ends = devices.iter_mut().zip((0..).map(DeviceId)).map(|(own, device)| {
        let (work, copies) = own.finish(from);
        any |= copies;
        Updated { end: Ticks(own.clock.now()), work: Ticks(work), device }
    });
    let last = ends.max_by_key(|updated| (updated.end, Reverse(updated.device)));
    // Where only activations leave, updates wait for nothing, and a step ends as without.
    timeline.updated = last.filter(|_| any);
    (timeline, devices.iter().map(|device| device.clock.cost()).collect())
}

/// When tasks run and queues are busy while they do.
pub(crate) fn traffic(schedule: &Schedule, order: &Order, costs: &Costs, program: &Program) -> Traffic {
    let (timeline, devices) = run(schedule, order, costs, program);
    Traffic { timeline, busy: devices.into_iter().map(|device| device.busy).collect() }
}

/// Times every task.
fn run(schedule: &Schedule, order: &Order, costs: &Costs, program: &Program) -> (Timeline, Vec<Device>) {
    let none = || schedule.orders.iter().map(|tasks| vec![Ticks::ZERO; tasks.len()]).collect::<Vec<_>>();
    let mut timeline = Timeline { starts: none(), ends: none(), reduced: None, updated: None };
    let ids = (0..program.devices.len()).map(DeviceId::from_index);
    let begin = |device| Device {
        acts: acts(schedule, costs, program, device).into_iter().peekable(),
        clock: Clock::default(),
        busy: Default::default(),
    };
    let mut devices: Vec<Device> = ids.map(begin).collect();
    for slot in &order.sequence {
        let node = schedule.node(slot.device, slot.position as usize);
        let (device, position) = (slot.device.index(), slot.position as usize);
        let homes = schedule.devices_of(node[0].task);
        let mut from = Ticks::ZERO;
        for input in node.iter().flat_map(|one| order.dependencies.inputs(one.task)) {
            let latency = costs.latency.between_sets(schedule.devices_of(input), homes);
            from = from.max(timeline.ends[schedule.device_of(input).index()][order.position(input)] + latency);
        }
        let own = &mut devices[device];
        // Two tasks that share the device start together. What is queued between them stands behind the first.
        own.come(position);
        own.note(from.0.max(own.clock.now()));
        (position + 1..position + node.len()).for_each(|position| own.come(position));
        let start = from.max(Ticks(own.clock.now()));
        own.note((start + costs.of_node(node)).0);
        own.clock.run(Event::Work { from: from.0, length: costs.of_node(node).0 });
        timeline.starts[device][position..position + node.len()].fill(start);
        timeline.ends[device][position..position + node.len()].fill(start + costs.of_node(node));
    }
    (timeline, devices)
}

/// What a device does in a step, in the order of its program.
fn acts(schedule: &Schedule, costs: &Costs, program: &Program, device: DeviceId) -> Vec<Act> {
    let code = &program.devices[device.index()];
    let mut tasks = (0..).zip(&schedule.orders[device.index()]);
    let mut copies = vec![false; code.n_tokens as usize];
    let mut acts = Vec::new();
    for instruction in &code.step {
        match *instruction {
            Instruction::Run { exec, microbatch, .. } => {
                let exec = program.exec(exec);
                if exec.kind == TaskKind::Update {
                    acts.push(Act::Update(update(costs, program, exec)));
                    continue;
                }
                let own = Task { kind: exec.kind, stage: exec.stage, microbatch };
                acts.extend(tasks.find(|(_, one)| one.task == own).map(|(position, _)| Act::Task(position)));
            }
            Instruction::CopyStart { buffer, direction, token, .. } => {
                copies[token.index()] = true;
                let length = copied(code.buffers[buffer.index()].bytes.0, costs.copy.0);
                acts.push(Act::Copy(Event::Copy { direction, copy: token.index(), length }));
            }
            Instruction::Wait { token } if copies[token.index()] => {
                acts.push(Act::Copy(Event::Wait { copy: token.index() }));
            }
            _ => {}
        }
    }
    acts
}

/// How long an update takes: a chunk's share of that of its stage.
fn update(costs: &Costs, program: &Program, exec: &Exec) -> u64 {
    let whole = u128::from(costs.of(TaskKind::Update, exec.stage).0);
    let weights = exec.operands.first().map_or(1, |operand| program.value(operand.value).bytes.0.max(1));
    let share = exec.chunk.map_or(weights, |chunk| chunk.to.0 - chunk.from.0);
    u64::try_from(whole * u128::from(share) / u128::from(weights)).unwrap_or(u64::MAX)
}
