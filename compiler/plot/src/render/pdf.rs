//! Figures as PDF, one page as large as the figure, with its font in it (PDF 1.7, ISO 32000-1).

use crate::figure::HATCH;
use crate::figure::font::{self, advance};
use crate::figure::scene::{Anchor, Fill, Item, Length, Paint, Scene, Shape, Step, Stroke, Text};
use crate::palette::Colour;
use miniz_oxide::deflate::compress_to_vec_zlib;
use pdf_writer::types::{ColorSpaceOperand, FontFlags, PaintType, TilingType};
use pdf_writer::{Content, Filter, Finish, Name, Pdf, Rect, Ref, Str, TextStr};

/// Arimo: as wide as Helvetica and Arial. Its licence is `fonts/OFL.txt`.
const FONTS: [Font; 2] = [
    Font { name: "Arimo", bold: false, file: include_bytes!("../../fonts/Arimo-Regular.ttf") },
    Font { name: "Arimo-Bold", bold: true, file: include_bytes!("../../fonts/Arimo-Bold.ttf") },
];
/// What the letters of all fonts lie in, in thousandths of their size; and their ascent, descent and capitals.
pub(crate) const BOUNDS: [f32; 4] = [-544.0, -389.0, 2797.0, 1043.0];
pub(crate) const ASCENT: f32 = 905.0;
pub(crate) const DESCENT: f32 = -212.0;

/// Points of a pixel.
const PIXEL: f64 = 0.75;
/// How far the control points of a quarter of a circle are from its ends, by its radius.
const ARC: f64 = 0.552_285;

struct Font {
    name: &'static str,
    bold: bool,
    file: &'static [u8],
}

/// What the parts of the file are called.
const CATALOG: i32 = 1;
const PAGES: i32 = 2;
const PAGE: i32 = 3;
const CONTENT: i32 = 4;
const INFO: i32 = 5;
const IDLE: i32 = 6;
/// Of the first font: itself, its description and its file; those of the second follow.
const FIRST_FONT: i32 = 7;

/// The name of the pattern of idle time.
const HATCHED: Name<'static> = Name(b"Idle");
/// The first letter of fonts, a space.
const FIRST_LETTER: u8 = b' ';
/// Letters of figures beyond ASCII, with their codes in Windows' code page 1252.
const CODES: [(u8, char); 5] = [(0x85, '…'), (0x96, '–'), (0x97, '—'), (0xb7, '·'), (0xd7, '×')];

/// A figure as PDF.
pub fn write(scene: &Scene) -> Vec<u8> {
    let scale = match scene.unit {
        Length::Pixel => PIXEL,
        Length::Point => 1.0,
    };
    let (width, height) = (narrow(scene.width * scale), narrow(scene.height * scale));
    let mut pdf = Pdf::new();
    pdf.catalog(Ref::new(CATALOG)).pages(Ref::new(PAGES));
    pdf.pages(Ref::new(PAGES)).kids([Ref::new(PAGE)]).count(1);
    let titles: Vec<&str> = scene.parts.iter().map(|part| &*part.title).collect();
    let mut info = pdf.document_info(Ref::new(INFO));
    info.title(TextStr(&titles.join(", "))).creator(TextStr("pipec"));
    info.finish();
    let mut page = pdf.page(Ref::new(PAGE));
    page.media_box(Rect::new(0.0, 0.0, width, height)).parent(Ref::new(PAGES)).contents(Ref::new(CONTENT));
    let mut resources = page.resources();
    let mut fonts = resources.fonts();
    for (font, first) in FONTS.iter().zip((FIRST_FONT..).step_by(3)) {
        fonts.pair(Name(font.name.as_bytes()), Ref::new(first));
    }
    fonts.finish();
    resources.patterns().pair(HATCHED, Ref::new(IDLE));
    resources.finish();
    page.finish();
    let mut content = Content::new();
    // From here on y grows downwards, as in the scene.
    content.transform([narrow(scale), 0.0, 0.0, narrow(-scale), 0.0, height]);
    for item in scene.parts.iter().flat_map(|part| &part.items) {
        match item {
            Item::Shape(shape, paint) => self::shape(&mut content, shape, paint),
            Item::Text(text) => self::text(&mut content, text),
        }
    }
    let packed = compress_to_vec_zlib(&content.finish(), 6);
    pdf.stream(Ref::new(CONTENT), &packed).filter(Filter::FlateDecode);
    idle(&mut pdf, height, scale);
    for (font, first) in FONTS.iter().zip((FIRST_FONT..).step_by(3)) {
        embed(&mut pdf, font, first);
    }
    pdf.finish()
}

/// The pattern of idle time. Patterns lie in the space of the page, whatever is transformed.
fn idle(pdf: &mut Pdf, height: f32, scale: f64) {
    let (side, [line, ground]) = (4.0, HATCH);
    let mut drawing = Content::new();
    fill_colour(&mut drawing, ground);
    drawing.rect(0.0, 0.0, side, side).fill_nonzero();
    stroke(&mut drawing, Stroke { colour: line, width: 1.6, dash: None });
    drawing.move_to(0.8, 0.0).line_to(0.8, side).stroke();
    let drawing = drawing.finish();
    let mut pattern = pdf.tiling_pattern(Ref::new(IDLE), &drawing);
    pattern.paint_type(PaintType::Colored).tiling_type(TilingType::ConstantSpacing);
    pattern.bbox(Rect::new(0.0, 0.0, side, side)).x_step(side).y_step(side);
    let turn = narrow(scale * std::f64::consts::FRAC_1_SQRT_2);
    pattern.matrix([turn, -turn, turn, turn, 0.0, height]);
    pattern.resources();
}

/// A TrueType font with the letters of Windows' code page 1252 that it has.
fn embed(pdf: &mut Pdf, font: &Font, first: i32) {
    let [own, description, file] = [first, first + 1, first + 2].map(Ref::new);
    // A font of one byte per letter that is no Type 1 font has no writer of its own.
    let mut entry = pdf.indirect(own).dict();
    entry.pair(Name(b"Type"), Name(b"Font")).pair(Name(b"Subtype"), Name(b"TrueType"));
    entry.pair(Name(b"BaseFont"), Name(font.name.as_bytes())).pair(Name(b"Encoding"), Name(b"WinAnsiEncoding"));
    entry.pair(Name(b"FirstChar"), i32::from(FIRST_LETTER)).pair(Name(b"LastChar"), i32::from(u8::MAX));
    let letters = (FIRST_LETTER..=u8::MAX).map(|code| (code, letter(code)));
    let widths = letters.map(|(_, letter)| letter.map_or(0, |letter| i32::from(advance(letter, font.bold))));
    entry.insert(Name(b"Widths")).array().items(widths);
    entry.pair(Name(b"FontDescriptor"), description);
    entry.finish();
    let mut about = pdf.font_descriptor(description);
    about.name(Name(font.name.as_bytes())).flags(FontFlags::NON_SYMBOLIC);
    let [left, bottom, right, top] = BOUNDS;
    about.bbox(Rect::new(left, bottom, right, top)).italic_angle(0.0).ascent(ASCENT).descent(DESCENT);
    about.cap_height(narrow(font::CAPITALS * 1000.0)).stem_v(if font.bold { 140.0 } else { 80.0 });
    about.font_file2(file);
    about.finish();
    let packed = compress_to_vec_zlib(font.file, 9);
    let mut stream = pdf.stream(file, &packed);
    let length = i32::try_from(font.file.len()).unwrap_or(i32::MAX);
    stream.filter(Filter::FlateDecode).pair(Name(b"Length1"), length);
}

/// The letter of a code of Windows' code page 1252, of those that figures write.
fn letter(code: u8) -> Option<char> {
    CODES.iter().find(|(own, _)| *own == code).map(|(_, letter)| *letter).or_else(|| {
        let letter = char::from(code);
        (' '..='~').contains(&letter).then_some(letter)
    })
}

/// A text in that code page; letters that the font lacks are `?`.
fn encoded(words: &str) -> Vec<u8> {
    let code = |letter: char| {
        let more = CODES.iter().find(|(_, own)| *own == letter).map(|(code, _)| *code);
        let plain = u8::try_from(letter).ok().filter(|code| (b' '..=b'~').contains(code));
        more.or(plain).unwrap_or(b'?')
    };
    words.chars().map(code).collect()
}

fn text(content: &mut Content, text: &Text) {
    let width = font::width(&text.words, text.size, text.bold);
    let before = match text.anchor {
        Anchor::Start => 0.0,
        Anchor::Middle => width / 2.0,
        Anchor::End => width,
    };
    let [x, y] = [text.at[0] - before, text.at[1]].map(narrow);
    fill_colour(content, text.colour);
    let name = FONTS[usize::from(text.bold)].name;
    content.begin_text().set_font(Name(name.as_bytes()), narrow(text.size));
    // Letters stand upright where y grows downwards.
    content.set_text_matrix([1.0, 0.0, 0.0, -1.0, x, y]).show(Str(&encoded(&text.words))).end_text();
}

fn shape(content: &mut Content, shape: &Shape, paint: &Paint) {
    match paint.fill {
        Some(Fill::Divided(pair)) => {
            content.save_state();
            outline(content, shape);
            content.clip_nonzero().end_path();
            divided(content, shape, pair);
            content.restore_state();
            if let Some(edge) = paint.stroke {
                stroke(content, edge);
                outline(content, shape);
                content.stroke();
            }
            return;
        }
        Some(Fill::Plain(colour)) => fill_colour(content, colour),
        Some(Fill::Hatched) => {
            content.set_fill_color_space(ColorSpaceOperand::Pattern).set_fill_pattern([], HATCHED);
        }
        None => {}
    }
    if let Some(edge) = paint.stroke {
        stroke(content, edge);
    }
    outline(content, shape);
    match (paint.fill, paint.stroke) {
        (Some(_), Some(_)) => content.fill_nonzero_and_stroke(),
        (Some(_), None) => content.fill_nonzero(),
        (None, Some(_)) => content.stroke(),
        (None, None) => content.end_path(),
    };
}

/// A rectangle in two colours, divided from its lower left to its upper right corner.
fn divided(content: &mut Content, shape: &Shape, [above, below]: [Colour; 2]) {
    let Shape::Rectangle(place, _) = shape else { return };
    let [x, y, width, height] = place.map(narrow);
    fill_colour(content, above);
    content.rect(x, y, width, height).fill_nonzero();
    fill_colour(content, below);
    content.move_to(x, y + height).line_to(x + width, y).line_to(x + width, y + height).close_path().fill_nonzero();
}

fn outline(content: &mut Content, shape: &Shape) {
    match shape {
        Shape::Rectangle(place, radius) if *radius > 0.0 => {
            let [x, y, width, height] = *place;
            let radius = radius.min(width / 2.0).min(height / 2.0);
            let (right, bottom, free) = (x + width, y + height, radius * (1.0 - ARC));
            content.move_to(narrow(x + radius), narrow(y));
            let mut corner = |edge: [f64; 2], one: [f64; 2], two: [f64; 2], to: [f64; 2]| {
                let [edge, one, two, to] = [edge, one, two, to].map(|place| place.map(narrow));
                content.line_to(edge[0], edge[1]).cubic_to(one[0], one[1], two[0], two[1], to[0], to[1]);
            };
            corner([right - radius, y], [right - free, y], [right, y + free], [right, y + radius]);
            corner([right, bottom - radius], [right, bottom - free], [right - free, bottom], [right - radius, bottom]);
            corner([x + radius, bottom], [x + free, bottom], [x, bottom - free], [x, bottom - radius]);
            corner([x, y + radius], [x, y + free], [x + free, y], [x + radius, y]);
            content.close_path();
        }
        Shape::Rectangle(place, _) => {
            let [x, y, width, height] = place.map(narrow);
            content.rect(x, y, width, height);
        }
        Shape::Path(steps) => {
            for step in steps {
                match *step {
                    Step::Move([x, y]) => content.move_to(narrow(x), narrow(y)),
                    Step::Line([x, y]) => content.line_to(narrow(x), narrow(y)),
                    Step::Curve(places) => {
                        let [one, two, to] = places.map(|place| place.map(narrow));
                        content.cubic_to(one[0], one[1], two[0], two[1], to[0], to[1])
                    }
                    Step::Close => content.close_path(),
                };
            }
        }
    }
}

fn stroke(content: &mut Content, stroke: Stroke) {
    let [red, green, blue] = shares(stroke.colour);
    content.set_stroke_rgb(red, green, blue).set_line_width(narrow(stroke.width));
    match stroke.dash {
        Some(dash) => content.set_dash_pattern(dash.map(narrow), 0.0),
        None => content.set_dash_pattern([], 0.0),
    };
}

fn fill_colour(content: &mut Content, colour: Colour) {
    let [red, green, blue] = shares(colour);
    content.set_fill_rgb(red, green, blue);
}

fn shares(colour: Colour) -> [f32; 3] {
    colour.parts.map(|part| f32::from(part) / 255.0)
}

fn narrow(value: f64) -> f32 {
    value as f32
}
