//! Suggestions for a word that names no file: a file with a similar name, or the option that sets a parameter.

use crate::output::Failure;
use pipe_syntax::suggest;
use std::path::Path;

/// A file of the same folder and ending with a similar name. Without an ending, a `.pipe` file.
pub(crate) fn near_file(path: &Path) -> Option<String> {
    let wanted = path.extension().map_or("pipe".into(), |ending| ending.to_owned());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let files = std::fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let stem = |path: &Path| Some(path.file_stem()?.to_str()?.to_owned());
    let mut stems: Vec<String> =
        files.filter(|file| file.extension() == Some(&wanted)).filter_map(|file| stem(&file)).collect();
    stems.sort_unstable();
    let near = suggest::closest(&stem(path)?, stems.iter().map(String::as_str))?;
    let near = path.with_file_name(near).with_extension(wanted);
    Some(near.display().to_string())
}

/// How to write a word such as `D=3` or `B=2` in the place of a file.
pub(crate) fn setting_of(word: &str) -> Option<String> {
    let (name, value) = word.split_once('=')?;
    let is_name = !name.is_empty() && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    if !is_name || value.is_empty() {
        return None;
    }
    Some(match name {
        "F" | "B" | "W" | "BW" | "R" | "comm" => {
            format!("separate durations by commas, without spaces: `--cost F=1,{}`", word.replace("F=", "B="))
        }
        _ => format!("to set a parameter, write `--set {}={value}`", whole_name(name)),
    })
}

/// The name of a parameter on the command line: `devices` for `D`.
fn whole_name(name: &str) -> &str {
    match name {
        "D" => "devices",
        "M" => "microbatches",
        other => other,
    }
}

/// Refuses words such as `D=3` among targets, unless there is such a file.
pub(crate) fn refuse_settings<'w>(targets: impl IntoIterator<Item = &'w String>) -> Result<(), Failure> {
    let wrong = |word: &&'w String| !Path::new(word).exists();
    let said = targets.into_iter().filter(wrong).find_map(|word| Some((word, setting_of(word)?)));
    match said {
        Some((word, help)) => Err(Failure::Usage(format!("there is no file `{word}`; {help}"))),
        None => Ok(()),
    }
}
