//! Figures: nothing stands outside or is too small to be read, sizes are those that were asked for, and what is asked
//! for is there; in every form.

use pipe_compiler::{Compilation, Request};
use pipe_plot::figure::scene::{Anchor, Fill, Item, Scene, Shape, Step, Text};
use pipe_plot::figure::{Crop, Layer, Look, Medium, SMALLEST, Title, draw, font};
use pipe_plot::render::{pdf, svg, tikz};
use pipe_schedule::timing::costs::StageCosts;
use pipe_syntax::stdlib;
use pipe_tests::cases::{compile_text, compiled, read, report, root, standard};

/// Where a text begins and ends, and how high it reaches.
fn extent(text: &Text) -> [f64; 4] {
    let width = font::width(&text.words, text.size, text.bold);
    let left = match text.anchor {
        Anchor::Start => text.at[0],
        Anchor::Middle => text.at[0] - width / 2.0,
        Anchor::End => text.at[0] - width,
    };
    [left, text.at[1] - font::CAPITALS * text.size, left + width, text.at[1]]
}

/// The corners of a shape.
fn corners(shape: &Shape) -> Vec<[f64; 2]> {
    match shape {
        Shape::Rectangle([x, y, width, height], _) => vec![[*x, *y], [x + width, y + height]],
        Shape::Path(steps) => steps
            .iter()
            .flat_map(|step| match *step {
                Step::Move(place) | Step::Line(place) => vec![place],
                Step::Curve(places) => places.to_vec(),
                Step::Close => Vec::new(),
            })
            .collect(),
    }
}

fn items(scene: &Scene) -> impl Iterator<Item = &Item> {
    scene.parts.iter().flat_map(|part| &part.items)
}

fn texts(scene: &Scene) -> impl Iterator<Item = &Text> {
    items(scene).filter_map(|item| match item {
        Item::Text(text) => Some(text),
        Item::Shape(..) => None,
    })
}

/// Rectangles in the colours of tasks.
fn n_boxes(scene: &Scene) -> usize {
    let is_task = |item: &&Item| match item {
        Item::Shape(Shape::Rectangle(..), paint) => matches!(paint.fill, Some(Fill::Plain(_) | Fill::Divided(_))),
        _ => false,
    };
    items(scene).filter(is_task).count()
}

/// What is wrong with a figure.
fn wrong(scene: &Scene, look: &Look) -> Vec<String> {
    let mut wrong = Vec::new();
    let is_inside = |[x, y]: [f64; 2]| x >= -0.01 && y >= -0.01 && x <= scene.width + 0.01 && y <= scene.height + 0.01;
    for item in items(scene) {
        match item {
            Item::Shape(shape, _) if !corners(shape).into_iter().all(is_inside) => {
                wrong.push(format!("outside of {} by {}: {shape:?}", scene.width, scene.height));
            }
            Item::Text(text) => {
                let [left, top, right, bottom] = extent(text);
                if !is_inside([left, top]) || !is_inside([right, bottom]) {
                    wrong.push(format!("outside of {} by {}: {text:?}", scene.width, scene.height));
                }
                if look.medium == Medium::Paper && text.size < SMALLEST {
                    wrong.push(format!("too small: {text:?}"));
                }
            }
            Item::Shape(..) => {}
        }
    }
    let extents: Vec<[f64; 4]> = texts(scene).map(extent).collect();
    for (place, one) in extents.iter().enumerate() {
        let meets =
            |other: &&[f64; 4]| one[0] < other[2] && other[0] < one[2] && one[1] < other[3] && other[1] < one[3];
        if let Some(other) = extents[..place].iter().find(meets) {
            wrong.push(format!("texts overlap: {one:?} and {other:?}"));
        }
    }
    wrong
}

/// What is wrong in some look of a target.
fn wrong_in(name: &str, compilation: &Compilation, look: &Look) -> Vec<String> {
    match draw(&[compilation], look) {
        Ok(scene) => {
            let mut found = wrong(&scene, look);
            if look.width.is_some_and(|width| (width - scene.width).abs() > 0.01) {
                found.push(format!("{} wide", scene.width));
            }
            if look.height.is_some_and(|height| (height - scene.height).abs() > 0.01) {
                found.push(format!("{} high", scene.height));
            }
            found.iter().map(|found| format!("{name} {look:?}: {found}")).collect()
        }
        Err(why) => vec![format!("{name} {look:?}: {why}")],
    }
}

#[test]
fn nothing_is_outside_or_on_top_of_something_else_in_any_look() {
    let paper = Look::of(Medium::Paper);
    let screen = Look::of(Medium::Screen);
    let looks = [
        screen.clone(),
        paper.clone(),
        Look {
            width: Some(504.0),
            height: Some(150.0),
            titles: vec![Title::None],
            layers: vec![Layer::Memory],
            ..paper.clone()
        },
        Look {
            crop: Some(Crop::Fitting), titles: vec![Title::Words("One, two – three".to_owned())], ..paper.clone()
        },
        Look { layers: Layer::ALL.to_vec(), ..screen },
        Look { layers: Layer::ALL.to_vec(), width: Some(300.0), crop: Some(Crop::Fitting), ..paper },
    ];
    let mut failures = Vec::new();
    for (name, _) in stdlib::SCHEDULES {
        let compilation = standard(name, [4, 12], "F=2,B=3,W=1,comm=0.5");
        for look in &looks {
            failures.extend(wrong_in(name, &compilation, look));
        }
    }
    // Peaks in bytes, and copies.
    let folder = root().join("examples");
    let text = read(&folder.join("offload.pipe"));
    let costs = Some(StageCosts::parse("F=1,B=1,W=1,copy=1").expect("costs"));
    let (compilation, _) = compile_text("offload.pipe", &text, &folder, &Request { costs, ..Request::default() });
    for look in &looks {
        failures.extend(wrong_in("offload", &compilation, look));
    }
    report(&failures);
}

#[test]
fn every_task_has_a_box_and_a_crop_leaves_some_out() {
    let compilation = standard("1f1b", [4, 32], "F=1,B=2,W=1");
    let n_tasks = 4 * 32 * 2;
    // Two kinds have a box each in the legend.
    let count = |look: &Look| n_boxes(&draw(&[&compilation], look).expect("a figure")) - 2;
    assert_eq!(count(&Look::of(Medium::Paper)), n_tasks);
    assert_eq!(count(&Look::of(Medium::Screen)), n_tasks);
    let cropped = Look { crop: Some(Crop::Fitting), ..Look::of(Medium::Paper) };
    let shown = count(&cropped);
    assert!(shown * 2 < n_tasks && shown > 30, "{shown}");
    // The first and the last microbatch are among them, with numbers that can be read.
    let scene = draw(&[&compilation], &cropped).expect("a figure");
    let numbers: Vec<&str> = texts(&scene).map(|text| &*text.words).collect();
    assert!(numbers.iter().any(|words| words.ends_with('0')) && numbers.iter().any(|words| words.ends_with("31")));
    let pieces = Look { crop: Some(Crop::Pieces(vec![(0.0, Some(8.0)), (20.0, Some(24.0))])), ..cropped };
    assert!(count(&pieces) < shown);
}

#[test]
fn layers_show_what_the_picture_has() {
    let compilation = standard("zb_h1", [4, 8], "F=1,B=1,W=1,comm=0.5");
    let count = |layers: Vec<Layer>| {
        let scene = draw(&[&compilation], &Look { layers, ..Look::of(Medium::Paper) }).expect("a figure");
        (items(&scene).count(), scene.height)
    };
    let (plain, height) = count(Vec::new());
    let picture = pipe_plot::Picture::new(&compilation).expect("a picture");
    // Each has an entry of the legend, which is a sign and words.
    assert_eq!(count(vec![Layer::CriticalPath]).0, plain + picture.critical_path.len() + 2);
    assert_eq!(count(vec![Layer::Transfers]).0, plain + picture.transfers.len() + 2);
    let (with_memory, higher) = count(vec![Layer::Memory]);
    // Peaks have a heading.
    assert_eq!(with_memory, plain + 4 + 4 + 1 + 2);
    assert!(higher > height);
    assert_eq!(count(vec![Layer::Copies, Layer::Collectives]), (plain, height));
}

#[test]
fn several_targets_share_an_axis_and_no_id() {
    let both = ["1f1b", "zb_h1"].map(|name| standard(name, [4, 8], "F=1,B=1,W=1"));
    let scene = draw(&both.iter().collect::<Vec<_>>(), &Look::of(Medium::Paper)).expect("a figure");
    assert!(wrong(&scene, &Look::of(Medium::Paper)).is_empty());
    let text = svg::write(&scene);
    let ids: Vec<&str> = text.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
    assert!(distinct.len() == ids.len() && ids.len() >= 4, "{ids:?}");
    assert_eq!(text.matches("role=\"img\"").count(), 2);
    assert!(text.contains("width=\"240pt\""), "{}", &text[..200]);
    let titles = ["(a)", "(b)"].map(|words| Title::Words(words.to_owned())).to_vec();
    let scene = draw(&both.iter().collect::<Vec<_>>(), &Look { titles, ..Look::of(Medium::Paper) }).expect("a figure");
    let bold: Vec<&str> = texts(&scene).filter(|text| text.size > 7.5).map(|text| &*text.words).collect();
    assert_eq!(bold, ["(a)", "(b)"]);
}

/// Twice as much memory is twice as high, also where it is of another target.
#[test]
fn memory_of_several_targets_has_one_scale() {
    let both = ["1f1b", "v_half"].map(|name| standard(name, [8, 16], "F=1,B=1,W=1"));
    let look = Look { layers: vec![Layer::Memory], ..Look::of(Medium::Paper) };
    let scene = draw(&both.iter().collect::<Vec<_>>(), &look).expect("a figure");
    let highest = scene.parts.iter().map(|part| {
        let curves = part.items.iter().filter_map(|item| match item {
            Item::Shape(shape @ Shape::Path(steps), paint) if steps.len() > 4 && paint.fill.is_some() => {
                Some(corners(shape))
            }
            _ => None,
        });
        let height = |places: Vec<[f64; 2]>| {
            let y = || places.iter().map(|[_, y]| *y);
            y().fold(f64::MIN, f64::max) - y().fold(f64::MAX, f64::min)
        };
        curves.map(height).fold(0.0, f64::max)
    });
    let highest: Vec<f64> = highest.collect();
    let peaks: Vec<f64> = both.iter().map(|one| one.report.figures.peak_activation.expect("a peak")).collect();
    assert!((highest[1] / highest[0] - peaks[1] / peaks[0]).abs() < 1e-6, "{highest:?} {peaks:?}");
}

#[test]
fn a_pdf_has_the_size_of_its_figure_and_its_fonts() {
    let compilation = standard("v_half", [4, 8], "F=1,B=1,W=1");
    let look = Look { width: Some(240.0), ..Look::of(Medium::Paper) };
    let scene = draw(&[&compilation], &look).expect("a figure");
    let file = pdf::write(&scene).expect("a font with its letters");
    let text = String::from_utf8_lossy(&file);
    assert!(text.starts_with("%PDF-1.7") && text.trim_end().ends_with("%%EOF"));
    assert!(text.contains("/MediaBox [0 0 240 "), "{text}");
    for part in
        ["/BaseFont /PIPEC+Arimo\n", "/BaseFont /PIPEC+Arimo-Bold", "/FontFile2", "/Identity-H", "Timeline of v_half"]
    {
        assert!(text.contains(part), "{part}");
    }
}

/// A figure with a title.
fn titled(title: &str) -> Result<Scene, String> {
    let look = Look { titles: vec![Title::Words(title.to_owned())], ..Look::of(Medium::Paper) };
    draw(&[&standard("1f1b", [2, 2], "F=1,B=1,W=1")], &look)
}

#[test]
fn titles_have_letters_of_many_languages() {
    let title = "Zażółć gęślą jaźń, ≤ λ é Ω € → Привет ² ₁";
    let scene = titled(title).expect("a figure");
    assert!(svg::write(&scene).contains(&format!(">{title}</text>")));
    // The letters of a PDF are numbers of glyphs, with a table of what they stand for.
    let file = pdf::write(&scene).expect("a font with its letters");
    let text = String::from_utf8_lossy(&file);
    for letter in title.chars() {
        assert!(text.contains(&format!("> <{:04X}>\n", u32::from(letter))), "{letter}");
    }
    // Fonts come with the letters of the figure alone.
    assert!(file.len() < 16_000, "{} bytes", file.len());
    let tex = tikz::write(&scene);
    let gone = r"$\le$ $\lambda$ é $\Omega$ € →";
    assert!(tex.contains(gone), "{tex}");
}

#[test]
fn letters_that_no_font_has_are_named() {
    let scene = titled("1F1B 流水 ж").expect("a figure");
    assert!(svg::write(&scene).contains("流水"));
    assert!(pdf::write(&scene).expect_err("no such letter").contains("lacks `流` (U+6D41)"));
    assert_eq!(tikz::lacking(&scene).into_iter().collect::<String>(), "ж水流");
    assert!(titled("a\nb").expect_err("two lines").contains("U+000A"));
    // Those that the font lacks are no wider than high: the title is divided where it might be too wide.
    let long = titled(&"流水 ".repeat(40)).expect("a figure");
    assert!(wrong(&long, &Look::of(Medium::Paper)).is_empty());
}

#[test]
fn tex_reads_every_letter_as_it_is_written() {
    let scene = titled(r"\{$&#%_^~<>|`'--,, \lambda").expect("a figure");
    let tex = tikz::write(&scene);
    let words = r"{\textbackslash{}\{\$\&\#\%\_\textasciicircum{}\textasciitilde{}\textless{}\textgreater{}\textbar{}";
    assert!(tex.contains(words), "{tex}");
    assert!(tex.contains(r"\textasciigrave{}\textquotesingle{}-{}-,{}, \textbackslash{}lambda};"), "{tex}");
    assert!(tikz::lacking(&scene).is_empty());
}

#[test]
fn what_cannot_be_drawn_is_said() {
    let compilation = standard("1f1b", [16, 32], "F=1,B=1,W=1");
    let fails = |look: Look| draw(&[&compilation], &look).expect_err("it cannot be drawn");
    let paper = Look::of(Medium::Paper);
    assert!(fails(Look { width: Some(40.0), ..paper.clone() }).contains("too small"));
    assert!(fails(Look { height: Some(30.0), ..paper.clone() }).contains("16 devices do not fit into 30"));
    let crop =
        |pieces: &[(f64, Option<f64>)]| fails(Look { crop: Some(Crop::Pieces(pieces.to_vec())), ..paper.clone() });
    assert!(crop(&[(0.0, Some(9.0)), (8.0, None)]).contains("overlap"));
    assert!(crop(&[(9_999.0, None)]).contains("no time is left"));
}

#[test]
fn figures_name_the_parts_of_stages() {
    let source = read(&root().join("examples/experts.pipe"));
    let mut request = Request::default();
    request.choice.settings = vec![("microbatches".to_owned(), 2)];
    let found = compiled("experts.pipe", &source, &request);
    let words = |width: Option<f64>| -> Vec<String> {
        let look = Look { width, ..Look::of(Medium::Screen) };
        let scene = draw(&[&found], &look).expect("a figure");
        assert_eq!(wrong(&scene, &look), Vec::<String>::new());
        texts(&scene).map(|text| text.words.clone()).collect()
    };
    let (narrow, wide) = (words(None), words(Some(4000.0)));
    for name in ["compute:", "attention", "experts", "link:", "dispatch", "combine"] {
        assert!(narrow.iter().any(|word| word == name), "{name}: {narrow:?}");
    }
    // Where they fit, tasks are labelled with them.
    let labels = |words: &[String]| words.iter().filter(|word| *word == "F.attention 0").count();
    assert_eq!((labels(&narrow), labels(&wide)), (0, 4), "{wide:?}");
}

#[test]
fn a_part_has_the_same_shade_on_all_devices() {
    let source = "schedule x { stages D place s on s lane l
        parts s = if s == 0 then embedding, repeat 2 { mlp, send on l } else repeat 2 { mlp, send on l }, head
        order d { repeat M { F[d] } repeat M { BW[d] } } }";
    let found = compiled("x.pipe", source, &Request::default());
    let schedule = &found.analysis.as_ref().expect("accepted").schedule;
    let shades = pipe_plot::shades::Shades::of(schedule);
    let named: Vec<_> =
        shades.names.iter().map(|one| (one.lane.as_deref(), &*one.name, one.first, one.count)).collect();
    assert_eq!(
        named,
        [(None, "embedding", 0, 1), (None, "mlp", 1, 2), (None, "head", 3, 1), (Some("l"), "send", 0, 2)]
    );
    // embedding, mlp, send, mlp, send on the first device, and mlp, send, mlp, send, head on the others.
    assert_eq!(shades.of_parts[..10], [0, 1, 0, 2, 1, 1, 0, 2, 1, 3]);
}
