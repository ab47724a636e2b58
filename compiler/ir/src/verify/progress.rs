//! Rule: no device waits forever, even if a transfer needs both sides at the head of their queues (rendezvous).
//!
//! Devices run their lists as far as they can: an instruction other than `wait` never blocks, and a `wait` blocks until
//! both sides of its transfer, or all members of its collective, have been started. Since the queues of different channels are independent and a channel
//! starts its transfers in order, that is exactly when the pair has been at the head of both queues. Running one device
//! never takes a possibility from another, so that one order decides for all orders. If devices remain, each waits for
//! one other, of a collective for the first member that has not joined; a cycle among them is shown.

use super::channels::Channels;
use super::report::{Report, at};
use super::{List, devices};
use crate::ids::{DeviceId, GroupId};
use crate::instruction::Instruction;
use crate::program::Program;
use petgraph::algo::tarjan_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use std::collections::BTreeMap;

/// A transfer or collective from the point of view of one device.
#[derive(Clone, Copy)]
enum Transfer {
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
}

impl Transfer {
    const NONE: Self = Self::OneSide { channel: 0, turn: 0, sends: false };
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

/// A device that stands at a `wait`.
#[derive(Clone, Copy)]
struct Stuck {
    index: usize,
    transfer: Transfer,
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
        transfers: program.devices.iter().map(|code| vec![Transfer::NONE; code.n_tokens as usize]).collect(),
        sides: vec![[Side::default(); 2]; channels.len()],
        together: vec![Together::default(); program.groups.len()],
        joined: BTreeMap::new(),
        ready: devices(program).map(|(device, _)| device).collect(),
    };
    let mut stuck: Vec<Option<Stuck>> = vec![None; program.devices.len()];
    while let Some(device) = run.ready.pop() {
        stuck[device.index()] = run.device(device);
    }
    if let Some(cycle) = shortest_cycle(&run, &stuck) {
        explain(&run, &stuck, &cycle, report);
    }
}

impl Run<'_> {
    /// Runs a device to its end or to the `wait` where it stands.
    fn device(&mut self, device: DeviceId) -> Option<Stuck> {
        let code = &self.program.devices[device.index()];
        while let Some(instruction) = code.step.get(self.next[device.index()]) {
            let index = self.next[device.index()];
            match *instruction {
                Instruction::SendStart { token, .. } | Instruction::RecvStart { token, .. } => {
                    if let Some((channel, sends)) = self.channels.of(device, instruction) {
                        let side = &mut self.sides[channel][usize::from(sends)];
                        let channel = u32::try_from(channel).unwrap_or(u32::MAX);
                        let transfer = Transfer::OneSide { channel, turn: side.started, sends };
                        side.started += 1;
                        self.ready.extend(side.waiter.take());
                        self.transfers[device.index()][token.index()] = transfer;
                    }
                }
                Instruction::CollStart { group, token, .. } => {
                    self.transfers[device.index()][token.index()] = self.join(device, group);
                }
                Instruction::Wait { token } => {
                    let transfer = self.transfers[device.index()][token.index()];
                    if !self.has_ended(device, transfer) {
                        return Some(Stuck { index, transfer });
                    }
                }
                _ => {}
            }
            self.next[device.index()] += 1;
        }
        None
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

    /// The device and instruction that would let a stuck device go on.
    fn needs(&self, stuck: Stuck) -> Option<(DeviceId, usize)> {
        let (channel, turn, sends) = match stuck.transfer {
            Transfer::OneSide { channel, turn, sends } => (channel as usize, turn as usize, sends),
            Transfer::Joined { group, turn } => return self.absent(group, turn),
        };
        let (from, to) = self.channels.ends(channel);
        let (device, list) =
            if sends { (to, self.channels.receives.of(channel)) } else { (from, self.channels.sends.of(channel)) };
        list.get(turn).map(|index| (device, *index as usize))
    }

    /// The first member that has not joined a collective, and where it would.
    fn absent(&self, group: GroupId, turn: u32) -> Option<(DeviceId, usize)> {
        let came = |device: &DeviceId| self.joined.get(&(group, *device)).copied().unwrap_or(0);
        let device = *self.program.group(group).iter().find(|device| came(device) <= turn)?;
        let joins = |one: &Instruction| matches!(one, Instruction::CollStart { group: own, .. } if *own == group);
        let starts = self.program.devices[device.index()].step.iter().enumerate().filter(|(_, one)| joins(one));
        starts.map(|(index, _)| index).nth(turn as usize).map(|index| (device, index))
    }
}

/// The devices of a shortest cycle of waiting.
fn shortest_cycle(run: &Run<'_>, stuck: &[Option<Stuck>]) -> Option<Vec<DeviceId>> {
    let mut graph = DiGraph::<DeviceId, ()>::new();
    for (device, _) in devices(run.program) {
        graph.add_node(device);
    }
    for (device, _) in devices(run.program) {
        if let Some((needed, _)) = stuck[device.index()].and_then(|stuck| run.needs(stuck)) {
            graph.add_edge(NodeIndex::new(device.index()), NodeIndex::new(needed.index()), ());
        }
    }
    // Every device waits for at most one other, so that a strongly connected component is one cycle.
    let cycles = tarjan_scc(&graph).into_iter().filter(|component| component.len() > 1);
    let shortest = cycles.min_by_key(|cycle| (cycle.len(), cycle.iter().min().copied()))?;
    let mut device = *shortest.iter().min()?;
    let mut cycle = Vec::with_capacity(shortest.len());
    for _ in 0..shortest.len() {
        cycle.push(graph[device]);
        device = graph.neighbors(device).next()?;
    }
    Some(cycle)
}

/// Reports at the first device of the cycle who waits for whom.
fn explain(run: &Run<'_>, stuck: &[Option<Stuck>], cycle: &[DeviceId], report: &mut Report) {
    let text = |device: DeviceId, index: usize| {
        let code = &run.program.devices[device.index()];
        format!("{device} step {index}: {}", code.step[index].text(run.program, code))
    };
    let mut message = format!("deadlock: {} devices wait for each other", cycle.len());
    for device in cycle.iter().take(3) {
        let Some(here) = stuck[device.index()] else { continue };
        let Some((needed, index)) = run.needs(here) else { continue };
        message.push_str(&format!("\n  {}\n    waits for {}", text(*device, here.index), text(needed, index)));
        if let Some(behind) = stuck[needed.index()] {
            message.push_str(&format!(", which stands behind step {}", behind.index));
        }
    }
    if cycle.len() > 3 {
        message.push_str(&format!("\n  and so on, back to {}", cycle[0]));
    }
    if let Some(first) = cycle.first().and_then(|device| Some((*device, stuck[device.index()]?.index))) {
        report.error(at(first.0, List::Step, first.1), message);
    }
}
