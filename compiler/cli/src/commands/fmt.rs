//! `pipec fmt PATHS..`: brings sources into the one style.

use crate::Outcome;
use crate::input::{source, standard_input as from_standard_input};
use crate::output::findings::show;
use crate::output::{Failure, Style, colours_out, complain, paint, print, write};
use pipe_syntax::format::format;
use pipe_syntax::source::{Source, Sources};
use similar::TextDiff;
use std::path::{Path, PathBuf};
use std::{fs, io};

const EXAMPLES: &str = "\
Examples:
  pipec fmt x.pipe
  pipec fmt schedules/ models/
  pipec fmt --check .
  pipec fmt --diff x.pipe | patch -p0
  pipec fmt - < x.pipe

Only spaces and line ends change. Prints the names of the files that it rewrites, or with --check would rewrite;
with --diff, what would change.
Exit codes: 0 all are in the style now, 1 some would change or do not parse, 2 usage.";

/// Arguments of `pipec fmt`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// `.pipe` files, folders in which all are meant, or `-` for standard input, which is written to standard output
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Writes nothing; exit code 1 if a file is not in the style
    #[arg(long)]
    check: bool,
    /// The same, and prints what would change, as a unified diff
    #[arg(long)]
    diff: bool,
}

impl Arguments {
    const fn may_write(&self) -> bool {
        !self.check && !self.diff
    }

    /// What is said of a file that is not in the style.
    fn told(&self, source: &Source, text: &str) -> String {
        if self.diff { difference(source, text, colours_out()) } else { format!("{}\n", source.name) }
    }
}

/// From a source to its style, as `diff -u` writes it.
fn difference(source: &Source, text: &str, colours: bool) -> String {
    let lines = TextDiff::from_lines(&source.text, text);
    let unified = lines.unified_diff().header(&source.name, &source.name).to_string();
    let painted = |line: &str| match line.as_bytes().first() {
        Some(b'+') => paint(line, Style::Good, colours),
        Some(b'-') => paint(line, Style::Error, colours),
        Some(b'@') => paint(line, Style::Faint, colours),
        _ => line.to_owned(),
    };
    unified
        .split_inclusive('\n')
        .map(|line| line.strip_suffix('\n').map_or_else(|| painted(line), |line| painted(line) + "\n"))
        .collect()
}

/// Formats every file; what is wrong with one does not keep the others from it.
pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let is_input = |path: &PathBuf| path.as_os_str() == "-";
    if arguments.paths.iter().any(is_input) {
        if arguments.paths.len() > 1 {
            return Err(Failure::Usage("`-` is standard input, which goes with no other path".to_owned()));
        }
        return standard_input(arguments);
    }
    let (mut rejected, mut failed) = (false, false);
    for path in &arguments.paths {
        let mut files = Vec::new();
        let found = if path.is_dir() {
            walk(path, &mut files)
        } else {
            files.push(path.clone());
            Ok(())
        };
        let results = files.iter().map(|file| one(file, arguments)).chain([found.map(|()| Done::Unchanged)]);
        for result in results {
            match result {
                Ok(Done::Unchanged) => {}
                Ok(Done::Changed(told)) => {
                    print(&told)?;
                    rejected |= !arguments.may_write();
                }
                Ok(Done::Rejected) => rejected = true,
                Err(failure) => {
                    complain(&failure.to_string());
                    failed = true;
                }
            }
        }
    }
    Ok(match (failed, rejected) {
        (true, _) => Outcome::Usage,
        (false, true) => Outcome::Rejected,
        (false, false) => Outcome::Accepted,
    })
}

/// What became of a file.
enum Done {
    Unchanged,
    /// It was or would be rewritten, of which this is said.
    Changed(String),
    /// It does not parse, which was shown.
    Rejected,
}

fn one(path: &Path, arguments: &Arguments) -> Result<Done, Failure> {
    let source = source(path)?;
    let Some(text) = formatted(&source) else { return Ok(Done::Rejected) };
    if text == source.text {
        return Ok(Done::Unchanged);
    }
    if arguments.may_write() {
        rewrite(path, &text)?;
    }
    Ok(Done::Changed(arguments.told(&source, &text)))
}

/// Replaces a file, behind links to it, and keeps its permissions.
fn rewrite(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error| Failure::Io(path.display().to_string(), error);
    let path = fs::canonicalize(path).map_err(failed)?;
    let permissions = fs::metadata(&path).map_err(failed)?.permissions();
    if permissions.readonly() {
        return Err(failed(io::Error::new(io::ErrorKind::PermissionDenied, "the file is read-only")));
    }
    write(&path, text)?;
    fs::set_permissions(&path, permissions).map_err(failed)
}

fn standard_input(arguments: &Arguments) -> Result<Outcome, Failure> {
    let source = from_standard_input()?;
    let Some(text) = formatted(&source) else { return Ok(Outcome::Rejected) };
    if arguments.may_write() {
        print(&text)?;
        return Ok(Outcome::Accepted);
    }
    if text == source.text {
        return Ok(Outcome::Accepted);
    }
    print(&arguments.told(&source, &text))?;
    Ok(Outcome::Rejected)
}

/// The text in the style; what keeps it from that is shown.
fn formatted(source: &Source) -> Option<String> {
    let mut sources = Sources::default();
    let file = sources.add(source.clone());
    format(file, &source.text).map_err(|errors| show(&errors, &sources)).ok()
}

/// All `.pipe` files in a folder and those below it, by name. Hidden folders are left out, and links are not followed.
fn walk(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let failed = |error| Failure::Io(folder.display().to_string(), error);
    let entries = fs::read_dir(folder).map_err(failed)?;
    let mut entries = entries.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() && !entry.file_name().as_encoded_bytes().starts_with(b".") {
            walk(&path, files)?;
        } else if kind.is_file() && path.extension().is_some_and(|ending| ending == "pipe") {
            files.push(path);
        }
    }
    Ok(())
}
