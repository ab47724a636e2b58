//! Rules about channels: sends and receives match in number, order and content, and receives take turns.

use super::List;
use super::contents::Content;
use super::devices;
use super::report::{Report, at};
use crate::ids::{DeviceId, MicrobatchId, ValueId};
use crate::instruction::{Class, Instruction};
use crate::operand::Touch;
use crate::program::{Access, DeviceProgram, Exec, Program};
use crate::units::Bytes;
use crate::value::Value;

/// The channels of a program. Those of one sender, receiver and class share a number.
pub(super) struct Channels {
    keys: Vec<u64>,
    /// By channel: the `send.start` instructions, as positions in the sender's step.
    pub(super) sends: Lists,
    /// By channel: the `recv.start` instructions, as positions in the receiver's step.
    pub(super) receives: Lists,
}

/// Lists of positions, one after the other.
#[derive(Default)]
pub(super) struct Lists {
    starts: Vec<usize>,
    items: Vec<u32>,
}

impl Lists {
    pub(super) fn of(&self, list: usize) -> &[u32] {
        &self.items[self.starts[list]..self.starts[list + 1]]
    }
}

/// How many receives of a channel may be open: started, and read by nobody yet. Two, so that one value can arrive while
/// the other is used; or as many values as one executable reads of other stages.
#[must_use]
pub fn receive_slots(execs: &[Exec], values: &[Value]) -> usize {
    let mut writers = vec![None; values.len()];
    for exec in execs {
        for operand in exec.operands.iter().filter(|operand| operand.access == Access::Write) {
            writers[operand.value.index()] = Some(exec.stage);
        }
    }
    let foreign = |exec: &Exec| {
        let reads = exec.operands.iter().filter(|operand| operand.access != Access::Write);
        let writers = reads.filter_map(|operand| writers[operand.value.index()]);
        writers.filter(|writer| *writer != exec.stage).count()
    };
    execs.iter().map(foreign).max().unwrap_or(0).max(2)
}

/// Sender, receiver, and two bits for the class. Programs have far fewer than 2^30 devices.
const fn key(from: DeviceId, to: DeviceId, class: Class) -> u64 {
    (from.0 as u64) << 34 | (to.0 as u64) << 2 | class as u64
}

/// The channel of an instruction of this device; whether it sends.
fn end(device: DeviceId, instruction: &Instruction) -> Option<(u64, bool)> {
    match *instruction {
        Instruction::SendStart { to, class, .. } => Some((key(device, to, class), true)),
        Instruction::RecvStart { from, class, .. } => Some((key(from, device, class), false)),
        _ => None,
    }
}

impl Channels {
    fn new(program: &Program) -> Self {
        let mut keys: Vec<u64> = Vec::new();
        for (device, code) in devices(program) {
            let mut own: Vec<u64> = code.step.iter().filter_map(|one| Some(end(device, one)?.0)).collect();
            own.sort_unstable();
            own.dedup();
            keys.append(&mut own);
        }
        keys.sort_unstable();
        keys.dedup();
        let mut channels = Self { keys, sends: Lists::default(), receives: Lists::default() };
        channels.sends = channels.list(program, true);
        channels.receives = channels.list(program, false);
        channels
    }

    /// Groups the sends or the receives by channel. All of one channel are on one device, so their order stays.
    fn list(&self, program: &Program, sends: bool) -> Lists {
        let ends = || {
            devices(program).flat_map(|(device, code)| {
                code.step.iter().enumerate().filter_map(move |(index, one)| Some((end(device, one)?, index)))
            })
        };
        let ends = || ends().filter(|((_, sent), _)| *sent == sends);
        let mut starts = vec![0_usize; self.keys.len() + 1];
        for ((key, _), _) in ends() {
            starts[self.number(key) + 1] += 1;
        }
        for channel in 0..self.keys.len() {
            starts[channel + 1] += starts[channel];
        }
        let mut next = starts.clone();
        let mut items = vec![0_u32; starts[self.keys.len()]];
        for ((key, _), index) in ends() {
            let slot = &mut next[self.number(key)];
            items[*slot] = u32::try_from(index).unwrap_or(u32::MAX);
            *slot += 1;
        }
        Lists { starts, items }
    }

    fn number(&self, key: u64) -> usize {
        self.keys.partition_point(|other| *other < key)
    }

    /// Number of channels.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The channel of a transfer that starts on this device; whether it sends.
    pub(super) fn of(&self, device: DeviceId, instruction: &Instruction) -> Option<(usize, bool)> {
        end(device, instruction).map(|(key, sends)| (self.number(key), sends))
    }

    /// Sender and receiver.
    pub(super) fn ends(&self, channel: usize) -> (DeviceId, DeviceId) {
        let key = self.keys[channel];
        let id = |number: u64| DeviceId(u32::try_from(number).unwrap_or(u32::MAX));
        (id(key >> 34), id(key >> 2 & u64::from(u32::MAX)))
    }
}

/// Checks the whole program. `sent` is what each device's `send.start` instructions carry.
pub(super) fn check(program: &Program, sent: &[Vec<Content>], report: &mut Report) -> Channels {
    let channels = Channels::new(program);
    let mut carried = vec![Content::Nothing; channels.sends.items.len()];
    let mut next = channels.sends.starts.clone();
    for (device, code) in devices(program) {
        let ends = code.step.iter().filter_map(|one| channels.of(device, one)).filter(|(_, sends)| *sends);
        for ((channel, _), content) in ends.zip(&sent[device.index()]) {
            carried[next[channel]] = *content;
            next[channel] += 1;
        }
    }
    for channel in 0..channels.len() {
        matching(program, &channels, channel, &carried[channels.sends.starts[channel]..], report);
    }
    let slots = receive_slots(&program.execs, &program.values);
    // A channel has one receiver, so that all devices can count in one table.
    let mut open = vec![0; channels.len()];
    for (device, code) in devices(program) {
        turns(program, &channels, (device, code), (slots, &mut open), report);
    }
    channels
}

fn matching(program: &Program, channels: &Channels, channel: usize, carried: &[Content], report: &mut Report) {
    let (from, to) = channels.ends(channel);
    let (sends, receives) = (channels.sends.of(channel), channels.receives.of(channel));
    for (turn, (send, receive)) in sends.iter().zip(receives).enumerate() {
        let (sender, receiver) = (&program.devices[from.index()], &program.devices[to.index()]);
        let (out, out_bytes) = (carried[turn], bytes(sender, *send));
        let (into, in_bytes) = (expected(receiver, *receive), bytes(receiver, *receive));
        if out != into {
            let (out, into) = (out.describe(program), into.describe(program));
            let message = format!("receives {into} as number {turn} of its channel, but {from} sends {out} there");
            report.error(at(to, List::Step, *receive as usize), message);
            return;
        }
        if out_bytes != in_bytes {
            let message = format!("receives {} bytes, but {from} sends {}", in_bytes.0, out_bytes.0);
            report.error(at(to, List::Step, *receive as usize), message);
        }
    }
    if let Some(send) = sends.get(receives.len()) {
        report.error(at(from, List::Step, *send as usize), format!("is never received by {to}"));
    }
    if let Some(receive) = receives.get(sends.len()) {
        report.error(at(to, List::Step, *receive as usize), format!("is never sent by {from}"));
    }
}

fn expected(code: &DeviceProgram, index: u32) -> Content {
    match code.step[index as usize] {
        Instruction::RecvStart { value, microbatch, .. } => Content::Of(value, microbatch),
        _ => Content::Of(ValueId(u32::MAX), MicrobatchId(u32::MAX)),
    }
}

fn bytes(code: &DeviceProgram, index: u32) -> Bytes {
    match code.step[index as usize] {
        Instruction::RecvStart { buffer, .. } | Instruction::SendStart { buffer, .. } => {
            code.buffers[buffer.index()].bytes
        }
        _ => Bytes::ZERO,
    }
}

/// Checks that the receives of a channel take turns in its slots.
fn turns(
    program: &Program,
    channels: &Channels,
    (device, code): (DeviceId, &DeviceProgram),
    (slots, open): (usize, &mut [u32]),
    report: &mut Report,
) {
    const CLOSED: u32 = u32::MAX;
    let mut open_in = vec![CLOSED; code.buffers.len()];
    for (index, instruction) in code.step.iter().enumerate() {
        instruction.accesses(program, code, |buffer, touch| {
            if touch != Touch::Alloc && open_in[buffer.index()] != CLOSED {
                open[open_in[buffer.index()] as usize] -= 1;
                open_in[buffer.index()] = CLOSED;
            }
        });
        let (Instruction::RecvStart { buffer, from, .. }, Some((channel, _))) =
            (instruction, channels.of(device, instruction))
        else {
            continue;
        };
        open_in[buffer.index()] = u32::try_from(channel).unwrap_or(CLOSED - 1);
        open[channel] += 1;
        if open[channel] as usize > slots {
            report.step(device, index, format!("{slots} receives from {from} are waiting to be read already"));
        }
    }
}
