//! The legend, in as many rows as it needs.

use super::scene::{Anchor, Fill, Paint, Part, Step, Stroke, Text};
use super::sheet::{Sheet, edge, fill, never};
use super::sizes::Sizes;
use super::{FAINT, PAPER, Shown, WRONG, font, grey, layers};
use crate::palette::{Ground, shade};
use crate::shades::{PartName, Shades};
use crate::tracks::{Mark, Track};
use pipe_ir::task::TaskKind;
use std::collections::{BTreeMap, BTreeSet};

/// The most stages whose colours the legend shows.
const SHADES: usize = 4;
/// The most parts of compute, or of a lane, that it names.
const NAMES: usize = 12;

/// A sign, and what it stands for.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) sign: Sign,
    pub(super) words: String,
}

/// What an entry shows.
#[derive(Clone, Debug)]
pub(super) enum Sign {
    /// Boxes next to each other, of tasks of kinds.
    Tasks(Vec<(TaskKind, Paint)>),
    /// A box of anything else.
    Box(Paint),
    /// A line, with an arrow at its end or without.
    Line(Paint, bool),
    /// Nothing: a remark.
    Nothing,
}

impl Entry {
    fn width(&self, sizes: &Sizes) -> f64 {
        let sign = match &self.sign {
            Sign::Tasks(boxes) => (sizes.swatch[0] + 2.0 * sizes.hair) * boxes.len() as f64 + 0.4 * sizes.small,
            Sign::Box(_) => sizes.swatch[0] + 2.0 * sizes.hair + 0.4 * sizes.small,
            Sign::Line(..) => 1.2 * sizes.swatch[0] + 0.4 * sizes.small,
            Sign::Nothing => 0.0,
        };
        sign + font::width(&self.words, sizes.small, false) * sizes.slack
    }
}

impl Sheet<'_> {
    /// The entries of the legend, row by row.
    pub(super) fn entries(&self) -> Vec<Vec<Entry>> {
        let Self { sizes, look, .. } = self;
        let targets = self.below.legend_of;
        let tracks = || targets.iter().flat_map(|one| &one.tracks);
        let marks = || tracks().flat_map(|track| &track.marks);
        let n_stages = tracks().map(|track| track.n_shades).max().unwrap_or(1);
        let n_shown = marks().filter(|mark| mark.runs).map(|mark| mark.nth_stage + 1).max().unwrap_or(1);
        let any = |wanted: &dyn Fn(&Mark) -> bool| marks().any(wanted);
        // Shades of parts have names.
        let has_parts = targets.iter().any(Shown::has_parts);
        let n_shown = if has_parts { 1 } else { n_shown.min(SHADES) };
        let mut all = Vec::new();
        for kind in TaskKind::ALL.into_iter().filter(|kind| any(&|mark| mark.runs && mark.task.kind == *kind)) {
            let boxes = (0..n_shown).map(|nth| (kind, task(kind, nth, n_stages, sizes))).collect();
            all.push(Entry { sign: Sign::Tasks(boxes), words: words(kind).to_owned() });
        }
        if tracks().any(has_gap) {
            let idle = Paint { fill: Some(Fill::Hatched), stroke: None };
            all.push(Entry { sign: Sign::Box(idle), words: "bubble".to_owned() });
        }
        if any(&|mark| !mark.runs) {
            let never = Paint { stroke: Some(never(sizes)), ..Paint::filled(PAPER) };
            all.push(Entry { sign: Sign::Box(never), words: "never runs".to_owned() });
            let wait = Paint::line(WRONG, 2.67 * sizes.edge);
            all.push(Entry { sign: Sign::Line(wait, true), words: "waits for".to_owned() });
        }
        for entry in targets.iter().flat_map(|one| layers::entries(one, look, sizes)) {
            if all.iter().all(|other: &Entry| other.words != entry.words) {
                all.push(entry);
            }
        }
        if !has_parts && any(&|mark| mark.runs && mark.nth_stage > 0) {
            all.push(remark("lighter: later stages of the device"));
        }
        let mut groups = vec![all];
        for group in targets.iter().flat_map(|one| parts(one, sizes)) {
            let is_new = |other: &Vec<Entry>| other.iter().map(|one| &one.words).ne(group.iter().map(|one| &one.words));
            if groups.iter().all(is_new) {
                groups.push(group);
            }
        }
        let room = self.width - self.left();
        let mut rows: Vec<(f64, Vec<Entry>)> = Vec::new();
        for (place, entry) in groups.into_iter().flat_map(|group| group.into_iter().enumerate()) {
            let own = entry.width(sizes) + 1.6 * sizes.small;
            match rows.last_mut() {
                // Each group begins a row.
                Some((taken, row)) if place > 0 && *taken + own <= room => {
                    *taken += own;
                    row.push(entry);
                }
                _ => rows.push((own, vec![entry])),
            }
        }
        rows.into_iter().map(|(_, row)| row).collect()
    }
}

/// The parts of a target: those on compute, and those on each lane.
fn parts(target: &Shown<'_>, sizes: &Sizes) -> Vec<Vec<Entry>> {
    let Some(schedule) = target.schedule() else { return Vec::new() };
    // By part: the kinds of its tasks.
    let mut kinds: BTreeMap<(&str, bool), BTreeSet<usize>> = BTreeMap::new();
    for (track, mark) in target.marks().filter(|(_, mark)| mark.runs) {
        if let Some(part) = schedule.parts.part(mark.task.stage) {
            kinds.entry((&part.name, track.is_lane)).or_default().insert(mark.task.kind.index());
        }
    }
    let shades = Shades::of(schedule);
    let entry = |part: &PartName| {
        let own = kinds.get(&(part.name.as_str(), part.lane.is_some()))?;
        let own = TaskKind::ALL.into_iter().filter(|kind| own.contains(&kind.index()));
        let boxes = own.map(|kind| (kind, task(kind, part.first, part.of, sizes))).collect();
        Some(Entry { sign: Sign::Tasks(boxes), words: part.name.clone() })
    };
    let compute = if schedule.parts.lanes().is_empty() { "parts" } else { "compute" };
    let groups = shades.names.chunk_by(|one, other| one.lane == other.lane).map(|names| {
        let queue = names.first().and_then(|name| name.lane.as_deref()).unwrap_or(compute);
        let mut group = vec![remark(&format!("{queue}:"))];
        group.extend(names.iter().take(NAMES).filter_map(entry));
        if let Some(more @ 1..) = names.len().checked_sub(NAMES) {
            group.push(remark(&format!("and {more} more")));
        }
        if names.iter().any(|name| name.count > 1) {
            group.push(remark("lighter: later parts of the same name"));
        }
        group
    });
    groups.collect()
}

/// Words without a sign.
fn remark(words: &str) -> Entry {
    Entry { sign: Sign::Nothing, words: words.to_owned() }
}

/// How a task looks.
fn task(kind: TaskKind, nth: usize, n_shades: usize, sizes: &Sizes) -> Paint {
    let stroke = Some(edge(shade(kind, Ground::Light, nth, n_shades), sizes));
    Paint { fill: Some(fill(kind, nth, n_shades)), stroke }
}

/// Whether a device waits between two of its tasks.
fn has_gap(track: &Track) -> bool {
    let runs: Vec<&Mark> = track.marks.iter().filter(|mark| mark.runs).collect();
    runs.windows(2).any(|pair| pair[0].end < pair[1].start)
}

/// How high all rows are.
pub(super) fn height(rows: &[Vec<Entry>], sizes: &Sizes) -> f64 {
    pitch(sizes) * rows.len() as f64
}

fn pitch(sizes: &Sizes) -> f64 {
    sizes.swatch[1].max(sizes.small) * 1.35
}

pub(super) fn draw(sheet: &Sheet<'_>, part: &mut Part, rows: &[Vec<Entry>]) {
    let sizes = &sheet.sizes;
    let [width, height] = sizes.swatch;
    let mut y = sheet.bottom() + sizes.legend;
    for row in rows {
        let mut x = sheet.left();
        for entry in row {
            let end = x + entry.width(sizes);
            match &entry.sign {
                Sign::Tasks(boxes) => {
                    for (kind, paint) in boxes {
                        part.rectangle([x, y, width, height], sizes.round, *paint);
                        grey::draw(part, (*kind, paint.fill), [x, y, width, height], sizes);
                        x += width + 2.0 * sizes.hair;
                    }
                    x += 0.4 * sizes.small;
                }
                Sign::Box(paint) => {
                    part.rectangle([x, y, width, height], sizes.round, *paint);
                    x += width + 2.0 * sizes.hair + 0.4 * sizes.small;
                }
                Sign::Line(paint, has_arrow) => {
                    let middle = y + height / 2.0;
                    let steps = vec![Step::Move([x, middle]), Step::Line([x + 1.2 * width, middle])];
                    match has_arrow {
                        true => part.arrow(steps, arrow(sizes), *paint),
                        false => part.path(steps, *paint),
                    }
                    x += 1.2 * width + 0.4 * sizes.small;
                }
                Sign::Nothing => {}
            }
            let at = [x, y + (height + font::CAPITALS * sizes.small) / 2.0];
            let words = entry.words.clone();
            part.text(Text { at, anchor: Anchor::Start, size: sizes.small, bold: false, colour: FAINT, words });
            x = end + 1.6 * sizes.small;
        }
        y += pitch(sizes);
    }
}

/// The size of an arrowhead.
pub(super) fn arrow(sizes: &Sizes) -> f64 {
    0.65 * sizes.small
}

/// The lines of errors.
pub(super) fn wrong(sizes: &Sizes) -> Paint {
    Paint { fill: None, stroke: Some(Stroke { colour: WRONG, width: 2.67 * sizes.edge, dash: None }) }
}

fn words(kind: TaskKind) -> &'static str {
    match kind {
        TaskKind::Forward => "F forward",
        TaskKind::BackwardInput => "B backward, input",
        TaskKind::BackwardWeight => "W backward, weights",
        TaskKind::Backward => "BW backward",
        TaskKind::Recompute => "R recompute",
        TaskKind::Update => "U update",
    }
}
