//! `pipec plot TARGET`: the timeline, in the terminal or as a file.

mod figure;

use crate::Outcome;
use crate::drawing::figure::Figure;
use crate::drawing::html::{self, Shown};
use crate::drawing::{golden, terminal};
use crate::input::near::refuse_settings;
use crate::input::{Format, TimedArguments};
use crate::output::diagnostics::Look;
use crate::output::findings::{outcome, show_diagnostics};
use crate::output::wrap::fit;
use crate::output::{Failure, colours_out, form_of, print, print_page, terminal_width, warn, write, write_with};
use figure::Width;
use pipe_compiler::{Certificates, Compilation};
use pipe_plot::figure::Medium;
use pipe_plot::figure::font::named;
use pipe_plot::render::{pdf, svg, tikz};
use pipe_plot::{Picture, figure as figures};
use pipe_syntax::source::Sources;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  pipec plot std:v_half --set devices=8 --set microbatches=24
  pipec plot std:v_half -o v_half.svg
  pipec plot std:1f1b std:zb_h1 -o both.svg
  pipec plot std:v_half -o fig.pdf --for paper --width 85mm --crop fit --title none
  pipec plot examples/shakespeare.pipe --memory 2.5 -o shakespeare.html";

/// Arguments of `pipec plot`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES, mut_arg("format", |format| format.hide(true)), mut_arg("json", |json| json.hide(true)))]
pub(crate) struct Arguments {
    #[command(flatten)]
    timed: TimedArguments,
    /// More targets, drawn below the first one on the same time axis, in an `x.svg`, `x.pdf` or `x.tex`
    #[arg(value_name = "TARGET", requires = "output")]
    others: Vec<String>,
    /// Writes a picture to this file, instead of drawing in the terminal: a figure `x.svg`, `x.pdf`
    /// or `x.tex` (TikZ, for `\input` in LaTeX), or `x.html`, a page to zoom and look around in that needs no network
    #[arg(long, short, value_name = "PATH")]
    output: Option<PathBuf>,
    /// Draws a cell for every slot, as wide as the longest, so that a test can compare the text:
    /// `F0b` is the forward of microbatch 0 of the device's second stage, a dot an idle slot
    #[arg(long, conflicts_with = "output")]
    golden: bool,
    /// Columns of the drawing in the terminal; or how wide a figure is, as in `240pt`, `85mm`,
    /// `800px`, `column` (240pt) or `page` (504pt)
    #[arg(long, value_name = "WIDTH", value_parser = figure::width)]
    width: Option<Width>,
    #[command(flatten)]
    figure: figure::FigureArguments,
}

/// Draws a target, also one that breaks a limit, and how far one comes that is stuck.
pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let target = &arguments.timed.target;
    refuse_settings(&arguments.others)?;
    if target.format() == Format::Json {
        return Err(Failure::Usage("`plot` draws pictures; `check --format json` prints figures".to_owned()));
    }
    let forms = [("svg", Form::Svg), ("pdf", Form::Pdf), ("tex", Form::Tikz), ("html", Form::Page)];
    let form = |path: &Path| form_of(path, &forms, "plot writes .svg, .pdf and .tex figures and .html pages");
    let form = arguments.output.as_deref().map(form).transpose()?;
    if let (Some(path), Some(form @ (Form::Svg | Form::Pdf | Form::Tikz))) = (&arguments.output, form) {
        return write_figure(arguments, path, form);
    }
    if let Some(option) = arguments.figure.first() {
        return Err(Failure::Usage(format!("`{option}` is for figures: write an .svg, a .pdf or a .tex")));
    }
    if !arguments.others.is_empty() {
        return Err(Failure::Usage("several targets are drawn in one .svg, .pdf or .tex; a page shows one".to_owned()));
    }
    let width = match arguments.width {
        Some(Width::Columns(columns)) => columns.into(),
        Some(Width::Length(_) | Width::Pixels(_)) => {
            let help = "this is the width of a figure: add `-o x.pdf` or `-o x.svg`; in the terminal it is in columns";
            return Err(Failure::Usage(help.to_owned()));
        }
        None => terminal_width(),
    };
    let phases = if arguments.output.is_none() && !arguments.golden { target.phases()? } else { Vec::new() };
    if phases.is_empty() {
        return draw(arguments, &arguments.timed, width);
    }
    let outcomes: Vec<Outcome> = phases
        .iter()
        .map(|phase| draw(arguments, &arguments.timed.of_pipeline(phase), width))
        .collect::<Result<_, Failure>>()?;
    Ok(outcomes.into_iter().find(|one| *one != Outcome::Accepted).unwrap_or(Outcome::Accepted))
}

/// Draws a target in the terminal, or as a page.
fn draw(arguments: &Arguments, timed: &TimedArguments, width: usize) -> Result<Outcome, Failure> {
    let (compilation, sources) = timed.compile(Certificates::Beside)?;
    show_diagnostics(&compilation, &sources);
    // What is stuck has no whole rows, as tests compare them.
    if compilation.analysis.is_none() && (compilation.stuck.is_none() || arguments.golden) {
        return Ok(Outcome::Rejected);
    }
    if let (true, Some(analysis)) = (arguments.golden, &compilation.analysis) {
        print(&golden::draw(analysis).map_err(Failure::Usage)?)?;
    } else if let Some(path) = &arguments.output {
        page(path, &compilation, &sources)?;
        say_written(arguments, path)?;
    } else {
        // What is said beside the tracks goes on below where it is too long.
        let drawn = terminal::draw(&compilation, Look { width, colours: colours_out() });
        if arguments.width.is_some() { print(&fit(&drawn, width))? } else { print_page(&drawn)? }
    }
    Ok(outcome(&compilation))
}

/// Draws targets above each other.
fn write_figure(arguments: &Arguments, path: &Path, form: Form) -> Result<Outcome, Failure> {
    let first = &arguments.timed;
    let usual = if matches!(form, Form::Pdf | Form::Tikz) { Medium::Paper } else { Medium::Screen };
    let mut all = Vec::new();
    for target in std::iter::once(&first.target.target).chain(&arguments.others) {
        let mut timed = first.clone();
        timed.target.target.clone_from(target);
        let phases = timed.target.phases()?;
        all.extend(phases.iter().map(|phase| timed.of_pipeline(phase)));
        if phases.is_empty() {
            all.push(timed);
        }
    }
    let look = arguments.figure.look(arguments.width, usual, all.len())?;
    let mut compilations = Vec::new();
    for timed in &all {
        let (compilation, sources) = timed.compile(Certificates::Beside)?;
        show_diagnostics(&compilation, &sources);
        compilations.push(compilation);
    }
    if compilations.iter().any(|one| one.analysis.is_none() && one.stuck.is_none()) {
        return Ok(Outcome::Rejected);
    }
    let all: Vec<&Compilation> = compilations.iter().collect();
    let scene = figures::draw(&all, &look).map_err(Failure::Usage)?;
    match form {
        Form::Pdf => write(path, pdf::write(&scene).map_err(Failure::Usage)?)?,
        Form::Tikz => {
            write(path, tikz::write(&scene))?;
            let lacking: Vec<String> = tikz::lacking(&scene).into_iter().map(named).collect();
            if !lacking.is_empty() {
                let (letters, verb) = (lacking.join(", "), if lacking.len() == 1 { "is" } else { "are" });
                let help = "the document needs one with all letters of the title";
                warn(&format!("{letters} {verb} not in LaTeX's usual fonts: {help}"));
            }
        }
        Form::Svg | Form::Page => write(path, svg::write(&scene))?,
    }
    say_written(arguments, path)?;
    let rejected = compilations.iter().find(|one| !one.report.ok);
    Ok(rejected.or(compilations.first()).map_or(Outcome::Rejected, outcome))
}

fn say_written(arguments: &Arguments, path: &Path) -> Result<(), Failure> {
    if arguments.timed.target.quiet {
        return Ok(());
    }
    print(&format!("wrote {}\n", path.display()))
}

/// What is written to a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Svg,
    Pdf,
    Tikz,
    Page,
}

fn page(path: &Path, compilation: &Compilation, sources: &Sources) -> Result<(), Failure> {
    let picture = Picture::with_sources(compilation, sources);
    let picture = picture.ok_or_else(|| Failure::Bug("a schedule with times has no picture".to_owned()))?;
    let figure = Figure::new(compilation, &picture);
    write_with(path, |out| html::write(&picture.title, &Shown::Picture(&picture, &figure), out))
}
