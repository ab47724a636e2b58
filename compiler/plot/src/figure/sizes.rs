//! Lengths of everything in a figure: of one on a screen in pixels, of one on paper in points.

use super::scene::Length;

/// What a figure is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Medium {
    /// A page, a README, slides.
    Screen,
    /// A column of a paper: small, with no text under 6 points, on the paper's own ground.
    Paper,
}

/// The smallest text on paper.
pub const SMALLEST: f64 = 6.0;

/// Lengths of a figure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) medium: Medium,
    pub(super) unit: Length,
    /// Texts: the title, lines below it, axis and legend, devices, and numbers on tasks.
    pub(super) title: f64,
    pub(super) figures: f64,
    pub(super) small: f64,
    pub(super) device: f64,
    pub(super) number: f64,
    /// Above the title, or above the tracks where there is none.
    pub(super) above: f64,
    /// From the last line above the tracks to these, and what is left to the right of them.
    pub(super) head: f64,
    pub(super) right: f64,
    /// The height of a task, and from one track to the next.
    pub(super) task: f64,
    pub(super) pitch: f64,
    /// From one track to the next, where arrows go between them.
    pub(super) wide_pitch: f64,
    /// How high bars and curves below a task are.
    pub(super) bar: f64,
    pub(super) curve: f64,
    /// Around a number on a task, both sides together.
    pub(super) margin: f64,
    /// Between neighbours.
    pub(super) hair: f64,
    /// Corners and edges.
    pub(super) round: f64,
    pub(super) edge: f64,
    /// Between labels of the time axis, at least.
    pub(super) tick: f64,
    /// Where time is left out.
    pub(super) cut: f64,
    /// From the tracks to the legend, and what is left below it.
    pub(super) legend: f64,
    pub(super) below: f64,
    /// How much wider texts may become: a page shows them in the fonts that it has.
    pub(super) slack: f64,
    /// A box of the legend.
    pub(super) swatch: [f64; 2],
}

impl Sizes {
    pub(super) const fn of(medium: Medium) -> Self {
        match medium {
            Medium::Screen => Self {
                medium,
                unit: Length::Pixel,
                title: 19.0,
                figures: 13.0,
                small: 11.0,
                device: 13.0,
                number: 11.0,
                above: 20.0,
                head: 20.0,
                right: 92.0,
                task: 28.0,
                pitch: 34.0,
                wide_pitch: 58.0,
                bar: 5.0,
                curve: 16.0,
                margin: 4.0,
                hair: 1.0,
                round: 2.5,
                edge: 0.75,
                tick: 90.0,
                cut: 22.0,
                legend: 46.0,
                below: 18.0,
                slack: 1.2,
                swatch: [16.0, 14.0],
            },
            Medium::Paper => Self {
                medium,
                unit: Length::Point,
                title: 8.0,
                figures: 7.0,
                small: 6.5,
                device: 7.0,
                number: SMALLEST,
                above: 2.0,
                head: 4.0,
                right: 3.0,
                task: 9.5,
                pitch: 11.0,
                wide_pitch: 20.0,
                bar: 2.0,
                curve: 6.0,
                margin: 1.4,
                hair: 0.3,
                round: 0.8,
                edge: 0.25,
                tick: 34.0,
                cut: 9.0,
                legend: 15.0,
                below: 3.0,
                slack: 1.0,
                swatch: [7.0, 5.5],
            },
        }
    }
}
