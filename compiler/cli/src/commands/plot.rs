//! `pipec plot TARGET`: the timeline, in the terminal or as a file.

use crate::Outcome;
use crate::drawing::html::{self, Shown};
use crate::drawing::{golden, svg, terminal};
use crate::input::{Format, TimedArguments};
use crate::output::diagnostics::Look;
use crate::output::findings::{outcome, show_diagnostics};
use crate::output::{Failure, colours_out, form_of, print, print_page, terminal_width, write, write_with};
use pipe_compiler::{Certificates, Compilation};
use pipe_plot::Picture;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  pipec plot std:v_half --set devices=8 --set microbatches=24
  pipec plot std:v_half -o v_half.svg
  pipec plot std:1f1b std:zb_h1 -o both.svg
  pipec plot examples/shakespeare.pipe --memory 2.5 -o shakespeare.html";

/// Arguments of `pipec plot`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    timed: TimedArguments,
    /// More targets, drawn below the first one on the same time axis, in a picture `x.svg`
    #[arg(value_name = "TARGET", requires = "output")]
    others: Vec<String>,
    /// Writes a picture to this file, instead of drawing in the terminal: `x.svg`, or `x.html`, a
    /// page to zoom and look around in that needs no network
    #[arg(long, short, value_name = "PATH")]
    output: Option<PathBuf>,
    /// Draws one row per device and one cell per slot, in the form that tests compare
    #[arg(long, conflicts_with = "output")]
    golden: bool,
    /// Columns of the drawing in the terminal
    #[arg(long, value_name = "COLUMNS", value_parser = clap::value_parser!(u16).range(40..))]
    width: Option<u16>,
}

/// Draws a target, also one that breaks a limit, and how far one comes that is stuck.
pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let target = &arguments.timed.target;
    if target.format() == Format::Json {
        return Err(Failure::Usage("`plot` draws pictures; `check --format json` prints figures".to_owned()));
    }
    let forms = [("svg", Form::Svg), ("html", Form::Page)];
    let form = |path: &Path| form_of(path, &forms, "plot writes .svg pictures and .html pages");
    let form = arguments.output.as_deref().map(form).transpose()?;
    if !arguments.others.is_empty() {
        return several(arguments, form);
    }
    let (compilation, sources) = arguments.timed.compile(Certificates::Beside)?;
    show_diagnostics(&compilation, &sources);
    // What is stuck has no whole rows, as tests compare them.
    if compilation.analysis.is_none() && (compilation.stuck.is_none() || arguments.golden) {
        return Ok(Outcome::Rejected);
    }
    if let (true, Some(analysis)) = (arguments.golden, &compilation.analysis) {
        print(&golden::draw(analysis).map_err(Failure::Usage)?)?;
    } else if let (Some(path), Some(form)) = (&arguments.output, form) {
        match form {
            Form::Svg => write(path, &svg::draw(&compilation).map_err(Failure::Usage)?)?,
            Form::Page => page(path, &compilation)?,
        }
        if !target.quiet {
            print(&format!("wrote {}\n", path.display()))?;
        }
    } else {
        let width = arguments.width.map_or_else(terminal_width, usize::from);
        print_page(&terminal::draw(&compilation, Look { width, colours: colours_out() }))?;
    }
    Ok(outcome(&compilation))
}

/// Draws several targets above each other.
fn several(arguments: &Arguments, form: Option<Form>) -> Result<Outcome, Failure> {
    let (Some(path), Some(Form::Svg)) = (&arguments.output, form) else {
        return Err(Failure::Usage("several targets are drawn in one .svg picture; a page shows one".to_owned()));
    };
    let first = &arguments.timed;
    let mut compilations = Vec::new();
    for target in std::iter::once(&first.target.target).chain(&arguments.others) {
        let mut timed = first.clone();
        timed.target.target.clone_from(target);
        let (compilation, sources) = timed.compile(Certificates::Beside)?;
        show_diagnostics(&compilation, &sources);
        compilations.push(compilation);
    }
    if compilations.iter().any(|one| one.analysis.is_none() && one.stuck.is_none()) {
        return Ok(Outcome::Rejected);
    }
    let all: Vec<&Compilation> = compilations.iter().collect();
    write(path, &svg::draw_all(&all).map_err(Failure::Usage)?)?;
    if !first.target.quiet {
        print(&format!("wrote {}\n", path.display()))?;
    }
    let rejected = compilations.iter().find(|one| !one.report.ok);
    Ok(rejected.or(compilations.first()).map_or(Outcome::Rejected, outcome))
}

/// What is written to a file.
#[derive(Clone, Copy)]
enum Form {
    Svg,
    Page,
}

fn page(path: &Path, compilation: &Compilation) -> Result<(), Failure> {
    let picture = Picture::new(compilation);
    let picture = picture.ok_or_else(|| Failure::Bug("a schedule with times has no picture".to_owned()))?;
    write_with(path, |out| html::write(&picture.title, &Shown::Picture(&picture), out))
}
