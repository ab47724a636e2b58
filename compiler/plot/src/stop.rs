//! Why a schedule cannot run as it is, to be drawn: where it is stuck, and from when on memory does not suffice.

use crate::drawn::{Basis, microbatches, name, parts, shades, tasks};
use crate::scale::TickScale;
use crate::tracks::{rows, stuck_tracks};
use crate::{Cause, Clock, Device, Memory, Moments, Picture, Reason, SCHEMA, palette, transfers, waits};
use pipe_compiler::stuck::{Stuck, WaitingFor};
use pipe_ir::instruction::Class;
use pipe_schedule::timing::timeline::Together;
use pipe_schedule::units::Ticks;
use serde::Serialize;

/// Where a schedule is stuck.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Stop {
    /// `deadlock`.
    pub reason: &'static str,
    /// When the last task ends that runs, in ticks. What never runs is placed behind it.
    pub at: u64,
    /// By device: how many of its tasks run.
    pub ran: Vec<u32>,
    /// By device: how many tasks are not in the picture, because no cycle is about them. They never run either.
    pub hidden: Vec<u32>,
    /// Who waits for whom: of every group of devices that wait for each other, a shortest cycle.
    pub cycles: Vec<Vec<StopWait>>,
}

/// A device comes to a task, which needs another one that never runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct StopWait {
    /// The task that the device comes to: a position in [`Picture::tasks`].
    pub task: u32,
    /// The task that it needs, likewise.
    pub needs: u32,
    /// Whether it needs no more than that the other device comes to the same task.
    pub meets: bool,
    /// Line of the statement that the first one comes from.
    pub line: u32,
    /// Line of the statement that the needed one comes from.
    pub needs_line: u32,
}

/// A device whose memory does not suffice.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Misfit {
    /// The device.
    pub device: u32,
    /// `units` or `bytes`.
    pub unit: &'static str,
    /// What it may hold.
    pub limit: f64,
    /// Since when it holds more, for the first time.
    pub from: u64,
    /// How much too much it holds at its peak.
    pub over: f64,
}

/// The picture of a schedule that is stuck. There is no memory in it, and nothing about a whole step.
pub(super) fn picture(stuck: &Stuck) -> Picture {
    let Stuck { schedule, order, costs, timeline, .. } = stuck;
    let basis = Basis { schedule, order, costs, timeline };
    let scale = TickScale::of(&[basis]);
    let tracks = stuck_tracks(stuck);
    let waits = waits::all(basis, Moments::Placed);
    let last = timeline.ends.iter().flatten().copied().max().unwrap_or_default();
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let devices = tracks.iter().zip(rows(schedule)).map(|(track, queue)| Device {
        name: name(schedule, track),
        tasks: [scale.first[queue.index()], count(track.marks.len())],
        stages: track.stages.iter().map(|stage| stage.0).collect(),
        busy: scale.ticks(track.busy()),
        idle: Vec::new(),
    });
    let by_row = |counts: &[usize]| rows(schedule).map(|queue| count(counts[queue.index()])).collect();
    let wait = |wait: &WaitingFor| StopWait {
        task: scale.index(wait.at),
        needs: scale.index(wait.needs),
        meets: wait.meets,
        line: wait.lines[0],
        needs_line: wait.lines[1],
    };
    Picture {
        schema: SCHEMA,
        title: stuck.pipeline.as_ref().unwrap_or(&schedule.name).clone(),
        clock: Clock { unit: stuck.unit, ticks_per_unit: Ticks::UNIT.0 / scale.divisor },
        makespan: scale.ticks(last),
        microbatches: microbatches(schedule),
        kinds: palette::kinds(),
        parts: parts(schedule),
        shades: shades(schedule),
        reasons: Reason::ALL.map(Reason::word),
        classes: Class::ALL.map(Class::word),
        causes: Cause::ALL.map(Cause::word),
        gaps: Vec::new(),
        statements: Vec::new(),
        sources: Vec::new(),
        devices: devices.collect(),
        tasks: tasks(schedule, &tracks, &waits, &scale),
        transfers: transfers::all(basis, None, &scale),
        copies: Vec::new(),
        collectives: Vec::new(),
        together: Together::ALL.map(Together::word),
        closing: None,
        memory: Vec::new(),
        critical_path: Vec::new(),
        stop: Some(Stop {
            reason: "deadlock",
            at: scale.ticks(stuck.at),
            ran: by_row(&stuck.ran),
            hidden: by_row(&stuck.hidden),
            cycles: stuck.cycles.iter().map(|cycle| cycle.iter().map(wait).collect()).collect(),
        }),
        misfits: Vec::new(),
        report: None,
        form_of_bound: String::new(),
    }
}

/// The devices that hold more than they may.
pub(super) fn misfits(memory: &[Memory]) -> Vec<Misfit> {
    let of = |memory: &Memory| {
        let amount = |parts: u64| parts as f64 * memory.measure.times as f64 / memory.measure.over as f64;
        let unit = memory.measure.unit;
        let each = (0..).zip(&memory.devices).filter_map(|(device, track)| {
            let limit = track.limit?;
            // Limits in units are decimal fractions, and parts are not.
            let is_over = |parts: u64| amount(parts) > limit * (1.0 + 1e-9);
            let (from, _) = track.levels.iter().find(|(_, parts)| is_over(*parts))?;
            Some(Misfit { device, unit, limit, from: *from, over: amount(track.peak) - limit })
        });
        each.collect::<Vec<_>>()
    };
    let mut found: Vec<Misfit> = memory.iter().flat_map(of).collect();
    found.sort_by_key(|misfit| misfit.device);
    found
}
