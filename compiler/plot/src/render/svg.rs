//! Figures as SVG, which stands on its own or in a page with others.

/// Appends to the text. Writing to a string cannot fail.
macro_rules! put {
    ($svg:expr, $($argument:tt)*) => {
        writeln!($svg, $($argument)*).expect("writing to a string cannot fail")
    };
}

use crate::figure::scene::{Anchor, Fill, Item, Length, Paint, Part, Scene, Shape, Step, Text, length};
use crate::figure::{self, HATCH, Look, Medium};
use crate::palette::Colour;
use pipe_compiler::Compilation;
use std::collections::BTreeSet;
use std::fmt::Write;

/// What is behind a figure on a screen.
const GROUND: Colour = Colour::new(0xfd_fd_fc);

/// Draws the timeline of a target for a screen, also of one that breaks a limit, and how far one comes that is stuck.
///
/// # Errors
/// If there is none, or it has too many tasks to be looked at.
pub fn draw(compilation: &Compilation) -> Result<String, String> {
    figure::draw(&[compilation], &Look::of(Medium::Screen)).map(|scene| write(&scene))
}

/// A figure as SVG.
pub fn write(scene: &Scene) -> String {
    let (width, height) = (length(scene.width), length(scene.height));
    let unit = match scene.unit {
        Length::Pixel => "",
        Length::Point => "pt",
    };
    let size = format!(r#"width="{width}{unit}" height="{height}{unit}" viewBox="0 0 {width} {height}""#);
    let font =
        "font-family=\"'Helvetica Neue', Helvetica, Arial, Arimo, 'Liberation Sans', 'DejaVu Sans', sans-serif\"";
    let mut svg = String::new();
    let xmlns = r#"xmlns="http://www.w3.org/2000/svg""#;
    let alone = scene.parts.len() == 1;
    match scene.parts.first() {
        Some(part) if alone => put!(svg, r#"<svg {xmlns} {} {size} {font}>"#, described(part)),
        _ => put!(svg, r#"<svg {xmlns} class="pipec" {size} {font}>"#),
    }
    for part in &scene.parts {
        if !alone {
            put!(svg, "<g {}>", described(part));
        }
        put!(svg, r#"<title id="{}-title">{}</title>"#, part.scope, escape(&part.title));
        if scene.unit == Length::Pixel && std::ptr::eq(part, &scene.parts[0]) {
            put!(svg, r#"<rect width="100%" height="100%" fill="{GROUND}"/>"#);
        }
        definitions(&mut svg, part);
        items(&mut svg, part);
        if !alone {
            put!(svg, "</g>");
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// How a part is told to those who cannot see it.
fn described(part: &Part) -> String {
    format!(r#"class="pipec" role="img" aria-labelledby="{}-title""#, part.scope)
}

/// The fills of a part that are more than a colour.
fn definitions(svg: &mut String, part: &Part) {
    let scope = &part.scope;
    let fills = part.items.iter().filter_map(|item| match item {
        Item::Shape(_, paint) => paint.fill,
        Item::Text(_) => None,
    });
    let (mut pairs, mut has_idle) = (BTreeSet::new(), false);
    for fill in fills {
        match fill {
            Fill::Divided(pair) => _ = pairs.insert(pair),
            Fill::Hatched => has_idle = true,
            Fill::Plain(_) => {}
        }
    }
    if pairs.is_empty() && !has_idle {
        return;
    }
    put!(svg, "<defs>");
    if has_idle {
        let [line, ground] = HATCH;
        put!(
            svg,
            r#"<pattern id="{scope}-idle" width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="4" height="4" fill="{ground}"/><path d="M0 0V4" stroke="{line}" stroke-width="1.6"/></pattern>"#
        );
    }
    for pair in pairs {
        let [above, below] = pair;
        put!(
            svg,
            r#"<linearGradient id="{scope}-{}" x2="1" y2="1"><stop offset=".5" stop-color="{above}"/><stop offset=".5" stop-color="{below}"/></linearGradient>"#,
            divided(pair)
        );
    }
    put!(svg, "</defs>");
}

/// The name of a fill with two colours.
fn divided(pair: [Colour; 2]) -> String {
    let [above, below] = pair.map(|colour| colour.to_string().replace('#', ""));
    format!("{above}-{below}")
}

/// The shapes and texts of a part. Texts next to each other that look alike are said once how.
fn items(svg: &mut String, part: &Part) {
    let looks = |text: &Text| (text.anchor, text.size.to_bits(), text.bold);
    let mut open = None;
    for item in &part.items {
        let own = match item {
            Item::Text(text) => Some(looks(text)),
            Item::Shape(..) => None,
        };
        if open != own {
            if open.is_some() {
                put!(svg, "</g>");
            }
            if let Item::Text(text) = item {
                let anchor = match text.anchor {
                    Anchor::Start => "",
                    Anchor::Middle => r#" text-anchor="middle""#,
                    Anchor::End => r#" text-anchor="end""#,
                };
                let weight = if text.bold { r#" font-weight="600""# } else { "" };
                put!(svg, r#"<g font-size="{}"{anchor}{weight}>"#, length(text.size));
            }
            open = own;
        }
        match item {
            Item::Shape(shape, paint) => self::shape(svg, shape, &painted(paint, &part.scope)),
            Item::Text(Text { at: [x, y], colour, words, .. }) => {
                put!(svg, r#"<text x="{}" y="{}" fill="{colour}">{}</text>"#, length(*x), length(*y), escape(words));
            }
        }
    }
    if open.is_some() {
        put!(svg, "</g>");
    }
}

fn shape(svg: &mut String, shape: &Shape, painted: &str) {
    match shape {
        Shape::Rectangle([x, y, width, height], radius) => {
            let [x, y, width, height] = [x, y, width, height].map(|own| length(*own));
            let round = if *radius > 0.0 { format!(r#" rx="{}""#, length(*radius)) } else { String::new() };
            put!(svg, r#"<rect x="{x}" y="{y}" width="{width}" height="{height}"{round}{painted}/>"#);
        }
        Shape::Path(steps) => {
            let place = |[x, y]: [f64; 2]| format!("{} {}", length(x), length(y));
            let step = |step: &Step| match *step {
                Step::Move(to) => format!("M{}", place(to)),
                Step::Line(to) => format!("L{}", place(to)),
                Step::Curve([one, two, to]) => format!("C{} {} {}", place(one), place(two), place(to)),
                Step::Close => "Z".to_owned(),
            };
            put!(svg, r#"<path d="{}"{painted}/>"#, steps.iter().map(step).collect::<String>());
        }
    }
}

/// How a shape is painted, as attributes.
fn painted(paint: &Paint, scope: &str) -> String {
    let mut text = match paint.fill {
        None => r#" fill="none""#.to_owned(),
        Some(Fill::Plain(colour)) => format!(r#" fill="{colour}""#),
        Some(Fill::Divided(pair)) => format!(r#" fill="url(#{scope}-{})""#, divided(pair)),
        Some(Fill::Hatched) => format!(r#" fill="url(#{scope}-idle)""#),
    };
    if let Some(stroke) = paint.stroke {
        let (colour, width) = (stroke.colour, length(stroke.width));
        text += &format!(r#" stroke="{colour}" stroke-width="{width}""#);
        if let Some([dash, gap]) = stroke.dash {
            text += &format!(r#" stroke-dasharray="{} {}""#, length(dash), length(gap));
        }
    }
    text
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
