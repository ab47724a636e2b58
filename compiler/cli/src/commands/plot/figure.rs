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

/// Arguments about figures.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Figures in .svg and .pdf")]
pub(super) struct FigureArguments {
    /// What the figure is for: `paper` is small, in points, with no text under 6 points and black on
    /// white; without this `screen` in an .svg, and `paper` in a .pdf
    #[arg(long = "for", value_name = "MEDIUM", requires = "output")]
    medium: Option<Purpose>,
    /// How high the figure is, as in `--height 60mm`: tracks take what is left
    #[arg(long, value_name = "LENGTH", requires = "output", value_parser = length)]
    height: Option<Points>,
    /// What stands above the tracks: `none`, or these words instead of the name of the schedule
    #[arg(long, value_name = "WORDS", requires = "output")]
    title: Option<String>,
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
}

impl FigureArguments {
    /// How figures are drawn, in a file that is for paper where nothing else is said, or for a screen.
    pub(super) fn look(&self, width: Option<Width>, usual: Medium) -> Result<Look, Failure> {
        let medium = match self.medium {
            Some(Purpose::Screen) => Medium::Screen,
            Some(Purpose::Paper) => Medium::Paper,
            None => usual,
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
            Some(Width::Length(length)) => Some(of_medium(length)),
            None => None,
        };
        let title = match self.title.as_deref() {
            None => Title::Name,
            Some("none") => Title::None,
            Some(words) => Title::Words(words.to_owned()),
        };
        let layer = |shown: &Shown| match shown {
            Shown::Memory => Layer::Memory,
            Shown::Transfers => Layer::Transfers,
            Shown::Copies => Layer::Copies,
            Shown::Collectives => Layer::Collectives,
            Shown::CriticalPath => Layer::CriticalPath,
        };
        let layers = self.show.iter().map(layer).collect();
        Ok(Look { medium, width, height: self.height.map(of_medium), title, crop: self.crop.clone(), layers })
    }

    /// The first option that says something about figures.
    pub(super) fn first(&self) -> Option<&'static str> {
        let given = [
            (self.medium.is_some(), "--for"),
            (self.height.is_some(), "--height"),
            (self.title.is_some(), "--title"),
            (self.crop.is_some(), "--crop"),
            (!self.show.is_empty(), "--show"),
        ];
        given.into_iter().find(|(given, _)| *given).map(|(_, name)| name)
    }

    /// Whether the title is of one target.
    pub(super) fn names_one(&self) -> bool {
        self.title.as_deref().is_some_and(|title| title != "none")
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
        _ => length(text).map(Width::Length),
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
    let number: Option<f64> = number.trim().parse().ok();
    // A4 is 842 points high; posters are larger.
    let points = number.map(|number| number * times).filter(|points| (20.0..=20_000.0).contains(points));
    points.map(Points).ok_or_else(|| "a length is between 20pt and 20000pt".to_owned())
}

/// `fit`, or pieces of time.
fn crop(text: &str) -> Result<Crop, String> {
    if text == "fit" {
        return Ok(Crop::Fitting);
    }
    let piece = |piece: &str| {
        let (from, to) = piece.split_once("..")?;
        let moment = |text: &str| text.trim().parse::<f64>().ok().filter(|moment| (0.0..1e15).contains(moment));
        let from = if from.is_empty() { 0.0 } else { moment(from)? };
        let to = if to.is_empty() { None } else { Some(moment(to)?) };
        (to.is_none_or(|to| from < to)).then_some((from, to))
    };
    let pieces: Option<Vec<_>> = text.split(',').map(piece).collect();
    pieces.map(Crop::Pieces).ok_or_else(|| "`fit`, or pieces of time as in `0..12,40..46,90..`".to_owned())
}
