//! The picture as SVG: a track per device, a colour per kind, letters and microbatch numbers, axis, legend and figures.

/// Appends to the picture. Writing to a string cannot fail.
macro_rules! put {
    ($svg:expr, $($argument:tt)*) => {
        writeln!($svg, $($argument)*).expect("writing to a string cannot fail")
    };
}

mod stop;

use crate::Picture;
use crate::figures::{number, percent};
use crate::palette::{Ground, halves, shade};
use crate::tracks::{Mark, Occupancy, Track, common_slot, stuck_tracks, tracks};
use crate::why::words as words_of_stop;
use pipe_compiler::Compilation;
use pipe_compiler::report::Report;
use pipe_ir::task::TaskKind;
use pipe_schedule::units::Ticks;
use std::fmt::Write;

/// Tasks of one picture: more cannot be told apart, and fill a file of many megabytes.
const TASKS: usize = 40_000;
/// Around the tracks, in pixels.
const LEFT: f64 = 56.0;
const RIGHT: f64 = 92.0;
const TOP: f64 = 92.0;
const BOTTOM: f64 = 84.0;
/// The most pixels of a timeline.
const WIDEST: f64 = 1800.0;
/// The height of a task, and from one track to the next: more where there are arrows between them.
const TASK: f64 = 28.0;
const TRACK: f64 = 34.0;
const WIDE_TRACK: f64 = 58.0;
/// The height of a line that says why a target is rejected.
const LINE: f64 = 17.0;

/// Draws the timeline of a target, also of one that breaks a limit, and how far one comes that is stuck.
///
/// # Errors
/// If there is none, or it has too many tasks to be looked at.
pub fn draw(compilation: &Compilation) -> Result<String, String> {
    let shown = Shown::new(compilation)?;
    let lanes = Lanes::new(&[&shown]);
    Ok(shown.draw(&lanes, scope(shown.name, &compilation.report)).0)
}

/// Draws the timelines of several targets above each other, on one time axis.
///
/// # Errors
/// As [`draw`].
pub fn draw_all(compilations: &[&Compilation]) -> Result<String, String> {
    let shown = compilations.iter().map(|one| Shown::new(one)).collect::<Result<Vec<_>, _>>()?;
    let lanes = Lanes::new(&shown.iter().collect::<Vec<_>>());
    let (mut parts, mut height) = (String::new(), 0.0);
    for (place, one) in shown.iter().enumerate() {
        let scope = format!("{}-{place}", scope(one.name, &one.compilation.report));
        let (svg, own_height) = one.draw(&lanes, scope);
        let (_, inner) = svg.split_once(' ').unwrap_or_default();
        put!(parts, r#"<svg y="{height:.0}" {}"#, inner.trim_end());
        height += own_height;
    }
    let width = LEFT + lanes.width + RIGHT;
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fdfdfc\"/>\n{parts}</svg>\n"
    ))
}

/// The time axis that pictures share.
struct Lanes {
    /// Pixels per unit of time.
    scale: f64,
    /// Pixels of the longest timeline.
    width: f64,
}

impl Lanes {
    /// As wide as what is written asks for, unless that is too wide for a page.
    fn new(shown: &[&Shown<'_>]) -> Self {
        let longest = shown.iter().map(|one| seconds(one.makespan)).fold(f64::MIN_POSITIVE, f64::max);
        let scale = shown.iter().map(|one| one.scale()).fold(0.0, f64::max);
        let width = (longest * scale).clamp(760.0, WIDEST);
        Self { scale: width / longest, width }
    }
}

/// What is drawn of a target.
struct Shown<'a> {
    compilation: &'a Compilation,
    name: &'a str,
    tracks: Vec<Track>,
    makespan: Ticks,
    /// Of a target that something speaks against.
    picture: Option<Picture>,
}

impl<'a> Shown<'a> {
    fn new(compilation: &'a Compilation) -> Result<Self, String> {
        let report = &compilation.report;
        let name = report.schedule.as_deref().unwrap_or(&report.target);
        let picture = Picture::new(compilation).filter(|own| own.stop.is_some() || !own.misfits.is_empty());
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
        Ok(Self { compilation, name, tracks, makespan, picture })
    }

    /// Pixels per unit of time that what is written asks for.
    fn scale(&self) -> f64 {
        let slot = common_slot(&self.tracks).0 as f64;
        let marks = self.tracks.iter().flat_map(|track| track.marks.iter().map(move |mark| (track, mark)));
        let per_slot = |(track, mark): (&Track, &Mark)| {
            (written(&named(track, mark)) + 1.0) * slot / (mark.end - mark.start).0.max(1) as f64
        };
        let slot_width = marks.map(per_slot).fold(20.0, f64::max).min(31.0);
        slot_width * Ticks::UNIT.0 as f64 / slot
    }

    /// The picture, and its height.
    fn draw(&self, lanes: &Lanes, scope: String) -> (String, f64) {
        let Self { compilation, name, tracks, makespan, picture } = self;
        let report = &compilation.report;
        let why = picture.as_ref().map_or_else(Vec::new, words_of_stop);
        let pitch = if compilation.stuck.is_some() { WIDE_TRACK } else { TRACK };
        let sheet = Sheet::new(tracks, (*makespan, lanes), scope, (pitch, why.len()));
        let mut svg = sheet.open(name, tracks);
        match &compilation.stuck {
            Some(stuck) => sheet.stuck_title(&mut svg, name, report, stuck),
            None => sheet.title(&mut svg, name, report),
        }
        sheet.axis(&mut svg, compilation.stuck.as_ref().map_or(*makespan, |stuck| stuck.at));
        for (device, track) in tracks.iter().enumerate() {
            sheet.track(&mut svg, device, track, report);
        }
        if let Some(picture) = picture {
            sheet.stop(&mut svg, picture);
        }
        sheet.legend(&mut svg, tracks);
        sheet.why(&mut svg, &why);
        svg.push_str("</svg>\n");
        (svg, sheet.height)
    }
}

/// The letters of a task's kind, and its microbatch.
fn named(track: &Track, mark: &Mark) -> String {
    format!("{}{}", mark.task.kind.letters(), track.number(mark))
}

/// What no other picture in a page has before its ids, unless it is of the same schedule and size.
fn scope(name: &str, report: &Report) -> String {
    // Ids begin with no digit.
    let start = if name.starts_with(|letter: char| letter.is_ascii_alphabetic()) { "" } else { "_" };
    let word =
        start.chars().chain(name.chars()).map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' });
    let (devices, microbatches) = (report.sizes.devices, report.sizes.microbatches);
    format!("{}-{}x{}", word.collect::<String>(), devices.unwrap_or_default(), microbatches.unwrap_or_default())
}

/// Where things stand on the page.
struct Sheet {
    makespan: f64,
    /// Pixels per unit of time.
    scale: f64,
    width: f64,
    height: f64,
    n_tracks: usize,
    /// From one track to the next.
    pitch: f64,
    /// Whether something speaks against the target that is shown.
    is_rejected: bool,
    /// What ids begin with, so that several pictures may stand in one page.
    scope: String,
    /// Kinds whose tasks are all wide enough for letters before the number.
    lettered: Vec<TaskKind>,
}

/// Devices, stages and microbatches, in words.
fn sizes(report: &Report) -> String {
    let [devices, stages] = [report.sizes.devices, report.sizes.stages].map(Option::unwrap_or_default);
    format!("{devices} devices, {stages} stages, {} microbatches", report.sizes.microbatches.unwrap_or_default())
}

fn seconds(ticks: Ticks) -> f64 {
    ticks.0 as f64 / Ticks::UNIT.0 as f64
}

impl Sheet {
    fn new(
        tracks: &[Track],
        (makespan, lanes): (Ticks, &Lanes),
        scope: String,
        (pitch, n_lines): (f64, usize),
    ) -> Self {
        let all = || tracks.iter().flat_map(|track| track.marks.iter().map(move |mark| (track, mark)));
        let (makespan, scale) = (seconds(makespan).max(f64::MIN_POSITIVE), lanes.scale);
        let height = TOP + BOTTOM + pitch * tracks.len() as f64 + LINE * n_lines as f64;
        let is_wide = |(track, mark): (&Track, &Mark)| {
            seconds(mark.end - mark.start) * scale >= written(&named(track, mark)) + 0.999
        };
        let is_lettered = |kind: &TaskKind| all().filter(|(_, mark)| mark.task.kind == *kind).all(is_wide);
        let lettered = TaskKind::ALL.into_iter().filter(is_lettered).collect();
        Self {
            makespan,
            scale,
            width: LEFT + lanes.width + RIGHT,
            height,
            n_tracks: tracks.len(),
            pitch,
            is_rejected: n_lines > 0,
            scope,
            lettered,
        }
    }

    /// What stands on a task: its microbatch, behind the letters of its kind where they fit on all of the kind.
    fn label(&self, track: &Track, mark: &Mark) -> String {
        let letters = if self.lettered.contains(&mark.task.kind) { mark.task.kind.letters() } else { "" };
        format!("{letters}{}", track.number(mark))
    }

    fn x(&self, time: f64) -> f64 {
        LEFT + time * self.scale
    }

    /// Where the tasks of a device begin.
    fn top(&self, device: usize) -> f64 {
        TOP + self.pitch * device as f64 + (self.pitch - TASK) / 2.0
    }

    fn bottom(&self) -> f64 {
        TOP + self.pitch * self.n_tracks as f64
    }

    fn open(&self, name: &str, tracks: &[Track]) -> String {
        let mut svg = String::new();
        let (width, height, scope) = (self.width, self.height, &self.scope);
        put!(
            svg,
            r#"<svg xmlns="http://www.w3.org/2000/svg" class="pipec" role="img" aria-labelledby="{scope}-title" width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}">"#
        );
        put!(svg, r#"<title id="{scope}-title">Timeline of {}</title>"#, escape(name));
        put!(
            svg,
            "<style>\n\
             .pipec text {{ font-family: Inter, 'Helvetica Neue', Helvetica, Arial, 'DejaVu Sans', sans-serif; fill: #1f2933; }}\n\
             .pipec .title {{ font-size: 19px; font-weight: 600; }}\n\
             .pipec .figures {{ font-size: 13px; fill: #52606d; }}\n\
             .pipec .small {{ font-size: 11px; fill: #52606d; }}\n\
             .pipec .device {{ font-size: 13px; font-weight: 600; text-anchor: end; }}\n\
             .pipec .number {{ font-size: 11px; text-anchor: middle; }}\n\
             .pipec .task {{ stroke: #1f2933; stroke-opacity: .35; stroke-width: .75; }}\n\
             </style>"
        );
        put!(svg, r##"<rect width="100%" height="100%" fill="#fdfdfc"/>"##);
        put!(svg, "<defs>");
        put!(
            svg,
            r##"<pattern id="{scope}-idle" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="7" height="7" fill="#f1f2f4"/><line x1="0" y1="0" x2="0" y2="7" stroke="#e0e3e8" stroke-width="2"/></pattern>"##
        );
        let is_used = |kind: TaskKind| tracks.iter().any(|track| track.marks.iter().any(|mark| mark.task.kind == kind));
        let n_stages = tracks.iter().map(|track| track.stages.len()).max().unwrap_or(1);
        for halves in TaskKind::ALL.into_iter().filter(|kind| is_used(*kind)).filter_map(halves) {
            divided(&mut svg, scope, halves, n_stages);
        }
        if self.is_rejected {
            self.stop_defs(&mut svg);
        }
        put!(svg, "</defs>");
        svg
    }

    fn name(&self, svg: &mut String, name: &str) {
        put!(svg, r#"<text class="title" x="{LEFT}" y="34">{}</text>"#, escape(name));
    }

    fn title(&self, svg: &mut String, name: &str, report: &Report) {
        let show = |value: Option<f64>, form: fn(f64) -> String| value.map_or_else(|| "?".to_owned(), form);
        let figures = &report.figures;
        self.name(svg, name);
        put!(
            svg,
            r#"<text class="figures" x="{LEFT}" y="54">{} · makespan {}{} · mean bubble {} (busiest device {}, by longest stage {})</text>"#,
            sizes(report),
            show(figures.makespan, number),
            report.profile.as_ref().map_or_else(String::new, |own| format!(" {}", own.time_unit)),
            show(figures.bubble_mean, percent),
            show(figures.bubble_makespan, percent),
            show(figures.bubble_longest_stage, percent),
        );
        put!(
            svg,
            r#"<text class="figures" x="{LEFT}" y="72">lower bound {}{} · peak {} units</text>"#,
            show(figures.lower_bound, number),
            figures.form_of_bound(),
            show(figures.peak_activation, number),
        );
        let column = self.x(self.makespan) + 12.0;
        put!(svg, r#"<text class="small" x="{column:.1}" y="{:.1}">peak, units</text>"#, TOP - 8.0);
    }

    /// Vertical lines at round moments up to the last one, with their times below the tracks.
    fn axis(&self, svg: &mut String, last: Ticks) {
        let step = round_step(self.makespan / (self.width / 90.0));
        let bottom = self.bottom();
        let mut moment = 0;
        while f64::from(moment) * step <= seconds(last) * 1.000_001 {
            let time = f64::from(moment) * step;
            let x = self.x(time);
            put!(
                svg,
                r##"<line x1="{x:.1}" y1="{TOP:.1}" x2="{x:.1}" y2="{:.1}" stroke="#cbd2d9" stroke-width="1"/>"##,
                bottom + 5.0
            );
            put!(
                svg,
                r#"<text class="small" text-anchor="middle" x="{x:.1}" y="{:.1}">{}</text>"#,
                bottom + 19.0,
                number(time)
            );
            moment += 1;
        }
        put!(
            svg,
            r#"<text class="small" text-anchor="end" x="{:.1}" y="{:.1}">time</text>"#,
            LEFT - 10.0,
            bottom + 19.0
        );
    }

    fn track(&self, svg: &mut String, device: usize, track: &Track, report: &Report) {
        let top = self.top(device);
        let middle = top + TASK / 2.0 + 4.0;
        put!(svg, r#"<text class="device" x="{:.1}" y="{middle:.1}">d{device}</text>"#, LEFT - 10.0);
        let runs = || track.marks.iter().filter(|mark| mark.runs);
        if let (Some(first), Some(last)) = (runs().next(), runs().next_back()) {
            let (start, end) = (self.x(seconds(first.start)), self.x(seconds(last.end)));
            put!(
                svg,
                r#"<rect x="{start:.2}" y="{top:.1}" width="{:.2}" height="{TASK}" fill="url(#{}-idle)"/>"#,
                end - start,
                self.scope
            );
        }
        for mark in &track.marks {
            self.task(svg, mark, &self.label(track, mark), top, track.stages.len());
        }
        self.left_out(svg, track, middle);
        if let Some(peak) = report.per_device.get(device).and_then(|row| row.peak_activation) {
            let x = self.x(self.makespan) + 12.0;
            put!(svg, r#"<text class="small" x="{x:.1}" y="{middle:.1}">{}</text>"#, number(peak));
        }
    }

    fn task(&self, svg: &mut String, mark: &Mark, text: &str, top: f64, n_stages: usize) {
        let (start, end) = (self.x(seconds(mark.start)), self.x(seconds(mark.end)));
        // A hair of background between neighbours, unless tasks are thinner than that themselves.
        let gap = if end - start > 4.0 { 1.0 } else { 0.0 };
        let width = (end - start - gap).max(0.3);
        let fill = match mark.runs {
            true => fill(&self.scope, mark.task.kind, mark.nth_stage, n_stages),
            false => "#ffffff".to_owned(),
        };
        let edge = match (mark.runs, width > 4.0) {
            (true, true) => r#" class="task""#,
            (true, false) => "",
            (false, _) => r#" class="never""#,
        };
        let round = if width > 8.0 { r#" rx="2.5""# } else { "" };
        // Two tasks that share the device stand one above the other.
        let (top, height) = match mark.share {
            Occupancy::Whole => (top, TASK),
            Occupancy::First => (top, TASK / 2.0 - 0.5),
            Occupancy::Second => (top + TASK / 2.0 + 0.5, TASK / 2.0 - 0.5),
        };
        // A task that occupies neighbours is one block.
        let tall = height + if mark.goes_on { self.pitch - TASK } else { 0.0 };
        put!(
            svg,
            r#"<rect{edge} x="{start:.2}" y="{top:.1}" width="{width:.2}" height="{tall}"{round} fill="{fill}"/>"#
        );
        if width + 0.01 >= written(text) {
            let ink = match mark.runs {
                true => shade(mark.task.kind, Ground::Light, mark.nth_stage, n_stages).ink().to_string(),
                false => "#52606d".to_owned(),
            };
            let (x, y) = (start + width / 2.0, top + height / 2.0 + 4.0);
            put!(svg, r#"<text class="number" x="{x:.1}" y="{y:.1}" style="fill:{ink}">{text}</text>"#);
        }
    }

    fn legend(&self, svg: &mut String, tracks: &[Track]) {
        let y = self.bottom() + 46.0;
        let mut x = LEFT;
        let n_stages = tracks.iter().map(|track| track.stages.len()).max().unwrap_or(1);
        for kind in TaskKind::ALL {
            let is_shown = |mark: &Mark| mark.runs && mark.task.kind == kind;
            if !tracks.iter().any(|track| track.marks.iter().any(is_shown)) {
                continue;
            }
            for nth in 0..n_stages.min(4) {
                let fill = fill(&self.scope, kind, nth, n_stages);
                put!(
                    svg,
                    r#"<rect class="task" x="{x:.1}" y="{y:.1}" width="16" height="14" rx="2.5" fill="{fill}"/>"#
                );
                x += 18.0;
            }
            let words = words(kind);
            put!(svg, r#"<text class="figures" x="{:.1}" y="{:.1}">{words}</text>"#, x + 4.0, y + 11.5);
            x += 34.0 + 6.8 * words.len() as f64;
        }
        put!(svg, r#"<rect x="{x:.1}" y="{y:.1}" width="16" height="14" rx="2.5" fill="url(#{}-idle)"/>"#, self.scope);
        put!(svg, r#"<text class="figures" x="{:.1}" y="{:.1}">bubble</text>"#, x + 22.0, y + 11.5);
        if tracks.iter().any(|track| track.marks.iter().any(|mark| !mark.runs)) {
            x += 88.0;
            put!(
                svg,
                r##"<rect class="never" x="{x:.1}" y="{y:.1}" width="16" height="14" rx="2.5" fill="#ffffff"/>"##
            );
            put!(svg, r#"<text class="figures" x="{:.1}" y="{:.1}">never runs</text>"#, x + 22.0, y + 11.5);
            x += 106.0;
            let middle = y + 7.0;
            put!(
                svg,
                r#"<line class="wait" x1="{x:.1}" y1="{middle:.1}" x2="{:.1}" y2="{middle:.1}" marker-end="url(#{}-arrow)"/>"#,
                x + 14.0,
                self.scope
            );
            put!(svg, r#"<text class="figures" x="{:.1}" y="{:.1}">waits for</text>"#, x + 26.0, y + 11.5);
        }
        let is_later = |mark: &Mark| mark.runs && mark.nth_stage > 0;
        if tracks.iter().any(|track| track.marks.iter().any(is_later)) {
            let text = "lighter: later stages of the device";
            put!(svg, r#"<text class="small" x="{LEFT}" y="{:.1}">{text}</text>"#, y + 31.0);
        }
    }
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

/// What a task is filled with: the colour of its kind, or where it has two halves both of theirs.
fn fill(scope: &str, kind: TaskKind, nth_stage: usize, n_stages: usize) -> String {
    match halves(kind) {
        Some(_) => format!("url(#{scope}-halves{nth_stage})"),
        None => shade(kind, Ground::Light, nth_stage, n_stages).to_string(),
    }
}

/// Fills that are divided from the lower left to the upper right corner, one for each stage of a device.
fn divided(svg: &mut String, scope: &str, halves: [TaskKind; 2], n_stages: usize) {
    for nth in 0..n_stages {
        let [above, below] = halves.map(|half| shade(half, Ground::Light, nth, n_stages));
        put!(
            svg,
            r#"<linearGradient id="{scope}-halves{nth}" x2="1" y2="1"><stop offset=".5" stop-color="{above}"/><stop offset=".5" stop-color="{below}"/></linearGradient>"#
        );
    }
}

/// About how wide a text on a task is, with its margins.
fn written(text: &str) -> f64 {
    6.6 * text.len() as f64 + 3.0
}

/// The next of 1, 2, 5, 10, 20, ..
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.max(1e-9).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= least * 0.999_999)
        .unwrap_or(least)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
