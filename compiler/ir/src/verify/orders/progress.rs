//! Rule: no device waits forever, even if a transfer needs both sides at the head of their queues (rendezvous).
//!
//! Devices run their lists as far as they can: an instruction other than `wait` never blocks, and a
//! `wait` blocks until both sides of its transfer, or all members of its collective, have been
//! started; for a copy it never does. Since the queues of different channels are independent and a
//! channel starts its transfers in order, that is exactly when the pair has been at the head of
//! both queues. Running one device never takes a possibility from another, so that one order
//! decides for all orders. If devices remain, `stuck` shows the shortest cycles of instructions
//! that wait for each other.

use super::channels::Channels;
use super::report::Report;
use super::{devices, stuck};
use crate::ids::{DeviceId, GroupId};
use crate::instruction::{Instruction, Start};
use crate::program::Program;
use std::collections::BTreeMap;

/// A transfer or collective from the point of view of one device.
#[derive(Clone, Copy)]
pub(super) enum Transfer {
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
}

/// How far a group came.
#[derive(Clone, Default)]
struct Together {
    /// By collective: members that joined.
    joined: Vec<u32>,
    /// Members that wait, each for a collective.
    waiters: Vec<(u32, DeviceId)>,
}

/// How far each side of a channel came, and who waits for it to come further.
#[derive(Clone, Copy, Default)]
struct Side {
    started: u32,
    waiter: Option<DeviceId>,
}

struct Run<'a> {
    program: &'a Program,
    channels: &'a Channels,
    /// By device: the next instruction.
    next: Vec<usize>,
    /// By device and token.
    transfers: Vec<Vec<Transfer>>,
    /// By channel: receivers, senders.
    sides: Vec<[Side; 2]>,
    /// By group.
    together: Vec<Together>,
    /// By group and device: collectives that the device joined.
    joined: BTreeMap<(GroupId, DeviceId), u32>,
    /// Devices that can go on.
    ready: Vec<DeviceId>,
}

/// Checks the whole program.
pub(super) fn check(program: &Program, channels: &Channels, report: &mut Report) {
    let mut run = Run {
        program,
        channels,
        next: vec![0; program.devices.len()],
        transfers: program.devices.iter().map(|code| vec![Transfer::Alone; code.n_tokens as usize]).collect(),
        sides: vec![[Side::default(); 2]; channels.len()],
        together: vec![Together::default(); program.groups.len()],
        joined: BTreeMap::new(),
        ready: devices(program).map(|(device, _)| device).collect(),
    };
    while let Some(device) = run.ready.pop() {
        run.device(device);
    }
    if devices(program).all(|(device, code)| run.next[device.index()] == code.step.len()) {
        return;
    }
    // Each device stands at a `wait`; what stands behind says what would be waited for there.
    let next = run.next.clone();
    for (device, code) in devices(program) {
        code.step[next[device.index()]..].iter().for_each(|instruction| run.start(device, instruction));
    }
    stuck::explain(&stuck::Stuck { program, channels, next: &next, transfers: &run.transfers }, report);
}

impl Run<'_> {
    /// Runs a device to its end or to the `wait` where it stands.
    fn device(&mut self, device: DeviceId) {
        let code = &self.program.devices[device.index()];
        while let Some(instruction) = code.step.get(self.next[device.index()]) {
            if let Instruction::Wait { token } = *instruction {
                let transfer = self.transfers[device.index()][token.index()];
                if !self.has_ended(device, transfer) {
                    return;
                }
            }
            self.start(device, instruction);
            self.next[device.index()] += 1;
        }
    }

    /// Starts a transfer or joins a collective, if that is what the instruction does.
    fn start(&mut self, device: DeviceId, instruction: &Instruction) {
        let Some((token, start)) = instruction.starts() else { return };
        self.transfers[device.index()][token.index()] = match start {
            Start::Send(..) | Start::Receive(..) => self.post(device, instruction),
            Start::Join(group) => self.join(device, group),
            Start::Copy(_) => Transfer::Alone,
        };
    }

    /// Starts one side of a transfer; the other side can go on if it waits for that.
    fn post(&mut self, device: DeviceId, instruction: &Instruction) -> Transfer {
        let Some((channel, sends)) = self.channels.of(device, instruction) else { return Transfer::Alone };
        let side = &mut self.sides[channel][usize::from(sends)];
        let channel = u32::try_from(channel).unwrap_or(u32::MAX);
        let transfer = Transfer::OneSide { channel, turn: side.started, sends };
        side.started += 1;
        self.ready.extend(side.waiter.take());
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

    /// Whether all have come that a transfer or collective needs; notes who waits otherwise.
    fn has_ended(&mut self, device: DeviceId, transfer: Transfer) -> bool {
        match transfer {
            Transfer::OneSide { channel, turn, sends } => {
                let other = &mut self.sides[channel as usize][usize::from(!sends)];
                if other.started > turn {
                    return true;
                }
                other.waiter = Some(device);
            }
            Transfer::Alone => return true,
            Transfer::Joined { group, turn } => {
                let together = &mut self.together[group.index()];
                if together.joined[turn as usize] as usize == self.program.group(group).len() {
                    return true;
                }
                together.waiters.push((turn, device));
            }
        }
        false
    }
}
