//! A picture of a compilation, or of other timelines of its schedule.

use super::{
    Cause, Clock, Closing, Collective, Copy, Device, DrawnTask, Gap, Moments, Picture, Reason, SCHEMA, SwapOf,
    TickScale, bubble, bytes, memory, palette, stop, transfers, waits,
};
use crate::shades::Shades;
use crate::tracks::{Track, rows, tracks};
use pipe_compiler::Compilation;
use pipe_compiler::analyze::Analysis;
use pipe_ir::ids::{MicrobatchId, StageId};
use pipe_ir::instruction::Class;
use pipe_schedule::order::Order;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::swaps::Home;
use pipe_schedule::timing::durations::Costs;
use pipe_schedule::timing::timeline::{Timeline, Together};
use pipe_schedule::units::Ticks;

/// What the tables of a picture follow from.
#[derive(Clone, Copy)]
pub(super) struct Basis<'a> {
    pub(super) schedule: &'a Schedule,
    pub(super) order: &'a Order,
    pub(super) costs: &'a Costs,
    pub(super) timeline: &'a Timeline,
}

impl<'a> From<&'a Analysis> for Basis<'a> {
    fn from(analysis: &'a Analysis) -> Self {
        let Analysis { schedule, order, costs, timeline, .. } = analysis;
        Self { schedule, order, costs, timeline }
    }
}

impl Picture {
    /// The picture of a compilation, if its schedule runs to its end, or is stuck.
    pub fn new(compilation: &Compilation) -> Option<Self> {
        let report = &compilation.report;
        let Some(analysis) = &compilation.analysis else {
            let stuck = compilation.stuck.as_ref()?;
            return Some(Self { report: Some(report.clone()), ..stop::picture(stuck) });
        };
        let scale = TickScale::of(&[analysis.into()]);
        let picture = Self::of(compilation, (analysis, Moments::Placed), &scale, analysis.unit);
        let misfits = stop::misfits(&picture.memory);
        Some(Self { report: Some(report.clone()), form_of_bound: report.figures.form_of_bound(), misfits, ..picture })
    }

    /// Pictures of other timelines of the same order on one time axis, whose unit is named.
    pub fn versions(compilation: &Compilation, versions: &[(&Analysis, Moments)], unit: &'static str) -> Vec<Self> {
        let all: Vec<Basis<'_>> = versions.iter().map(|(analysis, _)| (*analysis).into()).collect();
        let scale = TickScale::of(&all);
        versions.iter().map(|version| Self::of(compilation, *version, &scale, Some(unit))).collect()
    }

    fn of(
        compilation: &Compilation,
        (analysis, moments): (&Analysis, Moments),
        scale: &TickScale,
        unit: Option<&'static str>,
    ) -> Self {
        let report = &compilation.report;
        let program = compilation.lowered().filter(|_| analysis.has_model());
        let tracks = tracks(analysis);
        let waits = waits::all(analysis.into(), moments);
        let tasks = tasks(&analysis.schedule, &tracks, &waits, scale);
        let units = memory::in_units(analysis, report, scale);
        let bytes = program.map(|program| bytes::in_bytes(analysis, program, report, scale));
        let timeline = &analysis.timeline;
        let last = tracks.iter().flat_map(|track| track.marks.last()).map(|mark| mark.end).max().unwrap_or_default();
        let what = if timeline.updated.is_some() { "updates and copies" } else { "sums of gradients" };
        let copies = timeline.copies.iter().map(|copy| Copy {
            device: copy.device.0,
            direction: copy.direction,
            start: scale.ticks(copy.start),
            end: scale.ticks(copy.end),
            swap: copy.swap.map(|(stage, microbatch)| swap_of(&analysis.schedule, stage, microbatch)),
        });
        let collectives = timeline.collectives.iter().filter(|part| part.end > part.start).map(|part| Collective {
            device: part.device.0,
            what: part.what,
            stage: part.stage.map(|stage| stage.0),
            start: scale.ticks(part.start),
            end: scale.ticks(part.end),
        });
        let schedule = &analysis.schedule;
        let places = places(schedule);
        let gaps = |queue| bubble::gaps(analysis, (queue, &places), &waits, scale);
        let gaps: Vec<Vec<Gap>> = rows(schedule).map(gaps).collect();
        Self {
            schema: SCHEMA,
            title: report.pipeline.as_ref().unwrap_or(&schedule.name).clone(),
            clock: Clock { unit, ticks_per_unit: Ticks::UNIT.0 / scale.divisor },
            makespan: scale.ticks(timeline.makespan()),
            microbatches: microbatches(schedule),
            kinds: palette::kinds(),
            parts: parts(schedule),
            shades: shades(schedule),
            reasons: Reason::ALL.map(Reason::word),
            classes: Class::ALL.map(Class::word),
            causes: Cause::ALL.map(Cause::word),
            devices: devices(analysis, &tracks, &gaps, scale),
            gaps: gaps.concat(),
            statements: Vec::new(),
            sources: Vec::new(),
            transfers: transfers::all(analysis.into(), program, scale),
            copies: copies.collect(),
            collectives: collectives.collect(),
            together: Together::ALL.map(Together::word),
            closing: (last < timeline.makespan()).then(|| Closing {
                what,
                start: scale.ticks(last),
                end: scale.ticks(timeline.makespan()),
            }),
            memory: [units].into_iter().chain(bytes).collect(),
            critical_path: analysis.critical_path.tasks.iter().map(|slot| scale.index(*slot)).collect(),
            tasks,
            stop: None,
            misfits: Vec::new(),
            report: None,
            form_of_bound: String::new(),
        }
    }
}

/// An activation that is evicted or fetched.
fn swap_of(schedule: &Schedule, stage: StageId, microbatch: MicrobatchId) -> SwapOf {
    let peer = match schedule.swaps.home(stage) {
        Some(Home::Peer(device)) => Some(device.0),
        Some(Home::Host) | None => None,
    };
    let slices = schedule.slices;
    SwapOf { stage: stage.0, microbatch: slices.microbatch(microbatch), slice: slices.slice(microbatch), peer }
}

/// Microbatches of all steps, slices of each, steps.
pub(super) fn microbatches(schedule: &Schedule) -> [u32; 3] {
    [schedule.n_microbatches / schedule.slices.count(), schedule.slices.count(), schedule.n_steps()]
}

fn devices(analysis: &Analysis, tracks: &[Track], gaps: &[Vec<Gap>], scale: &TickScale) -> Vec<Device> {
    let each = rows(&analysis.schedule).zip(tracks.iter().zip(gaps)).map(|(index, (track, gaps))| Device {
        name: name(&analysis.schedule, track),
        tasks: [scale.first[index.index()], u32::try_from(track.marks.len()).unwrap_or(u32::MAX)],
        stages: track.stages.iter().map(|stage| stage.0).collect(),
        busy: scale.ticks(analysis.timeline.busy(index)),
        idle: bubble::sums(gaps),
    });
    each.collect()
}

/// The name of a track, where there are lanes.
pub(super) fn name(schedule: &Schedule, track: &Track) -> Option<String> {
    (!schedule.parts.lanes().is_empty()).then(|| track.name.clone())
}

/// The names of parts, if stages have parts.
pub(super) fn parts(schedule: &Schedule) -> Vec<String> {
    let rows = 0..if schedule.parts.is_empty() { 0 } else { schedule.n_stages() };
    rows.map(|row| schedule.stage_name(StageId::from_index(row))).collect()
}

/// The shade of each part, if stages have parts.
pub(super) fn shades(schedule: &Schedule) -> Vec<u32> {
    let shades = Shades::of(schedule).of_parts.into_iter();
    shades.map(|shade| u32::try_from(shade).unwrap_or(u32::MAX)).collect()
}

/// By device and lane: the track that it has.
pub(super) fn places(schedule: &Schedule) -> Vec<u32> {
    let mut places = vec![0; schedule.n_queues()];
    (0..).zip(rows(schedule)).for_each(|(place, queue)| places[queue.index()] = place);
    places
}

/// All tasks of some tracks.
pub(super) fn tasks(schedule: &Schedule, tracks: &[Track], waits: &waits::Waits, scale: &TickScale) -> Vec<DrawnTask> {
    let slices = schedule.slices;
    let each = (0..).zip(rows(schedule)).zip(tracks).flat_map(|((device, queue), track)| {
        track.marks.iter().zip(&waits[queue.index()]).map(move |(mark, wait)| DrawnTask {
            device,
            kind: mark.task.kind,
            stage: mark.task.stage.0,
            microbatch: slices.microbatch(mark.task.microbatch),
            slice: slices.slice(mark.task.microbatch),
            start: scale.ticks(mark.start),
            end: scale.ticks(mark.end),
            share: mark.share,
            goes_on: mark.goes_on,
            reason: wait.reason,
            after: wait.after.map(|slot| scale.index(slot)),
            late: scale.ticks(wait.late),
            statement: None,
        })
    });
    each.collect()
}
