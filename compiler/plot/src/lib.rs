//! Pictures: everything that a drawing of a timeline needs, as plain data (`pipec.picture/1`).
//!
//! Made once from a compilation, whoever draws it: the page, Perfetto, a comparison with what a run
//! measured. Times are whole ticks of a [`Clock`], memory whole parts of a [`Measure`]. Figures are
//! those of the report. Tables with a row for each task or transfer are written by column, because
//! there may be hundreds of thousands of rows. [`figure`] lays out figures, and [`render`]
//! writes them.

mod bubble;
mod bytes;
mod columns;
mod drawn;
pub mod figure;
mod memory;
pub mod numbers;
pub mod palette;
pub mod render;
mod scale;
pub mod shades;
pub mod statements;
pub mod stop;
pub mod tracks;
mod transfers;
mod waits;
pub mod why;

use palette::Kind;
use pipe_compiler::report::Report;
use pipe_ir::instruction::{Class, Direction};
use pipe_ir::task::TaskKind;
use pipe_schedule::timing::timeline::Together;
use scale::TickScale;
use serde::Serialize;
use statements::{SourceText, Statement};
use stop::{Misfit, Stop};
use tracks::Occupancy;

/// Name and version of the form.
pub const SCHEMA: &str = "pipec.picture/1";

/// A timeline as it is drawn.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Picture {
    /// `pipec.picture/1`.
    pub schema: &'static str,
    /// What the picture is of: the name of the pipeline, or of the schedule.
    pub title: String,
    /// How ticks become times.
    pub clock: Clock,
    /// From the first start to the end of everything, in ticks.
    pub makespan: u64,
    /// Microbatches of all steps, in how many slices each is cut, and how many steps there are.
    pub microbatches: [u32; 3],
    /// What the numbers of kinds stand for.
    pub kinds: Vec<Kind>,
    /// What the numbers of stages stand for, where stages have parts: `s1.dispatch`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<String>,
    /// The shade in which each of them is drawn, from 0.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shades: Vec<u32>,
    /// What the numbers of reasons stand for.
    pub reasons: [&'static str; 6],
    /// What the numbers of classes stand for.
    pub classes: [&'static str; 3],
    /// What the numbers of causes stand for.
    pub causes: [&'static str; 8],
    /// The devices, and what each does.
    pub devices: Vec<Device>,
    /// Every stretch of time in which a device runs no task, cut where its cause changes: device by device, in order.
    #[serde(serialize_with = "columns::gaps")]
    pub gaps: Vec<Gap>,
    /// All tasks, device by device, in the order of each. One that occupies several devices stands with each of them.
    #[serde(serialize_with = "columns::tasks")]
    pub tasks: Vec<DrawnTask>,
    /// The statements that tasks come from, in the order of the texts.
    #[serde(serialize_with = "columns::statements", skip_serializing_if = "Vec::is_empty")]
    pub statements: Vec<Statement>,
    /// The texts that these statements stand in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceText>,
    /// What travels between devices for tasks.
    #[serde(serialize_with = "columns::transfers")]
    pub transfers: Vec<Transfer>,
    /// Copies between devices and their hosts, or of activations that are evicted and fetched, where there are any.
    #[serde(serialize_with = "columns::copies")]
    pub copies: Vec<Copy>,
    /// What several devices do together, a part for each of them, where there is any.
    #[serde(serialize_with = "columns::collectives")]
    pub collectives: Vec<Collective>,
    /// What the numbers of collectives stand for.
    pub together: [&'static str; Together::ALL.len()],
    /// What is done behind the last task, if anything is.
    pub closing: Option<Closing>,
    /// Memory over time: in units of activations, and in bytes where a model is bound.
    pub memory: Vec<Memory>,
    /// Positions in `tasks` of those that make the step as long as it is, first to last; of a pair the first.
    pub critical_path: Vec<u32>,
    /// Where the schedule is stuck, if it is: tasks behind that never run, and are placed one after the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<Stop>,
    /// Devices whose memory does not suffice, in the order of the devices.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub misfits: Vec<Misfit>,
    /// The figures, and what speaks against the target; none of a timeline that is compared with another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<Report>,
    /// What follows the lower bound of the report wherever it is shown
    /// ([`Figures::form_of_bound`](pipe_compiler::report::Figures::form_of_bound)).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub form_of_bound: String,
}

/// How ticks become times.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Clock {
    /// What a unit of time is called, where it has a name.
    pub unit: Option<&'static str>,
    /// Ticks of one unit.
    pub ticks_per_unit: u64,
}

/// One device, or one lane of it: a row of the picture. Wherever a picture numbers devices, it numbers these.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Device {
    /// Its name, where there are lanes: `d1`, `d1 link`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Position in [`Picture::tasks`] of its first task, and how many it has.
    pub tasks: [u32; 2],
    /// The stages that it holds, in the order of the model.
    pub stages: Vec<u32>,
    /// Ticks in tasks.
    pub busy: u64,
    /// Where the rest of the makespan goes: these add up to it.
    pub idle: Vec<Idle>,
}

/// One task on one of its devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DrawnTask {
    /// The device.
    pub device: u32,
    /// What is done.
    pub kind: TaskKind,
    /// Of which stage.
    pub stage: u32,
    /// On which microbatch.
    pub microbatch: u32,
    /// On which slice of it.
    pub slice: u32,
    /// When it starts.
    pub start: u64,
    /// When it ends.
    pub end: u64,
    /// Whether it has the device for itself.
    pub share: Occupancy,
    /// Whether it occupies the next device as well.
    pub goes_on: bool,
    /// What its start waited for last.
    pub reason: Reason,
    /// The task that it waited for, if it did, as a position in [`Picture::tasks`].
    pub after: Option<u32>,
    /// How much later than all of that it started, where that was measured.
    pub late: u64,
    /// The statement that it comes from, as a position in [`Picture::statements`], where these are told.
    pub statement: Option<u32>,
}

/// Where the moments of a timeline come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moments {
    /// From costs: a task starts as soon as it can.
    Placed,
    /// From a run: a task may start later than that.
    Measured,
}

pipe_ir::words! {
    /// What the start of a task waited for last.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Reason {
        /// Nothing: the step begins.
        Nothing "nothing"
        /// Its device, or another one that it occupies, had another task to do.
        Device "device"
        /// A task of its own device that it reads.
        Input "input"
        /// What another device sent.
        Transfer "transfer"
        /// Weights that devices divide came together, behind the task that joined last.
        Weights "weights"
        /// A copy from the host, or to it; or of an activation that is evicted or fetched.
        Copy "copy"
    }
}

/// Something that one device sends to another, once: the first task that reads it is named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// The task that makes it, on the device that sends it: a position in [`Picture::tasks`].
    pub from: u32,
    /// The task that reads it, on the device that receives it.
    pub to: u32,
    /// What it is.
    pub class: Class,
    /// When it leaves.
    pub start: u64,
    /// When it has arrived.
    pub end: u64,
    /// How large it is, where a model is bound.
    pub bytes: Option<u64>,
}

/// A copy between a device and its host, or another device where its activations wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copy {
    /// The device.
    pub device: u32,
    /// Which way, and so on which of its queues.
    pub direction: Direction,
    /// When its queue begins with it.
    pub start: u64,
    /// When it has ended.
    pub end: u64,
    /// What is evicted or fetched, if it is that.
    pub swap: Option<SwapOf>,
}

/// An activation that is evicted or fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwapOf {
    /// Of which stage.
    pub stage: u32,
    /// Of which microbatch.
    pub microbatch: u32,
    /// Of which slice of it.
    pub slice: u32,
    /// The device where it waits; none for the host.
    pub peer: Option<u32>,
}

/// A device's part of what it does together with others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Collective {
    /// The device.
    pub device: u32,
    /// What.
    pub what: Together,
    /// Whose weights or gradients they are, where that is one stage.
    pub stage: Option<u32>,
    /// When it joins.
    pub start: u64,
    /// When every member has the result.
    pub end: u64,
}

/// What is done when all tasks have ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Closing {
    /// What.
    pub what: &'static str,
    /// From then on.
    pub start: u64,
    /// Until then.
    pub end: u64,
}

/// Time in which a device runs no task.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Idle {
    /// Why.
    pub cause: Cause,
    /// The device that it waits for, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<u32>,
    /// How long, in ticks.
    pub time: u64,
}

/// A stretch of time in which a device runs no task, for one cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gap {
    /// The device.
    pub device: u32,
    /// Why.
    pub cause: Cause,
    /// The device that it waits for, where it is one.
    pub other: Option<u32>,
    /// From then on.
    pub start: u64,
    /// Until then.
    pub end: u64,
}

pipe_ir::words! {
    /// Why a device runs no task.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Cause {
        /// Its first task has not started.
        WarmUp "warm_up"
        /// What its next task reads is being computed by another device, or that one is not free for a task of both.
        Waiting "waiting"
        /// What its next task reads is on its way.
        Communication "communication"
        /// Weights that devices divide have not come together.
        Weights "weights"
        /// Copies between it and its host, or of activations that it evicts and fetches, have not ended.
        Copies "copies"
        /// Its next task could have started, as measured.
        Late "late"
        /// Its last task has ended, and another device's has not.
        CoolDown "cool_down"
        /// All tasks have ended: gradients are added up and weights updated.
        Closing "closing"
    }
}

/// Memory over time, counted in one way.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Memory {
    /// What parts are.
    pub measure: Measure,
    /// By device.
    pub devices: Vec<MemoryTrack>,
}

/// What parts of memory are: `times / over` units or bytes each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Measure {
    /// `units` or `bytes`.
    pub unit: &'static str,
    /// How many of these `over` parts are.
    pub times: u64,
    /// How many parts `times` of these are.
    pub over: u64,
}

/// The memory of one device.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct MemoryTrack {
    /// What the device may hold, in units or bytes.
    pub limit: Option<f64>,
    /// The most parts alive.
    pub peak: u64,
    /// When they are, for the first time.
    pub at: u64,
    /// Moments, and the parts alive from each of them on.
    #[serde(serialize_with = "columns::levels")]
    pub levels: Vec<(u64, u64)>,
    /// What is alive at the peak: these add up to it. The largest come first, and of the same size the oldest.
    pub alive: Vec<Lifespan>,
}

/// Something that is alive at the peak of a device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Lifespan {
    /// What it is.
    pub what: String,
    /// Of which stage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<u32>,
    /// Of which microbatch, each slice counted as one, if of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub microbatch: Option<u32>,
    /// Since when; since before the step, if that is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// Until when; beyond the step, if that is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
    /// How many parts.
    pub parts: u64,
}
