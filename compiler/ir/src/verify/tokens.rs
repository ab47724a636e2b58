//! Rules about what is started: each transfer, collective, copy and each start of a lane is waited for exactly once,
//! before anything disturbs its buffers.

use super::Place;
use super::report::Report;
use crate::ids::{BufferId, DeviceId, LaneId, TokenId};
use crate::instruction::{Class, Instruction, Start};
use crate::lanes::queues;
use crate::operand::Touch;
use crate::program::{DeviceProgram, Program};
use std::collections::{BTreeMap, VecDeque};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    Unused,
    /// Waited for before its start, which was reported.
    Misused,
    Started {
        what: Started,
        index: u32,
    },
    Waited,
}

/// What a token is of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Started {
    /// A transfer, collective or copy.
    Transfer(Ends),
    /// What the lane was given that many times before.
    Lane(LaneId, u32),
}

/// The buffers that something under way reads and replaces.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Ends {
    read: Option<BufferId>,
    /// What a collective does to its buffer is what a receive does: nobody else may touch it.
    replaced: Option<BufferId>,
}

/// What is under way in a buffer.
#[derive(Clone, Copy, Default)]
struct Transfers {
    sends: u32,
    receives: bool,
}

/// What a lane was given and the list did not wait for.
#[derive(Default)]
struct Lane {
    /// How often the lane was started.
    started: u32,
    /// By start that was not waited for, from the first: the buffers that it touches, and whether it writes them.
    /// The list has waited for a start if it has for a later one.
    open: VecDeque<Vec<(BufferId, bool)>>,
}

impl Lane {
    /// Whether the list has waited for a start, or for a later one.
    fn has_ended(&self, start: u32) -> bool {
        (start as usize) < self.started as usize - self.open.len()
    }
}

/// One device, as far as its list was read.
struct Device {
    tokens: Vec<Token>,
    buffers: Vec<Transfers>,
    lanes: BTreeMap<LaneId, Lane>,
    /// By buffer that lanes touch: on which lane, and whether it is written.
    on_lanes: BTreeMap<BufferId, Vec<(LaneId, bool)>>,
    /// By channel: the lane that sent last, and its start.
    last_sends: BTreeMap<(DeviceId, Class), (LaneId, u32)>,
}

/// Checks one device. Set-up lists start nothing.
pub(super) fn check(program: &Program, device: DeviceId, code: &DeviceProgram, report: &mut Report) {
    let n_starts = code.step.iter().filter(|instruction| instruction.starts().is_some()).count();
    if n_starts != code.n_tokens as usize {
        let message = format!(
            "{} tokens are stated, but {n_starts} transfers, collectives, copies and lanes are started",
            code.n_tokens
        );
        report.error(Place::Device(device), message);
        return;
    }
    let mut state = Device {
        tokens: vec![Token::Unused; n_starts],
        buffers: vec![Transfers::default(); code.buffers.len()],
        lanes: BTreeMap::new(),
        on_lanes: BTreeMap::new(),
        last_sends: BTreeMap::new(),
    };
    for ((index, instruction), lane) in code.step.iter().enumerate().zip(queues(&code.step)) {
        let (mut found, mut ends) = (Ok(()), Ends::default());
        instruction.accesses(program, code, |buffer, touch| {
            if let Err(message) = state.disturbs(lane, buffer, touch) {
                found = Err(message);
            }
            match touch {
                Touch::Send => ends.read = Some(buffer),
                Touch::Receive | Touch::Reduce => ends.replaced = Some(buffer),
                Touch::Alloc | Touch::Free => {}
                Touch::Read | Touch::Write | Touch::Update => {
                    state.use_on(lane, buffer, touch != Touch::Read);
                }
            }
        });
        let started = match (*instruction, instruction.starts()) {
            (Instruction::Wait { token }, _) => state.wait(lane, token),
            (_, Some((token, start))) => state.start(lane, index, token, (start, ends)),
            (_, None) => Ok(()),
        };
        if let Err(message) = found.and(started) {
            report.step(device, index, message);
        }
    }
    for token in state.tokens {
        if let Token::Started { index, .. } = token {
            report.step(device, index as usize, "is never waited for");
        }
    }
}

impl Device {
    /// Whether an instruction of the list, or of a lane, may touch a buffer in this way.
    fn disturbs(&self, lane: Option<LaneId>, buffer: BufferId, touch: Touch) -> Result<(), String> {
        let transfers = self.buffers[buffer.index()];
        if transfers.receives {
            return Err(format!(
                "{buffer} is being received, reduced, gathered or copied to, and that was not waited for"
            ));
        }
        let reads = matches!(touch, Touch::Read | Touch::Send);
        if transfers.sends > 0 && !reads {
            return Err(format!("{buffer} is being sent, gathered or copied, and that was not waited for"));
        }
        let uses = self.on_lanes.get(&buffer).map_or([].as_slice(), Vec::as_slice);
        // What a lane was given before ends before the lane goes on.
        match uses.iter().find(|(other, writes)| Some(*other) != lane && (*writes || !reads)) {
            Some((_, writes)) => {
                let deed = if *writes { "written" } else { "read" };
                Err(format!("{buffer} is being {deed} on a lane, and that was not waited for"))
            }
            None => Ok(()),
        }
    }

    /// Something on a lane uses a buffer, until the list waits for it.
    fn use_on(&mut self, lane: Option<LaneId>, buffer: BufferId, writes: bool) {
        let Some(lane) = lane else { return };
        self.on_lanes.entry(buffer).or_default().push((lane, writes));
        if let Some(open) = self.lanes.entry(lane).or_default().open.back_mut() {
            open.push((buffer, writes));
        }
    }

    fn start(
        &mut self,
        lane: Option<LaneId>,
        index: usize,
        token: TokenId,
        (start, ends): (Start, Ends),
    ) -> Result<(), String> {
        match self.tokens[token.index()] {
            Token::Unused => {}
            Token::Misused => return Ok(()),
            Token::Started { .. } | Token::Waited => return Err(format!("{token} was started already in this step")),
        }
        let what = match start {
            Start::Lane(lane) => {
                let own = self.lanes.entry(lane).or_default();
                own.started += 1;
                own.open.push_back(Vec::new());
                Started::Lane(lane, own.started - 1)
            }
            _ => Started::Transfer(ends),
        };
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        self.tokens[token.index()] = Token::Started { what, index };
        ends.replaced.into_iter().for_each(|buffer| self.buffers[buffer.index()].receives = true);
        ends.read.into_iter().for_each(|buffer| self.buffers[buffer.index()].sends += 1);
        match start {
            Start::Send(to, class) => self.send(lane, (to, class)),
            _ => Ok(()),
        }
    }

    /// The sends of a channel have an order, wherever they are started.
    fn send(&mut self, lane: Option<LaneId>, channel: (DeviceId, Class)) -> Result<(), String> {
        let mut result = Ok(());
        if let Some((other, start)) = self.last_sends.remove(&channel)
            && Some(other) != lane
            && !self.lanes[&other].has_ended(start)
        {
            let (to, class) = (channel.0, channel.1.word());
            result = Err(format!("a lane sends to {to} {class} before, and that was not waited for"));
        }
        if let Some(lane) = lane {
            self.last_sends.insert(channel, (lane, self.lanes[&lane].started - 1));
        }
        result
    }

    fn wait(&mut self, lane: Option<LaneId>, token: TokenId) -> Result<(), String> {
        match (std::mem::replace(&mut self.tokens[token.index()], Token::Waited), lane) {
            (Token::Unused | Token::Misused, _) => {
                self.tokens[token.index()] = Token::Misused;
                Err(format!("{token} is not started before it is waited for"))
            }
            (Token::Waited, _) => Err(format!("{token} was waited for already")),
            (Token::Started { what: Started::Transfer(ends), .. }, lane) => {
                // What a lane has waited for, the list may touch when it has waited for the lane.
                if let Some(buffer) = ends.replaced {
                    self.buffers[buffer.index()].receives = false;
                    self.use_on(lane, buffer, true);
                }
                if let Some(buffer) = ends.read {
                    self.buffers[buffer.index()].sends -= 1;
                    self.use_on(lane, buffer, false);
                }
                Ok(())
            }
            (Token::Started { what: Started::Lane(..), .. }, Some(_)) => {
                Err(format!("{token} is of a lane, and only the list waits for lanes"))
            }
            (Token::Started { what: Started::Lane(lane, start), .. }, None) => {
                self.ended(lane, start);
                Ok(())
            }
        }
    }

    /// What a lane was given up to a start has ended.
    fn ended(&mut self, lane: LaneId, start: u32) {
        let Some(own) = self.lanes.get_mut(&lane) else { return };
        let first = own.started as usize - own.open.len();
        let ended = (start as usize + 1).saturating_sub(first).min(own.open.len());
        for (buffer, writes) in own.open.drain(..ended).flatten() {
            let Some(uses) = self.on_lanes.get_mut(&buffer) else { continue };
            if let Some(place) = uses.iter().position(|one| *one == (lane, writes)) {
                uses.swap_remove(place);
            }
            if uses.is_empty() {
                self.on_lanes.remove(&buffer);
            }
        }
    }
}
