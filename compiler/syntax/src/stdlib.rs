//! The standard library: files that are part of the compiler.

/// Its schedules, by name. They are visible in every file; `std:NAME` names one as a target.
pub const SCHEDULES: &[(&str, &str)] = &[
    ("gpipe", include_str!("../../../stdlib/schedules/gpipe.pipe")),
    ("1f1b", include_str!("../../../stdlib/schedules/1f1b.pipe")),
    ("eager_1f1b", include_str!("../../../stdlib/schedules/eager_1f1b.pipe")),
    ("dp_1f1b", include_str!("../../../stdlib/schedules/dp_1f1b.pipe")),
    ("interleaved_1f1b", include_str!("../../../stdlib/schedules/interleaved_1f1b.pipe")),
    ("interleaved_zb", include_str!("../../../stdlib/schedules/interleaved_zb.pipe")),
    ("looped_bfs", include_str!("../../../stdlib/schedules/looped_bfs.pipe")),
    ("grouped_interleaved", include_str!("../../../stdlib/schedules/grouped_interleaved.pipe")),
    ("1f1b_v", include_str!("../../../stdlib/schedules/1f1b_v.pipe")),
    ("hanayo", include_str!("../../../stdlib/schedules/hanayo.pipe")),
    ("seq_1f1b", include_str!("../../../stdlib/schedules/seq_1f1b.pipe")),
    ("zb_h1", include_str!("../../../stdlib/schedules/zb_h1.pipe")),
    ("zb_h2", include_str!("../../../stdlib/schedules/zb_h2.pipe")),
    ("zb_v", include_str!("../../../stdlib/schedules/zb_v.pipe")),
    ("chimera", include_str!("../../../stdlib/schedules/chimera.pipe")),
    ("dualpipe", include_str!("../../../stdlib/schedules/dualpipe.pipe")),
    ("dualpipe_v", include_str!("../../../stdlib/schedules/dualpipe_v.pipe")),
    ("v_min", include_str!("../../../stdlib/schedules/v_min.pipe")),
    ("v_flex", include_str!("../../../stdlib/schedules/v_flex.pipe")),
    ("v_half", include_str!("../../../stdlib/schedules/v_half.pipe")),
    ("cyclic_dp", include_str!("../../../stdlib/schedules/cyclic_dp.pipe")),
    ("v_zb", include_str!("../../../stdlib/schedules/v_zb.pipe")),
];

/// Its models, by name: `import std.models.NAME` makes their layers visible.
pub const MODELS: &[(&str, &str)] = &[
    ("gpt", include_str!("../../../stdlib/models/gpt.pipe")),
    ("llama", include_str!("../../../stdlib/models/llama.pipe")),
];

/// The path of the file that declares a model, as an import writes it.
pub fn path_of_model(name: &str) -> Option<String> {
    find(MODELS, name).map(|_| format!("std.models.{name}"))
}

/// The text of a schedule's file.
pub fn schedule(name: &str) -> Option<&'static str> {
    find(SCHEDULES, name)
}

/// What a file says first of itself: the first sentence of the comment at its top.
pub fn summary(text: &str) -> String {
    let lines = text.lines().map_while(|line| line.strip_prefix("///")).map(str::trim);
    let paragraph = lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    paragraph.split_once(". ").map_or(paragraph.clone(), |(first, _)| format!("{first}."))
}

/// The text of a file that `import std.PATH` names, such as `models.gpt` or `schedules.1f1b`.
pub fn file(path: &str) -> Option<&'static str> {
    match path.split_once('.')? {
        ("models", name) => find(MODELS, name),
        ("schedules", name) => find(SCHEDULES, name),
        _ => None,
    }
}

/// Every path that [`file()`] knows.
pub fn paths() -> impl Iterator<Item = String> {
    let models = MODELS.iter().map(|(name, _)| format!("models.{name}"));
    models.chain(SCHEDULES.iter().map(|(name, _)| format!("schedules.{name}")))
}

fn find(files: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    files.iter().find(|(candidate, _)| *candidate == name).map(|(_, text)| *text)
}
