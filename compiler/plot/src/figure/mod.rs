//! Figures of timelines: a track per device, a colour per kind, letters and microbatch numbers, axis and legend.
//!
//! [`draw`] lays a figure out as a [`Scene`], once; [`render`](crate::render) writes it.

mod axis;
mod crop;
pub mod font;
mod grey;
mod layers;
mod legend;
pub mod scene;
mod sheet;
mod sizes;
mod stop;

pub use axis::round_step;
pub use crop::Crop;
pub use layers::Layer;
pub use scene::Scene;
pub use sizes::{Medium, SMALLEST};

use crate::Picture;
use crate::numbers::unit_of_axis;
use crate::palette::Colour;
use crate::tracks::{Mark, Track, stuck_tracks, tracks};
use crate::why::words as words_of_stop;
use axis::Axis;
use pipe_compiler::Compilation;
use pipe_compiler::report::Report;
use pipe_ir::ids::StageId;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::units::Ticks;
use scene::Length;
use sheet::{Below, Sheet};
use sizes::Sizes;

/// The most tasks of a figure. With more, the file has many megabytes and tasks cannot be told apart.
const TASKS: usize = 40_000;
/// The smallest and the largest width of a timeline on a screen.
const NARROWEST: f64 = 760.0;
const WIDEST: f64 = 1400.0;
/// The default width of a figure on paper: one of two columns.
const COLUMN: f64 = 240.0;
/// The default limit of the height of all tracks on paper.
const HIGHEST: f64 = 420.0;

const INK: Colour = Colour::new(0x1f_29_33);
const FAINT: Colour = Colour::new(0x52_60_6d);
const GRID: Colour = Colour::new(0xcb_d2_d9);
const WRONG: Colour = Colour::new(0xc4_16_2a);
const WRONG_INK: Colour = Colour::new(0xa5_0e_20);
const PAPER: Colour = Colour::new(0xff_ff_ff);
/// The colours of idle time: lines and background.
pub(crate) const HATCH: [Colour; 2] = [Colour::new(0xd5_da_e0), Colour::new(0xf3_f4_f6)];

/// How a figure is drawn.
#[derive(Clone, PartialEq, Debug)]
pub struct Look {
    /// What it is for.
    pub medium: Medium,
    /// Its width in pixels or points. By default it depends on the tasks.
    pub width: Option<f64>,
    /// Its height in pixels or points. By default it depends on the number of devices.
    pub height: Option<f64>,
    /// One title for each target, or one for all. Empty: every target has its name.
    pub titles: Vec<Title>,
    /// Which part of the time is shown. By default all of it.
    pub crop: Option<Crop>,
    /// What is shown besides tasks.
    pub layers: Vec<Layer>,
}

/// What stands above the tracks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Title {
    /// The name of the pipeline or schedule, and on a screen its figures.
    Name,
    /// These words.
    Words(String),
    /// Nothing: the caption says it.
    None,
}

impl Look {
    /// The defaults for a medium.
    pub const fn of(medium: Medium) -> Self {
        Self { medium, width: None, height: None, titles: Vec::new(), crop: None, layers: Vec::new() }
    }
}

/// Lays out the timelines of targets above each other, on one time axis below the last; where units
/// of time differ, each has an axis of its own. A target that breaks a limit is drawn as well; one
/// that deadlocks is drawn up to the deadlock.
///
/// # Errors
/// If a target has no timeline or too many tasks, if pieces are cut out of times in different units,
/// or if the figure is too small.
pub fn draw(compilations: &[&Compilation], look: &Look) -> Result<Scene, String> {
    let sizes = Sizes::of(look.medium);
    let titles = look.titles.iter().map(|title| if let Title::Words(words) = title { words } else { "" });
    // The last two are no letters either, and XML forbids them.
    let is_none = |letter: &char| letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}');
    if let Some(letter) = titles.flat_map(str::chars).find(is_none) {
        return Err(format!("a title is one line of letters, and U+{:04X} is none", u32::from(letter)));
    }
    let shown = compilations.iter().map(|one| Shown::new(one, look)).collect::<Result<Vec<_>, _>>()?;
    let other = shown.windows(2).find(|pair| pair[0].unit != pair[1].unit);
    if let (Some(pair), Some(Crop::Pieces(_))) = (other, &look.crop) {
        let [one, other] = [&pair[0], &pair[1]].map(|own| (own.name, own.unit.unwrap_or("units of its costs")));
        let help = "`--crop fit` leaves time out of each by itself";
        return Err(format!("`{}` takes {} and `{}` {}: {help}", one.0, one.1, other.0, other.1));
    }
    let left = shown.iter().map(|one| one.left(&sizes)).fold(0.0, f64::max);
    let right = shown.iter().map(|one| one.right(&sizes, look)).fold(sizes.right, f64::max);
    let axis = |shown: &[Shown<'_>]| axis(shown, (look, &sizes), [left, right]);
    let axes = match other {
        None => vec![axis(&shown)?; shown.len()],
        Some(_) => shown.iter().map(|one| axis(std::slice::from_ref(one))).collect::<Result<_, _>>()?,
    };
    let end = axes.iter().map(Axis::end).fold(0.0, f64::max);
    let width = look.width.map_or(end + right, |width| width.max(end + right));
    // Targets with the same unit of memory share a scale.
    let most = |one: &Shown<'_>| one.picture.as_ref().and_then(layers::most);
    let scale_of = |one: &Shown<'_>| {
        let own = most(one).map(|(unit, _)| unit);
        shown.iter().filter_map(most).filter(|(unit, _)| Some(*unit) == own).map(|(_, most)| most).fold(0.0, f64::max)
    };
    let title = |place: usize| look.titles.get(if look.titles.len() == 1 { 0 } else { place }).unwrap_or(&Title::Name);
    let sheet = |(place, one): (usize, _)| {
        let is_last = place + 1 == shown.len();
        // The last one says what all of them have in common.
        let below = Below {
            legend_of: if is_last { &shown } else { &[] },
            has_times: is_last || other.is_some(),
            last: if other.is_some() { std::slice::from_ref(one) } else { &shown }
                .iter()
                .map(Shown::end)
                .fold(0.0, f64::max),
        };
        Sheet::new(one, &axes[place], (look, title(place)), (width, scale_of(one)), below)
    };
    let mut sheets: Vec<Sheet<'_>> = shown.iter().enumerate().map(sheet).collect();
    let height: f64 = sheets.iter().map(Sheet::height).sum();
    if let Some(wanted) = look.height {
        let n_tracks: usize = shown.iter().map(|one| one.tracks.len()).sum();
        let spare = (wanted - height) / n_tracks.max(1) as f64;
        for sheet in &mut sheets {
            sheet.stretch(spare)?;
        }
    }
    let mut parts = Vec::new();
    let mut top = 0.0;
    for (place, sheet) in sheets.iter().enumerate() {
        let mut scope = scope(sheet.shown.name, &sheet.shown.compilation.report);
        if sheets.len() > 1 {
            scope = format!("{scope}-{place}");
        }
        parts.push(sheet.draw(top, scope));
        top += sheet.height();
    }
    Ok(Scene { width, height: top, unit: sizes.unit, parts })
}

/// The time axis that timelines share.
fn axis(shown: &[Shown<'_>], (look, sizes): (&Look, &Sizes), [left, right]: [f64; 2]) -> Result<Axis, String> {
    let longest = shown.iter().map(|one| units(one.makespan)).fold(f64::MIN_POSITIVE, f64::max);
    let wanted = shown.iter().map(|one| one.scale(sizes)).fold(0.0, f64::max);
    let width = match (look.width, look.medium) {
        (Some(width), _) => Some(width),
        (None, Medium::Paper) => Some(COLUMN),
        (None, Medium::Screen) => None,
    };
    let room = width.map(|width| width - left - right);
    if let Some(room) = room.filter(|room| *room < 4.0 * left.max(sizes.tick)) {
        let (width, least) = (room + left + right, 4.0 * left.max(sizes.tick) + left + right);
        let unit = sizes.unit.word();
        return Err(format!(
            "a figure {width:.0}{unit} wide is too small for its tracks and their names: `--width {:.0}{unit}` is the least",
            least.ceil()
        ));
    }
    let most = room.unwrap_or(WIDEST);
    let times = match &look.crop {
        None => vec![[0.0, longest]],
        Some(crop) => {
            let timelines: Vec<&[Track]> = shown.iter().map(|one| &*one.tracks).collect();
            crop.times(&timelines, longest, (most - 2.0 * sizes.cut) / wanted)?
        }
    };
    let length: f64 = times.iter().map(|[from, to]| to - from).sum();
    let cuts = sizes.cut * (times.len() - 1) as f64;
    let tracks = match room {
        Some(room) => room - cuts,
        None => (length * wanted).clamp(NARROWEST, WIDEST),
    };
    let unit = unit_of_axis(longest, shown.first().and_then(|one| one.unit));
    Ok(Axis::new(&times, left, tracks / length, sizes.cut, unit))
}

/// What is drawn of a target.
struct Shown<'a> {
    compilation: &'a Compilation,
    name: &'a str,
    tracks: Vec<Track>,
    makespan: Ticks,
    /// The name of the unit of time, if it has one.
    unit: Option<&'static str>,
    /// Only if the target is rejected or layers are shown.
    picture: Option<Picture>,
    /// Why it is rejected, line by line.
    why: Vec<String>,
}

impl<'a> Shown<'a> {
    fn new(compilation: &'a Compilation, look: &Look) -> Result<Self, String> {
        let report = &compilation.report;
        let name = report.pipeline.as_deref().or(report.schedule.as_deref()).unwrap_or(&report.target);
        let (tracks, makespan) = match (&compilation.analysis, &compilation.stuck) {
            (Some(analysis), _) => (tracks(analysis), analysis.timeline.makespan()),
            (None, Some(stuck)) => {
                let tracks = stuck_tracks(stuck);
                let last = tracks.iter().filter_map(|track| track.marks.last()).map(|mark| mark.end).max();
                (tracks, last.unwrap_or_default())
            }
            (None, None) => return Err(format!("`{name}` has no timeline")),
        };
        let n_tasks: usize = tracks.iter().map(|track| track.marks.len()).sum();
        if n_tasks > TASKS {
            let help = "use fewer microbatches, as in `--set microbatches=16`";
            return Err(format!("{n_tasks} tasks are too many for a picture, which shows up to {TASKS}; {help}"));
        }
        let is_needed = |own: &Picture| own.stop.is_some() || !own.misfits.is_empty() || !look.layers.is_empty();
        let picture = Picture::new(compilation);
        let unit = picture.as_ref().and_then(|own| own.clock.unit);
        let picture = picture.filter(is_needed);
        let why = picture.as_ref().map_or_else(Vec::new, words_of_stop);
        Ok(Self { compilation, name, tracks, makespan, unit, picture, why })
    }

    /// When it ends, or is stuck.
    fn end(&self) -> f64 {
        units(self.compilation.stuck.as_ref().map_or(self.makespan, |stuck| stuck.at))
    }

    /// Whether stages have parts.
    fn has_parts(&self) -> bool {
        self.schedule().is_some_and(|schedule| !schedule.parts.is_empty())
    }

    fn schedule(&self) -> Option<&Schedule> {
        let schedule = self.compilation.analysis.as_ref().map(|analysis| &analysis.schedule);
        schedule.or(self.compilation.stuck.as_ref().map(|stuck| &stuck.schedule))
    }

    /// The name of a part.
    fn part(&self, row: StageId) -> Option<&str> {
        self.schedule()?.parts.part(row).map(|part| &*part.name)
    }

    /// The name of a stage or part.
    fn stage(&self, stage: StageId) -> String {
        self.schedule().map_or_else(|| stage.to_string(), |schedule| schedule.stage_name(stage))
    }

    /// All tasks with their tracks.
    fn marks(&self) -> impl Iterator<Item = (&Track, &Mark)> {
        self.tracks.iter().flat_map(|track| track.marks.iter().map(move |mark| (track, mark)))
    }

    /// Length per unit of time that leaves room for the text of every task.
    fn scale(&self, sizes: &Sizes) -> f64 {
        // Of costs that a model has, the common divisor is far shorter than any task.
        let shortest = self.marks().map(|(_, mark)| (mark.end - mark.start).0.max(1)).min().unwrap_or(1) as f64;
        let per_shortest = |(track, mark): (&Track, &Mark)| {
            // On paper, the colour says the kind.
            let words = if sizes.unit == Length::Point { track.number(mark) } else { named(track, mark) };
            (sheet::written(&words, sizes) + sizes.hair) * shortest / (mark.end - mark.start).0.max(1) as f64
        };
        let (least, most) = (1.4 * sizes.number, 2.8 * sizes.number);
        self.marks().map(per_shortest).fold(least, f64::max).min(most) * Ticks::UNIT.0 as f64 / shortest
    }

    /// The width of the device names, with their gap.
    fn left(&self, sizes: &Sizes) -> f64 {
        let names = self.tracks.iter().map(|track| font::width(&track.name, sizes.device, true));
        let device = names.fold(0.0, f64::max);
        let (unit, _) = unit_of_axis(units(self.makespan), self.unit);
        let unit = font::width(unit, sizes.small, false);
        device.max(unit) * sizes.slack + sizes.device
    }

    /// The width of the column of peaks, if there is one.
    fn right(&self, sizes: &Sizes, look: &Look) -> f64 {
        let shows_memory = look.layers.contains(&Layer::Memory);
        if !shows_memory && look.medium == Medium::Paper {
            return 0.0;
        }
        let picture = self.picture.as_ref().filter(|_| shows_memory);
        let heading = picture.map_or(sheet::UNITS, layers::heading);
        let peaks = picture.into_iter().flat_map(|own| (0..self.tracks.len()).filter_map(|d| layers::peak(own, d)));
        let width = |words: &str| font::width(words, sizes.small, false) * sizes.slack;
        peaks.map(|peak| width(&peak)).fold(width(heading), f64::max) + 2.0 * sizes.small
    }
}

/// The letters of a task's kind, and its microbatch.
fn named(track: &Track, mark: &Mark) -> String {
    format!("{}{}", mark.task.kind.letters(), track.number(mark))
}

/// A prefix for ids. It differs between figures of different schedules or sizes.
fn scope(name: &str, report: &Report) -> String {
    // An id must not begin with a digit.
    let start = if name.starts_with(|letter: char| letter.is_ascii_alphabetic()) { "" } else { "_" };
    let word =
        start.chars().chain(name.chars()).map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' });
    let (devices, microbatches) = (report.sizes.devices, report.sizes.microbatches);
    format!("{}-{}x{}", word.collect::<String>(), devices.unwrap_or_default(), microbatches.unwrap_or_default())
}

/// A moment in units of time.
fn units(ticks: Ticks) -> f64 {
    ticks.0 as f64 / Ticks::UNIT.0 as f64
}
