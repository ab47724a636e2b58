//! `docs/gallery.md` and its pictures: every standard schedule with its figures and its source.

use crate::blocks::request;
use crate::cases;
use pipe_compiler::Compilation;
use pipe_syntax::stdlib;
use pipec::drawing::svg;
use std::fmt::Write;

/// Devices and microbatches of all pictures.
const SIZES: [(&str, i64); 2] = [("devices", 4), ("microbatches", 8)];

/// The schedules, those that have most in common next to each other.
const FAMILIES: [(&str, &[&str]); 6] = [
    ("One stage on each device", &["gpipe", "1f1b", "eager_1f1b"]),
    ("Several stages on each device, in turns", &["interleaved_1f1b", "looped_bfs", "grouped_interleaved"]),
    ("The backward in two halves", &["zb_h1", "zb_h2", "interleaved_zb"]),
    ("Stages in a V, or in waves", &["1f1b_v", "v_min", "v_half", "v_zb", "zb_v", "v_flex", "hanayo"]),
    ("Two directions at once", &["chimera", "dualpipe", "dualpipe_v"]),
    ("Slices and replicas", &["seq_1f1b", "dp_1f1b", "cyclic_dp"]),
];

/// Opens the page.
const HEAD: &str = "# Gallery of the standard schedules

Every schedule of the standard library, on 4 devices with 8 microbatches, where F, B and W take one slot each and transfers none; parameters have their defaults. `cargo bless` draws it all again.
Look closer at one of them, with other sizes and costs:

```text
$ pipec plot std:v_half --set devices=8 --set microbatches=24 --cost F=1,B=1.2,W=0.8,comm=0.1 -o v_half.html
$ pipec check std:v_half --set devices=8 --set microbatches=24
```

A device is idle for its *bubble*. The *mean bubble* is the idle share of the whole step (the makespan), as a mean
over all devices. Papers print the bubble of the busiest device, as a share of the makespan or, in papers of
zero-bubble schedules, of the longest time from the first to the last task of one device (*longest span*).

In the formulas of `interleaved_1f1b`, `looped_bfs`, `grouped_interleaved`, `interleaved_zb`, `hanayo` and `seq_1f1b`,
F and BW are the times of all stages, or slices, of a device for one microbatch. Elsewhere they are those of one stage.

*Peak* is the activation memory of the fullest device in [units](language.md#words), of which 1F1B holds as many as
there are devices; *gap* is how much shorter any schedule with these places and forms of backwards, in this memory,
could be at most.

";

/// The page, and the pictures by the names of their files.
///
/// # Errors
/// What is missing, or cannot be drawn.
pub fn page() -> Result<(String, Vec<(String, String)>), String> {
    let mut text = HEAD.to_owned();
    text.push_str("| schedule | mean bubble | busiest device, makespan | busiest device, longest span | peak | gap |\n|---|---|---|---|---|---|\n");
    let (mut sections, mut pictures) = (String::new(), Vec::new());
    let all = || FAMILIES.iter().flat_map(|(_, names)| names.iter());
    if let Some((missing, _)) = stdlib::SCHEDULES.iter().find(|(name, _)| !all().any(|other| other == name)) {
        return Err(format!("`{missing}` has no place in tests/src/book/gallery.rs"));
    }
    for (family, names) in FAMILIES {
        let _ = write!(sections, "\n## {family}\n");
        for name in names {
            let source = stdlib::schedule(name).ok_or_else(|| format!("there is no std:{name}"))?;
            let compilation = compiled(name, source);
            let row = row(&compilation).ok_or_else(|| format!("std:{name} lacks figures"))?;
            let _ = writeln!(text, "| [`{name}`](#{name}) | {row} |");
            pictures.push((format!("{name}.svg"), svg::draw(&compilation)?));
            let (comment, code) = divided(source);
            let _ = write!(
                sections,
                "\n### {name}\n\n{comment}\n\n![{name} on 4 devices](images/gallery/{name}.svg)\n\n```pipe\n{code}```\n"
            );
        }
    }
    Ok((text + &sections, pictures))
}

fn compiled(name: &str, source: &str) -> Compilation {
    cases::compiled(&format!("std:{name}"), source, &request(&SIZES))
}

/// The figures of a schedule.
fn row(compilation: &Compilation) -> Option<String> {
    let figures = &compilation.report.figures;
    let percent = |share: f64| format!("{:.1}%", share * 100.0);
    Some(format!(
        "{} | {} | {} | {} | {}",
        percent(figures.bubble_mean?),
        percent(figures.bubble_makespan?),
        percent(figures.bubble_longest_stage?),
        figures.peak_activation.as_ref()?,
        percent(figures.gap?)
    ))
}

/// The comment above a schedule as text, and the rest.
fn divided(source: &str) -> (String, String) {
    let is_comment = |line: &&str| line.starts_with("///");
    let comment: Vec<&str> = source.lines().take_while(is_comment).map(|line| line[3..].trim_start()).collect();
    let code = source.lines().skip_while(is_comment).map(|line| format!("{line}\n")).collect();
    (comment.join("\n"), code)
}
