//! What a figure is made of: shapes and texts with their places, for whatever form it is written in.

use crate::palette::Colour;

/// A figure. Lengths are pixels of a screen, or points (1/72 inch) on paper; `y` grows downwards.
#[derive(Clone, PartialEq, Debug)]
pub struct Scene {
    /// How wide it is.
    pub width: f64,
    /// How high it is.
    pub height: f64,
    /// What lengths are in.
    pub unit: Length,
    /// What is drawn of each target, from back to front.
    pub parts: Vec<Part>,
}

/// What a length of 1 is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Length {
    /// A pixel, 1/96 inch.
    Pixel,
    /// A point, 1/72 inch.
    Point,
}

/// What is drawn of one target.
#[derive(Clone, PartialEq, Debug)]
pub struct Part {
    /// What it shows, for those who cannot see it.
    pub title: String,
    /// A word that no other part of a page has, unless it shows the same.
    pub scope: String,
    /// From back to front. Places count from the upper left corner of the scene.
    pub items: Vec<Item>,
}

/// A shape or a text.
#[derive(Clone, PartialEq, Debug)]
pub enum Item {
    /// A shape that is filled, or has an edge.
    Shape(Shape, Paint),
    /// A line of text.
    Text(Text),
}

/// An outline.
#[derive(Clone, PartialEq, Debug)]
pub enum Shape {
    /// A rectangle: left, top, width, height, and the radius of its corners.
    Rectangle([f64; 4], f64),
    /// Lines and curves, one after the other.
    Path(Vec<Step>),
}

/// One step of a path: places are pairs of x and y.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Step {
    /// Goes on elsewhere.
    Move([f64; 2]),
    /// A straight line.
    Line([f64; 2]),
    /// A Bézier curve of degree three: two control points and its end.
    Curve([[f64; 2]; 3]),
    /// Back to where it began.
    Close,
}

/// How a shape is painted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Paint {
    /// The inside.
    pub fill: Option<Fill>,
    /// The edge.
    pub stroke: Option<Stroke>,
}

/// What the inside of a shape is painted with.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Fill {
    /// One colour.
    Plain(Colour),
    /// Two colours, divided from the lower left to the upper right corner of a rectangle.
    Divided([Colour; 2]),
    /// Slanted lines, which stand for idle time.
    Hatched,
}

/// How an edge, or a line, is drawn.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stroke {
    /// Its colour.
    pub colour: Colour,
    /// How thick it is.
    pub width: f64,
    /// The lengths of a dash and of the gap behind it.
    pub dash: Option<[f64; 2]>,
}

/// A line of text.
#[derive(Clone, PartialEq, Debug)]
pub struct Text {
    /// Where its anchor stands, on the baseline.
    pub at: [f64; 2],
    /// Which point of it that is.
    pub anchor: Anchor,
    /// How large letters are.
    pub size: f64,
    /// Whether they are bold.
    pub bold: bool,
    /// Their colour.
    pub colour: Colour,
    /// The words.
    pub words: String,
}

/// A point of a text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Anchor {
    /// Its begin.
    Start,
    /// Its middle.
    Middle,
    /// Its end.
    End,
}

/// A length with at most two decimals, as texts have it.
pub(crate) fn length(value: f64) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

impl Length {
    /// What stands behind a length.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pixel => "px",
            Self::Point => "pt",
        }
    }
}

impl Paint {
    /// Filled, without an edge.
    pub(super) fn filled(colour: Colour) -> Self {
        Self { fill: Some(Fill::Plain(colour)), stroke: None }
    }

    /// A line.
    pub(super) fn line(colour: Colour, width: f64) -> Self {
        Self { fill: None, stroke: Some(Stroke { colour, width, dash: None }) }
    }

    /// Dashed, where it has an edge.
    pub(super) fn dashed(self, dash: [f64; 2]) -> Self {
        Self { stroke: self.stroke.map(|stroke| Stroke { dash: Some(dash), ..stroke }), ..self }
    }
}

impl Part {
    pub(super) fn text(&mut self, text: Text) {
        self.items.push(Item::Text(text));
    }

    /// Moves everything down.
    pub(super) fn lower(&mut self, by: f64) {
        let moved = |[x, y]: [f64; 2]| [x, y + by];
        for item in &mut self.items {
            match item {
                Item::Shape(Shape::Rectangle(place, _), _) => place[1] += by,
                Item::Shape(Shape::Path(steps), _) => steps.iter_mut().for_each(|step| {
                    *step = match *step {
                        Step::Move(place) => Step::Move(moved(place)),
                        Step::Line(place) => Step::Line(moved(place)),
                        Step::Curve(places) => Step::Curve(places.map(moved)),
                        Step::Close => Step::Close,
                    };
                }),
                Item::Text(text) => text.at = moved(text.at),
            }
        }
    }

    pub(super) fn rectangle(&mut self, place: [f64; 4], radius: f64, paint: Paint) {
        self.items.push(Item::Shape(Shape::Rectangle(place, radius), paint));
    }

    pub(super) fn path(&mut self, steps: Vec<Step>, paint: Paint) {
        self.items.push(Item::Shape(Shape::Path(steps), paint));
    }

    /// A straight line.
    pub(super) fn line(&mut self, from: [f64; 2], to: [f64; 2], paint: Paint) {
        self.path(vec![Step::Move(from), Step::Line(to)], paint);
    }

    /// A path with a head of `size` at its end, which points where its last step goes.
    pub(super) fn arrow(&mut self, steps: Vec<Step>, size: f64, paint: Paint) {
        let ends = steps.iter().filter_map(|step| match *step {
            Step::Move(place) | Step::Line(place) => Some(vec![place]),
            Step::Curve(places) => Some(places.to_vec()),
            Step::Close => None,
        });
        let places: Vec<[f64; 2]> = ends.flatten().collect();
        let Some(&tip) = places.last() else { return };
        let from = places.iter().rev().find(|place| **place != tip).copied().unwrap_or(tip);
        let (dx, dy) = (tip[0] - from[0], tip[1] - from[1]);
        let length = dx.hypot(dy).max(f64::MIN_POSITIVE);
        let along = [dx / length * size, dy / length * size];
        let across = [-along[1] / 2.0, along[0] / 2.0];
        let back = [tip[0] - along[0], tip[1] - along[1]];
        let head = vec![
            Step::Move(tip),
            Step::Line([back[0] + across[0], back[1] + across[1]]),
            Step::Line([back[0] - across[0], back[1] - across[1]]),
            Step::Close,
        ];
        self.path(steps, paint);
        if let Some(stroke) = paint.stroke {
            self.path(head, Paint::filled(stroke.colour));
        }
    }
}
