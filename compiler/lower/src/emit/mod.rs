//! Writes the lists of one device: waits, allocations, runs, transfers and prompt frees.

mod away;
mod collectives;
mod copies;
mod gathers;
mod lanes;
mod norm;
mod pieces;
mod sums;
mod updates;

use super::collectives::Collectives;
use super::index32;
use super::transfers::Transfers;
use crate::activation_swaps::Absences;
use crate::chained_reductions::Sums;
use crate::program_tables::ProgramTables;
use crate::state_swaps::Residency;
use away::Journey;
use copies::Copies;
use gathers::OnTheWay;
use lanes::{LaneState, Turn};
use pipe_ir::ids::{BufferId, DeviceId, ExecId, MicrobatchId, TokenId, ValueId};
use pipe_ir::instruction::{Fill, Instruction, LifespanEvent, OperandRange};
use pipe_ir::program::{Access, Operand, Space};
use pipe_ir::task::TaskKind;
use pipe_ir::units::Bytes;
use pipe_ir::value::ValueKind;
use pipe_schedule::block::async_window::Update;
use pipe_schedule::schedule::Schedule;
use std::collections::{BTreeMap, BTreeSet};

const NO_BUFFER: BufferId = BufferId(u32::MAX);

/// The lists of one device. Every lifespan has a buffer of its own, which has a size and no place yet.
#[derive(Debug, Default)]
pub(super) struct Code {
    pub(super) buffers: Vec<(Bytes, Space)>,
    /// Where each task and each update at the end of the step begins.
    pub(super) steps: Vec<usize>,
    /// Where each point of a task is: before all that belongs to it, and where nothing is waited for any more.
    pub(super) points: Vec<usize>,
    pub(super) operands: Vec<BufferId>,
    pub(super) n_tokens: u32,
    pub(super) setup: Vec<Instruction>,
    pub(super) step: Vec<Instruction>,
}

impl Code {
    /// Counts the bytes that are alive in each space.
    pub(super) fn count(&self, instruction: &Instruction, alive: &mut [u64; Space::ALL.len()]) {
        let Some(lifespan) = instruction.lifespan() else { return };
        let (bytes, space) = self.buffers[lifespan.buffer().index()];
        match lifespan {
            LifespanEvent::Begins(_) => alive[space.index()] += bytes.0,
            LifespanEvent::Ends(_) => alive[space.index()] -= bytes.0,
        }
    }
}

/// What of a device is in the memory of its host when.
#[derive(Clone, Default)]
pub(super) struct Elsewhere {
    /// When chunks come and go; none where everything stays on the device.
    pub(super) state: Option<Residency>,
    /// Which values of microbatches leave between two uses.
    pub(super) activations: Absences,
}

impl Elsewhere {
    /// State only.
    pub(super) fn of_state(residency: Residency) -> Self {
        Self { state: Some(residency), ..Self::default() }
    }
}

/// Writes one device after the other; its tables are used again for each.
pub(super) struct Emitter<'a> {
    pub(super) schedule: &'a Schedule,
    pub(super) work: &'a ProgramTables,
    transfers: &'a Transfers,
    pub(super) collectives: &'a Collectives,
    /// The device at hand.
    pub(super) own: DeviceId,
    sums: &'a Sums<'a>,
    /// By gradients: sends of this device that were not waited for.
    sending: BTreeMap<ValueId, Vec<TokenId>>,
    /// By value and microbatch: the buffer that holds it on this device.
    buffers: Vec<BufferId>,
    /// By value and microbatch: how many tasks and sends of this device are still to read it.
    readers: Vec<u32>,
    /// By value: the first buffer of a persistent one, and those of its older versions behind it.
    persistent: Vec<BufferId>,
    /// When chunks come and go; none where everything stays on the device.
    residency: Option<Residency>,
    copies: Copies,
    lanes: LaneState,
    absences: Absences,
    journeys: Vec<Journey>,
    /// Weights that were asked for and have not gone yet.
    gathering: Vec<OnTheWay>,
    /// Where updates stand, by device, where they stand between tasks.
    updates: &'a [Vec<Update>],
    /// Updates of the device at hand that its order places, and that stand before.
    updated: BTreeSet<ExecId>,
    /// By transfer: its token on the sender, and on the receiver.
    tokens: Vec<[TokenId; 2]>,
    pub(super) code: Code,
}

impl<'a> Emitter<'a> {
    pub(super) fn new(
        schedule: &'a Schedule,
        work: &'a ProgramTables,
        transfers: &'a Transfers,
        (collectives, sums, updates): (&'a Collectives, &'a Sums<'a>, &'a [Vec<Update>]),
    ) -> Self {
        Self {
            schedule,
            work,
            transfers,
            collectives,
            own: DeviceId(0),
            sums,
            sending: BTreeMap::new(),
            buffers: vec![NO_BUFFER; work.n_entries()],
            readers: vec![0; work.n_entries()],
            persistent: vec![NO_BUFFER; work.values.len()],
            residency: None,
            copies: Copies::default(),
            lanes: LaneState::default(),
            absences: Absences::default(),
            journeys: Vec::new(),
            gathering: Vec::new(),
            updates,
            updated: BTreeSet::new(),
            tokens: vec![[TokenId(0); 2]; transfers.len()],
            code: Code::default(),
        }
    }

    /// The lists of a device, from which comes and goes what plans say; all else stays on it.
    pub(super) fn device(&mut self, device: DeviceId, elsewhere: Elsewhere) -> Code {
        (self.residency, self.copies) = (elsewhere.state, Copies::default());
        self.lanes = LaneState::default();
        self.own = device;
        self.updated.clear();
        self.set_out(elsewhere.activations);
        self.count_readers(device);
        self.set_up(device);
        let tasks = &self.schedule.orders[device.index()];
        self.code.step.reserve(tasks.len() * 9);
        let mut received = self.transfers.received(device).peekable();
        let mut joins = self.collectives.of(device).iter().peekable();
        let mut joined = Vec::new();
        for (position, scheduled) in tasks.iter().enumerate() {
            // Two tasks that share the device have the points of the first.
            let has_points = position == 0 || !tasks[position - 1].with_next;
            self.point(has_points);
            self.begin_step(position);
            self.catch_up();
            self.queue(device, position);
            while let Some(join) = joins.next_if(|join| join.position() as usize == position) {
                joined.extend(self.join(join));
            }
            self.placed_updates(device, position, &mut joined);
            self.between(device, position);
            self.use_sums(&mut joined, position);
            let exec = self.work.exec(scheduled.task);
            let lane = exec.and_then(|exec| self.work.lane(exec));
            let mut on_lane = Vec::new();
            while let Some(transfer) = received.next_if(|one| self.transfers.get(*one).reader as usize == position) {
                if lane.is_some() {
                    on_lane.push(transfer);
                    continue;
                }
                let [_, token] = self.tokens[transfer as usize];
                self.code.step.push(Instruction::Wait { token });
            }
            self.take_sum(device, position, scheduled.task);
            self.point(has_points);
            self.arrive(position);
            match (exec, lane) {
                (Some(exec), Some(lane)) => {
                    self.lane_task((device, position), (lane, exec, scheduled.task.microbatch), &on_lane);
                }
                (Some(exec), None) => {
                    self.bring_gradients(exec);
                    self.gathered(position);
                    self.task(exec, scheduled.task.microbatch, |this| this.send(device, position, None));
                }
                (None, _) => {}
            }
            self.release(position);
            self.send_sums(device, position);
        }
        self.point(true);
        self.end_lanes();
        self.queue(device, tasks.len());
        joins.for_each(|join| joined.extend(self.join(join)));
        self.placed_updates(device, tasks.len(), &mut joined);
        self.gathered(tasks.len());
        self.between(device, tasks.len());
        self.use_sums(&mut joined, usize::MAX);
        self.norm(device, &mut joined);
        let flushes = self.schedule.window.is_none();
        let mut step = tasks.len();
        for exec in self.work.execs_of(device) {
            if flushes && self.is_update_at_end(exec) && !self.updated.contains(&exec) {
                self.begin_step(step);
                self.wait(&mut joined, |part| part.update == Some(exec));
                self.arrive(step);
                self.run(exec, MicrobatchId(0));
                step += 1;
            }
        }
        self.begin_step(step);
        self.exchange_shares(device, &mut joined);
        self.wait(&mut joined, |_| true);
        let gradients: Vec<ValueId> = self.sending.keys().copied().collect();
        gradients.into_iter().for_each(|gradients| self.end_sends(gradients));
        std::mem::take(&mut self.code)
    }

    fn count_readers(&mut self, device: DeviceId) {
        for scheduled in &self.schedule.orders[device.index()] {
            let Some(exec) = self.work.exec(scheduled.task) else { continue };
            for (value, microbatch) in self.work.reads(exec, scheduled.task.microbatch) {
                self.readers[self.work.entry(value, microbatch)] += 1;
            }
        }
        for transfer in self.transfers.sent(device) {
            self.readers[self.work.entry(transfer.value, transfer.microbatch)] += 1;
        }
    }

    /// Allocates and fills what lives on the device for the whole run; the step starts by zeroing gradients.
    fn set_up(&mut self, device: DeviceId) {
        let execs = self.work.execs_of(device).map(|exec| &self.work.execs[exec.index()]);
        let operands = execs.flat_map(|exec| exec.operands.iter().map(|one| one.value));
        let mut own: Vec<ValueId> = operands.chain(self.work.shares_of(device)).chain(self.work.norm()).collect();
        own.sort_unstable();
        own.dedup();
        for id in own {
            let value = &self.work.values[id.index()];
            if !value.kind.is_persistent() || self.work.leaves(id) || self.work.is_kept(id) {
                continue;
            }
            let with = if value.kind == ValueKind::Parameters { Fill::Init } else { Fill::Zero };
            if self.residency.is_some() && self.work.is_offloaded(id) {
                self.set_up_chunk(id, with);
                continue;
            }
            // From the newest version to the oldest; all begin as the initial one.
            let buffers: Vec<BufferId> = (0..self.work.versions(id)).map(|_| self.new_buffer(id)).collect();
            let Some(buffer) = buffers.first().copied() else { continue };
            self.persistent[id.index()] = buffer;
            for buffer in buffers {
                self.code.setup.push(Instruction::Alloc { buffer });
                self.code.setup.push(Instruction::Fill { buffer, value: id, with });
            }
            if value.kind == ValueKind::ParameterGradients {
                self.code.step.push(Instruction::Fill { buffer, value: id, with: Fill::Zero });
            }
        }
    }

    fn new_buffer(&mut self, value: ValueId) -> BufferId {
        self.code.buffers.push((self.work.values[value.index()].bytes.aligned(), Space::Device));
        BufferId(index32(self.code.buffers.len() - 1))
    }

    /// The buffer of a microbatch's value.
    pub(super) fn buffer(&self, value: ValueId, microbatch: MicrobatchId) -> BufferId {
        self.buffers[self.work.entry(value, microbatch)]
    }

    pub(super) fn alloc(&mut self, value: ValueId, microbatch: MicrobatchId) -> BufferId {
        let buffer = self.new_buffer(value);
        self.buffers[self.work.entry(value, microbatch)] = buffer;
        self.code.step.push(Instruction::Alloc { buffer });
        buffer
    }

    pub(super) fn new_token(&mut self) -> TokenId {
        self.code.n_tokens += 1;
        TokenId(self.code.n_tokens - 1)
    }

    /// What stands between two tasks, behind receives that are queued and collectives that are
    /// joined: sends that have ended give their buffers back, weights are updated. The device that
    /// gives a total away may wait until this one takes it, so no other wait delays that.
    fn between(&mut self, device: DeviceId, position: usize) {
        let takes = |update: &Update| self.sums.total(device, update.stage, update.step).is_some();
        if self.updates_before(device, position).iter().any(takes) {
            self.updates(device, position);
            self.give_back(device, position);
        } else {
            self.give_back(device, position);
            self.updates(device, position);
        }
    }

    /// Receives that stand before a task.
    fn queue(&mut self, device: DeviceId, position: usize) {
        for index in self.transfers.queued_before(device, position) {
            let transfer = self.transfers.get(*index);
            let buffer = self.alloc(transfer.value, transfer.microbatch);
            let token = self.new_token();
            self.tokens[*index as usize][1] = token;
            self.code.step.push(Instruction::RecvStart {
                buffer,
                value: transfer.value,
                microbatch: transfer.microbatch,
                from: transfer.from,
                class: transfer.class,
                token,
            });
        }
    }

    /// Sends whose end is waited for before a task.
    fn give_back(&mut self, device: DeviceId, position: usize) {
        for index in self.transfers.waited_before(device, position) {
            let transfer = self.transfers.get(*index);
            let [token, _] = self.tokens[*index as usize];
            self.ensure_made(self.work.entry(transfer.value, transfer.microbatch), None);
            self.code.step.push(Instruction::Wait { token });
            self.was_read(transfer.value, transfer.microbatch);
        }
    }

    /// Queues what is sent after a task, in the list or behind the task on its lane.
    fn send(&mut self, device: DeviceId, position: usize, on_lane: Option<Turn>) {
        for index in self.transfers.sent_after(device, position) {
            let transfer = self.transfers.get(*index);
            if on_lane.is_none() {
                self.ensure_made(self.work.entry(transfer.value, transfer.microbatch), None);
                self.ensure_order((transfer.to, transfer.class), None);
            }
            self.sent_on((transfer.to, transfer.class), on_lane);
            let token = self.new_token();
            self.tokens[*index as usize][0] = token;
            let buffer = self.buffers[self.work.entry(transfer.value, transfer.microbatch)];
            self.code.step.push(Instruction::SendStart { buffer, to: transfer.to, class: transfer.class, token });
        }
    }

    /// Where a persistent operand of a run is. Versions of weights take turns: version 0 is in the
    /// first buffer, version -1 in the second one, and the version after the newest one takes the
    /// place of the oldest one.
    fn place(&self, exec: ExecId, microbatch: MicrobatchId, operand: &Operand) -> BufferId {
        let first = self.persistent[operand.value.index()];
        let buffers = i64::from(self.work.versions(operand.value));
        let Some(window) = self.schedule.window.as_ref().filter(|_| buffers > 1) else { return first };
        let exec = &self.work.execs[exec.index()];
        let per_step = self.schedule.microbatches_of_step();
        let step = i64::from(microbatch.0 / per_step);
        let version = match (exec.kind, operand.access) {
            (TaskKind::Update, Access::Read) => step,
            (TaskKind::Update, _) => step + 1,
            _ => step - i64::from(window.stages[exec.stage.index()].lags[(microbatch.0 % per_step) as usize]),
        };
        BufferId(first.0 + index32((-version).rem_euclid(buffers) as usize))
    }

    /// Runs a task with everything around it.
    fn task(&mut self, exec: ExecId, microbatch: MicrobatchId, send: impl FnOnce(&mut Self)) {
        let work = self.work;
        let flow = work.flow(exec);
        for (value, microbatch) in work.reads(exec, microbatch) {
            self.ensure_made(work.entry(value, microbatch), None);
        }
        self.provide(exec, microbatch);
        self.run(exec, microbatch);
        for value in &flow.writes {
            if self.work.values[value.index()].kind == ValueKind::Loss {
                let buffer = self.buffers[self.work.entry(*value, microbatch)];
                self.code.step.push(Instruction::Emit { buffer });
            }
        }
        send(self);
        self.give_up(exec, microbatch);
    }

    /// Allocates what a task writes, and loads the data that it reads.
    fn provide(&mut self, exec: ExecId, microbatch: MicrobatchId) {
        let work = self.work;
        for (value, microbatch) in work.reads(exec, microbatch) {
            if self.buffers[work.entry(value, microbatch)] == NO_BUFFER {
                let buffer = self.alloc(value, microbatch);
                self.code.step.push(Instruction::Load { buffer, value, microbatch });
            }
        }
        for value in &work.flow(exec).writes {
            self.alloc(*value, microbatch);
        }
    }

    /// Gives back what a task read as the last one, and what it wrote for nobody.
    fn give_up(&mut self, exec: ExecId, microbatch: MicrobatchId) {
        let work = self.work;
        for (value, microbatch) in work.reads(exec, microbatch) {
            self.was_read(value, microbatch);
        }
        for value in &work.flow(exec).writes {
            if self.readers[work.entry(*value, microbatch)] == 0 {
                self.free(*value, microbatch);
            }
        }
    }

    pub(super) fn run_whole(&mut self, exec: ExecId, microbatch: MicrobatchId) {
        let start = self.code.operands.len();
        for operand in &self.work.execs[exec.index()].operands {
            let value = operand.value;
            let buffer = if self.work.values[value.index()].kind.is_persistent() {
                self.place(exec, microbatch, operand)
            } else {
                self.buffers[self.work.entry(value, operand.microbatch(microbatch))]
            };
            self.code.operands.push(buffer);
        }
        let operands = OperandRange { start: index32(start), len: index32(self.code.operands.len() - start) };
        self.code.step.push(Instruction::Run { exec, microbatch, operands });
    }

    /// One reader less; after the last one the buffer is free.
    fn was_read(&mut self, value: ValueId, microbatch: MicrobatchId) {
        let readers = &mut self.readers[self.work.entry(value, microbatch)];
        *readers = readers.saturating_sub(1);
        if *readers == 0 {
            self.free(value, microbatch);
        }
    }

    pub(super) fn free(&mut self, value: ValueId, microbatch: MicrobatchId) {
        let entry = self.work.entry(value, microbatch);
        let buffer = std::mem::replace(&mut self.buffers[entry], NO_BUFFER);
        if buffer != NO_BUFFER {
            self.code.step.push(Instruction::Free { buffer });
        }
    }
}
