//! The legend, in as many rows as it needs.

use super::scene::{Anchor, Fill, Paint, Part, Step, Stroke, Text};
use super::sheet::{Sheet, edge, fill, never};
use super::sizes::Sizes;
use super::{FAINT, PAPER, WRONG, font, grey, layers};
use crate::palette::{Ground, shade};
use crate::tracks::{Mark, Track};
use pipe_ir::task::TaskKind;

/// The most stages whose colours the legend shows.
const SHADES: usize = 4;

/// A sign, and what it stands for.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) sign: Sign,
    pub(super) words: &'static str,
}

/// What an entry shows.
#[derive(Clone, Debug)]
pub(super) enum Sign {
    /// Boxes next to each other, of tasks of a kind.
    Tasks(TaskKind, Vec<Paint>),
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
            Sign::Tasks(_, boxes) => (sizes.swatch[0] + 2.0 * sizes.hair) * boxes.len() as f64 + 0.4 * sizes.small,
            Sign::Box(_) => sizes.swatch[0] + 2.0 * sizes.hair + 0.4 * sizes.small,
            Sign::Line(..) => 1.2 * sizes.swatch[0] + 0.4 * sizes.small,
            Sign::Nothing => 0.0,
        };
        sign + font::width(self.words, sizes.small, false) * sizes.slack
    }
}

impl Sheet<'_> {
    /// The entries of the legend, row by row.
    pub(super) fn entries(&self) -> Vec<Vec<Entry>> {
        let Self { sizes, look, .. } = self;
        let targets = self.below.legend_of;
        let tracks = || targets.iter().flat_map(|one| &one.tracks);
        let marks = || tracks().flat_map(|track| &track.marks);
        let n_stages = tracks().map(|track| track.stages.len()).max().unwrap_or(1);
        let n_shown = marks().filter(|mark| mark.runs).map(|mark| mark.nth_stage + 1).max().unwrap_or(1);
        let any = |wanted: &dyn Fn(&Mark) -> bool| marks().any(wanted);
        let mut all = Vec::new();
        for kind in TaskKind::ALL.into_iter().filter(|kind| any(&|mark| mark.runs && mark.task.kind == *kind)) {
            let own = |nth| Paint {
                fill: Some(fill(kind, nth, n_stages)),
                stroke: Some(edge(shade(kind, Ground::Light, nth, n_stages), sizes)),
            };
            let boxes = (0..n_shown.min(SHADES)).map(own).collect();
            all.push(Entry { sign: Sign::Tasks(kind, boxes), words: words(kind) });
        }
        if tracks().any(has_gap) {
            let idle = Paint { fill: Some(Fill::Hatched), stroke: None };
            all.push(Entry { sign: Sign::Box(idle), words: "bubble" });
        }
        if any(&|mark| !mark.runs) {
            let never = Paint { stroke: Some(never(sizes)), ..Paint::filled(PAPER) };
            all.push(Entry { sign: Sign::Box(never), words: "never runs" });
            let wait = Paint::line(WRONG, 2.67 * sizes.edge);
            all.push(Entry { sign: Sign::Line(wait, true), words: "waits for" });
        }
        for entry in targets.iter().flat_map(|one| layers::entries(one, look, sizes)) {
            if all.iter().all(|other: &Entry| other.words != entry.words) {
                all.push(entry);
            }
        }
        if any(&|mark| mark.runs && mark.nth_stage > 0) {
            let has_parts = targets.iter().any(|one| one.has_parts());
            let words = if has_parts { "lighter: later parts" } else { "lighter: later stages of the device" };
            all.push(Entry { sign: Sign::Nothing, words });
        }
        let room = self.width - self.left();
        let mut rows: Vec<(f64, Vec<Entry>)> = Vec::new();
        for entry in all {
            let own = entry.width(sizes) + 1.6 * sizes.small;
            match rows.last_mut() {
                Some((taken, row)) if *taken + own <= room => {
                    *taken += own;
                    row.push(entry);
                }
                _ => rows.push((own, vec![entry])),
            }
        }
        rows.into_iter().map(|(_, row)| row).collect()
    }
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
                Sign::Tasks(kind, boxes) => {
                    for paint in boxes {
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
            let words = entry.words.to_owned();
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
