//! Figures as PDF, one page as large as the figure, with the letters of its fonts in it (PDF 1.7, ISO 32000-1).

use crate::figure::HATCH;
use crate::figure::font;
use crate::figure::scene::{Anchor, Fill, Item, Length, Paint, Scene, Shape, Step, Stroke, Text};
use crate::palette::Colour;
use miniz_oxide::deflate::compress_to_vec_zlib;
use pdf_writer::types::{CidFontType, ColorSpaceOperand, FontFlags, PaintType, SystemInfo, TilingType, UnicodeCmap};
use pdf_writer::{Content, Filter, Finish, Name, Pdf, Rect, Ref, Str, TextStr};
use std::collections::BTreeMap;
use subsetter::{GlyphRemapper, subset};
use ttf_parser::GlyphId;

/// Points of a pixel.
const PIXEL: f64 = 0.75;
/// How far the control points of a quarter of a circle are from its ends, by its radius.
const ARC: f64 = 0.552_285;

/// One of the two fonts of a figure, with the letters that it writes.
struct Font {
    bold: bool,
    /// The font's name, behind a tag of six capitals: PDF asks for it where a file embeds a part of a font.
    name: &'static str,
    /// The glyph of every letter.
    glyphs: BTreeMap<char, GlyphId>,
    /// Numbers them anew.
    own: GlyphRemapper,
}

impl Font {
    /// The font for some texts.
    ///
    /// # Errors
    /// If it lacks a letter.
    fn of<'t>(texts: impl Iterator<Item = &'t Text>, bold: bool) -> Result<Self, String> {
        let letters = texts.filter(|text| text.bold == bold).flat_map(|text| text.words.chars());
        let (mut glyphs, mut own) = (BTreeMap::new(), GlyphRemapper::new());
        for letter in letters {
            let glyph = font::face(bold).glyph_index(letter).ok_or_else(|| lacking(letter))?;
            glyphs.insert(letter, glyph);
        }
        for glyph in glyphs.values() {
            own.remap(glyph.0);
        }
        Ok(Self { bold, name: if bold { "PIPEC+Arimo-Bold" } else { "PIPEC+Arimo" }, glyphs, own })
    }

    /// The numbers of the glyphs of a text, two bytes each.
    fn encoded(&self, words: &str) -> Vec<u8> {
        let glyph = |letter| self.glyphs.get(&letter).and_then(|glyph| self.own.get(glyph.0)).unwrap_or(0);
        words.chars().flat_map(|letter| glyph(letter).to_be_bytes()).collect()
    }
}

fn lacking(letter: char) -> String {
    let help = "write an .svg, which uses the viewer's fonts, or a .tex, which uses the document's";
    format!("the font in a .pdf lacks {}: {help}", font::named(letter))
}

/// What the parts of the file are called.
const CATALOG: i32 = 1;
const PAGES: i32 = 2;
const PAGE: i32 = 3;
const CONTENT: i32 = 4;
const INFO: i32 = 5;
const IDLE: i32 = 6;
/// The first font's objects: font, glyphs, description, file and letters. The second font's objects follow.
const FIRST_FONT: i32 = 7;
const PARTS_OF_FONT: i32 = 5;

/// The name of the pattern of idle time.
const HATCHED: Name<'static> = Name(b"Idle");
/// Numbers of glyphs stand for themselves.
const IDENTITY: Name<'static> = Name(b"Identity");

/// A figure as PDF.
///
/// # Errors
/// If its fonts lack a letter.
pub fn write(scene: &Scene) -> Result<Vec<u8>, String> {
    let items = || scene.parts.iter().flat_map(|part| &part.items);
    let texts = || {
        items().filter_map(|item| match item {
            Item::Text(text) => Some(text),
            Item::Shape(..) => None,
        })
    };
    let fonts = [Font::of(texts(), false)?, Font::of(texts(), true)?];
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
    let mut named = resources.fonts();
    for (font, first) in numbered(&fonts) {
        named.pair(Name(font.name.as_bytes()), Ref::new(first));
    }
    named.finish();
    resources.patterns().pair(HATCHED, Ref::new(IDLE));
    resources.finish();
    page.finish();
    let mut content = Content::new();
    // From here on y grows downwards, as in the scene.
    content.transform([narrow(scale), 0.0, 0.0, narrow(-scale), 0.0, height]);
    let [regular, bold] = &fonts;
    for item in items() {
        match item {
            Item::Shape(shape, paint) => self::shape(&mut content, shape, paint),
            Item::Text(own) => text(&mut content, own, if own.bold { bold } else { regular }),
        }
    }
    let packed = compress_to_vec_zlib(&content.finish(), 6);
    pdf.stream(Ref::new(CONTENT), &packed).filter(Filter::FlateDecode);
    idle(&mut pdf, height, scale);
    for (font, first) in numbered(&fonts) {
        embed(&mut pdf, font, first);
    }
    Ok(pdf.finish())
}

/// Fonts, each with the number of its first part in the file.
fn numbered(fonts: &[Font]) -> impl Iterator<Item = (&Font, i32)> {
    let step = usize::try_from(PARTS_OF_FONT).expect("a few");
    fonts.iter().zip((FIRST_FONT..).step_by(step))
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

/// A TrueType font with the glyphs of a figure, and which letters they stand for.
fn embed(pdf: &mut Pdf, font: &Font, first: i32) {
    let [own, glyphs, description, file, letters] = std::array::from_fn(|part| first + part as i32).map(Ref::new);
    let name = Name(font.name.as_bytes());
    pdf.type0_font(own)
        .base_font(name)
        .encoding_predefined(Name(b"Identity-H"))
        .descendant_font(glyphs)
        .to_unicode(letters);
    let face = font::face(font.bold);
    let thousandths = |length: f32| length * 1000.0 / f32::from(face.units_per_em());
    let width = |glyph| face.glyph_hor_advance(GlyphId(glyph)).map_or(0.0, |width| thousandths(width.into()));
    let registered =
        |ordering: &'static [u8]| SystemInfo { registry: Str(b"Adobe"), ordering: Str(ordering), supplement: 0 };
    let mut entry = pdf.cid_font(glyphs);
    entry.subtype(CidFontType::Type2).base_font(name).system_info(registered(b"Identity"));
    entry.font_descriptor(description).cid_to_gid_map_predefined(IDENTITY);
    entry.widths().consecutive(0, font.own.remapped_gids().map(width));
    entry.finish();
    let mut about = pdf.font_descriptor(description);
    about.name(name).flags(FontFlags::SYMBOLIC).italic_angle(0.0).stem_v(if font.bold { 140.0 } else { 80.0 });
    let bounds = face.global_bounding_box();
    let [left, bottom, right, top] =
        [bounds.x_min, bounds.y_min, bounds.x_max, bounds.y_max].map(|side| thousandths(side.into()));
    about.bbox(Rect::new(left, bottom, right, top)).cap_height(narrow(font::CAPITALS * 1000.0));
    about.ascent(thousandths(face.ascender().into())).descent(thousandths(face.descender().into()));
    about.font_file2(file);
    about.finish();
    let part = subset(font::FILES[usize::from(font.bold)], 0, &font.own).expect("the font was read before");
    let packed = compress_to_vec_zlib(&part, 9);
    let mut stream = pdf.stream(file, &packed);
    stream.filter(Filter::FlateDecode).pair(Name(b"Length1"), i32::try_from(part.len()).unwrap_or(i32::MAX));
    stream.finish();
    let mut map = UnicodeCmap::new(Name(b"Letters"), registered(b"UCS"));
    for (letter, glyph) in &font.glyphs {
        map.pair(font.own.get(glyph.0).unwrap_or(0), *letter);
    }
    pdf.cmap(letters, &map.finish());
}

fn text(content: &mut Content, text: &Text, font: &Font) {
    let width = font::width(&text.words, text.size, text.bold);
    let before = match text.anchor {
        Anchor::Start => 0.0,
        Anchor::Middle => width / 2.0,
        Anchor::End => width,
    };
    let [x, y] = [text.at[0] - before, text.at[1]].map(narrow);
    fill_colour(content, text.colour);
    content.begin_text().set_font(Name(font.name.as_bytes()), narrow(text.size));
    // Letters stand upright where y grows downwards.
    content.set_text_matrix([1.0, 0.0, 0.0, -1.0, x, y]).show(Str(&font.encoded(&text.words))).end_text();
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
