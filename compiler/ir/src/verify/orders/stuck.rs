//! Explains a deadlock: the shortest cycles of instructions that wait for each other, in one sentence each.

use super::channels::Channels;
use super::progress::{Queue, Transfer};
use super::report::{Report, at};
use super::{List, Place, devices};
use crate::cycle::{Link, Need, cycles, window};
use crate::ids::{DeviceId, GroupId, LaneId};
use crate::instruction::{Instruction, Start};
use crate::lanes::queues;
use crate::program::Program;
use std::collections::BTreeMap;

/// Devices of a cycle that are named; of a longer one, the others are counted. Two instructions of each are shown.
const SHOWN: usize = 3;

/// A program whose devices cannot go on.
pub(super) struct Stuck<'a> {
    pub(super) program: &'a Program,
    pub(super) channels: &'a Channels,
    /// By queue: the `wait` where it stands, or the end of its list.
    pub(super) next: &'a [usize],
    /// By device and token.
    pub(super) transfers: &'a [Vec<Transfer>],
}

/// What is left of a stuck program.
struct Rest<'a> {
    stuck: &'a Stuck<'a>,
    /// By queue: the positions of the first `wait`s that are never passed.
    waits: Vec<Vec<usize>>,
    /// By device: the lane of each instruction. Empty if the program has no lanes.
    lanes: Vec<Vec<Option<LaneId>>>,
    /// By device and lane: its starts.
    starts: BTreeMap<(DeviceId, LaneId), Vec<usize>>,
    /// By group and device: where it joins the group's collectives.
    joins: BTreeMap<(GroupId, DeviceId), Vec<usize>>,
}

/// An instruction that has to come before something.
#[derive(Clone, Copy)]
struct Needed {
    queue: Queue,
    /// Its position in the list of the device.
    index: usize,
    /// Whether it has to end, not only to start.
    ends: bool,
}

/// Reports every cycle at its first `wait`.
pub(super) fn explain(stuck: &Stuck<'_>, report: &mut Report) {
    let most = window(stuck.next.len());
    let waits = vec![Vec::new(); stuck.next.len()];
    let mut rest = Rest { stuck, waits, lanes: Vec::new(), starts: BTreeMap::new(), joins: BTreeMap::new() };
    for (device, code) in devices(stuck.program) {
        if !stuck.program.lanes.is_empty() {
            rest.lanes.push(queues(&code.step).collect());
        }
        for (index, instruction) in code.step.iter().enumerate() {
            let own = rest.queue(device, index).index(stuck.program.devices.len());
            let is_wait = matches!(instruction, Instruction::Wait { .. });
            if is_wait && index >= stuck.next[own] && rest.waits[own].len() < most {
                rest.waits[own].push(index);
            }
            match instruction.starts() {
                Some((_, Start::Join(group))) => rest.joins.entry((group, device)).or_default().push(index),
                Some((_, Start::Lane(lane))) => rest.starts.entry((device, lane)).or_default().push(index),
                _ => {}
            }
        }
    }
    let needs = |(number, waits): (usize, &Vec<usize>)| {
        let device = Queue::at(number, stuck.program.devices.len()).device;
        let of = |index: &usize| rest.needs(device, *index).into_iter().map(|needed| rest.need(needed)).collect();
        waits.iter().map(of).collect()
    };
    let all: Vec<Vec<Vec<Need>>> = rest.waits.iter().enumerate().map(needs).collect();
    for cycle in cycles(&all) {
        rest.describe(&cycle, report);
    }
    if !report.found() {
        // Every wait that is never passed waits for one of these, so that there is a cycle; should none be found, the
        // program is not accepted for that.
        report.error(Place::Program, "deadlock: some device waits forever");
    }
}

impl Rest<'_> {
    /// The queue that takes an instruction.
    fn queue(&self, device: DeviceId, index: usize) -> Queue {
        Queue { device, lane: self.lanes.get(device.index()).and_then(|lanes| lanes[index]) }
    }

    /// The instructions that have to come before a `wait` can be passed, and that never do.
    fn needs(&self, device: DeviceId, index: usize) -> Vec<Needed> {
        let Stuck { program, channels, next, .. } = *self.stuck;
        let mut all = Vec::new();
        match self.transfer(device, index) {
            Some(Transfer::OneSide { channel, turn, sends }) => {
                let (from, to) = channels.ends(channel as usize);
                let ends = [(to, &channels.receives), (from, &channels.sends)];
                // What a lane starts itself may come late, too.
                for (other, list) in if sends { ends } else { [ends[1], ends[0]] } {
                    let place = list.of(channel as usize).get(turn as usize).map(|index| *index as usize);
                    let needed = place.map(|index| Needed { queue: self.queue(other, index), index, ends: false });
                    all.extend(needed.filter(|needed| other != device || needed.queue.lane.is_some()));
                }
            }
            Some(Transfer::Joined { group, turn }) => {
                for member in program.group(group) {
                    let index = self.joins.get(&(group, *member)).and_then(|all| all.get(turn as usize));
                    let queue = Queue { device: *member, lane: None };
                    all.extend(index.map(|index| Needed { queue, index: *index, ends: false }));
                }
            }
            Some(Transfer::Lane { lane, turn }) => {
                let start = self.starts.get(&(device, lane)).and_then(|all| all.get(turn as usize));
                let step = &program.devices[device.index()].step;
                if let Some((Instruction::LaneStart { count, .. }, start)) =
                    start.and_then(|start| Some((step.get(*start)?, *start)))
                {
                    let queue = Queue { device, lane: Some(lane) };
                    all.push(Needed { queue, index: start + count.0 as usize, ends: true });
                }
            }
            Some(Transfer::Alone | Transfer::Unstarted) | None => {}
        }
        // What runs on a lane needs its `lane.start`, too.
        let given: Vec<Needed> = all.iter().filter_map(|needed| self.given(needed)).collect();
        let never = |needed: &Needed| needed.index >= next[needed.queue.index(program.devices.len())];
        all.into_iter().chain(given).filter(never).collect()
    }

    /// The `lane.start` before an instruction on a lane.
    fn given(&self, needed: &Needed) -> Option<Needed> {
        let Queue { device, lane } = needed.queue;
        let starts = self.starts.get(&(device, lane?))?;
        let before = starts.partition_point(|start| *start < needed.index);
        let index = *starts.get(before.checked_sub(1)?)?;
        Some(Needed { queue: Queue { device, lane: None }, index, ends: false })
    }

    /// All waits before an instruction, or before its end.
    fn need(&self, needed: Needed) -> Need {
        let queue = needed.queue.index(self.stuck.program.devices.len());
        let behind = needed.index + usize::from(needed.ends);
        Need { queue, items: self.waits[queue].partition_point(|wait| *wait < behind) }
    }

    fn transfer(&self, device: DeviceId, index: usize) -> Option<Transfer> {
        let Instruction::Wait { token } = self.stuck.program.devices[device.index()].step[index] else { return None };
        Some(self.stuck.transfers[device.index()][token.index()])
    }

    fn describe(&self, cycle: &[Link], report: &mut Report) {
        let mut clauses = Vec::new();
        let mut notes: Vec<(Place, &'static str)> = Vec::new();
        let shown = cycle.len().min(SHOWN);
        for (number, link) in cycle.iter().take(SHOWN).enumerate() {
            let Queue { device, .. } = Queue::at(link.queue, self.stuck.program.devices.len());
            let index = self.waits[link.queue][link.item];
            let Some(Needed { queue, index: needed, .. }) = self.needs(device, index).get(link.need).copied() else {
                continue;
            };
            let other = queue.device;
            let waits = if number == 0 { "waits for" } else { "for" };
            clauses.push(match self.transfer(device, index) {
                Some(Transfer::Lane { lane, .. }) => {
                    format!("{device} {waits} its lane `{}`", self.stuck.program.lanes[lane.index()])
                }
                _ => format!("{device} {waits} {other} to {}", self.deed(device, index)),
            });
            notes.push((at(device, List::Step, index), if number == 0 { " waits for" } else { ", which waits for" }));
            let is_last = number + 1 == shown;
            let behind = match (is_last, cycle.len() > SHOWN) {
                (false, _) => ", which comes after",
                (true, false) => ", which comes after the first",
                (true, true) => ", and so on, back to the first",
            };
            notes.push((at(other, List::Step, needed), behind));
        }
        if cycle.len() > SHOWN {
            clauses.push(format!("{} more likewise, in a cycle", cycle.len() - SHOWN));
        }
        let last = clauses.pop().unwrap_or_default();
        let message = format!("deadlock: {}, and {last}", clauses.join(", "));
        if let Some((place, _)) = notes.first() {
            report.error_at(*place, message, notes);
        }
    }

    /// What somebody else has to do before a `wait` can be passed.
    fn deed(&self, device: DeviceId, index: usize) -> String {
        let Stuck { program, channels, .. } = *self.stuck;
        match self.transfer(device, index) {
            Some(Transfer::OneSide { channel, turn, sends }) => {
                let (_, to) = channels.ends(channel as usize);
                let receive = channels.receives.of(channel as usize).get(turn as usize);
                let receive = receive.map(|index| program.devices[to.index()].step[*index as usize]);
                let deed = if sends { "receive" } else { "send" };
                match receive {
                    Some(Instruction::RecvStart { value, microbatch, .. }) => {
                        format!("{deed} `{} {microbatch}`", program.value(value).name)
                    }
                    _ => deed.to_owned(),
                }
            }
            Some(Transfer::Joined { group, turn }) => format!("join collective {turn} of {group}"),
            Some(Transfer::Lane { .. } | Transfer::Alone | Transfer::Unstarted) | None => "go on".to_owned(),
        }
    }
}
