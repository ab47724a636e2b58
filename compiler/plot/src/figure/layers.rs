//! What a figure shows besides tasks: memory, transfers, copies, collectives and the critical path.

use super::legend::{Entry, Sign};
use super::scene::{Fill, Paint, Part, Step, Stroke};
use super::sheet::{Sheet, UNITS};
use super::sizes::Sizes;
use super::{FAINT, INK, Look, PAPER, Shown};
use crate::numbers::{bytes, number};
use crate::palette::Colour;
use crate::{Memory, Picture};
use pipe_ir::instruction::{Class, Direction};
use pipe_schedule::timing::timeline::Together;

pipe_ir::words! {
    /// Something that a figure shows besides tasks.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Layer {
        /// Memory over time below each device, and its peak.
        Memory "memory"
        /// Lines from the task that sends to the one that receives.
        Transfers "transfers"
        /// Bars below each device: copies between it and its host, and activations that it evicts and fetches.
        Copies "copies"
        /// Bars below each device: its collectives.
        Collectives "collectives"
        /// The tasks that make the step as long as it is.
        CriticalPath "critical-path"
    }
}

const LIGHT: Colour = Colour::new(0xd9_de_e4);
const MIDDLE: Colour = Colour::new(0x87_95_a1);

/// The layers that are drawn of a target. Layers without contents take no room.
fn shown(target: &Shown<'_>, look: &Look) -> Vec<Layer> {
    let Some(picture) = &target.picture else { return Vec::new() };
    let is_there = |layer: &Layer| match layer {
        Layer::Memory => !picture.memory.is_empty(),
        Layer::Transfers => !picture.transfers.is_empty(),
        Layer::Copies => !picture.copies.is_empty(),
        Layer::Collectives => !picture.collectives.is_empty(),
        Layer::CriticalPath => !picture.critical_path.is_empty(),
    };
    Layer::ALL.into_iter().filter(|layer| look.layers.contains(layer) && is_there(layer)).collect()
}

/// The height of a layer below the tasks of each device.
fn height_of(layer: Layer, sizes: &Sizes) -> f64 {
    match layer {
        Layer::Memory => sizes.curve + sizes.hair,
        Layer::Copies => 2.0 * (sizes.bar + sizes.hair),
        Layer::Collectives => sizes.bar + sizes.hair,
        Layer::Transfers | Layer::CriticalPath => 0.0,
    }
}

/// The height of all layers below the tasks of each device.
pub(super) fn height(target: &Shown<'_>, look: &Look, sizes: &Sizes) -> f64 {
    shown(target, look).into_iter().map(|layer| height_of(layer, sizes)).sum()
}

/// The heading of the column of peaks.
pub(super) fn heading(picture: &Picture) -> &'static str {
    match memory(picture) {
        Some(memory) if memory.measure.unit == "bytes" => "peak",
        _ => UNITS,
    }
}

/// The peak of a device.
pub(super) fn peak(picture: &Picture, device: usize) -> Option<String> {
    let memory = memory(picture)?;
    let amount = amount(memory, memory.devices.get(device)?.peak);
    Some(if memory.measure.unit == "bytes" { bytes(amount as u64) } else { number(amount) })
}

/// Memory in bytes, where a model is bound.
fn memory(picture: &Picture) -> Option<&Memory> {
    picture.memory.last()
}

fn amount(memory: &Memory, parts: u64) -> f64 {
    parts as f64 * memory.measure.times as f64 / memory.measure.over as f64
}

/// The legend of the layers.
pub(super) fn entries(target: &Shown<'_>, look: &Look, sizes: &Sizes) -> Vec<Entry> {
    let entry = |sign, words: &str| Entry { sign, words: words.to_owned() };
    let each = shown(target, look).into_iter().flat_map(|layer| match layer {
        Layer::Memory => vec![entry(Sign::Box(curve(sizes)), "memory")],
        Layer::Transfers => vec![entry(Sign::Line(transfer(Class::Activation, sizes), false), "transfer")],
        Layer::Copies => {
            let is_swap = target.picture.iter().flat_map(|own| &own.copies).any(|one| one.swap.is_some());
            let [to_device, from_device] =
                if is_swap { ["fetch", "evict"] } else { ["copy from the host", "copy to the host"] };
            vec![
                entry(Sign::Box(copy(Direction::HostToDevice, sizes)), to_device),
                entry(Sign::Box(copy(Direction::DeviceToHost, sizes)), from_device),
            ]
        }
        Layer::Collectives => {
            let is_there = |is_transfer: bool| {
                let mut all = target.picture.iter().flat_map(|own| &own.collectives);
                all.any(|one| (one.what == Together::Transfer) == is_transfer)
            };
            let collective = is_there(false).then(|| entry(Sign::Box(together(Together::Sum)), "collective"));
            let transfer = is_there(true).then(|| entry(Sign::Box(together(Together::Transfer)), "transfer on a lane"));
            collective.into_iter().chain(transfer).collect()
        }
        Layer::CriticalPath => vec![entry(Sign::Box(critical(sizes)), "critical path")],
    });
    each.collect()
}

fn curve(sizes: &Sizes) -> Paint {
    Paint { fill: Some(Fill::Plain(LIGHT)), stroke: Some(Stroke { colour: MIDDLE, width: sizes.edge, dash: None }) }
}

/// Activations have solid lines, gradients and sums dashed ones.
fn transfer(class: Class, sizes: &Sizes) -> Paint {
    let line = Paint::line(FAINT, sizes.edge);
    if class == Class::Activation { line } else { line.dashed([3.0 * sizes.edge, 2.0 * sizes.edge]) }
}

/// Copies from the host are filled, copies to it are outlined.
fn copy(direction: Direction, sizes: &Sizes) -> Paint {
    let edge = Stroke { colour: FAINT, width: sizes.edge, dash: None };
    match direction {
        Direction::HostToDevice => Paint::filled(MIDDLE),
        Direction::DeviceToHost => Paint { stroke: Some(edge), ..Paint::filled(PAPER) },
    }
}

fn critical(sizes: &Sizes) -> Paint {
    Paint::line(INK, 2.67 * sizes.edge)
}

pub(super) fn draw(sheet: &Sheet<'_>, part: &mut Part) {
    let Some(picture) = &sheet.shown.picture else { return };
    let mut offset = sheet.task + sheet.sizes.hair;
    for layer in shown(sheet.shown, sheet.look) {
        match layer {
            Layer::Memory => curves(sheet, part, picture, offset),
            Layer::Transfers => transfers(sheet, part, picture),
            Layer::Copies => copies(sheet, part, picture, offset),
            Layer::Collectives => collectives(sheet, part, picture, offset),
            Layer::CriticalPath => critical_path(sheet, part, picture),
        }
        offset += height_of(layer, &sheet.sizes);
    }
}

/// A moment of a picture, in units of time.
fn time(picture: &Picture, ticks: u64) -> f64 {
    ticks as f64 / picture.clock.ticks_per_unit as f64
}

/// The unit of memory of a target, and the most that one of its devices holds.
pub(super) fn most(picture: &Picture) -> Option<(&'static str, f64)> {
    let memory = memory(picture)?;
    let most = memory.devices.iter().map(|device| device.peak).max()?;
    Some((memory.measure.unit, amount(memory, most)))
}

/// Memory over time. All curves of a figure with the same unit have the same scale.
fn curves(sheet: &Sheet<'_>, part: &mut Part, picture: &Picture, offset: f64) {
    let Some(memory) = memory(picture) else { return };
    let high = sheet.sizes.curve;
    for (device, track) in memory.devices.iter().enumerate() {
        let base = sheet.top(device) + offset + high;
        let y = |parts: u64| base - high * amount(memory, parts) / sheet.most_memory.max(f64::MIN_POSITIVE);
        for piece in sheet.axis.pieces() {
            let to = piece.to.min(time(picture, picture.makespan));
            // The level at the start of the piece.
            let before = track.levels.iter().rev().find(|(at, _)| time(picture, *at) <= piece.from);
            let mut steps = vec![Step::Move([piece.x, base])];
            let mut level = before.map_or(0, |(_, parts)| *parts);
            steps.push(Step::Line([piece.x, y(level)]));
            let shown = |at: &u64| (piece.from..to).contains(&time(picture, *at));
            for (at, parts) in track.levels.iter().filter(|(at, _)| shown(at)) {
                let x = sheet.axis.x(time(picture, *at));
                steps.push(Step::Line([x, y(level)]));
                steps.push(Step::Line([x, y(*parts)]));
                level = *parts;
            }
            let end = piece.x + (to - piece.from) * sheet.axis.scale;
            steps.extend([Step::Line([end, y(level)]), Step::Line([end, base]), Step::Close]);
            if to > piece.from {
                part.path(steps, curve(&sheet.sizes));
            }
        }
    }
}

/// Lines from the end of the sending task to the moment of arrival on the other device.
fn transfers(sheet: &Sheet<'_>, part: &mut Part, picture: &Picture) {
    for transfer in &picture.transfers {
        let (from, to) = (&picture.tasks[transfer.from as usize], &picture.tasks[transfer.to as usize]);
        let (start, end) = (time(picture, transfer.start), time(picture, transfer.end));
        if from.device == to.device || !sheet.axis.shows(start) || !sheet.axis.shows(end) {
            continue;
        }
        let tops = [from, to].map(|task| sheet.top(task.device as usize));
        let [start_y, end_y] =
            if from.device < to.device { [tops[0] + sheet.task, tops[1]] } else { [tops[0], tops[1] + sheet.task] };
        let places = [[sheet.axis.x(start), start_y], [sheet.axis.x(end), end_y]];
        part.line(places[0], places[1], self::transfer(transfer.class, &sheet.sizes));
    }
}

fn copies(sheet: &Sheet<'_>, part: &mut Part, picture: &Picture, offset: f64) {
    let (bar, hair) = (sheet.sizes.bar, sheet.sizes.hair);
    for one in &picture.copies {
        let nth = if one.direction == Direction::HostToDevice { 0.0 } else { 1.0 };
        let y = sheet.top(one.device as usize) + offset + nth * (bar + hair);
        for [start, end] in sheet.axis.parts(time(picture, one.start), time(picture, one.end)) {
            part.rectangle([start, y, (end - start).max(hair), bar], 0.0, copy(one.direction, &sheet.sizes));
        }
    }
}

/// What devices do together is dark, and what one sends to another is not.
fn together(what: Together) -> Paint {
    Paint::filled(if what == Together::Transfer { INK.mix(PAPER, 0.55) } else { INK })
}

fn collectives(sheet: &Sheet<'_>, part: &mut Part, picture: &Picture, offset: f64) {
    for one in &picture.collectives {
        let y = sheet.top(one.device as usize) + offset;
        for [start, end] in sheet.axis.parts(time(picture, one.start), time(picture, one.end)) {
            let width = (end - start - sheet.sizes.hair).max(sheet.sizes.hair);
            part.rectangle([start, y, width, sheet.sizes.bar], 0.0, together(one.what));
        }
    }
}

fn critical_path(sheet: &Sheet<'_>, part: &mut Part, picture: &Picture) {
    for index in &picture.critical_path {
        let task = &picture.tasks[*index as usize];
        let top = sheet.top(task.device as usize);
        for [start, end] in sheet.axis.parts(time(picture, task.start), time(picture, task.end)) {
            let width = (end - start - sheet.sizes.hair).max(sheet.sizes.hair);
            part.rectangle([start, top, width, sheet.task], sheet.sizes.round, critical(&sheet.sizes));
        }
    }
}
