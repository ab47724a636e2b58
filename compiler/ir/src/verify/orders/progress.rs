//! Rule: no device waits forever, even if a transfer needs both sides at the head of their queues (rendezvous).
//!
//! Devices run their lists as far as they can, and so do their lanes with what they were given: an instruction other
//! than `wait` never blocks, and a `wait` blocks until both sides of its transfer, or all members of its collective,
//! have been started, or a lane has ended what it was given; for a copy it never does. Since the queues of different
//! channels are independent and a channel starts its transfers in order, that is exactly when the pair has been at the
//! head of both queues. Running one device never takes a possibility from another, so that one order decides for all
//! orders. If devices remain, `stuck` shows the shortest cycles of instructions that wait for each other.

use super::channels::Channels;
use super::report::Report;
use super::{devices, stuck};
use crate::ids::{DeviceId, GroupId, LaneId, TokenId};
use crate::instruction::{Count, Instruction, Start};
use crate::program::Program;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// What a token is of, from the point of view of one device.
#[derive(Clone, Copy)]
pub(super) enum Transfer {
    /// A lane has not come to its start.
    Unstarted,
    OneSide {
        channel: u32,
        /// Which of the channel's transfers.
        turn: u32,
        sends: bool,
    },
    Joined {
        group: GroupId,
        /// Which of the group's collectives.
        turn: u32,
    },
    /// A copy between a device and its host, for which nobody else is needed.
    Alone,
    /// What a lane was given.
    Lane {
        lane: LaneId,
        /// How often it was given something before.
        turn: u32,
    },
}

/// Whatever takes instructions one after the other: the list of a device, or a lane of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Queue {
    pub(super) device: DeviceId,
    pub(super) lane: Option<LaneId>,
}

impl Queue {
    /// Position in tables: first the lists of all devices, then the first lane of each.
    pub(super) fn index(self, n_devices: usize) -> usize {
        self.device.index() + self.lane.map_or(0, |lane| lane.index() + 1) * n_devices
    }

    /// The queue at a position of tables.
    pub(super) fn at(index: usize, n_devices: usize) -> Self {
        let lane = (index / n_devices).checked_sub(1).map(LaneId::from_index);
        Self { device: DeviceId::from_index(index % n_devices), lane }
    }
}

/// How far a group came.
#[derive(Clone, Default)]
struct Together {
    /// By collective: members that joined.
    joined: Vec<u32>,
    /// Members that wait, each for a collective.
    waiters: Vec<(u32, Queue)>,
}

/// How far each side of a channel came, and who waits for it to come further.
#[derive(Clone, Default)]
struct Side {
    started: u32,
    waiters: Vec<Queue>,
}

/// How far a lane came.
#[derive(Clone, Default)]
struct Lane {
    /// What it was given and has not ended: positions in the list.
    given: VecDeque<Range<usize>>,
    /// How often it was given something.
    started: u32,
    /// How much of that has ended.
    ended: u32,
}

struct Run<'a> {
    program: &'a Program,
    channels: &'a Channels,
    /// By device: the next instruction of its list.
    next: Vec<usize>,
    /// By device, then by lane.
    lanes: Vec<Vec<Lane>>,
    /// By device and token.
    transfers: Vec<Vec<Transfer>>,
    /// By channel: receivers, senders.
    sides: Vec<[Side; 2]>,
    /// By group.
    together: Vec<Together>,
    /// By group and device: collectives that the device joined.
    joined: BTreeMap<(GroupId, DeviceId), u32>,
    /// By device: its queues that wait for each other.
    waiters: Vec<Vec<Queue>>,
    /// Queues that can go on.
    ready: Vec<Queue>,
}

/// Checks the whole program.
pub(super) fn check(program: &Program, channels: &Channels, report: &mut Report) {
    let n_devices = program.devices.len();
    let mut run = Run {
        program,
        channels,
        next: vec![0; n_devices],
        lanes: vec![vec![Lane::default(); program.lanes.len()]; n_devices],
        transfers: program.devices.iter().map(|code| vec![Transfer::Unstarted; code.n_tokens as usize]).collect(),
        sides: vec![Default::default(); channels.len()],
        together: vec![Together::default(); program.groups.len()],
        joined: BTreeMap::new(),
        waiters: vec![Vec::new(); n_devices],
        ready: devices(program).map(|(device, _)| Queue { device, lane: None }).collect(),
    };
    while let Some(queue) = run.ready.pop() {
        run.queue(queue);
    }
    let is_done = |device: DeviceId| run.lanes[device.index()].iter().all(|lane| lane.given.is_empty());
    if devices(program).all(|(device, code)| run.next[device.index()] == code.step.len() && is_done(device)) {
        return;
    }
    // Each queue stands at a `wait`; what stands behind says what would be waited for there.
    let next = run.all_next();
    for (device, code) in devices(program) {
        let given = run.lanes[device.index()].iter().flat_map(|lane| lane.given.iter().cloned().flatten());
        let rest: Vec<usize> = given.chain(run.next[device.index()]..code.step.len()).collect();
        for index in rest {
            run.start(device, index);
        }
    }
    stuck::explain(&stuck::Stuck { program, channels, next: &next, transfers: &run.transfers }, report);
}

impl Run<'_> {
    /// By queue: the instruction at which it stands.
    fn all_next(&self) -> Vec<usize> {
        let n_devices = self.next.len();
        let at = |index: usize| {
            let queue = Queue::at(index, n_devices);
            let list = self.next[queue.device.index()];
            let given = queue.lane.and_then(|lane| self.lanes[queue.device.index()][lane.index()].given.front());
            given.map_or(list, |range| range.start)
        };
        (0..n_devices * (1 + self.program.lanes.len())).map(at).collect()
    }

    /// Runs a queue to its end or to the `wait` where it stands.
    fn queue(&mut self, queue: Queue) {
        let code = &self.program.devices[queue.device.index()];
        loop {
            let index = match queue.lane {
                None => self.next[queue.device.index()],
                Some(lane) => match self.lanes[queue.device.index()][lane.index()].given.front() {
                    Some(range) => range.start,
                    None => return,
                },
            };
            let Some(instruction) = code.step.get(index) else { return };
            if let Instruction::Wait { token } = *instruction
                && !self.has_ended(queue, token)
            {
                return;
            }
            let given = self.start(queue.device, index);
            match (queue.lane, given) {
                (Some(lane), _) => self.passed(queue.device, lane),
                (None, Some((lane, range))) => {
                    self.next[queue.device.index()] = range.end;
                    let own = &mut self.lanes[queue.device.index()][lane.index()];
                    if own.given.is_empty() {
                        self.ready.push(Queue { lane: Some(lane), ..queue });
                    }
                    own.given.push_back(range);
                }
                (None, None) => self.next[queue.device.index()] += 1,
            }
        }
    }

    /// A lane has gone past an instruction; other queues of its device may wait for that.
    fn passed(&mut self, device: DeviceId, lane: LaneId) {
        let own = &mut self.lanes[device.index()][lane.index()];
        if let Some(range) = own.given.front_mut() {
            range.start += 1;
            if range.start >= range.end {
                own.given.pop_front();
                own.ended += 1;
            }
        }
        self.ready.append(&mut self.waiters[device.index()]);
    }

    /// Starts a transfer, joins a collective or gives a lane something, if that is what the instruction does: the lane,
    /// and what of the list it was given.
    fn start(&mut self, device: DeviceId, index: usize) -> Option<(LaneId, Range<usize>)> {
        let instruction = &self.program.devices[device.index()].step[index];
        let (token, start) = instruction.starts()?;
        let mut given = None;
        self.transfers[device.index()][token.index()] = match start {
            Start::Send(..) | Start::Receive(..) => self.post(device, instruction),
            Start::Join(group) => self.join(device, group),
            Start::Copy(_) => Transfer::Alone,
            Start::Lane(lane) => {
                if let Instruction::LaneStart { count: Count(count), .. } = *instruction {
                    given = Some((lane, index + 1..index + 1 + count as usize));
                }
                let own = &mut self.lanes[device.index()][lane.index()];
                own.started += 1;
                Transfer::Lane { lane, turn: own.started - 1 }
            }
        };
        given
    }

    /// Starts one side of a transfer; the other side can go on if it waits for that.
    fn post(&mut self, device: DeviceId, instruction: &Instruction) -> Transfer {
        let Some((channel, sends)) = self.channels.of(device, instruction) else { return Transfer::Alone };
        let side = &mut self.sides[channel][usize::from(sends)];
        let channel = u32::try_from(channel).unwrap_or(u32::MAX);
        let transfer = Transfer::OneSide { channel, turn: side.started, sends };
        side.started += 1;
        self.ready.append(&mut side.waiters);
        transfer
    }

    /// Joins the next collective of a group; the last member lets the others go on.
    fn join(&mut self, device: DeviceId, group: GroupId) -> Transfer {
        let turn = self.joined.entry((group, device)).or_default();
        let transfer = Transfer::Joined { group, turn: *turn };
        let together = &mut self.together[group.index()];
        if together.joined.len() <= *turn as usize {
            together.joined.resize(*turn as usize + 1, 0);
        }
        let joined = &mut together.joined[*turn as usize];
        *joined += 1;
        if *joined as usize == self.program.group(group).len() {
            let ready = &mut self.ready;
            together.waiters.retain(|(other, waiter)| {
                let waits = other != turn;
                if !waits {
                    ready.push(*waiter);
                }
                waits
            });
        }
        *turn += 1;
        transfer
    }

    /// Whether all have come that a `wait` needs; notes who waits otherwise.
    fn has_ended(&mut self, queue: Queue, token: TokenId) -> bool {
        let device = queue.device.index();
        match self.transfers[device][token.index()] {
            Transfer::OneSide { channel, turn, sends } => {
                let other = &mut self.sides[channel as usize][usize::from(!sends)];
                if other.started > turn {
                    return true;
                }
                other.waiters.push(queue);
            }
            Transfer::Lane { lane, turn } if self.lanes[device][lane.index()].ended > turn => return true,
            Transfer::Lane { .. } | Transfer::Unstarted => self.waiters[device].push(queue),
            Transfer::Alone => return true,
            Transfer::Joined { group, turn } => {
                let together = &mut self.together[group.index()];
                if together.joined[turn as usize] as usize == self.program.group(group).len() {
                    return true;
                }
                together.waiters.push((turn, queue));
            }
        }
        false
    }
}
