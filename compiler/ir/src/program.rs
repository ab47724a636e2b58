//! Programs: the instruction lists of all devices, and the tables that they refer to.

use crate::graph::{DType, Graph};
use crate::ids::{BufferId, DeviceId, ExecId, GroupId, MicrobatchId, StageId, ValueId};
use crate::instruction::{Class, Instruction, OperandRange, Start};
use crate::task::TaskKind;
use crate::training::Training;
use crate::units::Bytes;
use crate::value::{Value, ValueKind};
use serde::{Deserialize, Serialize};

/// How an executable touches an operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Reads the value; the buffer must hold it.
    Read,
    /// Writes the whole value; what the buffer held is lost.
    Write,
    /// Reads and writes in place: gradients that are accumulated, weights that are updated, scratch.
    Update,
}

/// One operand of an executable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Operand {
    /// What the buffer holds: of the same microbatch as the run unless `ahead` says otherwise, or persistent.
    pub value: ValueId,
    /// How it is touched.
    pub access: Access,
    /// How many microbatches after that of the run the value belongs to; before it, if negative. Only slices of one
    /// microbatch read each other's values: keys and values of earlier ones, their gradients from the next one.
    #[serde(default)]
    pub ahead: i32,
}

impl Operand {
    /// An operand of the run's own microbatch, or a persistent one.
    pub const fn new(value: ValueId, access: Access) -> Self {
        Self { value, access, ahead: 0 }
    }

    /// The microbatch whose value it is, for a run on this one.
    pub const fn microbatch(&self, run: MicrobatchId) -> MicrobatchId {
        MicrobatchId(run.0.wrapping_add_signed(self.ahead))
    }
}

/// What an executable does.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// Nothing is known but the operands and the cost: a schedule without a model. Only the null device runs it.
    Abstract,
    /// A tensor graph.
    Graph(Graph),
    /// The optimizer of [`Training`], over all parameters: operands are parameters, gradients and, where the optimizer
    /// has any, state; where gradients are clipped, also the sum of the squares of all of them.
    Optimizer,
    /// Adds the squares of gradients that an update uses to their sum: operands are these gradients and the sum. A
    /// tensor that all members of a device hold whole counts on the first one.
    Squares,
}

/// A part of the bytes of a stage's weights, with an optimizer state and an update of its own. The
/// chunks of the weights follow each other without gaps. One device updates all of them in their
/// order, or each member of a group its share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Chunk {
    /// Which one, from 0.
    pub number: u32,
    /// Its first byte, in the value of the weights.
    pub from: Bytes,
    /// One past its last byte.
    pub to: Bytes,
    /// The group whose member at this position updates it alone, where weights are divided; the
    /// chunk is then that member's share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupId>,
}

/// What an executable leaves out, because it runs one of the first or last microbatches of a step: values of
/// microbatches that do not exist.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Edge {
    /// Inputs from before the first microbatch.
    pub before: u32,
    /// Readers after the last microbatch.
    pub after: u32,
}

/// Which part of a task an executable runs, where what the members of a device exchange stands in between.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Piece {
    /// Which one, from 0.
    pub number: u32,
    /// How many the task has.
    pub count: u32,
}

/// Work that a device can run: one kind of task of one stage. It runs every microbatch, or one slice of each, or some
/// of the first or last ones.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Exec {
    /// Kind of task.
    pub kind: TaskKind,
    /// Of which stage.
    pub stage: StageId,
    /// Of which slice of a microbatch, where microbatches are cut into slices; an update is of none.
    #[serde(default)]
    pub slice: Option<u32>,
    /// What it leaves out, if it runs some of the first or last microbatches only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge: Option<Edge>,
    /// Whether this forward saves nothing, because `R` repeats it. Only set in a stage that also has a forward that
    /// saves.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_repeated: bool,
    /// Which of the weights it changes, where each chunk of them has an update of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk: Option<Chunk>,
    /// Which part of the task it runs, if it runs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub piece: Option<Piece>,
    /// Its buffers.
    pub operands: Vec<Operand>,
    /// What it does.
    pub body: Body,
    /// Floating-point operations of one run (2 per multiply-add).
    pub flops: u64,
}

impl Exec {
    /// Work for whole microbatches, wherever they stand in a step, and for all weights at once.
    pub const fn new(kind: TaskKind, stage: StageId, operands: Vec<Operand>, body: Body, flops: u64) -> Self {
        Self {
            kind,
            stage,
            slice: None,
            edge: None,
            is_repeated: false,
            chunk: None,
            piece: None,
            operands,
            body,
            flops,
        }
    }

    /// As it is written after `@`: `F.s0`, or `F.s0.q1` with slices, `F.s0.e1_0` at an edge, `U.s0.c1` with chunks,
    /// `F.s0.p1of3` in pieces, and `F.s0.r` where `R` repeats some forwards.
    pub fn name(&self) -> String {
        let edge = self.edge.map(|edge| format!(".e{}_{}", edge.before, edge.after)).unwrap_or_default();
        let slice = self.slice.map(|slice| format!(".q{slice}")).unwrap_or_default();
        let chunk = self.chunk.map(|chunk| format!(".c{}", chunk.number)).unwrap_or_default();
        let piece = self.piece.map(|piece| format!(".p{}of{}", piece.number, piece.count)).unwrap_or_default();
        let repeated = if self.is_repeated { ".r" } else { "" };
        format!("{}.{}{slice}{edge}{chunk}{piece}{repeated}", self.letters(), self.stage)
    }

    /// What its name begins with: `N` where it adds squares to the norm of gradients, otherwise its kind.
    pub const fn letters(&self) -> &'static str {
        if self.is_squares() { SQUARES } else { self.kind.letters() }
    }

    /// Whether it adds squares of gradients to the sum for their norm.
    pub const fn is_squares(&self) -> bool {
        matches!(self.body, Body::Squares)
    }

    /// Whether it changes weights.
    pub fn is_update(&self) -> bool {
        self.kind == TaskKind::Update && !self.is_squares()
    }
}

/// What the name of an executable begins with that adds squares of gradients to the sum for their norm.
pub(crate) const SQUARES: &str = "N";

/// Where a buffer lies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Space {
    /// In the device's own memory, where executables find their operands.
    #[default]
    Device,
    /// In the memory of the device's host, which only copies reach.
    Host,
}

impl Space {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Device, Self::Host];

    /// Position in tables with an entry for each.
    pub const fn index(self) -> usize {
        self as usize
    }

    fn is_device(&self) -> bool {
        *self == Self::Device
    }
}

/// A place in one of a device's two arenas. Two buffers may share bytes as long as their lifespans are disjoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Buffer {
    /// Its size; a multiple of [`crate::units::ALIGNMENT`].
    pub bytes: Bytes,
    /// Where it starts in the arena; a multiple of [`crate::units::ALIGNMENT`].
    pub offset: Bytes,
    /// In which arena.
    #[serde(default, skip_serializing_if = "Space::is_device")]
    pub space: Space,
}

/// What a device uses of one memory space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Extent {
    /// What there is for it, if it was said.
    pub limit: Option<Bytes>,
    /// Bytes of the arena that hold every buffer at its offset.
    pub arena: Bytes,
    /// The most bytes alive at once, over set-up and step; at most `arena`.
    pub peak: Bytes,
}

impl Extent {
    fn is_unused(&self) -> bool {
        *self == Self::default()
    }
}

/// The program of one device.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct DeviceProgram {
    /// What the device has, if it was said.
    pub limit: Option<Bytes>,
    /// Bytes of the arena that hold every buffer at its offset.
    pub arena: Bytes,
    /// The most bytes alive at once, over set-up and step; at most `arena`.
    pub peak: Bytes,
    /// What it uses of its host's memory.
    #[serde(default, skip_serializing_if = "Extent::is_unused")]
    pub host: Extent,
    /// Places, by [`BufferId`].
    pub buffers: Vec<Buffer>,
    /// Operands of all `run` instructions.
    pub operands: Vec<BufferId>,
    /// Number of tokens used in one step.
    pub n_tokens: u32,
    /// Run once: allocates and fills what is persistent.
    pub setup: Vec<Instruction>,
    /// Run once per optimizer step: allocates and frees the same buffers each time, so that steps
    /// can follow each other.
    pub step: Vec<Instruction>,
}

impl DeviceProgram {
    /// What it uses of a memory space.
    pub const fn extent(&self, space: Space) -> Extent {
        match space {
            Space::Device => Extent { limit: self.limit, arena: self.arena, peak: self.peak },
            Space::Host => self.host,
        }
    }

    /// The buffers of one `run`.
    pub fn operands(&self, range: OperandRange) -> &[BufferId] {
        let start = range.start as usize;
        &self.operands[start..start + range.len as usize]
    }
}

/// A whole program.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Program {
    /// Name of the pipeline or schedule that it was compiled from.
    pub name: String,
    /// Number of stages.
    pub n_stages: u32,
    /// Number of microbatches in the step lists, over all their steps, each slice counted as one.
    pub n_microbatches: u32,
    /// Optimizer steps that the step lists take, with as many microbatches each.
    pub n_steps: u32,
    /// By stage and microbatch of a step: how many updates fewer than the step's number the weights have that its tasks
    /// read. Empty where every task reads the weights that its step begins with.
    pub lags: Vec<Vec<u32>>,
    /// In how many slices each is cut along its sequence: microbatch `u` is slice `u % n_slices`.
    #[serde(default = "one")]
    pub n_slices: u32,
    /// The share of the sequence of each slice. Empty if all are equal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slice_shares: Vec<u32>,
    /// How many devices stand behind each device: its members, all of which run its list, each with its own part of
    /// what is divided among them. A member sends to, and receives from, the member at its place of another device.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub members: u32,
    /// Devices that reduce gradients together, in the order in which their buffers are added up; or
    /// one device, whose members exchange something.
    #[serde(default)]
    pub groups: Vec<Vec<DeviceId>>,
    /// The names of the queues that each device has beside its list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lanes: Vec<String>,
    /// What buffers may hold.
    pub values: Vec<Value>,
    /// What devices can run.
    pub execs: Vec<Exec>,
    /// One program per device.
    pub devices: Vec<DeviceProgram>,
    /// How to train; `None` for a schedule without training settings.
    pub training: Option<Training>,
}

const fn one() -> u32 {
    1
}

const fn is_one(number: &u32) -> bool {
    *number == 1
}

impl Program {
    /// The value with this id.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// The executable with this id.
    pub fn exec(&self, id: ExecId) -> &Exec {
        &self.execs[id.index()]
    }

    /// Microbatches of one optimizer step.
    pub fn microbatches_of_step(&self) -> u32 {
        (self.n_microbatches / self.n_steps.max(1)).max(1)
    }

    /// The optimizer step that a microbatch belongs to, counted from the first one of the step lists.
    pub fn step_of(&self, microbatch: MicrobatchId) -> u32 {
        microbatch.0 / self.microbatches_of_step()
    }

    /// The version of a stage's weights that its tasks on a microbatch read. Version 0 is the one
    /// that the step lists begin with, and every update makes the next one; versions below 0 are
    /// older ones.
    pub fn version_read(&self, stage: StageId, microbatch: MicrobatchId) -> i64 {
        let lags = self.lags.get(stage.index()).map_or([].as_slice(), Vec::as_slice);
        let lag = lags.get((microbatch.0 % self.microbatches_of_step()) as usize).copied().unwrap_or(0);
        i64::from(self.step_of(microbatch)) - i64::from(lag)
    }

    /// Whether an update is the last one of its weights in a step on its device: the only one, that
    /// of a share, or that of the last chunk.
    pub fn ends_update(&self, exec: &Exec) -> bool {
        let weights = exec.operands.first().and_then(|operand| self.values.get(operand.value.index()));
        exec.chunk.is_none_or(|chunk| chunk.group.is_some() || weights.is_none_or(|weights| chunk.to >= weights.bytes))
    }

    /// The queues of its transfers: from where to where, and of which class. Some come several times.
    pub fn transfers(&self) -> impl Iterator<Item = (DeviceId, DeviceId, Class)> {
        self.devices.iter().enumerate().flat_map(|(index, device)| {
            let own = DeviceId::from_index(index);
            device.setup.iter().chain(&device.step).filter_map(move |instruction| match instruction.starts()?.1 {
                Start::Send(to, class) => Some((own, to, class)),
                Start::Receive(from, class) => Some((from, own, class)),
                Start::Join(_) | Start::Copy(_) | Start::Lane(_) => None,
            })
        })
    }

    /// The members of a group.
    pub fn group(&self, id: GroupId) -> &[DeviceId] {
        &self.groups[id.index()]
    }

    /// Number of collectives of one step: each is started once by every member of its group.
    pub fn n_collectives(&self) -> usize {
        let starts = |device: &DeviceProgram, group: usize| {
            let own = |one: &&Instruction| one.joins(GroupId::from_index(group));
            device.step.iter().filter(own).count()
        };
        let first = |members: &Vec<DeviceId>| members.first().and_then(|device| self.devices.get(device.index()));
        let groups = self.groups.iter().enumerate();
        groups.filter_map(|(group, members)| first(members).map(|device| starts(device, group))).sum()
    }

    /// The sum of the squares of all gradients of a step, where a norm is taken of them.
    pub fn gradient_norm(&self) -> Option<ValueId> {
        self.values.iter().position(|value| value.kind == ValueKind::GradientNorm).map(ValueId::from_index)
    }

    /// Type of what is emitted: the one of every loss.
    pub fn loss_type(&self) -> DType {
        self.values.iter().find(|value| value.kind == ValueKind::Loss).map_or(DType::F32, Value::dtype)
    }

    /// Number of instructions of one step, over all devices.
    pub fn n_instructions(&self) -> usize {
        self.devices.iter().map(|device| device.step.len()).sum()
    }
}
