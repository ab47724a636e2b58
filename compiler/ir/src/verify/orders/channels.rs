//! Rules about channels: sends and receives match in number, order and content, and receives take turns.

use super::Content;
use super::report::{Report, at};
use super::{List, devices};
use crate::ids::{DeviceId, TokenId, ValueId};
use crate::instruction::{Class, Instruction, Start};
use crate::operand::Touch;
use crate::program::{Access, DeviceProgram, Exec, Operand, Program};
use crate::units::Bytes;
use crate::value::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The channels of a program. Those of one sender, receiver and class share a number.
pub(super) struct Channels {
    keys: Vec<u64>,
    /// By device and token of a transfer: twice its channel, and one more where it sends.
    ends: Vec<Vec<u32>>,
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
pub fn receive_slots(execs: &[Exec], values: &[Value]) -> usize {
    let mut writers = vec![None; values.len()];
    for exec in execs {
        for operand in exec.operands.iter().filter(|operand| operand.access == Access::Write) {
            writers[operand.value.index()] = Some(exec.stage);
        }
    }
    // By task: what its pieces read, or it as a whole.
    let mut foreign: BTreeMap<_, BTreeSet<(ValueId, i32)>> = BTreeMap::new();
    for exec in execs {
        let is_foreign = |operand: &&Operand| {
            operand.access != Access::Write && writers[operand.value.index()].is_some_and(|writer| writer != exec.stage)
        };
        let task =
            (exec.kind, exec.stage, exec.slice, exec.edge, exec.is_repeated, exec.chunk.map(|chunk| chunk.number));
        let reads = exec.operands.iter().filter(is_foreign).map(|operand| (operand.value, operand.ahead));
        foreign.entry(task).or_default().extend(reads);
    }
    foreign.values().map(BTreeSet::len).max().unwrap_or(0).max(2)
}

/// Sender, receiver, and two bits for the class. Programs have far fewer than 2^30 devices.
const fn key(from: DeviceId, to: DeviceId, class: Class) -> u64 {
    (from.0 as u64) << 34 | (to.0 as u64) << 2 | class as u64
}

/// The token and the channel of an instruction of this device; whether it sends.
fn end(device: DeviceId, instruction: &Instruction) -> Option<(TokenId, u64, bool)> {
    let (token, start) = instruction.starts()?;
    match start {
        Start::Send(to, class) => Some((token, key(device, to, class), true)),
        Start::Receive(from, class) => Some((token, key(from, device, class), false)),
        Start::Join(_) | Start::Copy(_) | Start::Lane(_) => None,
    }
}

impl Channels {
    /// Each transfer has a token of its own, which the rules about tokens made sure of.
    fn new(program: &Program) -> Self {
        let mut keys: Vec<u64> = Vec::new();
        let mut ends = Vec::with_capacity(program.devices.len());
        let mut owns = Vec::with_capacity(program.devices.len());
        for (device, code) in devices(program) {
            let mut own: BTreeMap<u64, u32> = BTreeMap::new();
            let mut by_token = vec![0; code.n_tokens as usize];
            for (token, key, sends) in code.step.iter().filter_map(|one| end(device, one)) {
                let next = u32::try_from(own.len()).unwrap_or(u32::MAX);
                by_token[token.index()] = 2 * *own.entry(key).or_insert(next) + u32::from(sends);
            }
            keys.extend(own.keys());
            ends.push(by_token);
            owns.push(own);
        }
        keys.sort_unstable();
        keys.dedup();
        // So far each device numbers its channels itself.
        for (own, by_token) in owns.iter().zip(&mut ends) {
            let mut numbers = vec![0; own.len()];
            for (key, number) in own {
                let shared = keys.partition_point(|other| other < key);
                numbers[*number as usize] = u32::try_from(shared).unwrap_or(u32::MAX);
            }
            for end in by_token.iter_mut().filter(|_| !numbers.is_empty()) {
                *end = 2 * numbers[(*end / 2) as usize] + *end % 2;
            }
        }
        let mut channels = Self { keys, ends, sends: Lists::default(), receives: Lists::default() };
        let [receives, sends] = channels.lists(program);
        channels.receives = receives;
        channels.sends = sends;
        channels
    }

    /// Groups receives and sends by channel. All of one channel are on one device, so their order stays.
    fn lists(&self, program: &Program) -> [Lists; 2] {
        let each = |visit: &mut dyn FnMut(usize, usize, usize)| {
            for (device, code) in devices(program) {
                for (index, one) in code.step.iter().enumerate() {
                    if let Some((channel, sends)) = self.of(device, one) {
                        visit(index, channel, usize::from(sends));
                    }
                }
            }
        };
        let mut starts = [vec![0_usize; self.len() + 1], vec![0_usize; self.len() + 1]];
        each(&mut |_, channel, side| starts[side][channel + 1] += 1);
        for starts in &mut starts {
            for channel in 0..self.len() {
                starts[channel + 1] += starts[channel];
            }
        }
        let mut next = starts.clone();
        let mut lists = starts.map(|starts| Lists { items: vec![0_u32; starts[self.len()]], starts });
        each(&mut |index, channel, side| {
            let slot = &mut next[side][channel];
            lists[side].items[*slot] = u32::try_from(index).unwrap_or(u32::MAX);
            *slot += 1;
        });
        lists
    }

    /// Number of channels.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The channel of a transfer that starts on this device; whether it sends.
    pub(super) fn of(&self, device: DeviceId, instruction: &Instruction) -> Option<(usize, bool)> {
        end(device, instruction)
            .map(|(token, _, sends)| ((self.ends[device.index()][token.index()] / 2) as usize, sends))
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
        let (out, out_bytes) = (carried[turn], bytes(program, sender, *send));
        let (into, in_bytes) = (expected(receiver, *receive), bytes(program, receiver, *receive));
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
    let Instruction::RecvStart { value, microbatch, .. } = code.step[index as usize] else { return Content::Nothing };
    Content::Of(value, microbatch)
}

/// The bytes of the buffer of a transfer.
fn bytes(program: &Program, code: &DeviceProgram, index: u32) -> Bytes {
    let mut bytes = Bytes::ZERO;
    code.step[index as usize].accesses(program, code, |buffer, _| bytes += code.buffers[buffer.index()].bytes);
    bytes
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
