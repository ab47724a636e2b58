//! The verifier: only programs that pass here may run, whoever compiled them.
//!
//! Rules, each in the file of its group under `verify/` (collectives, channels and progress are in `orders/`):
//!
//! - **tables**: names are unique and ids in range; executables get as many buffers as they have
//!   operands, all different and each at least as large as its value; numbers are finite; set-up
//!   lists only `alloc` and `fill`; weights start with their initial contents, all else with zeros,
//!   and the step fills neither weights nor optimizer state; weights that are kept in shares have
//!   one for each member of one group, which holds exactly its bytes of their tensors, and are
//!   filled, and updated, share by share by their members; an update has no operand of a
//!   microbatch, and nothing but an update changes weights; every stage has an executable. Where
//!   microbatches are cut into slices, an executable is of one slice and runs on that slice; slices
//!   read each other's values only within one microbatch, all slices of which belong to one step;
//!   tensors of data have a second axis, along which they are cut.
//! - **graphs**: inputs come before their use, shapes agree with the operation, loads and stores
//!   stay inside their operand; what is written is written completely and once; temporaries have
//!   room, and nothing else is in it.
//! - **lifespans**: a buffer is used only between `alloc` and `free`; what lives since the set-up
//!   is never freed, what is allocated in the step is freed in it; live buffers never overlap;
//!   offsets are aligned and inside the arena; arena and peak are exact and within the memory, in
//!   both spaces.
//! - **tokens**: a started transfer, collective or copy is waited for exactly once, before its
//!   buffer is written or freed (a send, what a copy or a gathering reads) or touched at all (a
//!   receive, a collective, what a copy or a gathering writes). So is what a lane is given: what it
//!   reads is not written or freed before, and what it writes not touched, but by the lane itself.
//!   Only lists wait for lanes. Sends of a channel from a list and from lanes are in one order.
//! - **copies**: only copies reach the host's memory; they join buffers of one size, on either
//!   side, and carry weights, the optimizer's state or a value of a microbatch. Chunks of weights
//!   follow each other without gaps.
//! - **tasks**: each microbatch goes exactly once through each stage, forward, then backward fused
//!   or in two halves, all on one device; an update runs once for each step on each device that
//!   holds the weights, after all weight gradients of its step, before any of the next step.
//! - **contents**: whoever reads a buffer finds the value that it expects, of its own microbatch or
//!   of the slice that its operand names; gradients are zeroed in the step before anything is added
//!   to them, and never after; gradients that several devices hold are reduced once in each step,
//!   after all that is added to them and before the update; who has its share of the sum updates
//!   its share of the weights, and gives it to the others before anyone reads them; weights that
//!   are kept in shares are gathered from shares of one version, which is what their readers find;
//!   where their sum travels instead, each microbatch's gradient is added to the sum up to the one
//!   before it, and an update takes the sum up to the last one of its step; the step ends with the
//!   contents it began with. Weights that are updated in chunks are updated in their order, and
//!   read by nobody in between. A task reads exactly the version of the weights that the program's
//!   lags give, and a backward that of its forward; an update reads the newest version, and what the
//!   step list ends with is what it began with, as many updates later.
//! - **members**: a task in which the members of a device exchange something runs in pieces, in
//!   their order and with no other run between them; what one of them exchanges is exchanged by the
//!   group of that device alone before a later one reads it. All members run one list, so what holds
//!   of the device holds of each, and a collective of theirs has all of them at the same place.
//! - **norm**: where gradients are clipped, the gradients of every update are squared and added up once, on one device,
//!   after they are final and with nothing added to them afterwards; the members of each device add up their sums, then
//!   all devices do, and no update comes before that.
//! - **losses**: every loss is emitted exactly once, on the device that computes it.
//! - **collectives**: the n-th collective of a group is the same on every member, and joins the
//!   same value and bytes, which are all the devices that hold the value, or a share of it. Shares
//!   belong to that group, and each member updates its own.
//! - **channels**: the n-th send of a channel carries the value, microbatch and bytes of its n-th
//!   receive, and a channel has at most two receives that nobody has read yet (or as many as one
//!   executable reads).
//! - **progress**: no device waits forever, even if every transfer needs both sides, and every
//!   collective all members, at the head of their queues.
//!
//! A group is judged only if the groups before it found nothing, so that no finding merely follows from another. All
//! take memory linear in the number of instructions, and time too, but for look-ups in sorted tables.

mod contents;
mod lifespans;
mod losses;
mod norm;
mod orders;
mod report;
mod tables;
mod tasks;
mod tokens;

use crate::ids::DeviceId;
use crate::program::Program;
pub use orders::receive_slots;
use report::Report;
use std::fmt;

/// A program that keeps every rule. Only [`verify`] makes one.
#[derive(Clone, PartialEq, Debug)]
pub struct Verified {
    program: Program,
    /// Whether each member of a device is a device.
    is_of_members: bool,
}

impl Verified {
    /// What was verified.
    pub const fn program(&self) -> &Program {
        &self.program
    }

    /// The program in which each member of a device is a device, as it runs. It keeps the rules because this one does:
    /// see [`crate::members`].
    #[must_use]
    pub fn of_members(&self) -> Self {
        if self.is_as_it_runs() {
            return self.clone();
        }
        Self { program: self.program.of_members(), is_of_members: true }
    }

    /// Whether each member of a device is a device.
    pub const fn is_as_it_runs(&self) -> bool {
        self.is_of_members || self.program.members() == 1
    }
}

/// One of the two lists of a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum List {
    /// [`crate::program::DeviceProgram::setup`]
    Setup,
    /// [`crate::program::DeviceProgram::step`]
    Step,
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Setup => "setup",
            Self::Step => "step",
        })
    }
}

/// What an error is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// The program as a whole.
    Program,
    /// A row of the table of groups.
    Group(u32),
    /// A row of the table of values.
    Value(u32),
    /// A row of the table of executables.
    Exec(u32),
    /// A device as a whole.
    Device(DeviceId),
    /// A row of a device's table of buffers.
    Buffer(DeviceId, u32),
    /// An instruction.
    Instruction(DeviceId, List, u32),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program => f.write_str("program"),
            Self::Group(group) => write!(f, "group {group}"),
            Self::Value(value) => write!(f, "value {value}"),
            Self::Exec(exec) => write!(f, "exec {exec}"),
            Self::Device(device) => write!(f, "{device}"),
            Self::Buffer(device, buffer) => write!(f, "{device} buffer %{buffer}"),
            Self::Instruction(device, list, index) => write!(f, "{device} {list} {index}"),
        }
    }
}

/// One of several instructions that break a rule together. Read one after the other, notes are a sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    /// Where.
    pub place: Place,
    /// The text of the instruction.
    pub instruction: String,
    /// The line of the text that the program was parsed from.
    pub line: Option<u32>,
    /// What follows it in the sentence.
    pub words: &'static str,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        write!(f, "{} `{}`{}", self.place, self.instruction, self.words)
    }
}

/// A broken rule: somebody's compiler made a mistake.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct VerifyError {
    /// Where.
    pub place: Place,
    /// The text of the instruction, where the place is one.
    pub instruction: Option<String>,
    /// The line of the text that the program was parsed from.
    pub line: Option<u32>,
    /// What is wrong, with its numbers.
    pub message: String,
    /// The instructions that make it together, where one alone does not: those of a deadlock.
    pub notes: Vec<Note>,
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if self.place != Place::Program {
            write!(f, "{}: ", self.place)?;
        }
        if let Some(text) = &self.instruction {
            write!(f, "`{text}`: ")?;
        }
        f.write_str(&self.message)?;
        self.notes.iter().try_for_each(|note| write!(f, "\n  {note}"))
    }
}

/// Checks every rule.
///
/// # Errors
/// All that was found, in the order of the program, as far as one finding does not follow from another.
pub fn verify(program: Program) -> Result<Verified, Vec<VerifyError>> {
    match analyze(&program) {
        Ok(()) => Ok(Verified { program, is_of_members: false }),
        Err(report) => Err(report.into_errors(&program)),
    }
}

fn analyze(program: &Program) -> Result<(), Report> {
    let mut report = Report::default();
    tables::check(program, &mut report);
    report.checkpoint()?;
    for (device, code) in devices(program) {
        lifespans::check(program, device, code, &mut report);
        tokens::check(program, device, code, &mut report);
    }
    report.checkpoint()?;
    let holders = orders::Holders::of(program);
    tasks::check(program, &holders, &mut report);
    norm::check(program, &mut report);
    report.checkpoint()?;
    let contents = devices(program).map(|(device, code)| contents::check(program, &holders, device, code, &mut report));
    let (sent, joined): (Vec<_>, Vec<_>) = contents.unzip();
    report.checkpoint()?;
    devices(program).for_each(|(device, code)| losses::check(program, device, code, &mut report));
    orders::check(program, &holders, &sent, &joined, &mut report);
    report.checkpoint()
}

fn devices(program: &Program) -> impl Iterator<Item = (DeviceId, &crate::program::DeviceProgram)> {
    program.devices.iter().enumerate().map(|(index, code)| (DeviceId::from_index(index), code))
}
