//! A machine that knows nothing but channels: do the devices of a program come to their ends, if
//! every channel holds so many messages, and perhaps without telling activations from gradients?

use pipe_ir::ids::{DeviceId, GroupId, TokenId};
use pipe_ir::instruction::{Class, Instruction, Start};
use pipe_ir::program::Program;
use std::collections::{BTreeMap, BTreeSet};

/// What the channels between devices are like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Channels {
    /// How many messages a channel holds that nobody has received; 0 is rendezvous, `None` is without end.
    pub capacity: Option<usize>,
    /// Whether activations and gradients have channels of their own. One channel for all is what messages without
    /// tags amount to: they come in the order in which they were sent, whatever the receiver wants.
    pub tagged: bool,
}

/// A message: its class, and which of its class it is between these devices.
type Label = (Class, usize);
/// Sender, receiver, and the class that a channel is for, if channels are tagged.
type Key = (DeviceId, DeviceId, Option<Class>);

#[derive(Default)]
struct Channel {
    sends: Vec<(Label, TokenId)>,
    receives: Vec<(Label, TokenId)>,
    /// How many messages were received.
    taken: usize,
}

struct Machine<'a> {
    program: &'a Program,
    channels: Channels,
    lines: BTreeMap<Key, Channel>,
    /// How many messages of a class one side has started.
    turns: BTreeMap<(DeviceId, DeviceId, Class, bool), usize>,
    /// Who joined a group's collectives, in turn.
    joined: BTreeMap<GroupId, Vec<Vec<(DeviceId, TokenId)>>>,
    ended: BTreeSet<(DeviceId, TokenId)>,
}

/// Runs the step of every device.
///
/// # Errors
/// The devices that stand still for ever, and at which instructions.
pub fn run(program: &Program, channels: Channels) -> Result<(), Vec<(DeviceId, usize)>> {
    let (lines, turns, joined) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut machine = Machine { program, channels, lines, turns, joined, ended: BTreeSet::new() };
    let mut next = vec![0; program.devices.len()];
    let mut goes_on = true;
    while goes_on {
        goes_on = false;
        for (index, code) in program.devices.iter().enumerate() {
            let device = DeviceId::from_index(index);
            while let Some(instruction) = code.step.get(next[index]) {
                if !machine.execute(device, instruction) {
                    break;
                }
                next[index] += 1;
                goes_on = true;
            }
        }
        goes_on |= machine.carry();
    }
    let stands = |(index, code): (usize, &pipe_ir::program::DeviceProgram)| {
        (next[index] < code.step.len()).then(|| (DeviceId::from_index(index), next[index]))
    };
    let stuck: Vec<_> = program.devices.iter().enumerate().filter_map(stands).collect();
    if stuck.is_empty() { Ok(()) } else { Err(stuck) }
}

impl Machine<'_> {
    /// Whether the device can go on after it.
    fn execute(&mut self, device: DeviceId, instruction: &Instruction) -> bool {
        if let Instruction::Wait { token } = *instruction {
            return self.ended.contains(&(device, token));
        }
        let Some((token, start)) = instruction.starts() else { return true };
        match start {
            Start::Send(to, class) => self.start((device, to), class, token, true),
            Start::Receive(from, class) => self.start((from, device), class, token, false),
            Start::Join(group) => self.join(device, group, token),
            // What a lane is given runs where it stands.
            Start::Copy(_) | Start::Lane(_) => drop(self.ended.insert((device, token))),
        }
        true
    }

    fn start(&mut self, (from, to): (DeviceId, DeviceId), class: Class, token: TokenId, sends: bool) {
        let turn = self.turns.entry((from, to, class, sends)).or_default();
        let label = (class, *turn);
        *turn += 1;
        let line = self.lines.entry((from, to, self.channels.tagged.then_some(class))).or_default();
        let side = if sends { &mut line.sends } else { &mut line.receives };
        side.push((label, token));
    }

    fn join(&mut self, device: DeviceId, group: GroupId, token: TokenId) {
        let turns = self.joined.entry(group).or_default();
        let turn = turns.iter().position(|members| members.iter().all(|(member, _)| *member != device));
        let turn = turn.unwrap_or_else(|| {
            turns.push(Vec::new());
            turns.len() - 1
        });
        turns[turn].push((device, token));
        if turns[turn].len() == self.program.group(group).len() {
            self.ended.extend(turns[turn].iter().copied());
        }
    }

    /// Moves messages as far as they go; whether any did. A receiver takes no message but the one that it wants.
    fn carry(&mut self) -> bool {
        let before = self.ended.len();
        for ((from, to, _), line) in &mut self.lines {
            while let (Some((sent, send)), Some((wanted, receive))) =
                (line.sends.get(line.taken), line.receives.get(line.taken))
            {
                if sent != wanted {
                    break;
                }
                self.ended.extend([(*from, *send), (*to, *receive)]);
                line.taken += 1;
            }
            let room = self.channels.capacity.map_or(usize::MAX, |capacity| line.taken.saturating_add(capacity));
            self.ended.extend(line.sends.iter().take(room).map(|(_, token)| (*from, *token)));
        }
        self.ended.len() > before
    }
}
