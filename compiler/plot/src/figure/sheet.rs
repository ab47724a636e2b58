//! One target of a figure: title, tracks and time axis.

use super::axis::{Axis, Piece, round_step};
use super::scene::{Anchor, Fill, Paint, Part, Step, Stroke, Text};
use super::sizes::{Medium, Sizes};
use super::{
    FAINT, GRID, HIGHEST, INK, Layer, Look, PAPER, Shown, Title, WRONG_INK, font, grey, layers, legend, named, units,
};
use crate::numbers::{self, number, percent, time};
use crate::palette::{Colour, Ground, halves, shade};
use crate::tracks::{Mark, Occupancy, Track};
use pipe_compiler::report::Report;
use pipe_ir::task::TaskKind;
use std::collections::BTreeMap;

/// The heading of the column of peaks.
pub(super) const UNITS: &str = "peak, units";

/// The layout of one target.
pub(super) struct Sheet<'a> {
    pub(super) shown: &'a Shown<'a>,
    pub(super) axis: &'a Axis,
    pub(super) sizes: Sizes,
    pub(super) look: &'a Look,
    pub(super) width: f64,
    /// The memory that fills the whole height of a curve.
    pub(super) most_memory: f64,
    /// Its title.
    title: &'a Title,
    /// The height of a task, and from one track to the next.
    pub(super) task: f64,
    pub(super) pitch: f64,
    /// Kinds whose tasks are all wide enough for letters before the number.
    lettered: Vec<TaskKind>,
    /// By kind and part: how its tasks are labelled.
    labels: BTreeMap<Like<'a>, Label>,
    /// Lines above the tracks and below the legend.
    head: Vec<Line>,
    foot: Vec<Line>,
    /// Entries of the legend, in rows.
    legend: Vec<Vec<legend::Entry>>,
    pub(super) below: Below<'a>,
}

/// What tasks have in common that are labelled alike: their kind, and the name of their part, if they have one.
type Like<'a> = (usize, Option<&'a str>);

/// The labels of such tasks.
#[derive(Clone, Copy)]
struct Label {
    /// Whether the name of their part fits on all of them.
    has_name: bool,
    /// The width of the longest. Narrower tasks have no label, so that equal tasks look alike.
    widest: f64,
}

/// What stands below the tracks of a target. Targets with one time axis have it, and a legend, once.
#[derive(Clone, Copy)]
pub(super) struct Below<'a> {
    /// The targets that the legend is about; none where there is no legend.
    pub(super) legend_of: &'a [Shown<'a>],
    /// Whether times and their unit are written.
    pub(super) has_times: bool,
    /// Up to when.
    pub(super) last: f64,
}

/// A line of text above the tracks, or below them.
struct Line {
    words: String,
    size: f64,
    bold: bool,
    colour: Colour,
}

impl<'a> Sheet<'a> {
    pub(super) fn new(
        shown: &'a Shown<'a>,
        axis: &'a Axis,
        (look, title): (&'a Look, &'a Title),
        (width, most_memory): (f64, f64),
        below: Below<'a>,
    ) -> Self {
        let sizes = Sizes::of(look.medium);
        let is_wide = |(track, mark): (&Track, &Mark)| {
            units(mark.end - mark.start) * axis.scale >= written(&named(track, mark), &sizes)
        };
        let is_lettered = |kind: &TaskKind| shown.marks().filter(|(_, mark)| mark.task.kind == *kind).all(is_wide);
        let (base, n_tracks) = (sizes.pitch, shown.tracks.len() as f64);
        let base = if look.medium == Medium::Paper { base.min((HIGHEST / n_tracks).max(2.0)) } else { base };
        let task = base - base * (1.0 - sizes.task / sizes.pitch);
        let base = if shown.compilation.stuck.is_some() { base * sizes.wide_pitch / sizes.pitch } else { base };
        let mut sheet = Self {
            shown,
            axis,
            sizes,
            look,
            width,
            most_memory,
            title,
            task,
            pitch: base + layers::height(shown, look, &sizes),
            lettered: TaskKind::ALL.into_iter().filter(is_lettered).collect(),
            labels: BTreeMap::new(),
            head: Vec::new(),
            foot: Vec::new(),
            legend: Vec::new(),
            below,
        };
        let is_shown = |(_, mark): &(&Track, &Mark)| axis.parts(units(mark.start), units(mark.end)).next().is_some();
        for (track, mark) in shown.marks().filter(is_shown) {
            let like = sheet.like(mark);
            let label = sheet.labels.entry(like).or_insert(Label { has_name: like.1.is_some(), widest: 0.0 });
            let long = like.1.map(|name| with_part(track, mark, name));
            let is_narrow = |long: String| units(mark.end - mark.start) * axis.scale < written(&long, &sizes);
            label.has_name &= !long.is_some_and(is_narrow);
        }
        for (track, mark) in shown.marks().filter(is_shown) {
            let own = written(&sheet.label(track, mark), &sizes);
            let widest = sheet.labels.get_mut(&sheet.like(mark)).map(|label| &mut label.widest);
            widest.into_iter().for_each(|widest| *widest = widest.max(own));
        }
        sheet.head = sheet.title();
        sheet.foot = sheet.wrapped(shown.why.iter().map(|line| (line.clone(), sizes.figures, false, WRONG_INK)));
        sheet.legend = sheet.entries();
        sheet
    }

    /// Changes the height of every track.
    ///
    /// # Errors
    /// If tasks would be too thin to be seen.
    pub(super) fn stretch(&mut self, spare: f64) -> Result<(), String> {
        let least = self.sizes.number / 3.0;
        if self.task + spare < least {
            let (height, n_tracks) = (self.height() + spare * self.n_tracks() as f64, self.n_tracks());
            let needed = self.height() + (least - self.task) * n_tracks as f64;
            let unit = self.sizes.unit.word();
            return Err(format!("{n_tracks} devices do not fit into {height:.0}{unit}: they take {needed:.0}{unit}"));
        }
        self.task += spare;
        self.pitch += spare;
        Ok(())
    }

    /// The height of times and legend below the tracks.
    fn under(&self) -> f64 {
        let legend = legend::height(&self.legend, &self.sizes);
        match (self.legend.is_empty(), self.below.has_times) {
            (false, _) => self.sizes.legend + legend,
            (true, true) => 3.0 * self.sizes.small,
            (true, false) => 0.0,
        }
    }

    fn n_tracks(&self) -> usize {
        self.shown.tracks.len()
    }

    pub(super) fn height(&self) -> f64 {
        let foot = self.foot.iter().map(Line::height).sum::<f64>();
        self.bottom() + self.under() + self.sizes.below + foot
    }

    /// Where the first track begins.
    pub(super) fn tracks_top(&self) -> f64 {
        let head = self.head.iter().map(Line::height).sum::<f64>();
        // Room for the word `stuck`.
        let word = if self.shown.compilation.stuck.is_some() { 0.5 * self.sizes.small } else { 0.0 };
        // Room for the heading of the peaks.
        let heading = if self.head.is_empty() && self.peaks().is_some() { 1.7 * self.sizes.small } else { 0.0 };
        self.sizes.above + head + self.sizes.head.max(heading) + word
    }

    /// Where the tasks of a device begin.
    pub(super) fn top(&self, device: usize) -> f64 {
        let layers = layers::height(self.shown, self.look, &self.sizes);
        self.tracks_top() + self.pitch * device as f64 + (self.pitch - self.task - layers) / 2.0
    }

    /// Where the last track ends.
    pub(super) fn bottom(&self) -> f64 {
        self.tracks_top() + self.pitch * self.n_tracks() as f64
    }

    /// Draws all of it, with its upper edge at `top`.
    pub(super) fn draw(&self, top: f64, scope: String) -> Part {
        let Shown { name, tracks, .. } = self.shown;
        let mut part = Part { title: format!("Timeline of {name}"), scope, items: Vec::new() };
        self.lines(&mut part, &self.head, self.sizes.above);
        self.time(&mut part);
        for (device, track) in tracks.iter().enumerate() {
            self.track(&mut part, device, track);
        }
        self.cuts(&mut part);
        layers::draw(self, &mut part);
        self.stop(&mut part);
        legend::draw(self, &mut part, &self.legend);
        let foot = self.foot.iter().map(Line::height).sum::<f64>();
        self.lines(&mut part, &self.foot, self.height() - self.sizes.below - foot);
        part.lower(top);
        part
    }

    /// The left edge of title and legend.
    pub(super) fn left(&self) -> f64 {
        if self.look.medium == Medium::Paper { self.sizes.hair } else { self.axis.pieces()[0].x }
    }

    /// Wraps lines to the width of the figure.
    fn wrapped(&self, lines: impl Iterator<Item = (String, f64, bool, Colour)>) -> Vec<Line> {
        let room = self.width - self.left() - self.sizes.right.min(self.left());
        let each = lines.flat_map(|(words, size, bold, colour)| {
            let lines = font::wrap(&words, (size, bold), room).into_iter();
            lines.map(move |words| Line { words, size, bold, colour }).collect::<Vec<_>>()
        });
        each.collect()
    }

    /// The name of the schedule with its figures, or where it deadlocks.
    fn title(&self) -> Vec<Line> {
        let Self { shown, sizes, .. } = self;
        let report = &shown.compilation.report;
        let mut lines = Vec::new();
        let name = match self.title {
            Title::Name => Some(shown.name.to_owned()),
            Title::Words(words) => Some(words.clone()),
            Title::None => None,
        };
        lines.extend(name.map(|name| (name, sizes.title, true, INK)));
        let has_figures = *self.title == Title::Name && self.look.medium == Medium::Screen;
        if has_figures {
            let figures =
                if shown.compilation.stuck.is_some() { vec![numbers(report)] } else { figures(report, shown.unit) };
            lines.extend(figures.into_iter().map(|line| (line, sizes.figures, false, FAINT)));
        }
        if let Some(stuck) = &shown.compilation.stuck {
            lines.push((super::stop::words(stuck), sizes.figures, false, WRONG_INK));
        }
        self.wrapped(lines.into_iter())
    }

    fn lines(&self, part: &mut Part, lines: &[Line], top: f64) {
        let mut y = top;
        for line in lines {
            y += line.height();
            part.text(Text {
                at: [self.left(), y - 0.3 * line.size],
                anchor: Anchor::Start,
                size: line.size,
                bold: line.bold,
                colour: line.colour,
                words: line.words.clone(),
            });
        }
    }

    /// A small grey text.
    pub(super) fn small(&self, part: &mut Part, at: [f64; 2], anchor: Anchor, words: &str) {
        let (size, words) = (self.sizes.small, words.to_owned());
        part.text(Text { at, anchor, size, bold: false, colour: FAINT, words });
    }

    /// Vertical lines at round times, which stand below the tracks.
    fn time(&self, part: &mut Part) {
        let Self { axis, sizes, below, .. } = self;
        let (top, bottom) = (self.tracks_top(), self.bottom());
        let (unit, long) = axis.unit;
        let last = if below.has_times { below.last } else { self.shown.end() };
        let step = round_step(sizes.tick / axis.scale / long) * long;
        let y = bottom + 0.5 * sizes.small + sizes.small;
        let mut free = f64::NEG_INFINITY;
        for piece in axis.pieces() {
            let first = (piece.from / step - 1e-6).ceil().max(0.0) + 0.0;
            let multiples = (0..).map(|nth| (first + f64::from(nth)) * step);
            let mut moments: Vec<f64> = multiples.take_while(|time| *time <= piece.to.min(last) * 1.000_001).collect();
            // Every piece has at least one time.
            if moments.is_empty() && piece.from < last {
                moments.push(piece.from);
            }
            for time in moments {
                let x = axis.x(time);
                part.line([x, top], [x, bottom + 0.4 * sizes.small], Paint::line(GRID, sizes.edge * 1.33));
                let words = number(time / long);
                let half = font::width(&words, sizes.small, false) / 2.0;
                // The last text must not cross the right edge.
                let middle = x.min(self.width - half);
                if below.has_times && middle - half > free {
                    self.small(part, [middle, y], Anchor::Middle, &words);
                    free = middle + half + sizes.small / 2.0;
                }
            }
        }
        if below.has_times {
            let x = axis.pieces()[0].x - 0.75 * sizes.device;
            self.small(part, [x, y], Anchor::End, unit);
        }
        if let Some(heading) = self.peaks() {
            self.small(part, [self.peaks_x(), top - 0.7 * sizes.small], Anchor::Start, heading);
        }
    }

    /// The heading of the column of peaks, if there is one.
    fn peaks(&self) -> Option<&'static str> {
        let shown = self.shown;
        if self.look.layers.contains(&Layer::Memory) {
            return shown.picture.as_ref().filter(|picture| !picture.memory.is_empty()).map(layers::heading);
        }
        (self.look.medium == Medium::Screen && shown.compilation.stuck.is_none()).then_some(UNITS)
    }

    fn peaks_x(&self) -> f64 {
        let is_cut = self.axis.pieces().len() > 1;
        let end = if is_cut { self.axis.end() } else { self.axis.x(units(self.shown.makespan)) };
        end + self.sizes.small
    }

    /// The peak of a device.
    fn peak(&self, device: usize) -> Option<String> {
        self.peaks()?;
        let track = &self.shown.tracks[device];
        if track.is_lane {
            return None;
        }
        if self.look.layers.contains(&Layer::Memory) {
            return layers::peak(self.shown.picture.as_ref()?, device);
        }
        let row = self.shown.compilation.report.per_device.get(track.device.index())?;
        row.peak_activation.map(number)
    }

    fn track(&self, part: &mut Part, device: usize, track: &Track) {
        let sizes = &self.sizes;
        let top = self.top(device);
        let base = top + (self.task + font::CAPITALS * sizes.device) / 2.0;
        // Thin tracks: only every second, fifth or tenth device has its name.
        let every = round_step((sizes.device / self.pitch).max(1.0)) as usize;
        if device.is_multiple_of(every) {
            part.text(Text {
                at: [self.axis.pieces()[0].x - 0.75 * sizes.device, base],
                anchor: Anchor::End,
                size: sizes.device,
                bold: true,
                colour: INK,
                words: track.name.clone(),
            });
        }
        let runs = || track.marks.iter().filter(|mark| mark.runs);
        if let (Some(first), Some(last)) = (runs().next(), runs().next_back()) {
            for [start, end] in self.axis.parts(units(first.start), units(last.end)) {
                let paint = Paint { fill: Some(Fill::Hatched), stroke: None };
                part.rectangle([start, top, end - start, self.task], 0.0, paint);
            }
        }
        let mut numbers = Vec::new();
        for mark in &track.marks {
            self.mark(part, (track, mark), top, &mut numbers);
        }
        numbers.into_iter().for_each(|text| part.text(text));
        self.left_out(part, track, base);
        if let Some(peak) = self.peak(device).filter(|_| device.is_multiple_of(every)) {
            self.small(part, [self.peaks_x(), base], Anchor::Start, &peak);
        }
    }

    fn like(&self, mark: &Mark) -> Like<'a> {
        (mark.task.kind.index(), self.shown.part(mark.task.stage))
    }

    /// The text of a task: its microbatch, after its kind and part if they fit on all tasks with both, or after the
    /// letters of its kind if they fit on all tasks of the kind.
    fn label(&self, track: &Track, mark: &Mark) -> String {
        let like = self.like(mark);
        if let (Some(name), Some(Label { has_name: true, .. })) = (like.1, self.labels.get(&like)) {
            return with_part(track, mark, name);
        }
        let letters = if self.lettered.contains(&mark.task.kind) { mark.task.kind.letters() } else { "" };
        format!("{letters}{}", track.number(mark))
    }

    /// Draws a task. Its text goes to `numbers`, because texts are drawn after all shapes.
    fn mark(&self, part: &mut Part, (track, mark): (&Track, &Mark), top: f64, numbers: &mut Vec<Text>) {
        let sizes = &self.sizes;
        let colour = shade(mark.task.kind, Ground::Light, mark.nth_stage, track.n_shades);
        for [start, end] in self.axis.parts(units(mark.start), units(mark.end)) {
            // A small gap between neighbours, unless tasks are thinner than the gap.
            let gap = if end - start > 4.0 * sizes.hair { sizes.hair } else { 0.0 };
            let width = (end - start - gap).max(0.3 * sizes.hair);
            let is_wide = width > 4.0 * sizes.hair;
            let paint = match mark.runs {
                true => Paint {
                    fill: Some(fill(mark.task.kind, mark.nth_stage, track.n_shades)),
                    stroke: is_wide.then_some(edge(colour, sizes)),
                },
                false => Paint { stroke: Some(never(sizes)), ..Paint::filled(PAPER) },
            };
            let round = if width > 3.0 * sizes.round { sizes.round } else { 0.0 };
            // Two tasks that share the device stand one above the other.
            let hair = sizes.hair / 2.0;
            let (top, height) = match mark.share {
                Occupancy::Whole => (top, self.task),
                Occupancy::First => (top, self.task / 2.0 - hair),
                Occupancy::Second => (top + self.task / 2.0 + hair, self.task / 2.0 - hair),
            };
            // A task that occupies several neighbouring devices is one block.
            let tall = height + if mark.goes_on { self.pitch - self.task } else { 0.0 };
            part.rectangle([start, top, width, tall], round, paint);
            if mark.runs && is_wide {
                grey::draw(part, (mark.task.kind, paint.fill), [start, top, width, tall], sizes);
            }
            let words = self.label(track, mark);
            let is_high = height >= font::CAPITALS * sizes.number + 2.0 * sizes.hair;
            let widest = self.labels.get(&self.like(mark)).map_or(0.0, |label| label.widest);
            if !is_high || width + 0.01 * sizes.number < widest - sizes.hair {
                continue;
            }
            let colour = if mark.runs { colour.ink() } else { FAINT };
            let mut write = |middle: f64, words: String| {
                let at = [start + width / 2.0, middle + font::CAPITALS * sizes.number / 2.0];
                numbers.push(Text { at, anchor: Anchor::Middle, size: sizes.number, bold: false, colour, words });
            };
            // A task that never runs has no colour of its stage, so its text names the stage.
            let has_stages = !mark.runs && track.stages.len() > 1;
            if has_stages && height >= 2.2 * sizes.number {
                write(top + 0.28 * height, words);
                write(top + 0.74 * height, self.shown.stage(mark.task.stage));
            } else {
                write(top + height / 2.0, words);
            }
        }
    }

    /// Break marks where time is left out.
    fn cuts(&self, part: &mut Part) {
        let size = self.sizes.cut / 4.0;
        let is_before_the_end = |(_, next): &([f64; 2], &Piece)| next.from < units(self.shown.makespan);
        let cuts = self.axis.cuts().zip(&self.axis.pieces()[1..]).filter(is_before_the_end);
        for ([from, to], _) in cuts {
            let middle = (from + to) / 2.0;
            for y in [self.tracks_top(), self.bottom()] {
                for x in [middle - size / 2.0, middle + size / 2.0] {
                    let steps = vec![Step::Move([x - size / 2.0, y + size]), Step::Line([x + size / 2.0, y - size])];
                    part.path(steps, Paint::line(FAINT, 1.5 * self.sizes.edge));
                }
            }
            for device in 0..self.n_tracks() {
                let y = self.top(device) + self.task / 2.0;
                for place in [-1.0, 0.0, 1.0] {
                    let (dot, x) = (self.sizes.edge * 2.0, middle + place * size);
                    part.rectangle([x - dot / 2.0, y - dot / 2.0, dot, dot], dot / 2.0, Paint::filled(FAINT));
                }
            }
        }
    }
}

impl Line {
    fn height(&self) -> f64 {
        1.35 * self.size
    }
}

/// The edge of a task: its colour, darker.
pub(super) fn edge(colour: Colour, sizes: &Sizes) -> Stroke {
    Stroke { colour: colour.mix(INK, 0.35), width: sizes.edge, dash: None }
}

/// The edge of a task that never runs.
pub(super) fn never(sizes: &Sizes) -> Stroke {
    Stroke { colour: FAINT, width: 1.33 * sizes.edge, dash: Some([4.0 * sizes.edge, 2.67 * sizes.edge]) }
}

/// The fill of a task: the colour of its kind, or the colours of its two halves.
pub(super) fn fill(kind: TaskKind, nth_stage: usize, n_stages: usize) -> Fill {
    let shade = |kind| shade(kind, Ground::Light, nth_stage, n_stages);
    halves(kind).map_or_else(|| Fill::Plain(shade(kind)), |halves| Fill::Divided(halves.map(shade)))
}

/// `F.attention 3`.
fn with_part(track: &Track, mark: &Mark, name: &str) -> String {
    format!("{}.{name} {}", mark.task.kind.letters(), track.number(mark))
}

/// The width of a text on a task, with margins.
pub(super) fn written(text: &str, sizes: &Sizes) -> f64 {
    font::width(text, sizes.number, false) + sizes.margin + sizes.hair
}

/// Devices, stages and microbatches, in words.
fn numbers(report: &Report) -> String {
    let [devices, stages] = [report.sizes.devices, report.sizes.stages].map(Option::unwrap_or_default);
    format!("{devices} devices, {stages} stages, {} microbatches", report.sizes.microbatches.unwrap_or_default())
}

/// The figures of a step, in two lines.
fn figures(report: &Report, unit: Option<&str>) -> Vec<String> {
    let show = |value: Option<f64>, form: fn(f64) -> String| value.map_or_else(|| "?".to_owned(), form);
    let figures = &report.figures;
    let moment = |value: Option<f64>| value.map_or_else(|| "?".to_owned(), |value| time(value, unit));
    let first = format!(
        "{} · makespan {} · mean bubble {} (busiest device {}, by longest span {})",
        numbers(report),
        moment(figures.makespan),
        show(figures.bubble_mean, percent),
        show(figures.bubble_makespan, percent),
        show(figures.bubble_longest_stage, percent),
    );
    let second = format!(
        "lower bound {}{} · peak {}",
        moment(figures.lower_bound),
        figures.form_of_bound(),
        show(figures.peak_activation, numbers::units),
    );
    vec![first, second]
}
