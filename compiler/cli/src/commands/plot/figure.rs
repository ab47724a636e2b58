//! What `plot` is told about figures: what they are for, how large they are, and what they show.

use crate::output::Failure;
use clap::ValueEnum;
use pipe_plot::figure::{Crop, Layer, Look, Medium, Title};

/// Points of an inch, and millimetres of one.
const INCH: f64 = 72.0;
const MILLIMETRES: f64 = 25.4;
/// One column of a page with two, and both, as most styles of papers have them.
const COLUMN: f64 = 240.0;
const PAGE: f64 = 504.0;
/// The shortest length and the longest one, in points.
const LEAST: f64 = 20.0;
const MOST: f64 = 20_000.0;

/// Arguments about figures.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Figures in .svg, .pdf and .tex")]
pub(super) struct FigureArguments {
    /// What the figure is for: `paper` is small, in points, with no text under 6 points and black on
    /// white; without this `screen` in an .svg, and `paper` in a .pdf or .tex
    #[arg(long = "for", value_name = "MEDIUM", requires = "output")]
    medium: Option<Purpose>,
    /// How high the figure is, as in `--height 60mm`: tracks take what is left
    #[arg(long, value_name = "LENGTH", requires = "output", value_parser = length)]
    height: Option<Points>,
    /// What stands above the tracks instead of the name of the schedule: words, or `none`; of several
    /// targets once for each, in their order, or once `none` for all
    #[arg(long, value_name = "WORDS", requires = "output")]
    title: Vec<String>,
    /// Leaves time out: `fit` shows the warm-up, a piece of the steady state and the cool-down, with
    /// numbers that can be read; or the pieces to show, as in `0..12,40..46,90..`
    #[arg(long, value_name = "PIECES", requires = "output", value_parser = crop)]
    crop: Option<Crop>,
    /// What is shown besides tasks
    #[arg(long, value_name = "LAYERS", requires = "output", value_delimiter = ',')]
    show: Vec<Shown>,
}

/// What a figure is for.
#[derive(ValueEnum, Clone, Copy, Debug)]
enum Purpose {
    /// A page, a README, slides: in pixels, with the figures of the schedule
    Screen,
    /// A column of a paper: in points
    Paper,
}

/// What a figure shows besides tasks.
#[derive(ValueEnum, Clone, Copy, Debug)]
enum Shown {
    /// Memory over time below each device, and its peak
    Memory,
    /// Lines from the task that sends to where it has arrived
    Transfers,
    /// Bars below each device: copies between it and its host
    Copies,
    /// Bars below each device: what it does together with others
    Collectives,
    /// Outlines of the tasks that make the step as long as it is
    CriticalPath,
}

/// A length on paper.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Points(f64);

/// What `--width` says.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Width {
    /// Of the drawing in the terminal.
    Columns(u16),
    /// Of a figure.
    Length(Points),
    /// Of a figure on a screen.
    Pixels(Points),
}

impl FigureArguments {
    /// How a figure of `n_targets` targets is drawn. Without `--for`, a width in points, millimetres or inches means
    /// paper, and otherwise the form of the file decides (`usual`).
    pub(super) fn look(&self, width: Option<Width>, usual: Medium, n_targets: usize) -> Result<Look, Failure> {
        let medium = match (self.medium, width) {
            (Some(Purpose::Screen), _) => Medium::Screen,
            (Some(Purpose::Paper), _) | (None, Some(Width::Length(_))) => Medium::Paper,
            (None, _) => usual,
        };
        let of_medium = |Points(points): Points| match medium {
            Medium::Screen => points * 96.0 / INCH,
            Medium::Paper => points,
        };
        let width = match width {
            Some(Width::Columns(columns)) => {
                let help = format!("a figure's width has a unit, as in `--width {columns}px` or `--width 240pt`");
                return Err(Failure::Usage(help));
            }
            Some(Width::Length(length) | Width::Pixels(length)) => Some(of_medium(length)),
            None => None,
        };
        let title = |words: &String| if words == "none" { Title::None } else { Title::Words(words.clone()) };
        let titles: Vec<Title> = self.title.iter().map(title).collect();
        let is_for_each = titles.is_empty() || titles.len() == n_targets || titles == [Title::None];
        if !is_for_each {
            let count = titles.len();
            let message =
                format!("{n_targets} targets have {n_targets} titles, or once `--title none`; these are {count}");
            return Err(Failure::Usage(message));
        }
        let layer = |shown: &Shown| match shown {
            Shown::Memory => Layer::Memory,
            Shown::Transfers => Layer::Transfers,
            Shown::Copies => Layer::Copies,
            Shown::Collectives => Layer::Collectives,
            Shown::CriticalPath => Layer::CriticalPath,
        };
        let layers = self.show.iter().map(layer).collect();
        Ok(Look { medium, width, height: self.height.map(of_medium), titles, crop: self.crop.clone(), layers })
    }

    /// The first option that says something about figures.
    pub(super) fn first(&self) -> Option<&'static str> {
        let given = [
            (self.medium.is_some(), "--for"),
            (self.height.is_some(), "--height"),
            (!self.title.is_empty(), "--title"),
            (self.crop.is_some(), "--crop"),
            (!self.show.is_empty(), "--show"),
        ];
        given.into_iter().find(|(given, _)| *given).map(|(_, name)| name)
    }
}

/// `100`, `240pt`, `85mm`, `column`, ..
pub(super) fn width(text: &str) -> Result<Width, String> {
    if let Ok(columns) = text.parse::<u16>() {
        return match columns {
            ..40 => Err("the drawing in the terminal takes 40 columns or more".to_owned()),
            _ => Ok(Width::Columns(columns)),
        };
    }
    match text {
        "column" => Ok(Width::Length(Points(COLUMN))),
        "page" => Ok(Width::Length(Points(PAGE))),
        _ if text.ends_with("px") => length(text).map(Width::Pixels),
        _ => length(text).map(Width::Length).map_err(|why| format!("{why}; or `column` (240pt) or `page` (504pt)")),
    }
}

fn length(text: &str) -> Result<Points, String> {
    let split = text.find(|letter: char| letter.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let times = match unit {
        "pt" => 1.0,
        "mm" => INCH / MILLIMETRES,
        "cm" => 10.0 * INCH / MILLIMETRES,
        "in" => INCH,
        "px" => INCH / 96.0,
        _ => return Err("a length has a unit: `240pt`, `85mm`, `8.5cm`, `3.3in` or `800px`".to_owned()),
    };
    let number: f64 = number.trim().parse().map_err(|_| format!("`{number}` is no number"))?;
    // A4 is 842 points high; posters are larger.
    let points = number * times;
    match (LEAST..=MOST).contains(&points) {
        true => Ok(Points(points)),
        false => {
            Err(format!("a length is between {}{unit} and {}{unit}", (LEAST / times).ceil(), (MOST / times).floor()))
        }
    }
}

/// `fit`, or pieces of time.
fn crop(text: &str) -> Result<Crop, String> {
    if text == "fit" {
        return Ok(Crop::Fitting);
    }
    let moment = |text: &str| text.trim().parse::<f64>().ok().filter(|moment| (0.0..1e15).contains(moment));
    let piece = |piece: &str| {
        let written = || "`fit`, or pieces of time as in `0..12,40..46,90..`".to_owned();
        let (from, to) = piece.split_once("..").ok_or_else(written)?;
        let from = if from.is_empty() { 0.0 } else { moment(from).ok_or_else(written)? };
        let to = if to.is_empty() { None } else { Some(moment(to).ok_or_else(written)?) };
        match to {
            Some(to) if to <= from => Err(format!("the piece `{piece}` ends before it begins, or is empty")),
            _ => Ok((from, to)),
        }
    };
    text.split(',').map(piece).collect::<Result<_, _>>().map(Crop::Pieces)
}
