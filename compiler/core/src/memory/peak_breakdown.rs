//! The fullest moment of a device: what is alive when most bytes are.

use crate::memory::live_buffers::Holds;
use pipe_ir::ids::{BufferId, StageId, ValueId};
use pipe_ir::instruction::{Instruction, LifespanEvent};
use pipe_ir::program::{DeviceProgram, Program, Space};
use pipe_ir::task::Task;
use pipe_ir::units::Bytes;
use pipe_ir::value::{Value, ValueKind};
use pipe_model::transformer::{INPUTS, StageAccount, Until};
use std::collections::BTreeMap;

/// The moment at which most bytes are alive, the first of several.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Fullest {
    /// The task that runs next, or is running.
    pub task: Option<Task>,
    /// Number and bytes of the buffers alive, by the value of [`Program::values`] that they hold.
    pub alive: BTreeMap<Option<ValueId>, (usize, Bytes)>,
}

/// Buffers that hold the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contributor {
    /// What they hold.
    pub what: String,
    /// How many.
    pub buffers: usize,
    /// How many bytes.
    pub bytes: Bytes,
}

impl Fullest {
    /// That of a device.
    pub fn of(program: &Program, device: &DeviceProgram) -> Self {
        let mut holds = Holds::new(device);
        let mut is_alive = vec![false; device.buffers.len()];
        let (mut live, mut reached, mut task) = (Bytes::ZERO, false, None);
        let is_elsewhere = |buffer: BufferId| device.buffers[buffer.index()].space == Space::Host;
        for instruction in device.setup.iter().chain(&device.step) {
            match instruction.lifespan().filter(|one| !is_elsewhere(one.buffer())) {
                // What comes after the peak is not alive at it, and does not say what the buffers of the peak hold.
                Some(_) if reached => continue,
                Some(LifespanEvent::Begins(buffer)) => {
                    is_alive[buffer.index()] = true;
                    live += device.buffers[buffer.index()].bytes;
                    reached = live == device.peak;
                }
                Some(LifespanEvent::Ends(buffer)) => {
                    is_alive[buffer.index()] = false;
                    live -= device.buffers[buffer.index()].bytes;
                }
                None => {}
            }
            holds.follow(program, device, instruction);
            if let (true, Instruction::Run { exec, microbatch, .. }) = (reached, *instruction) {
                let exec = program.exec(exec);
                task = Some(Task { kind: exec.kind, stage: exec.stage, microbatch });
                break;
            }
        }
        Self { task, alive: sums(device, &is_alive, &holds) }
    }

    /// What is alive, the largest first. Where the stages are those of a transformer, by its tensors.
    pub fn contributors(&self, program: &Program, accounts: &[StageAccount]) -> Vec<Contributor> {
        let mut rows: BTreeMap<String, (usize, Bytes)> = BTreeMap::new();
        let mut add = |what: String, count: usize, bytes: Bytes| {
            let row = rows.entry(what).or_default();
            row.0 += count;
            row.1 += bytes;
        };
        for (value, (count, bytes)) in &self.alive {
            let Some(value) = value.map(|value| program.value(value)) else {
                add("other buffers".to_owned(), *count, *bytes);
                continue;
            };
            let mut rest = *bytes;
            for (what, each) in tensors(value, accounts) {
                let bytes = Bytes(each.saturating_mul(*count as u64)).min(rest);
                add(what.to_owned(), *count, bytes);
                rest -= bytes;
            }
            if rest > Bytes::ZERO {
                add(value.kind.word().replace('_', " "), *count, rest);
            }
        }
        let row = |(what, (buffers, bytes))| Contributor { what, buffers, bytes };
        let mut rows: Vec<Contributor> = rows.into_iter().map(row).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.bytes));
        rows
    }

    /// Bytes of what a stage saves for its backward passes.
    pub fn kept(&self, program: &Program, stage: StageId) -> Bytes {
        self.sum(program, |value| value.stage == stage && saved_until(value).is_some())
    }

    /// Bytes of what flows out of a stage.
    pub fn flowing(&self, program: &Program, stage: StageId) -> Bytes {
        self.sum(program, |value| value.stage == stage && value.kind == ValueKind::Activation)
    }

    fn sum(&self, program: &Program, is_meant: impl Fn(&Value) -> bool) -> Bytes {
        let meant = |value: &Option<ValueId>| value.is_some_and(|value| is_meant(program.value(value)));
        self.alive.iter().filter(|(value, _)| meant(value)).map(|(_, (_, bytes))| *bytes).sum()
    }
}

/// Which half of the backward pass a value is saved for.
const fn saved_until(value: &Value) -> Option<Until> {
    match value.kind {
        ValueKind::SavedForInput => Some(Until::Input),
        ValueKind::SavedForWeight => Some(Until::Weight),
        _ => None,
    }
}

/// The tensors inside a value of a transformer, with their bytes. What flows in is a buffer of its
/// own: it is the input of the first norm.
fn tensors<'a>(value: &Value, accounts: &'a [StageAccount]) -> Vec<(&'a str, u64)> {
    let (Some(until), Some(account)) = (saved_until(value), accounts.get(value.stage.index())) else {
        return Vec::new();
    };
    let mut input = if until == Until::Input { account.input } else { 0 };
    let mut own = Vec::new();
    for held in account.saved.iter().filter(|held| held.until == until) {
        let elsewhere = if held.what == INPUTS { held.bytes.min(std::mem::take(&mut input)) } else { 0 };
        own.push((held.what, u64::try_from(held.bytes - elsewhere).unwrap_or(u64::MAX)));
    }
    own.retain(|(_, bytes)| *bytes > 0);
    own
}

fn sums(device: &DeviceProgram, is_alive: &[bool], holds: &Holds) -> BTreeMap<Option<ValueId>, (usize, Bytes)> {
    let mut alive: BTreeMap<Option<ValueId>, (usize, Bytes)> = BTreeMap::new();
    let buffers = (0..).map(BufferId).zip(&device.buffers).zip(is_alive);
    for ((id, buffer), _) in buffers.filter(|(_, alive)| **alive) {
        let (count, bytes) = alive.entry(holds.of(id).map(|held| held.value)).or_default();
        *count += 1;
        *bytes += buffer.bytes;
    }
    alive
}
