//! The picture in the terminal: a row per device, scaled to its width.

mod colours;
mod scale;
mod swaps;
mod tasks;

use crate::output::diagnostics::Look;
use crate::output::figures::{percent, time, units};
use crate::output::wrap::wrap;
use colours::{alarm, on_background, visible};
use pipe_compiler::Compilation;
use pipe_compiler::analyze::Analysis;
use pipe_compiler::report::Report;
use pipe_compiler::stuck::Stuck;
use pipe_ir::task::TaskKind;
use pipe_plot::Picture;
use pipe_plot::palette::words;
use pipe_plot::tracks::{Occupancy, Track, stuck_tracks, tracks};
use pipe_plot::why::{self, name, too_much, waiting};
use pipe_schedule::swaps::SwapKind;
use pipe_schedule::units::Ticks;
use scale::Scale;
use tasks::{FUSED, Style};

/// Rows that are drawn; of more devices, the first and the last ones.
const ROWS: usize = 40;

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
    let has_swaps = analysis.timeline.copies.iter().any(|copy| copy.swap.is_some() && copy.end > copy.start);
    let beside = if has_swaps { SwapKind::Evict.word().len() + 1 } else { 0 };
    let label = tracks.iter().map(|track| track.name.len() + 1 + beside).max().unwrap_or_default();
    let scale = Scale::new(&tracks, analysis.timeline.makespan(), look.width.saturating_sub(label).max(20) as u64);
    let style = Style::new(&scale, look.colours, &tracks);
    let mut text = title(report, analysis.unit);
    let hidden = if tracks.len() > ROWS { ROWS / 2..tracks.len() - ROWS / 2 + 1 } else { 0..0 };
    for (device, track) in tracks.iter().enumerate() {
        if hidden.contains(&device) {
            if device == hidden.start {
                text.push_str(&format!("{:label$}{} more devices\n", "..", hidden.len()));
            }
            continue;
        }
        text.push_str(&format!("{:label$}{}\n", track.name, style.row(track).trim_end()));
        for kind in SwapKind::ALL.into_iter().filter(|_| has_swaps && !track.is_lane) {
            let copies = swaps::copies(analysis, track.device, kind);
            if !copies.is_empty() {
                let row = swaps::row(&style, analysis, &copies);
                text.push_str(&format!("{:label$}{}\n", swaps::name(track, kind), row.trim_end()));
            }
        }
        for (picture, misfit) in misfits.into_iter().flat_map(|own| own.misfits.iter().map(move |one| (own, one))) {
            if misfit.device as usize == device {
                let from = scale.column(Ticks(misfit.from * (Ticks::UNIT.0 / picture.clock.ticks_per_unit)));
                let why = alarm(&format!("▲ {}", too_much(picture, misfit)), look.colours);
                text.push_str(&format!("{:1$}{why}\n", "", (label + from).min(look.width / 2)));
            }
        }
    }
    text.push_str(&format!("{:label$}{}\n", "", scale.axis(analysis.unit)));
    text + &legend((&tracks, !analysis.schedule.parts.is_empty()), &style, analysis.unit, look.width)
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
            (None, true) => (
                format!(
                    "{} stands at {}",
                    why::device(picture, device as u32),
                    name(picture, task(first + stop.ran[device]))
                ),
                false,
            ),
            (None, false) => ("all of its tasks run".to_owned(), false),
        }
    };
    let stands: Vec<(String, bool)> = (0..tracks.len()).map(stand).collect();
    let label = tracks.iter().map(|track| track.name.len() + 1).max().unwrap_or_default();
    let widest = stands.iter().map(|(words, _)| words.len() + 3).max().unwrap_or_default();
    let width = look.width.saturating_sub(label + widest).max(look.width / 4);
    let scale = Scale::new(&tracks, stuck.at, width as u64);
    let (ran, all) = (stop.ran.iter().sum::<u32>(), picture.tasks.len() as u32 + stop.hidden.iter().sum::<u32>());
    let style = Style::new(&scale, look.colours, &tracks);
    let at = time(stuck.at.0 as f64 / Ticks::UNIT.0 as f64, stuck.unit);
    let mut text = format!("{}: deadlock at {at}, {ran} of {all} tasks run\n", picture.title);
    for (device, (track, (words, waits))) in tracks.iter().zip(&stands).enumerate() {
        if (ROWS / 2..tracks.len().saturating_sub(ROWS / 2)).contains(&device) && !waits {
            continue;
        }
        let drawn = style.row(track);
        let end = track.marks.last().map_or(0, |mark| scale.column(mark.end));
        let gap = " ".repeat((scale.column(stuck.at) + 1).saturating_sub(end.max(visible(&drawn))));
        let words = if *waits { alarm(&format!("┃ {words}"), look.colours) } else { format!("│ {words}") };
        text.push_str(&format!("{:label$}{drawn}{gap}{words}\n", track.name));
    }
    text.push_str(&format!("{:label$}{}\n", "", scale.axis(stuck.unit)));
    text + &legend((&tracks, !stuck.schedule.parts.is_empty()), &style, stuck.unit, look.width)
}

fn title(report: &Report, unit: Option<&str>) -> String {
    let figures = &report.figures;
    let show = |value: Option<f64>, form: fn(f64) -> String| value.map(form).unwrap_or_default();
    format!(
        "{}: makespan {}, mean bubble {}, peak {}\n",
        report.pipeline.as_deref().or(report.schedule.as_deref()).unwrap_or(&report.target),
        figures.makespan.map(|makespan| time(makespan, unit)).unwrap_or_default(),
        show(figures.bubble_mean, percent),
        show(figures.peak_activation, units),
    )
}

/// The letters of a kind on its colour.
fn swatch(kind: TaskKind) -> String {
    on_background(kind, 0, 1, &format!(" {} ", kind.letters()))
}

fn legend(
    (tracks, has_parts): (&[Track], bool),
    style: &Style<'_>,
    unit: Option<&'static str>,
    width: usize,
) -> String {
    let marks = || tracks.iter().flat_map(|track| &track.marks);
    let kinds = TaskKind::ALL.into_iter().filter(|kind| marks().any(|mark| mark.task.kind == *kind));
    let sign = |kind: TaskKind| match style.letters(kind) {
        _ if style.colours => swatch(kind),
        FUSED => format!("{FUSED} {},", kind.letters()),
        letters => letters.to_owned(),
    };
    let mut parts: Vec<String> = kinds.map(|kind| format!("{} {}", sign(kind), words(kind))).collect();
    if marks().any(|mark| mark.nth_stage > 0) {
        let later = if has_parts { "later parts" } else { "later stages" };
        parts.push(format!("{}: {later}", if style.colours { "lighter" } else { "small letters" }));
    }
    if marks().any(|mark| mark.share != Occupancy::Whole) {
        parts.push("side by side with dashes: a pair shares the device".to_owned());
    }
    parts.extend(style.scale.remarks(unit));
    wrap(&parts.join("  "), width).join("\n") + "\n"
}
