//! Lane tasks: what a device's list gives its lanes, and when the list waits for it.
//!
//! The list waits for a lane task before the first task of its own that needs what it made, before the second task
//! behind it on the lane, as [`pipe_schedule::parts::lanes`] says, and at the end. What waits for a lane task waits for
//! all before it on that lane.

use super::Emitter;
use pipe_ir::ids::{DeviceId, ExecId, LaneId, MicrobatchId, TokenId};
use pipe_ir::instruction::{Class, Count, Instruction};
use pipe_schedule::parts::lanes::OUTSTANDING;
use std::collections::{BTreeMap, VecDeque};

/// A task on a lane: which one, and how many came before it there.
pub(super) type Turn = (LaneId, usize);

/// What the lanes of the device at hand were given.
#[derive(Default)]
pub(super) struct LaneState {
    lanes: BTreeMap<LaneId, Lane>,
    /// By value and microbatch that a lane made, or waited for: by which task. Only of those that have not ended.
    made: BTreeMap<usize, Turn>,
    /// By channel: the last task on a lane that sends there.
    sends: BTreeMap<(DeviceId, Class), Turn>,
}

#[derive(Default)]
struct Lane {
    /// How many tasks have ended.
    ended: usize,
    /// Those that have not.
    open: VecDeque<Open>,
}

struct Open {
    token: TokenId,
    exec: ExecId,
    microbatch: MicrobatchId,
    /// The values that it made or waited for.
    made: Vec<usize>,
}

impl Emitter<'_> {
    /// Lets the list wait so that few tasks of each lane are open before the next task.
    pub(super) fn catch_up(&mut self) {
        let turns = self.lanes.lanes.iter().filter_map(|(lane, own)| {
            let last = (own.ended + own.open.len()).checked_sub(OUTSTANDING + 1)?;
            Some((*lane, last))
        });
        let turns: Vec<Turn> = turns.collect();
        turns.into_iter().for_each(|turn| self.ensure_ended(turn));
    }

    /// Lets the list wait for all lanes.
    pub(super) fn end_lanes(&mut self) {
        let lanes = self
            .lanes
            .lanes
            .iter()
            .filter_map(|(lane, own)| Some((*lane, (own.ended + own.open.len()).checked_sub(1)?)));
        let turns: Vec<Turn> = lanes.collect();
        turns.into_iter().for_each(|turn| self.ensure_ended(turn));
    }

    /// Lets the list wait for what made a value, unless that is on this lane.
    pub(super) fn ensure_made(&mut self, entry: usize, lane: Option<LaneId>) {
        let turn = self.lanes.made.get(&entry).copied();
        if let Some(turn) = turn.filter(|(other, _)| Some(*other) != lane) {
            self.ensure_ended(turn);
        }
    }

    /// Lets the list wait before something is sent, unless it is ordered by this lane already: the sends of a channel
    /// have an order.
    pub(super) fn ensure_order(&mut self, channel: (DeviceId, Class), lane: Option<LaneId>) {
        let turn = self.lanes.sends.get(&channel).copied();
        if let Some(turn) = turn.filter(|(other, _)| Some(*other) != lane) {
            self.ensure_ended(turn);
        }
    }

    /// Lets the list wait for a task of a lane, and for those before it. What they alone read is given back.
    fn ensure_ended(&mut self, (lane, turn): Turn) {
        loop {
            let Some(own) = self.lanes.lanes.get_mut(&lane).filter(|own| own.ended <= turn) else { return };
            let Some(Open { token, exec, microbatch, made }) = own.open.pop_front() else { return };
            own.ended += 1;
            for entry in made {
                self.lanes.made.remove(&entry);
            }
            self.code.step.push(Instruction::Wait { token });
            self.give_up(exec, microbatch);
        }
    }

    /// Gives a task to a lane, which first waits for what is received, and then sends what is to be sent.
    pub(super) fn lane_task(
        &mut self,
        (device, position): (DeviceId, usize),
        (lane, exec, microbatch): (LaneId, ExecId, MicrobatchId),
        received: &[u32],
    ) {
        for (value, microbatch) in self.work.reads(exec, microbatch).collect::<Vec<_>>() {
            self.ensure_made(self.work.entry(value, microbatch), Some(lane));
        }
        for index in self.transfers.sent_after(device, position) {
            let transfer = *self.transfers.get(*index);
            self.ensure_made(self.work.entry(transfer.value, transfer.microbatch), Some(lane));
            self.ensure_order((transfer.to, transfer.class), Some(lane));
        }
        self.provide(exec, microbatch);
        let token = self.new_token();
        let start = self.code.step.len();
        self.code.step.push(Instruction::LaneStart { lane, count: Count(0), token });
        let mut made: Vec<usize> =
            self.work.flow(exec).writes.iter().map(|value| self.work.entry(*value, microbatch)).collect();
        for index in received {
            let transfer = self.transfers.get(*index);
            made.push(self.work.entry(transfer.value, transfer.microbatch));
            let [_, token] = self.tokens[*index as usize];
            self.code.step.push(Instruction::Wait { token });
        }
        self.run(exec, microbatch);
        let own = self.lanes.lanes.entry(lane).or_default();
        let turn = (lane, own.ended + own.open.len());
        self.send(device, position, Some(turn));
        let count = Count(super::index32(self.code.step.len() - start - 1));
        self.code.step[start] = Instruction::LaneStart { lane, count, token };
        self.lanes.made.extend(made.iter().map(|entry| (*entry, turn)));
        self.lanes.lanes.entry(lane).or_default().open.push_back(Open { token, exec, microbatch, made });
    }

    /// A send was started on a lane.
    pub(super) fn sent_on(&mut self, channel: (DeviceId, Class), turn: Option<Turn>) {
        self.lanes.sends.remove(&channel);
        self.lanes.sends.extend(turn.map(|turn| (channel, turn)));
    }
}
