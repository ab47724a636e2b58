//! Output: standard output and error, colours, and what can go wrong with them.

pub mod diagnostics;
mod elide;
pub(crate) mod figures;
pub(crate) mod findings;
pub(crate) mod markdown;
pub(crate) mod sarif;
pub(crate) mod table;
pub(crate) mod usage;
pub(crate) mod wrap;

use clap::ColorChoice;
use std::borrow::Cow;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use wrap::fit;

/// Why a command cannot be carried out, other than by the fault of its target.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Something that the user has to write differently.
    Usage(String),
    /// Something that we have to write differently.
    Bug(String),
    /// Reading or writing failed.
    Io(String, io::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) => f.write_str(message),
            Self::Bug(message) => write!(f, "this is a bug in pipec, please report it: {message}"),
            Self::Io(what, error) if what.is_empty() => write!(f, "``: {}", reason(error)),
            Self::Io(what, error) => write!(f, "{what}: {}", reason(error)),
        }
    }
}

/// Why reading or writing failed, without the number that the standard library adds.
pub(crate) fn reason(error: &io::Error) -> String {
    let words = error.to_string();
    let number = error.raw_os_error().map(|number| format!(" (os error {number})")).unwrap_or_default();
    words.strip_suffix(&number).unwrap_or(&words).to_owned()
}

/// What `--color` says.
static COLOURS: OnceLock<ColorChoice> = OnceLock::new();

/// Says when to colour, before anything is written.
pub(crate) fn choose_colours(choice: ColorChoice) {
    // A command has one line.
    let _ = COLOURS.set(choice);
}

/// Whether to use colours where a stream leads: as `--color` says, or else on terminals, unless `NO_COLOR` is set.
fn wants_colours(is_terminal: bool) -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    match COLOURS.get() {
        Some(ColorChoice::Always) => true,
        Some(ColorChoice::Never) => false,
        Some(ColorChoice::Auto) | None => {
            is_terminal && !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
        }
    }
}

/// Whether standard output takes colours.
pub(crate) fn colours_out() -> bool {
    wants_colours(io::stdout().is_terminal())
}

/// Whether standard error takes colours.
pub(crate) fn colours_error() -> bool {
    wants_colours(io::stderr().is_terminal())
}

/// Columns of the terminal; 100 where there is none.
pub(crate) fn terminal_width() -> usize {
    let told = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let measured = || terminal_size::terminal_size().map(|(terminal_size::Width(columns), _)| usize::from(columns));
    told.or_else(measured).unwrap_or(100).clamp(40, 1000)
}

/// Columns of the terminal that standard output leads to; nothing where it leads elsewhere.
pub(crate) fn columns_out() -> Option<usize> {
    io::stdout().is_terminal().then(terminal_width)
}

/// The same for standard error.
pub(crate) fn columns_error() -> Option<usize> {
    io::stderr().is_terminal().then(terminal_width)
}

/// Wraps `text` to `columns`; without a terminal (`None`) it stays as it is.
fn fitted(text: &str, columns: Option<usize>) -> Cow<'_, str> {
    columns.map_or(Cow::Borrowed(text), |columns| Cow::Owned(fit(text, columns)))
}

/// Writes a text for people to standard output: lines fit the terminal.
pub(crate) fn print_page(text: &str) -> Result<(), Failure> {
    print(&fitted(text, columns_out()))
}

/// Writes a text to standard output.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_with(|out| out.write_all(text.as_bytes()))
}

/// Whether anything was written to standard output.
static PRINTED: AtomicBool = AtomicBool::new(false);

/// Whether anything was written to standard output.
pub(crate) fn has_printed() -> bool {
    PRINTED.load(Ordering::Relaxed)
}

/// Writes to standard output. A reader that went away, as in `pipec plot .. | head`, changes nothing about the outcome.
pub(crate) fn print_with(contents: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
    PRINTED.store(true, Ordering::Relaxed);
    let mut out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
    match contents(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Io("standard output".to_owned(), error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes to standard error. Nothing is left to do where that fails.
pub(crate) fn print_error(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Writes a text for people to standard error: lines fit the terminal.
pub(crate) fn print_error_page(text: &str) {
    print_error(&fitted(text, columns_error()));
}

/// Says on standard error what is wrong with a command.
pub(crate) fn complain(message: &str) {
    print_error_page(&format!("{}: {message}\n", paint("error", Style::Error, colours_error())));
}

/// Says on standard error what a user should know; the command goes on.
pub(crate) fn warn(message: &str) {
    print_error_page(&format!("{}: {message}\n", paint("warning", Style::Warning, colours_error())));
}

/// Writes a text to a file, as [`write_with`].
pub(crate) fn write(path: &Path, contents: impl AsRef<[u8]>) -> Result<(), Failure> {
    write_with(path, |out| out.write_all(contents.as_ref()))
}

/// Writes a file as a whole or not at all: a temporary file beside it takes its place. What is no plain file, such as
/// `/dev/null`, is written directly.
pub(crate) fn write_with(path: &Path, contents: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
    let failed = |error| Failure::Io(path.display().to_string(), no_folder(path).unwrap_or(error));
    let fill = |path: &Path| {
        let mut out = io::BufWriter::with_capacity(1 << 16, std::fs::File::create(path)?);
        contents(&mut out).and_then(|()| out.flush())
    };
    if path.exists() && !path.is_file() {
        return fill(path).map_err(failed);
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    let written = fill(&temporary).and_then(|()| std::fs::rename(&temporary, path));
    written.map_err(|error| {
        // The temporary file may not exist; the error that matters is the first one.
        let _ = std::fs::remove_file(&temporary);
        failed(error)
    })
}

/// The error where the folder of a file to be written is missing.
fn no_folder(path: &Path) -> Option<io::Error> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists())?;
    Some(io::Error::new(io::ErrorKind::NotFound, format!("there is no folder `{}`", folder.display())))
}

/// Whether a file can be written later, as far as its folder tells. Fails if the folder is missing or the path is a
/// folder itself.
pub(crate) fn can_write(path: &Path) -> Result<(), Failure> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let wrong = if path.is_dir() {
        Some(io::Error::other("this is a folder"))
    } else if let Some(error) = no_folder(path) {
        Some(error)
    } else {
        let is_no_folder = || io::Error::other("the folder that it names is a file");
        std::fs::metadata(folder).map_or_else(Some, |folder| (!folder.is_dir()).then(is_no_folder))
    };
    wrong.map_or(Ok(()), |error| Err(Failure::Io(path.display().to_string(), error)))
}

/// The form of a file to be written, by the ending of its name; `wanted` says which there are.
pub(crate) fn form_of<T: Copy>(path: &Path, forms: &[(&str, T)], wanted: &str) -> Result<T, Failure> {
    let ending = path.extension().unwrap_or_default();
    let form = forms.iter().find(|(name, _)| ending.eq_ignore_ascii_case(name)).map(|(_, form)| *form);
    form.ok_or_else(|| Failure::Usage(format!("{}: {wanted}", path.display())))
}

/// What a piece of text is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Style {
    /// A title or a verdict's subject.
    Strong,
    /// Beside the point.
    Faint,
    /// As it should be.
    Good,
    /// Worth a look.
    Warning,
    /// Wrong.
    Error,
}

/// Wraps a text in the escape sequences of its style.
pub(crate) fn paint(text: &str, style: Style, colours: bool) -> String {
    if !colours {
        return text.to_owned();
    }
    let code = match style {
        Style::Strong => "1",
        Style::Faint => "2",
        Style::Good => "32",
        Style::Warning => "33",
        Style::Error => "1;31",
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}
