//! The picture in the terminal: a row per device, scaled to its width.
//!
//! With colours, a task is a block of its kind's colour, lighter for later stages of a device, with
//! the letters of its kind and the microbatch where they fit. Without, it is a letter, small for
//! later stages, with the microbatch where it fits.

use super::letter;
use crate::output::diagnostics::Look;
use crate::output::figures::{number, percent};
use pipe_compiler::Compilation;
use pipe_compiler::analyze::Analysis;
use pipe_compiler::report::Report;
use pipe_compiler::stuck::Stuck;
use pipe_ir::task::TaskKind;
use pipe_plot::Picture;
use pipe_plot::figure::round_step;
use pipe_plot::palette::{Colour, Ground, shade, words};
use pipe_plot::tracks::{Mark, Occupancy, Track, common_slot, stuck_tracks, tracks};
use pipe_plot::why::{name, too_much, waiting};
use pipe_schedule::units::Ticks;

/// Rows that are drawn; of more devices, the first and the last ones.
const ROWS: usize = 40;
/// The most columns that one slot takes.
const WIDEST_SLOT: u64 = 5;
/// Columns from one moment below the tracks to the next, at least.
const BETWEEN: f64 = 10.0;

/// Draws a target: its timeline, or how far it comes if it is stuck.
pub fn draw(compilation: &Compilation, look: Look) -> String {
    let is_accepted = compilation.report.ok;
    let picture = Some(compilation).filter(|_| !is_accepted).and_then(Picture::new);
    match (&compilation.analysis, &compilation.stuck, &picture) {
        (Some(analysis), ..) => draw_timeline(analysis, &compilation.report, picture.as_ref(), look),
        (None, Some(stuck), Some(picture)) => draw_stuck(stuck, picture, look),
        (None, ..) => String::new(),
    }
}

/// A timeline with its title and legend. Under the tracks of devices whose memory does not suffice it says since when.
fn draw_timeline(analysis: &Analysis, report: &Report, misfits: Option<&Picture>, look: Look) -> String {
    let tracks = tracks(analysis);
    let label = format!("d{} ", tracks.len().saturating_sub(1)).len();
    let scale = Scale::new(&tracks, analysis.timeline.makespan(), look.width.saturating_sub(label).max(20) as u64);
    let mut text = title(report);
    let hidden = if tracks.len() > ROWS { ROWS / 2..tracks.len() - ROWS / 2 + 1 } else { 0..0 };
    for (device, track) in tracks.iter().enumerate() {
        if hidden.contains(&device) {
            if device == hidden.start {
                text.push_str(&format!("{:label$}{} more devices\n", "..", hidden.len()));
            }
            continue;
        }
        let name = format!("d{device}");
        text.push_str(&format!("{name:label$}{}\n", row(track, &scale, look.colours).trim_end()));
        for (picture, misfit) in misfits.into_iter().flat_map(|own| own.misfits.iter().map(move |one| (own, one))) {
            if misfit.device as usize == device {
                let from = scale.column(Ticks(misfit.from * (Ticks::UNIT.0 / picture.clock.ticks_per_unit)));
                let why = alarm(&format!("▲ {}", too_much(picture, misfit)), look.colours);
                text.push_str(&format!("{:1$}{why}\n", "", (label + from).min(look.width / 2)));
            }
        }
    }
    text.push_str(&format!("{:label$}{}\n", "", axis(&scale)));
    text.push_str(&legend(&tracks, &scale, look.colours));
    text
}

/// What each device runs of a schedule that is stuck, and for what it waits then.
fn draw_stuck(stuck: &Stuck, picture: &Picture, look: Look) -> String {
    let Some(stop) = &picture.stop else { return String::new() };
    let mut tracks = stuck_tracks(stuck);
    tracks.iter_mut().for_each(|track| track.marks.retain(|mark| mark.runs));
    let waits: Vec<_> = stop.cycles.iter().flatten().collect();
    let stand = |device: usize| {
        let [first, _] = picture.devices[device].tasks;
        let task = |index: u32| &picture.tasks[index as usize];
        let own: Vec<_> = waits.iter().filter(|wait| task(wait.task).device as usize == device).collect();
        match (own.first(), stop.ran[device] < picture.devices[device].tasks[1]) {
            (Some(wait), _) => (waiting(picture, wait), true),
            (None, true) => (format!("d{device} stands at {}", name(picture, task(first + stop.ran[device]))), false),
            (None, false) => ("all of its tasks run".to_owned(), false),
        }
    };
    let stands: Vec<(String, bool)> = (0..tracks.len()).map(stand).collect();
    let label = format!("d{} ", tracks.len().saturating_sub(1)).len();
    let widest = stands.iter().map(|(words, _)| words.len() + 3).max().unwrap_or_default();
    let width = look.width.saturating_sub(label + widest).max(look.width / 4);
    let scale = Scale::new(&tracks, stuck.at, width as u64);
    let (ran, all) = (stop.ran.iter().sum::<u32>(), picture.tasks.len() as u32 + stop.hidden.iter().sum::<u32>());
    let at = number(stuck.at.0 as f64 / Ticks::UNIT.0 as f64);
    let unit = stuck.unit.map_or_else(String::new, |unit| format!(" {unit}"));
    let mut text = format!("{}: deadlock at {at}{unit}, {ran} of {all} tasks run\n", picture.title);
    for (device, (track, (words, waits))) in tracks.iter().zip(&stands).enumerate() {
        if (ROWS / 2..tracks.len().saturating_sub(ROWS / 2)).contains(&device) && !waits {
            continue;
        }
        let drawn = row(track, &scale, look.colours);
        let end = track.marks.last().map_or(0, |mark| scale.column(mark.end));
        let gap = " ".repeat((scale.column(stuck.at) + 1).saturating_sub(end.max(visible(&drawn))));
        let words = if *waits { alarm(&format!("┃ {words}"), look.colours) } else { format!("│ {words}") };
        text.push_str(&format!("{:label$}{drawn}{gap}{words}\n", format!("d{device}")));
    }
    text.push_str(&format!("{:label$}{}\n", "", axis(&scale)));
    text + &legend(&tracks, &scale, look.colours)
}

/// Columns of a text without its colours.
fn visible(text: &str) -> usize {
    let pieces = text.split('\x1b').enumerate();
    let shown = pieces.map(|(place, piece)| match (place, piece.split_once('m')) {
        (0, _) | (_, None) => piece,
        (_, Some((_, rest))) => rest,
    });
    shown.map(|piece| piece.chars().count()).sum()
}

/// What speaks against a target, in red where there are colours.
fn alarm(text: &str, colours: bool) -> String {
    if colours { format!("\x1b[1;31m{text}\x1b[0m") } else { text.to_owned() }
}

/// How time becomes columns.
struct Scale {
    makespan: Ticks,
    columns: u64,
    slot: Ticks,
    /// Whether every slot takes a whole number of columns.
    is_exact: bool,
}

impl Scale {
    fn new(tracks: &[Track], makespan: Ticks, width: u64) -> Self {
        let slot = common_slot(tracks);
        let n_slots = (makespan.0 / slot.0).max(1);
        let per_slot = (width / n_slots).min(WIDEST_SLOT);
        let columns = if per_slot > 0 { n_slots * per_slot } else { width };
        Self { makespan, columns, slot, is_exact: per_slot > 0 }
    }

    fn column(&self, time: Ticks) -> usize {
        let makespan = u128::from(self.makespan.0.max(1));
        let column = (u128::from(time.0) * u128::from(self.columns) + makespan / 2) / makespan;
        usize::try_from(column).unwrap_or(usize::MAX)
    }
}

fn title(report: &Report) -> String {
    let figures = &report.figures;
    let show = |value: Option<f64>, form: fn(f64) -> String| value.map(form).unwrap_or_default();
    format!(
        "{}: makespan {}, mean bubble {}, peak {} units\n",
        report.schedule.as_deref().unwrap_or(&report.target),
        show(figures.makespan, number),
        show(figures.bubble_mean, percent),
        show(figures.peak_activation, number),
    )
}

fn row(track: &Track, scale: &Scale, colours: bool) -> String {
    let mut text = String::new();
    let mut column = 0;
    for mark in &track.marks {
        let (first, last) = (scale.column(mark.start), scale.column(mark.end));
        // Two tasks that share the device stand side by side.
        let (first, last) = match mark.share {
            Occupancy::Whole => (first, last),
            Occupancy::First => (first, first.midpoint(last)),
            Occupancy::Second => (first.midpoint(last), last),
        };
        let (start, end) = (first.max(column), last);
        if end <= start {
            continue;
        }
        let idle = if colours { " " } else { "." };
        text.push_str(&if scale.is_exact && !colours {
            dots(start - column, scale)
        } else {
            idle.repeat(start - column)
        });
        text.push_str(&if colours {
            coloured(mark, &track.number(mark), end - start, track.stages.len())
        } else {
            plain(mark, &track.number(mark), end - start, scale)
        });
        column = end;
    }
    text
}

/// Idle slots, each as wide as a task of one slot.
fn dots(columns: usize, scale: &Scale) -> String {
    let per_slot = scale.column(scale.slot).max(1);
    let slot = format!("{:per_slot$}", ".");
    slot.repeat(columns / per_slot)
}

/// The background of a task: of the colours that every terminal has, the nearest one to its own.
fn background(kind: TaskKind, nth_stage: usize, n_stages: usize) -> (u8, Colour) {
    nearest(shade(kind, Ground::Dark, nth_stage, n_stages))
}

/// The nearest of the fixed colours among the 256 of a terminal: a cube of six levels, and 24 greys.
fn nearest(colour: Colour) -> (u8, Colour) {
    const LEVELS: [u8; 6] = [0, 95, 135, 175, 215, 255];
    let at = |index: u8| {
        let place = usize::from(index);
        match place.checked_sub(16) {
            Some(cube) if cube < 216 => Colour { parts: [LEVELS[cube / 36], LEVELS[cube / 6 % 6], LEVELS[cube % 6]] },
            _ => Colour { parts: [(8 + 10 * place.saturating_sub(232)) as u8; 3] },
        }
    };
    let distance = |index: &u8| colour.distance(at(*index));
    let index = (16..=255).min_by(|one, other| distance(one).total_cmp(&distance(other))).unwrap_or(16);
    (index, at(index))
}

fn coloured(mark: &Mark, number: &str, columns: usize, n_stages: usize) -> String {
    let kind = mark.task.kind;
    // A thin line at the right tells neighbours apart.
    let (body, edge) = if columns > 1 { (columns - 1, "▕") } else { (1, "") };
    let named = format!("{}{number}", kind.letters());
    let texts = [named.as_str(), number, ""];
    let text = texts.into_iter().find(|text| text.len() <= body).unwrap_or_default();
    on_background(kind, mark.nth_stage, n_stages, &format!("{text:^body$}{edge}"))
}

fn plain(mark: &Mark, number: &str, columns: usize, scale: &Scale) -> String {
    let letter = if mark.nth_stage == 0 { letter(mark.task.kind) } else { letter(mark.task.kind).to_ascii_lowercase() };
    if mark.share != Occupancy::Whole {
        let long = format!("{letter}{number}");
        let sign = if long.len() <= columns { long } else { letter.to_string() };
        return format!("{sign:-<columns$}");
    }
    if !scale.is_exact {
        return letter.to_string().repeat(columns);
    }
    let per_slot = scale.column(scale.slot).max(1);
    let long = format!("{letter}{number}");
    if per_slot <= long.len() && long.len() < columns {
        // Too tight to repeat: the microbatch once, then dashes to the end.
        return format!("{long:-<columns$}");
    }
    let cell = if long.len() <= per_slot {
        format!("{long:per_slot$}")
    } else {
        format!("{letter:<per_slot$}", letter = letter.to_string())
    };
    let mut text = cell.repeat(columns / per_slot);
    text.truncate(columns);
    text
}

/// The time axis: round times, and no number that is cut off.
fn axis(scale: &Scale) -> String {
    let units = |ticks: Ticks| ticks.0 as f64 / Ticks::UNIT.0 as f64;
    let step = round_step(units(scale.makespan) * BETWEEN / scale.columns.max(1) as f64);
    let moments = (0..).map(|multiple| f64::from(multiple) * step);
    let mut text = String::new();
    for time in moments.take_while(|time| *time <= units(scale.makespan) * 1.000_001) {
        let column = scale.column(Ticks((time * Ticks::UNIT.0 as f64).round() as u64));
        let (written, words) = (text.chars().count(), number(time));
        if written <= column && (column + words.len()) as u64 <= scale.columns {
            text.push_str(&" ".repeat(column - written));
            text.push_str(&words);
            text.push(' ');
        }
    }
    text.trim_end().to_owned()
}

/// The letters of a kind on its colour.
fn swatch(kind: TaskKind) -> String {
    on_background(kind, 0, 1, &format!(" {} ", kind.letters()))
}

/// A text on the background of a kind.
fn on_background(kind: TaskKind, nth_stage: usize, n_stages: usize, text: &str) -> String {
    let (index, colour) = background(kind, nth_stage, n_stages);
    let ink = if colour.ink() == Colour::LIGHT_INK { 231 } else { 16 };
    format!("\x1b[48;5;{index};38;5;{ink}m{text}\x1b[0m")
}

fn legend(tracks: &[Track], scale: &Scale, colours: bool) -> String {
    let kinds = TaskKind::ALL
        .into_iter()
        .filter(|kind| tracks.iter().any(|track| track.marks.iter().any(|mark| mark.task.kind == *kind)));
    let mut parts: Vec<String> = kinds
        .map(|kind| {
            let sign = if colours { swatch(kind) } else { letter(kind).to_string() };
            format!("{sign} {}", words(kind))
        })
        .collect();
    if tracks.iter().any(|track| track.marks.iter().any(|mark| mark.nth_stage > 0)) {
        parts.push(if colours { "lighter: later stages" } else { "small letters: later stages" }.to_owned());
    }
    if tracks.iter().any(|track| track.marks.iter().any(|mark| mark.share != Occupancy::Whole)) {
        parts.push("side by side with dashes: a pair shares the device".to_owned());
    }
    if !scale.is_exact {
        let per_column = scale.makespan.0 as f64 / Ticks::UNIT.0 as f64 / scale.columns.max(1) as f64;
        parts.push(format!("scaled: one column is {}", number(per_column)));
    }
    parts.join("  ") + "\n"
}

#[cfg(test)]
mod tests {
    use super::{TaskKind, background};
    use std::collections::BTreeSet;

    #[test]
    fn kinds_and_stages_have_colours_of_their_own_in_a_terminal() {
        let shades = TaskKind::ALL.into_iter().flat_map(|kind| [0, 1].map(|nth| background(kind, nth, 2)));
        let shades: Vec<_> = shades.collect();
        let indices: BTreeSet<u8> = shades.iter().map(|(index, _)| *index).collect();
        assert_eq!(indices.len(), shades.len(), "{shades:?}");
        assert!(shades.iter().all(|(_, colour)| colour.contrast(colour.ink()) >= 4.5), "{shades:?}");
    }
}
