//! The timeline of a step whose devices also wait for copies, and for each other to gather weights:
//! who waits for a device then waits for these, too.
//!
//! The program says between which tasks copies are queued and waited for, and gatherings are joined
//! and waited for. A copy starts when its device has come to it and those before it in its queue
//! have ended; a task starts when its inputs have arrived and its device is free. At the end come
//! the updates, chunk by chunk.

use super::activations::copied;
use pipe_ir::ids::DeviceId;
use pipe_ir::instruction::{Direction, Instruction};
use pipe_ir::program::{Exec, Program};
use pipe_ir::task::{Task, TaskKind};
use pipe_ir::units::Bytes;
use pipe_schedule::order::{Order, Position};
use pipe_schedule::schedule::Schedule;
use pipe_schedule::timing::all_gather::{Gatherings, Takes, Which};
use pipe_schedule::timing::copies::{Clock, Cost, Event};
use pipe_schedule::timing::durations::Costs;
use pipe_schedule::timing::timeline::{self, Collected, Copied, Timeline, Together, Updated};
use pipe_schedule::units::Ticks;
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
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
    /// It joins a gathering of weights.
    Join(Which),
    /// It waits for one, which brings so many bytes.
    Await(Which, Bytes),
}

/// When tasks run and queues are busy, where tasks also wait for copies.
#[derive(Clone, PartialEq, Debug)]
pub struct Traffic {
    pub(crate) timeline: Timeline,
    /// By device: times at which nothing can be queued to the device, and from there, without
    /// anything else being later. Until the task starts behind which a copy was queued, nothing
    /// else goes in between.
    pub(crate) busy: Vec<[Vec<(u64, u64)>; 2]>,
}

struct Device {
    id: DeviceId,
    acts: Peekable<IntoIter<Act>>,
    clock: Clock,
    busy: [Vec<(u64, u64)>; 2],
    copies: Vec<Copied>,
    collectives: Vec<Collected>,
    /// The task that it did last.
    done: Option<Position>,
    /// The gathering that it waited for last: when that ended, and the task of another device that it ended behind.
    awaited: (Ticks, Option<Position>),
}

impl Device {
    /// Goes on up to the next task, or to a gathering that somebody has not joined yet; whether it
    /// came to a task, or has none left.
    fn go_on(&mut self, gatherings: &mut Gatherings<'_>) -> bool {
        while let Some(act) = self.acts.peek() {
            match *act {
                Act::Task(_) | Act::Update(_) => return true,
                Act::Copy(event) => self.clock.run(event),
                Act::Join(which) => gatherings.join(which, (self.id, self.done), Ticks(self.clock.now())),
                Act::Await(which, bytes) => {
                    let Some((end, after)) = gatherings.end(which, bytes) else { return false };
                    if end > self.awaited.0 {
                        self.awaited = (end, after);
                    }
                    let start = gatherings.joined(which, self.id).unwrap_or(end);
                    let gathering =
                        Collected { device: self.id, what: Together::Weights, stage: None, lane: None, start, end };
                    self.collectives.push(gathering);
                    self.clock.run(Event::Work { from: end.0, length: 0 });
                }
            }
            self.acts.next();
        }
        true
    }

    /// Comes to the task at a position: queues copies, and waits for them.
    fn come(&mut self, position: usize) {
        while let Some(act) = self.acts.next_if(|act| !matches!(act, Act::Task(other) if *other > position)) {
            match act {
                Act::Task(other) if other == position => return,
                // Whoever comes here has gone on behind the task before.
                Act::Task(_) | Act::Update(_) | Act::Join(_) | Act::Await(..) => {}
                Act::Copy(event) => self.clock.run(event),
            }
        }
    }

    /// Notes when the copies were carried that it queued since it did so last, and that this is so until it works.
    fn note(&mut self, until: u64) {
        for (direction, start, end) in self.carried() {
            self.busy[direction as usize].push((start, end.max(until)));
        }
    }

    /// Notes the copies that it queued since it did so last.
    fn carried(&mut self) -> Vec<(Direction, u64, u64)> {
        let carried = self.clock.carried();
        let copy = |(direction, start, end): &(Direction, u64, u64)| Copied {
            device: self.id,
            direction: *direction,
            start: Ticks(*start),
            end: Ticks(*end),
            swap: None,
        };
        self.copies.extend(carried.iter().map(copy));
        carried
    }

    /// Does what is left when all tasks are done and gradients are added up. How long it then
    /// updates, and whether there are copies among that.
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
                Act::Task(_) | Act::Join(_) | Act::Await(..) => {}
            }
        }
        self.carried();
        (work, copies)
    }
}

/// Times every task, and then the updates; `takes` says how long gatherings take on machines, and
/// `conclude` notes in the timeline when gradients are added up between devices.
pub fn simulate(
    given: (&Schedule, &Order, &Costs),
    program: &Program,
    takes: &Takes<'_>,
    conclude: &dyn Fn(&mut Timeline),
) -> (Timeline, Vec<Cost>) {
    let (mut timeline, mut devices) = run(given, program, takes);
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
    timeline.copies = devices.iter().flat_map(|device| &device.copies).copied().collect();
    timeline.collectives.extend(devices.iter().flat_map(|device| &device.collectives));
    (timeline, devices.iter().map(|device| device.clock.cost()).collect())
}

/// When tasks run and queues are busy while they do.
pub fn traffic(schedule: &Schedule, order: &Order, costs: &Costs, program: &Program) -> Traffic {
    let (timeline, devices) = run((schedule, order, costs), program, &|_, _| Ticks::ZERO);
    Traffic { timeline, busy: devices.into_iter().map(|device| device.busy).collect() }
}

/// Times every task.
fn run(
    (schedule, order, costs): (&Schedule, &Order, &Costs),
    program: &Program,
    takes: &Takes<'_>,
) -> (Timeline, Vec<Device>) {
    let timeline = Timeline::empty(schedule);
    let ids = (0..program.devices.len()).map(DeviceId::from_index);
    let begin = |id| Device {
        id,
        acts: acts(schedule, costs, program, id).into_iter().peekable(),
        clock: Clock::default(),
        busy: Default::default(),
        copies: Vec::new(),
        collectives: Vec::new(),
        done: None,
        awaited: (Ticks::ZERO, None),
    };
    let devices: Vec<Device> = ids.map(begin).collect();
    let gatherings = Gatherings::new(program, &costs.latency, takes);
    // Where devices share processors, tasks take what they take beside others without the copies.
    let beside = costs.sharing.binds(schedule.n_devices()).then(|| timeline::simulate(schedule, order, costs));
    let mut step = Step { schedule, order, costs, beside, timeline, devices, gatherings };
    if program.values.iter().any(|value| value.share.is_some()) {
        step.in_turns();
    } else {
        order.sequence.iter().for_each(|slot| step.task(*slot));
    }
    (step.timeline, step.devices)
}

/// A step, as far as it was timed.
struct Step<'a> {
    schedule: &'a Schedule,
    order: &'a Order,
    costs: &'a Costs,
    beside: Option<Timeline>,
    timeline: Timeline,
    devices: Vec<Device>,
    gatherings: Gatherings<'a>,
}

impl Step<'_> {
    /// Devices that gather weights wait for each other: each goes on as far as it can, again and again.
    fn in_turns(&mut self) {
        let mut rest: Vec<VecDeque<Position>> = vec![VecDeque::new(); self.devices.len()];
        self.order.sequence.iter().for_each(|slot| rest[slot.device.index()].push_back(*slot));
        // By device: the tasks that are done.
        let mut done = vec![0; self.devices.len()];
        let mut moved = true;
        while std::mem::take(&mut moved) {
            for (device, rest) in rest.iter_mut().enumerate() {
                loop {
                    let own = &mut self.devices[device];
                    let before = own.acts.len();
                    let is_free = own.go_on(&mut self.gatherings);
                    moved |= own.acts.len() < before;
                    let is_ready = |slot: &mut Position| is_free && self.has_inputs(*slot, &done);
                    let Some(slot) = rest.pop_front_if(is_ready) else { break };
                    self.task(slot);
                    done[device] =
                        slot.position as usize + self.schedule.node(slot.device, slot.position as usize).len();
                    moved = true;
                }
            }
        }
        // Nothing is left of a program that runs to its end, which the verifier sees to.
        rest.into_iter().flatten().for_each(|slot| self.task(slot));
    }

    fn has_inputs(&self, slot: Position, done: &[usize]) -> bool {
        let mut inputs = self.order.inputs(self.schedule, &self.costs.latency, slot);
        inputs.all(|(from, _)| (from.position as usize) < done[from.device.index()])
    }

    fn task(&mut self, slot: Position) {
        let Self { schedule, order, costs, beside, timeline, devices, .. } = self;
        let node = schedule.node(slot.device, slot.position as usize);
        let (device, position) = (slot.device.index(), slot.position as usize);
        let takes = beside.as_ref().map(|all| all.ends[device][position] - all.starts[device][position]);
        let takes = takes.unwrap_or_else(|| costs.of_node(node));
        let arrivals = order.inputs(schedule, &costs.latency, slot);
        let from = arrivals.map(|(from, latency)| timeline.end(from) + latency).max().unwrap_or_default();
        let own = &mut devices[device];
        // Two tasks that share the device start together. What is queued between them stands behind the first.
        own.come(position);
        own.note(from.0.max(own.clock.now()));
        (position + 1..position + node.len()).for_each(|position| own.come(position));
        let start = from.max(Ticks(own.clock.now()));
        own.note((start + takes).0);
        own.clock.run(Event::Work { from: from.0, length: takes.0 });
        own.done = Some(slot);
        let before = position.checked_sub(1).map_or(Ticks::ZERO, |before| timeline.ends[device][before]);
        if own.awaited.0 == start && start > from.max(before) {
            timeline.gathered.insert((slot.device, slot.position), own.awaited.1);
        }
        timeline.starts[device][position..position + node.len()].fill(start);
        timeline.ends[device][position..position + node.len()].fill(start + takes);
    }
}

/// What a device does in a step, in the order of its program.
fn acts(schedule: &Schedule, costs: &Costs, program: &Program, device: DeviceId) -> Vec<Act> {
    let code = &program.devices[device.index()];
    let mut tasks = (0..).zip(&schedule.orders[device.index()]);
    let mut copies = vec![false; code.n_tokens as usize];
    let (mut gatherings, mut turns) = (vec![None; code.n_tokens as usize], BTreeMap::new());
    let mut acts = Vec::new();
    for instruction in &code.step {
        match *instruction {
            Instruction::Run { exec, microbatch, .. } => {
                let exec = program.exec(exec);
                if exec.is_squares() {
                    continue;
                }
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
                acts.push(Act::Copy(Event::Copy { direction, copy: token.index(), from: 0, length }));
            }
            Instruction::GatherStart { buffer, group, token, .. } => {
                let turn: &mut u32 = turns.entry(group).or_default();
                gatherings[token.index()] = Some(((group, *turn), code.buffers[buffer.index()].bytes));
                acts.push(Act::Join((group, *turn)));
                *turn += 1;
            }
            Instruction::Wait { token } if copies[token.index()] => {
                acts.push(Act::Copy(Event::Wait { copy: token.index() }));
            }
            Instruction::Wait { token } => {
                acts.extend(gatherings[token.index()].map(|(which, bytes)| Act::Await(which, bytes)));
            }
            _ => {}
        }
    }
    // Updates between tasks are those of weights whose gradients have left, which take no time of the step.
    let last = acts.iter().rposition(|act| matches!(act, Act::Task(_))).unwrap_or(0);
    let mut position = 0..;
    acts.retain(|act| position.next().is_some_and(|own| own > last) || !matches!(act, Act::Update(_)));
    acts
}

/// How long an update takes: a chunk's share of that of its stage.
fn update(costs: &Costs, program: &Program, exec: &Exec) -> u64 {
    let whole = u128::from(costs.of(TaskKind::Update, exec.stage).0);
    let weights = exec.operands.first().map(|operand| program.value(operand.value));
    let weights = weights.map(|value| value.share.map_or(value, |own| program.value(own.whole)));
    let weights = weights.map_or(1, |value| value.bytes.0.max(1));
    let share = exec.chunk.map_or(weights, |chunk| chunk.to.0 - chunk.from.0);
    u64::try_from(whole * u128::from(share) / u128::from(weights)).unwrap_or(u64::MAX)
}
