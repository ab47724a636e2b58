//! Explains a deadlock: the shortest cycles of instructions that wait for each other, in one sentence each.

use super::channels::Channels;
use super::progress::Transfer;
use super::report::{Report, at};
use super::{List, Place, devices};
use crate::cycle::{Link, Need, cycles, window};
use crate::ids::{DeviceId, GroupId};
use crate::instruction::{Instruction, Start};
use crate::program::Program;
use std::collections::BTreeMap;

/// Devices of a cycle that are named; of a longer one, the others are counted. Two instructions of each are shown.
const SHOWN: usize = 3;

/// A program whose devices cannot go on.
pub(super) struct Stuck<'a> {
    pub(super) program: &'a Program,
    pub(super) channels: &'a Channels,
    /// By device: the `wait` where it stands, or the end of its list.
    pub(super) next: &'a [usize],
    /// By device and token.
    pub(super) transfers: &'a [Vec<Transfer>],
}

/// What is left of a stuck program.
struct Rest<'a> {
    stuck: &'a Stuck<'a>,
    /// By device: the positions of the first `wait`s that are never passed.
    waits: Vec<Vec<usize>>,
    /// By group and device: where it joins the group's collectives.
    joins: BTreeMap<(GroupId, DeviceId), Vec<usize>>,
}

/// Reports every cycle at its first `wait`.
pub(super) fn explain(stuck: &Stuck<'_>, report: &mut Report) {
    let most = window(stuck.program.devices.len());
    let mut rest = Rest { stuck, waits: Vec::new(), joins: BTreeMap::new() };
    for (device, code) in devices(stuck.program) {
        let mut waits = Vec::new();
        for (index, instruction) in code.step.iter().enumerate() {
            let is_wait = matches!(instruction, Instruction::Wait { .. });
            if is_wait && index >= stuck.next[device.index()] && waits.len() < most {
                waits.push(index);
            }
            if let Some((_, Start::Join(group))) = instruction.starts() {
                rest.joins.entry((group, device)).or_default().push(index);
            }
        }
        rest.waits.push(waits);
    }
    let needs = |(device, _)| {
        let waits: &Vec<usize> = &rest.waits[DeviceId::index(device)];
        waits
            .iter()
            .map(|index| rest.needs(device, *index).into_iter().map(|place| rest.need(place)).collect())
            .collect()
    };
    let queues: Vec<Vec<Vec<Need>>> = devices(stuck.program).map(needs).collect();
    for cycle in cycles(&queues) {
        rest.describe(&cycle, report);
    }
    if !report.found() {
        // Every wait that is never passed waits for one of these, so that there is a cycle; should none be found, the
        // program is not accepted for that.
        report.error(Place::Program, "deadlock: some device waits forever");
    }
}

impl Rest<'_> {
    /// The instructions that have to come before a `wait` can be passed, and that never do.
    fn needs(&self, device: DeviceId, index: usize) -> Vec<(DeviceId, usize)> {
        let Stuck { program, channels, next, .. } = *self.stuck;
        let never = |(device, index): &(DeviceId, usize)| *index >= next[device.index()];
        match self.transfer(device, index) {
            Some(Transfer::OneSide { channel, turn, sends }) => {
                let (from, to) = channels.ends(channel as usize);
                let (other, list) = if sends { (to, &channels.receives) } else { (from, &channels.sends) };
                let place = list.of(channel as usize).get(turn as usize).map(|index| (other, *index as usize));
                place.into_iter().filter(never).collect()
            }
            Some(Transfer::Joined { group, turn }) => {
                let joins = |member: &DeviceId| {
                    let index = self.joins.get(&(group, *member))?.get(turn as usize)?;
                    Some((*member, *index))
                };
                program.group(group).iter().filter_map(joins).filter(never).collect()
            }
            Some(Transfer::Alone) | None => Vec::new(),
        }
    }

    /// All waits before an instruction.
    fn need(&self, (device, index): (DeviceId, usize)) -> Need {
        let items = self.waits[device.index()].partition_point(|wait| *wait < index);
        Need { queue: device.index(), items }
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
            let device = DeviceId::from_index(link.queue);
            let index = self.waits[link.queue][link.item];
            let Some((other, needed)) = self.needs(device, index).get(link.need).copied() else { continue };
            let waits = if number == 0 { "waits for" } else { "for" };
            clauses.push(format!("{device} {waits} {other} to {}", self.deed(device, index)));
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
            Some(Transfer::Alone) | None => "go on".to_owned(),
        }
    }
}
