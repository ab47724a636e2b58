//! A second machine for programs, which shares nothing with the runtime: it computes with
//! fingerprints instead of numbers.
//!
//! Every buffer's bytes carry the fingerprint of what was computed into them, and of everything
//! that went into that; so two runs with equal losses, gradients and weights have moved the same
//! values to the same places. Transfers are rendezvous; one under way ends as early as possible, as
//! late as possible, or at random, and bytes are copied when it ends. Sums of gradients are the
//! only thing whose order makes no difference.

use super::cells::{Cells, address, mix};
use crate::schedules::Dice;
use pipe_ir::ids::{BufferId, DeviceId, GroupId, LaneId, MicrobatchId, TokenId, ValueId};
use pipe_ir::instruction::{Class, Collective, Count, Direction, Fill, Instruction};
use pipe_ir::program::{Access, DeviceProgram, Program};
use pipe_ir::task::TaskKind;
use pipe_ir::value::ValueKind;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// When a transfer that has both its ends comes to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// At once.
    Eager,
    /// When nothing else can happen.
    Lazy,
    /// At some time, drawn from this seed.
    Random(u64),
}

/// What a program did in some steps.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// By step: the fingerprints of what was emitted, sorted.
    pub losses: Vec<Vec<u64>>,
    /// By step: what is persistent after it, by value and device.
    pub persistent: Vec<BTreeMap<(ValueId, DeviceId), u64>>,
    /// By device and space: the most bytes alive at once.
    pub peaks: Vec<[u64; 2]>,
}

/// Runs the set-up and some steps. `kinds` are the roles of values: those of the sound program
/// where a damaged one runs.
///
/// # Errors
/// If it cannot go on: no device can move, or one does what no device can do.
pub fn run(program: &Program, kinds: &[ValueKind], steps: u64, pace: Pace) -> Result<Outcome, String> {
    let mut machine = Machine {
        program,
        kinds,
        cells: program.devices.iter().map(|_| Cells::default()).collect(),
        queues: BTreeMap::new(),
        copies: BTreeMap::new(),
        groups: program.groups.iter().map(|members| vec![VecDeque::new(); members.len()]).collect(),
        ended: BTreeSet::new(),
        lanes: BTreeMap::new(),
        losses: Vec::new(),
        step: 0,
        dice: Dice(if let Pace::Random(seed) = pace { seed } else { 0 }),
        pace,
    };
    let mut outcome = Outcome::default();
    for (device, code) in program.devices.iter().enumerate() {
        for instruction in &code.setup {
            machine.execute(device, code, instruction)?;
        }
    }
    for step in 0..steps {
        machine.step = step;
        machine.pass()?;
        machine.losses.sort_unstable();
        outcome.losses.push(std::mem::take(&mut machine.losses));
        outcome.persistent.push(machine.persistent());
    }
    outcome.peaks = machine.cells.iter().map(|cells| cells.peak).collect();
    Ok(outcome)
}

type Queue = (VecDeque<Post>, VecDeque<Post>);

/// What a lane was given: its next instruction, one past its last, and its token.
type Given = (usize, usize, TokenId);

/// What can come to its end: the next transfer of a channel, the next collective of a group, or the
/// next copy of a queue.
#[derive(Clone, Copy)]
enum Open {
    Channel((usize, usize, Class)),
    Group(usize),
    Copy((usize, Direction)),
}

/// One end of a transfer, or one part of a collective.
#[derive(Clone, Copy)]
struct Post {
    device: usize,
    token: TokenId,
    start: u64,
    bytes: u64,
    /// What it does with others, if it is a part of that.
    collective: Option<Collective>,
    /// Where its share of that starts and how many bytes it has, if it is kept elsewhere.
    share: Option<(u64, u64)>,
}

struct Machine<'a> {
    program: &'a Program,
    kinds: &'a [ValueKind],
    cells: Vec<Cells>,
    queues: BTreeMap<(usize, usize, Class), Queue>,
    /// By device and direction: what is copied, and where to.
    copies: BTreeMap<(usize, Direction), VecDeque<(Post, Post)>>,
    /// By group and member: the collectives that it joined and that are under way.
    groups: Vec<Vec<VecDeque<Post>>>,
    ended: BTreeSet<(usize, TokenId)>,
    /// By device and lane: what it was given and has not ended.
    lanes: BTreeMap<(usize, LaneId), VecDeque<Given>>,
    losses: Vec<u64>,
    step: u64,
    dice: Dice,
    pace: Pace,
}

impl Machine<'_> {
    /// One step of all devices, in an order that the pace decides.
    fn pass(&mut self) -> Result<(), String> {
        let devices = &self.program.devices;
        let mut next = vec![0; devices.len()];
        loop {
            let lists = (0..devices.len()).map(|device| (device, None, next[device]));
            let lanes =
                self.lanes.iter().filter_map(|((device, lane), given)| Some((*device, Some(*lane), given.front()?.0)));
            let ready: Vec<(usize, Option<LaneId>, usize)> =
                lists.chain(lanes).filter(|(device, _, next)| self.can_go_on(*device, *next)).collect();
            let pairs = self.queues.iter().filter(|(_, (sends, receives))| !sends.is_empty() && !receives.is_empty());
            let channels = pairs.map(|(key, _)| Open::Channel(*key));
            let complete = |parts: &[VecDeque<Post>]| !parts.is_empty() && parts.iter().all(|part| !part.is_empty());
            let groups = (0..self.groups.len()).filter(|group| complete(&self.groups[*group])).map(Open::Group);
            let copies = self.copies.iter().filter(|(_, queue)| !queue.is_empty()).map(|(key, _)| Open::Copy(*key));
            let open: Vec<Open> = channels.chain(groups).chain(copies).collect();
            let transfers = match self.pace {
                _ if open.is_empty() => false,
                Pace::Eager => true,
                Pace::Lazy => ready.is_empty(),
                Pace::Random(_) => ready.is_empty() || self.dice.below(3) == 0,
            };
            if transfers {
                let chosen = self.dice.below(open.len());
                match open[chosen] {
                    Open::Channel(key) => self.transfer(key)?,
                    Open::Group(group) => self.together(group)?,
                    Open::Copy(key) => {
                        let copy = self.copies.get_mut(&key).and_then(VecDeque::pop_front);
                        copy.map_or(Ok(()), |(from, to)| self.carry(from, to))?;
                    }
                }
                continue;
            }
            if ready.is_empty() {
                break;
            }
            let (device, lane, at) = ready[self.dice.below(ready.len())];
            if let Some(lane) = lane {
                self.on_lane(device, lane, at)?;
                continue;
            }
            // Runs of instructions of one device are as good as single ones, and quicker.
            for _ in 0..=self.dice.below(4) {
                if self.can_go_on(device, next[device]) {
                    let code = &devices[device];
                    let instruction = &code.step[next[device]];
                    self.execute(device, code, instruction)
                        .map_err(|why| format!("d{device} step {}: {why}", next[device]))?;
                    next[device] += 1;
                    if let Instruction::LaneStart { lane, count: Count(count), token } = *instruction {
                        let end = (next[device] + count as usize).min(code.step.len());
                        self.lanes.entry((device, lane)).or_default().push_back((next[device], end, token));
                        next[device] = end;
                    }
                }
            }
        }
        match (0..devices.len()).find(|device| next[*device] < devices[*device].step.len()) {
            Some(device) => Err(format!("hangs: d{device} stands at step {} for ever", next[device])),
            None if self.queues.values().any(|(sends, receives)| !sends.is_empty() || !receives.is_empty()) => {
                Err("a transfer never ends".to_owned())
            }
            None if self.lanes.values().any(|given| !given.is_empty()) => Err("a lane never ends".to_owned()),
            None if self.groups.iter().flatten().any(|part| !part.is_empty()) => {
                Err("a collective never ends".to_owned())
            }
            None => Ok(()),
        }
    }

    /// The next instruction of a lane.
    fn on_lane(&mut self, device: usize, lane: LaneId, at: usize) -> Result<(), String> {
        let code = &self.program.devices[device];
        if let Some(instruction) = code.step.get(at) {
            self.execute(device, code, instruction).map_err(|why| format!("d{device} {lane} step {at}: {why}"))?;
        }
        let given = self.lanes.entry((device, lane)).or_default();
        let Some((next, end, token)) = given.front_mut() else { return Ok(()) };
        *next += 1;
        if next >= end {
            self.ended.insert((device, *token));
            given.pop_front();
        }
        Ok(())
    }

    fn can_go_on(&self, device: usize, next: usize) -> bool {
        match self.program.devices[device].step.get(next) {
            None => false,
            Some(Instruction::Wait { token }) => self.ended.contains(&(device, *token)),
            Some(_) => true,
        }
    }

    fn transfer(&mut self, key: (usize, usize, Class)) -> Result<(), String> {
        let pair = self.queues.get_mut(&key).map(|(sends, receives)| (sends.pop_front(), receives.pop_front()));
        let Some((Some(send), Some(receive))) = pair else { return Ok(()) };
        self.carry(send, receive)
    }

    /// What one buffer holds comes into another one.
    fn carry(&mut self, send: Post, receive: Post) -> Result<(), String> {
        if send.bytes != receive.bytes {
            return Err(format!("{} bytes are sent, {} are received", send.bytes, receive.bytes));
        }
        let cells = &mut self.cells[send.device];
        let (bytes, print) = match cells.written.get(&send.start) {
            Some((end, print)) => ((end - send.start).min(send.bytes.max(1)), *print),
            None => (send.bytes, cells.read(send.start, send.bytes)),
        };
        self.cells[receive.device].wipe(receive.start, receive.start + receive.bytes);
        self.cells[receive.device].write(receive.start, bytes, print);
        self.ended.insert((send.device, send.token));
        self.ended.insert((receive.device, receive.token));
        Ok(())
    }

    /// Sums may be made in any order, like those of gradients on one device. A share of a sum, and
    /// what members give each other, is told from that of another member; what is gathered has what each of them had.
    fn together(&mut self, group: usize) -> Result<(), String> {
        let parts: Vec<Post> = self.groups[group].iter_mut().filter_map(VecDeque::pop_front).collect();
        let collective = parts.first().and_then(|part| part.collective);
        if parts.iter().any(|part| part.collective != collective) {
            return Err("members do different things together".to_owned());
        }
        if parts.iter().any(|part| part.share.is_some()) {
            return self.gather(&parts);
        }
        let gathers = matches!(collective, Some(Collective::AllGather | Collective::AllToAll));
        let (mut sum, mut bytes) = (0_u64, None);
        for part in &parts {
            let cells = &mut self.cells[part.device];
            let (written, print) = match cells.written.get(&part.start) {
                Some((end, print)) => ((end - part.start).min(part.bytes.max(1)), *print),
                None => (part.bytes, cells.read(part.start, part.bytes)),
            };
            if *bytes.get_or_insert(written) != written {
                return Err(format!("{written} bytes are added to others"));
            }
            sum = if gathers { mix(&[6, sum, print]) } else { sum.wrapping_add(print) };
        }
        for (member, part) in (0..).zip(parts) {
            let is_own = matches!(collective, Some(Collective::ReduceScatter | Collective::AllToAll));
            let own = if is_own { mix(&[7, sum, member]) } else { sum };
            self.cells[part.device].write(part.start, bytes.unwrap_or(part.bytes), own);
            self.ended.insert((part.device, part.token));
        }
        Ok(())
    }

    /// What shares hold comes to every member, in their order.
    fn gather(&mut self, parts: &[Post]) -> Result<(), String> {
        let (mut all, mut sum) = (0, 0);
        for part in parts {
            let (start, bytes) = part.share.ok_or("members gather from shares and from the whole")?;
            let cells = &mut self.cells[part.device];
            // A share without bytes holds nothing that could be told from something else.
            let print = if bytes == 0 { 0 } else { cells.written.get(&start).map_or(0, |(_, print)| *print) };
            (all, sum) = (all + bytes, mix(&[8, sum, bytes, print]));
        }
        for part in parts {
            if part.bytes != all {
                return Err(format!("{all} bytes are gathered into {}", part.bytes));
            }
            self.cells[part.device].write(part.start, all, sum);
            self.ended.insert((part.device, part.token));
        }
        Ok(())
    }

    fn post(&self, device: usize, code: &DeviceProgram, buffer: BufferId, token: TokenId) -> Post {
        let place = code.buffers[buffer.index()];
        Post { device, token, start: address(place), bytes: place.bytes.0, collective: None, share: None }
    }

    fn execute(&mut self, device: usize, code: &DeviceProgram, instruction: &Instruction) -> Result<(), String> {
        match *instruction {
            Instruction::Alloc { buffer } => self.alloc(device, code, buffer)?,
            Instruction::Free { buffer } => self.free(device, code, buffer)?,
            Instruction::Fill { buffer, value, with } => {
                let print = match with {
                    Fill::Zero => mix(&[1]),
                    Fill::Init => mix(&[2, value.0.into()]),
                };
                self.write(device, code, buffer, value, print);
            }
            Instruction::Load { buffer, value, microbatch } => {
                let print = mix(&[3, value.0.into(), microbatch.0.into(), self.step]);
                self.write(device, code, buffer, value, print);
            }
            Instruction::Run { exec, microbatch, operands } => {
                self.run(device, code, exec.index(), microbatch, code.operands(operands));
            }
            Instruction::Emit { buffer } => {
                let print = self.cells[device].read(address(code.buffers[buffer.index()]), 4);
                self.losses.push(print);
            }
            Instruction::SendStart { buffer, to, class, token } => {
                let post = self.post(device, code, buffer, token);
                self.queues.entry((device, to.index(), class)).or_default().0.push_back(post);
            }
            Instruction::RecvStart { buffer, from, class, token, value: _, microbatch: _ } => {
                let post = self.post(device, code, buffer, token);
                // Whatever was there is not to be relied on from now on.
                self.cells[device].wipe(post.start, post.start + post.bytes);
                self.queues.entry((from.index(), device, class)).or_default().1.push_back(post);
            }
            Instruction::CollStart { buffer, collective, group, token } => {
                let post = Post { collective: Some(collective), ..self.post(device, code, buffer, token) };
                self.join(device, group, post)?;
            }
            Instruction::GatherStart { buffer, share, group, token } => {
                let (from, own) = (self.post(device, code, share, token), self.post(device, code, buffer, token));
                self.cells[device].wipe(own.start, own.start + own.bytes);
                self.join(device, group, Post { share: Some((from.start, from.bytes)), ..own })?;
            }
            Instruction::CopyStart { buffer, from, direction, token } => {
                let (from, to) = (self.post(device, code, from, token), self.post(device, code, buffer, token));
                self.cells[device].wipe(to.start, to.start + to.bytes);
                self.copies.entry((device, direction)).or_default().push_back((from, to));
            }
            Instruction::LaneStart { .. } => {}
            Instruction::Wait { token } => drop(self.ended.remove(&(device, token))),
        }
        Ok(())
    }

    fn join(&mut self, device: usize, group: GroupId, post: Post) -> Result<(), String> {
        let members = self.program.groups.get(group.index()).map_or(&[][..], Vec::as_slice);
        let member = members.iter().position(|member| member.index() == device);
        let member = member.ok_or_else(|| format!("joins {group}, of which it is no member"))?;
        self.groups[group.index()][member].push_back(post);
        Ok(())
    }

    fn alloc(&mut self, device: usize, code: &DeviceProgram, buffer: BufferId) -> Result<(), String> {
        let (place, cells) = (code.buffers[buffer.index()], &mut self.cells[device]);
        let (start, end) = (address(place), address(place) + place.bytes.0);
        if let Some((_, (_, other))) = cells.alive.iter().find(|(from, (to, _))| **from < end && *to > start) {
            return Err(format!("{buffer} overlaps {other}"));
        }
        if place.offset.0 + place.bytes.0 > code.extent(place.space).arena.0 {
            return Err(format!("{buffer} leaves the arena"));
        }
        if place.bytes.0 > 0 {
            cells.alive.insert(start, (end, buffer));
        }
        cells.wipe(start, end);
        let (bytes, peak) = (&mut cells.bytes[place.space.index()], &mut cells.peak[place.space.index()]);
        *bytes += place.bytes.0;
        *peak = (*peak).max(*bytes);
        Ok(())
    }

    fn free(&mut self, device: usize, code: &DeviceProgram, buffer: BufferId) -> Result<(), String> {
        let (place, cells) = (code.buffers[buffer.index()], &mut self.cells[device]);
        if place.bytes.0 > 0 && cells.alive.remove(&address(place)).is_none_or(|(_, other)| other != buffer) {
            return Err(format!("{buffer} is freed, but not alive"));
        }
        cells.wipe(address(place), address(place) + place.bytes.0);
        cells.bytes[place.space.index()] -= place.bytes.0;
        Ok(())
    }

    fn write(&mut self, device: usize, code: &DeviceProgram, buffer: BufferId, value: ValueId, print: u64) {
        self.cells[device].fill(code.buffers[buffer.index()], self.program.value(value).bytes.0, print);
    }

    fn run(&mut self, device: usize, code: &DeviceProgram, exec: usize, _: MicrobatchId, buffers: &[BufferId]) {
        let program = self.program;
        let row = &program.execs[exec];
        let kind =
            |operand: usize| self.kinds.get(row.operands[operand].value.index()).copied().unwrap_or(ValueKind::Data);
        // Gradients are sums, which may be made in any order.
        let adds = |operand: usize| {
            let is_sum = match kind(operand) {
                ValueKind::ParameterGradients => row.kind != TaskKind::Update,
                ValueKind::GradientNorm => true,
                _ => false,
            };
            is_sum && row.operands[operand].access == Access::Update
        };
        let mut inputs = vec![4, exec as u64, if row.kind == TaskKind::Update { self.step } else { 0 }];
        let mut before = vec![0; buffers.len()];
        for (position, (operand, buffer)) in row.operands.iter().zip(buffers).enumerate() {
            if operand.access == Access::Write || kind(position) == ValueKind::Scratch {
                continue;
            }
            let (bytes, place) = (program.value(operand.value).bytes.0, code.buffers[buffer.index()]);
            before[position] = self.cells[device].held(place, bytes);
            if !adds(position) {
                inputs.extend([position as u64, before[position]]);
            }
        }
        let computed = mix(&inputs);
        for (position, (operand, buffer)) in row.operands.iter().zip(buffers).enumerate() {
            let made = mix(&[5, computed, position as u64]);
            let print = if adds(position) { before[position].wrapping_add(made) } else { made };
            if operand.access != Access::Read {
                self.write(device, code, *buffer, operand.value, print);
            }
        }
    }

    /// What the buffers hold that the set-up filled.
    fn persistent(&mut self) -> BTreeMap<(ValueId, DeviceId), u64> {
        let mut found = BTreeMap::new();
        for (device, code) in self.program.devices.iter().enumerate() {
            for instruction in &code.setup {
                let Instruction::Fill { buffer, value, .. } = *instruction else { continue };
                let (row, place) = (self.program.value(value), code.buffers[buffer.index()]);
                if self.kinds.get(value.index()) != Some(&ValueKind::Scratch) {
                    let print = self.cells[device].held(place, row.bytes.0);
                    found.insert((value, DeviceId::from_index(device)), print);
                }
            }
        }
        found
    }
}
