//! Records the command lists of a program, and what is known of its run before it begins.
//!
//! | instruction | calls |
//! |---|---|
//! | `run`, `fill`, `load`, `emit` | that work, in the compute queue |
//! | `lane.start` | an event in the compute queue, for which the lane's queue waits; it then has all calls of
//! what it is given, and records an event at its end |
//! | `send.start`, `recv.start` | an event in the compute queue; with the second of both, the
//! transfer's queue waits for the two events, copies, and records that it has |
//! | `coll.start`, `gather.start` | the same with the queue of the group, and an event of each member |
//! | `copy.start` | the same with the queue of the direction, and one event |
//! | `wait` | the compute queue waits for what was recorded there |
//! | `alloc`, `free` | none; in strict runs, what is freed is made unusable |
//!
//! Of a transfer whose other end is in another process, and of a collective with members there, the
//! queue waits for the events of this one.

use super::order::{At, Turn, instructions, order};
use super::prune::prune;
use super::races::races;
use super::{Call, CommandList, EventId, Home, MemberPart, Queue, QueueId, Work};
use pipe_ir::graph::DType;
use pipe_ir::ids::{BufferId, DeviceId, GroupId, MicrobatchId, TokenId, ValueId};
use pipe_ir::instruction::{Class, Collective, Count, Instruction, Start};
use pipe_ir::program::{DeviceProgram, Program, Space};
use pipe_ir::units::Bytes;
use pipe_ir::verify::{List, Verified};
use pipe_runtime::executor::{dtypes, emitted_microbatches};
use pipe_runtime::ledger::Ledger;
use pipe_runtime::{Fault, RunError, Used};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The command lists of a program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recorded {
    /// Run once.
    pub setup: CommandList,
    /// Run once per step, or per window.
    pub step: CommandList,
    /// By device of this process.
    pub devices: Vec<Facts>,
    /// Where the data of a step lies in the staging memory of the host: each once, however many devices load it.
    pub loads: BTreeMap<(ValueId, MicrobatchId), Staged>,
    /// Bytes of that memory.
    pub staging: Bytes,
}

/// What a device does, and needs, in every run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// Instructions of the set-up and of the step.
    pub instructions: [u64; 2],
    /// By space, what set-up and step use of it together.
    pub used: [Used; Space::ALL.len()],
    /// The microbatch of each loss that it emits, in their order.
    pub losses: Vec<MicrobatchId>,
}

/// A place in the staging memory of the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Staged {
    /// A multiple of the alignment.
    pub offset: Bytes,
    /// As many as the value has.
    pub bytes: Bytes,
}

/// One list as it is recorded.
struct Recorder<'a> {
    program: &'a Program,
    /// Devices of this process.
    own: Range<usize>,
    list: List,
    strict: bool,
    queues: BTreeMap<Queue, QueueId>,
    calls: Vec<Call>,
    n_events: u32,
    devices: &'a mut [Books],
    loads: &'a mut BTreeMap<(ValueId, MicrobatchId), Staged>,
}

/// What is kept of a device.
struct Books {
    ledger: Ledger,
    dtypes: BTreeMap<BufferId, DType>,
    emitted: u32,
    /// By token: the last event of what it stands for, first that of the start and then that of the end.
    events: Vec<EventId>,
    /// Where the next instructions go, if a lane is given them.
    lane: Option<OnLane>,
    facts: Facts,
}

/// What a lane is given.
struct OnLane {
    queue: Queue,
    /// How many instructions are still to come.
    left: u32,
    token: TokenId,
}

/// Records both lists of a program. `strict` looks for overlapping buffers and for races, and makes
/// freed memory unusable; debug builds look for races in any case.
///
/// # Errors
/// If all devices wait, memory is used in a way that the verifier should not have let pass, or
/// there is a race: mistakes of ours.
pub fn record(program: &Verified, strict: bool) -> Result<Recorded, RunError> {
    record_part(program, 0..program.program().devices.len(), strict)
}

/// The same for one process of several, which has these devices.
///
/// # Errors
/// As before.
pub fn record_part(program: &Verified, own: Range<usize>, strict: bool) -> Result<Recorded, RunError> {
    let program = program.program();
    let books = |code: &DeviceProgram| Books {
        ledger: Ledger::new(code.buffers.clone(), strict),
        dtypes: dtypes(program, code),
        emitted: 0,
        events: vec![EventId(0); code.n_tokens as usize],
        lane: None,
        facts: Facts { losses: emitted_microbatches(program, code), ..Facts::default() },
    };
    let mut devices: Vec<Books> = program.devices[own.clone()].iter().map(books).collect();
    let mut loads = BTreeMap::new();
    let lists = [List::Setup, List::Step].map(|list| {
        let mut recorder = Recorder::new(program, (own.clone(), list, strict), &mut devices, &mut loads);
        order(program, list)?.iter().try_for_each(|turn| recorder.turn(turn))?;
        let commands = recorder.finish();
        if strict || cfg!(debug_assertions) {
            races(program, &commands)?;
        }
        Ok::<_, RunError>(commands)
    });
    let mut staging = Bytes::ZERO;
    for place in loads.values_mut() {
        place.offset = staging;
        staging += place.bytes.aligned();
    }
    let facts = |books: Books| Facts { used: Space::ALL.map(|space| books.ledger.used(space)), ..books.facts };
    let (devices, [setup, step]) = (devices.into_iter().map(facts).collect(), lists);
    Ok(Recorded { setup: setup?, step: step?, devices, loads, staging })
}

/// The queues that a list of some devices needs.
fn queues_of(program: &Program, devices: &Range<usize>, list: List) -> BTreeSet<Queue> {
    let mut queues = BTreeSet::new();
    for (index, code) in program.devices.iter().enumerate().filter(|(index, _)| devices.contains(index)) {
        let own = DeviceId::from_index(index);
        queues.insert(Queue::Compute(own));
        let starts = instructions(code, list).iter().filter_map(Instruction::starts);
        queues.extend(starts.map(|(_, start)| match start {
            Start::Send(to, class) => Queue::Transfer(own, to, class),
            Start::Receive(from, class) => Queue::Transfer(from, own, class),
            Start::Join(group) => Queue::Group(group),
            Start::Copy(direction) => Queue::Copy(own, direction),
            Start::Lane(lane) => Queue::Lane(own, lane),
        }));
    }
    queues
}

impl<'a> Recorder<'a> {
    fn new(
        program: &'a Program,
        (own, list, strict): (Range<usize>, List, bool),
        devices: &'a mut [Books],
        loads: &'a mut BTreeMap<(ValueId, MicrobatchId), Staged>,
    ) -> Self {
        let queues = queues_of(program, &own, list).into_iter().zip((0..).map(QueueId)).collect();
        Self { program, own, list, strict, queues, calls: Vec::new(), n_events: 0, devices, loads }
    }

    fn finish(self) -> CommandList {
        let queues = self.queues.into_keys().collect();
        prune(CommandList { queues, n_events: self.n_events, calls: self.calls })
    }

    fn instruction(&self, at: At) -> Instruction {
        instructions(&self.program.devices[at.device.index()], self.list)[at.index as usize]
    }

    fn is_own(&self, device: DeviceId) -> bool {
        self.own.contains(&device.index())
    }

    /// Those of a device of this process.
    fn books(&mut self, device: DeviceId) -> &mut Books {
        &mut self.devices[device.index() - self.own.start]
    }

    fn work(&mut self, queue: Queue, work: Work) {
        self.calls.push(Call::Work(self.queues[&queue], work));
    }

    /// A point in a queue; the token's partners, or its `wait`, will ask for it.
    fn note(&mut self, queue: Queue, device: DeviceId, token: TokenId) {
        let event = EventId(self.n_events);
        self.n_events += 1;
        self.calls.push(Call::Record(self.queues[&queue], event));
        self.books(device).events[token.index()] = event;
    }

    /// The queue waits for what was noted of a token last.
    fn wait(&mut self, queue: Queue, device: DeviceId, token: TokenId) {
        let event = self.books(device).events[token.index()];
        self.calls.push(Call::Wait(self.queues[&queue], event));
    }

    /// A queue does what some tokens stand for, when all of them have been started.
    fn among(&mut self, queue: Queue, tokens: &[(DeviceId, TokenId)], work: Work) {
        tokens.iter().for_each(|(device, token)| self.wait(queue, *device, *token));
        self.work(queue, work);
        let event = EventId(self.n_events);
        self.n_events += 1;
        self.calls.push(Call::Record(self.queues[&queue], event));
        for (device, token) in tokens {
            self.books(*device).events[token.index()] = event;
        }
    }

    fn turn(&mut self, turn: &Turn) -> Result<(), RunError> {
        match turn {
            Turn::Next(at) if !self.is_own(at.device) => Ok(()),
            Turn::Next(at) => self.next(*at).map_err(|fault| {
                let (list, index) = (self.list, at.index as usize);
                let instruction = format!("{:?}", self.instruction(*at));
                RunError::Instruction { device: at.device, list, index, instruction, fault }
            }),
            Turn::Transfer { send, receive, class } => {
                self.transfer(*send, *receive, *class);
                Ok(())
            }
            Turn::Together(group, members) => {
                self.together(*group, members);
                Ok(())
            }
        }
    }

    /// A device comes to its next instruction.
    fn next(&mut self, At { device, index }: At) -> Result<(), Fault> {
        let instruction = self.instruction(At { device, index });
        let home = |buffer| Home { device, buffer };
        let own = &mut self.devices[device.index() - self.own.start];
        let queue = own.lane.as_ref().map_or(Queue::Compute(device), |lane| lane.queue);
        own.facts.instructions[self.list as usize] += 1;
        match instruction {
            Instruction::Alloc { buffer } => own.ledger.alloc(buffer)?,
            Instruction::Free { buffer } => {
                own.ledger.free(buffer)?;
                let place = self.program.devices[device.index()].buffers[buffer.index()];
                if self.strict && place.space == Space::Device {
                    self.work(queue, Work::Spoil { home: home(buffer) });
                }
            }
            Instruction::Fill { buffer, value, with } => {
                own.dtypes.insert(buffer, self.program.value(value).dtype());
                self.work(queue, Work::Fill { home: home(buffer), value, with });
            }
            Instruction::Load { buffer, value, microbatch } => {
                let bytes = self.program.value(value).bytes;
                self.loads.insert((value, microbatch), Staged { offset: Bytes::ZERO, bytes });
                self.work(queue, Work::Load { home: home(buffer), value, microbatch });
            }
            Instruction::Run { exec, microbatch, operands } => {
                self.work(queue, Work::Run { device, exec, microbatch, operands });
            }
            Instruction::Emit { buffer } => {
                let number = own.emitted;
                let microbatch = own.facts.losses.get(number as usize).copied().unwrap_or(MicrobatchId(0));
                own.emitted += 1;
                self.work(queue, Work::Emit { home: home(buffer), microbatch, number });
            }
            Instruction::SendStart { token, .. }
            | Instruction::RecvStart { token, .. }
            | Instruction::CollStart { token, .. }
            | Instruction::GatherStart { token, .. } => self.note(queue, device, token),
            Instruction::LaneStart { lane, count: Count(left), token } => {
                self.note(queue, device, token);
                let lane = Queue::Lane(device, lane);
                self.wait(lane, device, token);
                self.books(device).lane = Some(OnLane { queue: lane, left, token });
                return Ok(());
            }
            Instruction::CopyStart { buffer, from, direction, token } => {
                self.note(queue, device, token);
                let work = Work::Copy { from: home(from), to: home(buffer) };
                self.among(Queue::Copy(device, direction), &[(device, token)], work);
            }
            Instruction::Wait { token } => self.wait(queue, device, token),
        }
        if let Some(mut lane) = self.books(device).lane.take() {
            lane.left -= 1;
            match lane.left {
                0 => self.note(lane.queue, device, lane.token),
                _ => self.books(device).lane = Some(lane),
            }
        }
        Ok(())
    }

    fn transfer(&mut self, send: At, receive: At, class: Class) {
        let (
            Instruction::SendStart { buffer: from, token: sent, .. },
            Instruction::RecvStart { buffer: to, token, .. },
        ) = (self.instruction(send), self.instruction(receive))
        else {
            return;
        };
        let (sender, receiver) = (send.device, receive.device);
        let (from, to) = (Home { device: sender, buffer: from }, Home { device: receiver, buffer: to });
        let queue = Queue::Transfer(sender, receiver, class);
        match (self.is_own(sender), self.is_own(receiver)) {
            (true, true) => self.among(queue, &[(sender, sent), (receiver, token)], Work::Copy { from, to }),
            (true, false) => self.among(queue, &[(sender, sent)], Work::Send { from, to: receiver }),
            (false, true) => self.among(queue, &[(receiver, token)], Work::Receive { from: sender, to }),
            (false, false) => {}
        }
    }

    fn together(&mut self, group: GroupId, members: &[At]) {
        let (mut parts, mut tokens) = (Vec::with_capacity(members.len()), Vec::with_capacity(members.len()));
        let (mut kind, mut dtype) = (Collective::AllReduce, DType::F32);
        for at in members {
            if !self.is_own(at.device) {
                continue;
            }
            let home = |buffer| Home { device: at.device, buffer };
            let (part, token, joined) = match self.instruction(*at) {
                Instruction::CollStart { buffer, collective, token, .. } => {
                    kind = collective;
                    (MemberPart { home: home(buffer), share: None }, token, buffer)
                }
                Instruction::GatherStart { buffer, share, token, .. } => {
                    kind = Collective::AllGather;
                    (MemberPart { home: home(buffer), share: Some(home(share)) }, token, share)
                }
                _ => continue,
            };
            dtype = self.books(at.device).dtypes.get(&joined).copied().unwrap_or(dtype);
            parts.push(part);
            tokens.push((at.device, token));
        }
        if tokens.is_empty() {
            return;
        }
        self.among(Queue::Group(group), &tokens, Work::Together { collective: kind, dtype, parts });
    }
}
