//! Figures as TikZ, to be read into a LaTeX document by `\input`: its fonts are those of the document.

use crate::figure::HATCH;
use crate::figure::scene::{Anchor, Fill, Item, Length, Paint, Scene, Shape, Step, Stroke, Text, length};
use crate::palette::Colour;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Letters that mean something else to TeX, or that its fonts have elsewhere.
const NAMED: [(char, &str); 19] = [
    ('\\', "textbackslash"),
    ('^', "textasciicircum"),
    ('~', "textasciitilde"),
    ('`', "textasciigrave"),
    ('\'', "textquotesingle"),
    ('<', "textless"),
    ('>', "textgreater"),
    ('|', "textbar"),
    ('{', "{"),
    ('}', "}"),
    ('$', "$"),
    ('&', "&"),
    ('#', "#"),
    ('%', "%"),
    ('_', "_"),
    ('…', "ldots"),
    ('–', "textendash"),
    ('—', "textemdash"),
    ('·', "textperiodcentered"),
];

/// Letters that are mathematics to TeX. Capitals that look like Latin ones are those.
const MATHEMATICS: [(&str, &str); 3] = [
    (
        "αβγδεζηθικλμνξοπρςστυφχψωϑϕϖϱϵ",
        r"\alpha \beta \gamma \delta \varepsilon \zeta \eta \theta \iota \kappa \lambda \mu \nu \xi o \pi \rho \varsigma \sigma \tau \upsilon \varphi \chi \psi \omega \vartheta \phi \varpi \varrho \epsilon",
    ),
    (
        "ΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΣΤΥΦΧΨΩ∆",
        r"\mathrm{A} \mathrm{B} \Gamma \Delta \mathrm{E} \mathrm{Z} \mathrm{H} \Theta \mathrm{I} \mathrm{K} \Lambda \mathrm{M} \mathrm{N} \Xi \mathrm{O} \Pi \mathrm{P} \Sigma \mathrm{T} \Upsilon \Phi \mathrm{X} \Psi \Omega \Delta",
    ),
    (
        "×≤≥≠≈≡−∞∂∑∏√∫∩∙∕↔′″ℓ⁰⁴⁵⁶⁷⁸⁹⁺⁻ⁿ₀₁₂₃₄₅₆₇₈₉₊₋ₙ",
        r"\times \le \ge \ne \approx \equiv - \infty \partial \sum \prod \surd \int \cap \bullet / \leftrightarrow {}' {}'' \ell {}^0 {}^4 {}^5 {}^6 {}^7 {}^8 {}^9 {}^+ {}^- {}^n {}_0 {}_1 {}_2 {}_3 {}_4 {}_5 {}_6 {}_7 {}_8 {}_9 {}_+ {}_- {}_n",
    ),
];

/// Letters beyond ASCII that LaTeX reads as they are and its usual fonts have.
const PLAIN: &str = concat!(
    "¡¢£¤¥¦§¨©ª¬®¯°±²³´µ¶¸¹º¼½¾¿ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØÙÚÛÜÝßàáâãäåæçèéêëìíîïñòóôõö÷øùúûüýÿĀāĂăĆćĈĉĊċČčĎďĒēĔĕĖėĚěĜĝĞğ",
    "ĠġĢģĤĥĨĩĪīĬĭİıĲĳĴĵĶķĹĺĻļĽľŁłŃńŅņŇňŌōŎŏŐőŒœŔŕŖŗŘřŚśŜŝŞşŠšŢţŤťŨũŪūŬŭŮůŰűŴŵŶŷŸŹźŻżŽžƒȘșȚțẞ‐‖‘’“”†‡•‰‱⁄₡₤₦₩₫€₱℃№",
    "℗℞℠™℧←↑→↓◦",
);

/// What TeX reads for a letter, and none if the usual fonts of LaTeX lack it.
fn written(letter: char) -> Option<String> {
    if let Some((_, name)) = NAMED.iter().find(|(own, _)| *own == letter) {
        let end = if name.len() > 1 { "{}" } else { "" };
        return Some(format!("\\{name}{end}"));
    }
    let formula = |(letters, formulas): &(&str, &str)| {
        let place = letters.chars().position(|own| own == letter)?;
        Some(format!("${}$", formulas.split(' ').nth(place)?))
    };
    let plain = || ((' '..='~').contains(&letter) || PLAIN.contains(letter)).then(|| letter.to_string());
    MATHEMATICS.iter().find_map(formula).or_else(plain)
}

/// The letters of a figure that the usual fonts of LaTeX lack; they are written as they are.
pub fn lacking(scene: &Scene) -> BTreeSet<char> {
    let words = scene.parts.iter().flat_map(|part| &part.items).map(|item| match item {
        Item::Text(text) => text.words.as_str(),
        Item::Shape(..) => "",
    });
    words.flat_map(str::chars).filter(|letter| written(*letter).is_none()).collect()
}

/// A figure as a `tikzpicture`.
pub fn write(scene: &Scene) -> String {
    // A pixel is 1/96 inch, and TeX calls 1/72 inch `bp`.
    let unit = match scene.unit {
        Length::Pixel => 0.75,
        Length::Point => 1.0,
    };
    let items = || scene.parts.iter().flat_map(|part| &part.items);
    let colours: BTreeSet<Colour> = items().flat_map(colours).collect();
    let titles: Vec<&str> = scene.parts.iter().map(|part| &*part.title).collect();
    let mut text = format!(
        "% {}. Drawn by pipec; the document needs \\usepackage{{tikz}} and \\usetikzlibrary{{patterns}}.\n",
        titles.join(", ")
    );
    let (width, height) = (length(scene.width), length(scene.height));
    let _ = writeln!(text, "\\begin{{tikzpicture}}[x={unit}bp, y=-{unit}bp, every node/.style={{inner sep=0}}]");
    // Outside of the picture, the end of each line would be a space in front of it.
    for colour in colours {
        let _ = writeln!(text, "\\definecolor{{{}}}{{HTML}}{{{}}}", named(colour), hexadecimal(colour));
    }
    let _ = writeln!(text, "\\useasboundingbox (0,0) rectangle ({width},{height});");
    for item in items() {
        match item {
            Item::Shape(shape, paint) => self::shape(&mut text, shape, paint, unit),
            Item::Text(own) => self::text(&mut text, own, unit),
        }
    }
    text + "\\end{tikzpicture}%\n"
}

/// The colours of a shape or a text.
fn colours(item: &Item) -> Vec<Colour> {
    match item {
        Item::Text(text) => vec![text.colour],
        Item::Shape(_, paint) => {
            let fill = match paint.fill {
                None => Vec::new(),
                Some(Fill::Plain(colour)) => vec![colour],
                Some(Fill::Divided(pair)) => pair.to_vec(),
                Some(Fill::Hatched) => HATCH.to_vec(),
            };
            fill.into_iter().chain(paint.stroke.map(|stroke| stroke.colour)).collect()
        }
    }
}

fn hexadecimal(colour: Colour) -> String {
    colour.to_string().trim_start_matches('#').to_uppercase()
}

fn named(colour: Colour) -> String {
    format!("pipec{}", hexadecimal(colour))
}

fn text(tex: &mut String, text: &Text, unit: f64) {
    let anchor = match text.anchor {
        Anchor::Start => "base west",
        Anchor::Middle => "base",
        Anchor::End => "base east",
    };
    let size = length(text.size * unit);
    let weight = if text.bold { "\\bfseries\\boldmath" } else { "" };
    let mut words = String::new();
    let mut before = None;
    for letter in text.words.chars() {
        // TeX makes one letter of several of these.
        if matches!(letter, '-' | ',') && before == Some(letter) {
            words.push_str("{}");
        }
        words += &written(letter).unwrap_or_else(|| letter.to_string());
        before = Some(letter);
    }
    let _ = writeln!(
        tex,
        "\\node[anchor={anchor}, text={}, font=\\sffamily\\fontsize{{{size}bp}}{{{size}bp}}\\selectfont{weight}] at {} {{{words}}};",
        named(text.colour),
        place(text.at)
    );
}

fn shape(tex: &mut String, shape: &Shape, paint: &Paint, unit: f64) {
    let (round, outline) = outline(shape, unit);
    let edge = paint.stroke.map(|stroke| edge(stroke, unit));
    let path = |options: &[Option<&str>]| {
        let options: Vec<&str> = options.iter().chain([&round.as_deref()]).flatten().copied().collect();
        format!("\\path[{}] {outline};", options.join(", "))
    };
    let fill = |colour| format!("fill={}", named(colour));
    let edge = edge.as_deref();
    let drawn = match (paint.fill, shape) {
        (Some(Fill::Divided([above, below])), Shape::Rectangle([x, y, width, height], _)) => {
            let corners = [[*x, y + height], [x + width, *y], [x + width, y + height]].map(place).join(" -- ");
            format!(
                "{}\n\\begin{{scope}}{} \\path[{}] {corners} -- cycle;\\end{{scope}}\n{}",
                path(&[Some(&fill(above))]),
                path(&[Some("clip")]),
                fill(below),
                path(&[edge])
            )
        }
        (Some(Fill::Hatched), _) => {
            let [line, ground] = HATCH;
            let lines = format!("pattern=north east lines, pattern color={}", named(line));
            format!("{}\n{}", path(&[Some(&fill(ground))]), path(&[Some(&lines), edge]))
        }
        (Some(Fill::Plain(colour) | Fill::Divided([colour, _])), _) => path(&[Some(&fill(colour)), edge]),
        (None, _) => path(&[edge]),
    };
    let _ = writeln!(tex, "{drawn}");
}

/// How an edge is drawn.
fn edge(stroke: Stroke, unit: f64) -> String {
    let measure = |own: f64| length(own * unit);
    let dash = stroke.dash.map_or_else(String::new, |[dash, gap]| {
        format!(", dash pattern=on {}bp off {}bp", measure(dash), measure(gap))
    });
    format!("draw={}, line width={}bp{dash}", named(stroke.colour), measure(stroke.width))
}

/// The radius of the corners of a shape, as an option, and the shape.
fn outline(shape: &Shape, unit: f64) -> (Option<String>, String) {
    match shape {
        Shape::Rectangle([x, y, width, height], radius) => {
            let round = (*radius > 0.0).then(|| format!("rounded corners={}bp", length(radius * unit)));
            (round, format!("{} rectangle {}", place([*x, *y]), place([x + width, y + height])))
        }
        Shape::Path(steps) => {
            let step = |step: &Step| match *step {
                Step::Move(to) => place(to),
                Step::Line(to) => format!("-- {}", place(to)),
                Step::Curve([one, two, to]) => {
                    format!(".. controls {} and {} .. {}", place(one), place(two), place(to))
                }
                Step::Close => "-- cycle".to_owned(),
            };
            (None, steps.iter().map(step).collect::<Vec<_>>().join(" "))
        }
    }
}

fn place([x, y]: [f64; 2]) -> String {
    format!("({},{})", length(x), length(y))
}
