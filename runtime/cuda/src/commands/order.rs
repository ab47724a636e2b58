//! The order in which the host goes through the lists of all devices.
//!
//! A device goes on until a `wait` whose transfer, collective or copy its partners have not
//! started. Of those that can go on, the one that would be the earliest goes first: each has a
//! clock, which a run moves on by its cost and a wait to the end of what is waited for. So the host
//! asks for things in about the order in which they begin. The clocks decide nothing else.
//!
//! A transfer takes its turn when both of its ends have been started, a collective when all members
//! have joined it. The turns are thus one order of everything in which each thing comes after all
//! that it needs; it depends on nothing but the program.

use pipe_distributed::tokens::QueueName;
use pipe_ir::ids::{DeviceId, GroupId, TokenId};
use pipe_ir::instruction::{Class, Instruction, Start};
use pipe_ir::program::{DeviceProgram, Program};
use pipe_ir::verify::List;
use pipe_runtime::RunError;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// An instruction of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct At {
    pub(super) device: DeviceId,
    pub(super) index: u32,
}

/// What happens next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// A device comes to its next instruction.
    Next(At),
    /// Both ends of a transfer have been started.
    Transfer { send: At, receive: At, class: Class },
    /// All members have joined, each by this instruction; in the order of the group.
    Together(GroupId, Vec<At>),
}

/// The instructions of one list of a device.
pub(super) fn instructions(code: &DeviceProgram, list: List) -> &[Instruction] {
    match list {
        List::Setup => &code.setup,
        List::Step => &code.step,
    }
}

/// What was started and waits for its partners.
#[derive(Clone, Copy)]
struct Started {
    at: At,
    token: TokenId,
    /// The clock of its device.
    time: u64,
}

/// How far one device is.
struct Progress {
    next: usize,
    time: u64,
    /// By token: when what it stands for ends, once that is known.
    ends: Vec<Option<u64>>,
    /// What it stands at.
    waits: Option<TokenId>,
}

struct Walk<'a> {
    program: &'a Program,
    list: List,
    devices: Vec<Progress>,
    /// Devices that can go on.
    ready: BinaryHeap<Reverse<(u64, DeviceId)>>,
    /// Sends and receives of which the other end is not there.
    channels: BTreeMap<QueueName, [VecDeque<Started>; 2]>,
    /// By group and member: what it has joined, and the others not yet.
    groups: Vec<Vec<VecDeque<Started>>>,
    turns: Vec<Turn>,
}

/// All turns of a list of a program. Fails if no device can go on before all are done, which no verified program does.
pub(super) fn order(program: &Program, list: List) -> Result<Vec<Turn>, RunError> {
    let ids = || (0..program.devices.len()).map(DeviceId::from_index);
    let progress =
        |code: &DeviceProgram| Progress { next: 0, time: 0, ends: vec![None; code.n_tokens as usize], waits: None };
    let mut walk = Walk {
        program,
        list,
        devices: program.devices.iter().map(progress).collect(),
        ready: ids().map(|device| Reverse((0, device))).collect(),
        channels: BTreeMap::new(),
        groups: program.groups.iter().map(|members| vec![VecDeque::new(); members.len()]).collect(),
        turns: Vec::new(),
    };
    while let Some(Reverse((_, device))) = walk.ready.pop() {
        walk.advance(device);
    }
    let stuck = ids().filter_map(|device| {
        let next = walk.devices[device.index()].next;
        let code = &program.devices[device.index()];
        let instruction = instructions(code, list).get(next)?;
        Some(format!("{device} at instruction {next} of its {list}, `{}`", instruction.text(program, code)))
    });
    let stuck: Vec<String> = stuck.collect();
    if stuck.is_empty() { Ok(walk.turns) } else { Err(RunError::Stuck(stuck.join(", "))) }
}

impl Walk<'_> {
    /// Lets a device go on until it has run an executable, stands at a `wait`, or is done.
    fn advance(&mut self, device: DeviceId) {
        let list = instructions(&self.program.devices[device.index()], self.list);
        while let Some(instruction) = list.get(self.devices[device.index()].next) {
            let own = &mut self.devices[device.index()];
            if let Instruction::Wait { token } = *instruction {
                let Some(end) = own.ends[token.index()] else {
                    own.waits = Some(token);
                    return;
                };
                own.time = own.time.max(end);
            }
            let at = At { device, index: u32::try_from(own.next).unwrap_or(u32::MAX) };
            own.next += 1;
            self.turns.push(Turn::Next(at));
            if let Instruction::Run { exec, .. } = *instruction {
                own.time += self.program.exec(exec).flops.max(1);
                self.ready.push(Reverse((own.time, device)));
                return;
            }
            self.start(at, instruction);
        }
    }

    /// Starts what others take part in.
    fn start(&mut self, at: At, instruction: &Instruction) {
        let time = self.devices[at.device.index()].time;
        let Some((token, start)) = instruction.starts() else { return };
        let started = Started { at, token, time };
        match start {
            Start::Send(to, class) => self.post((at.device, to, class), 0, started),
            Start::Receive(from, class) => self.post((from, at.device, class), 1, started),
            Start::Join(group) => self.join(group, started),
            // What is given to a lane runs in the list's own place.
            Start::Copy(_) | Start::Lane(_) => self.end(started, time),
        }
    }

    /// Posts one end of a transfer, which takes place if the other is there.
    fn post(&mut self, queue: QueueName, side: usize, started: Started) {
        let ends = self.channels.entry(queue).or_default();
        let Some(other) = ends[1 - side].pop_front() else {
            ends[side].push_back(started);
            return;
        };
        let (send, receive) = if side == 0 { (started, other) } else { (other, started) };
        self.turns.push(Turn::Transfer { send: send.at, receive: receive.at, class: queue.2 });
        let end = send.time.max(receive.time);
        self.end(send, end);
        self.end(receive, end);
    }

    /// Joins the next collective of a group, which takes place if the others have.
    fn join(&mut self, group: GroupId, started: Started) {
        let members = self.program.group(group);
        let Some(member) = members.iter().position(|device| *device == started.at.device) else { return };
        let joined = &mut self.groups[group.index()];
        joined[member].push_back(started);
        if joined.iter().any(VecDeque::is_empty) {
            return;
        }
        let all: Vec<Started> = joined.iter_mut().filter_map(VecDeque::pop_front).collect();
        self.turns.push(Turn::Together(group, all.iter().map(|one| one.at).collect()));
        let end = all.iter().map(|one| one.time).max().unwrap_or(0);
        all.into_iter().for_each(|one| self.end(one, end));
    }

    /// Says when something ends; who stands at it can go on.
    fn end(&mut self, started: Started, end: u64) {
        let device = started.at.device;
        let own = &mut self.devices[device.index()];
        own.ends[started.token.index()] = Some(end);
        if own.waits == Some(started.token) {
            own.waits = None;
            self.ready.push(Reverse((own.time.max(end), device)));
        }
    }
}
