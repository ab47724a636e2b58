//! `pipec plot TARGET`: the timeline, in the terminal or as a file.

use super::check::{outcome, show_diagnostics};
use crate::diagnostics::Look;
use crate::input::{Format, TimedArguments};
use crate::output::{Failure, colours_out, print, write};
use crate::plot::{golden, svg, terminal};
use crate::{Outcome, terminal_width};
use pipe_compiler::Certificates;
use std::path::PathBuf;

/// Arguments of `pipec plot`.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    timed: TimedArguments,
    /// Writes an SVG picture to this file, instead of drawing in the terminal
    #[arg(long, short, value_name = "PATH")]
    output: Option<PathBuf>,
    /// Draws one row per device and one cell per slot, in the form that tests compare
    #[arg(long, conflicts_with = "output")]
    golden: bool,
    /// Columns of the drawing in the terminal
    #[arg(long, value_name = "COLUMNS", value_parser = clap::value_parser!(u16).range(40..))]
    width: Option<u16>,
}

/// Draws a target that runs to its end, also one that breaks a limit.
pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let target = &arguments.timed.target;
    if target.format == Format::Json {
        return Err(Failure::Usage("`plot` draws pictures; `check --format json` prints figures".to_owned()));
    }
    if let Some(path) = &arguments.output
        && path.extension().is_none_or(|extension| extension != "svg")
    {
        let message = format!("{}: plot writes .svg pictures", path.display());
        return Err(Failure::Usage(message));
    }
    let (compilation, sources) = arguments.timed.compile(Certificates::Beside)?;
    show_diagnostics(&compilation, &sources);
    let Some(judged) = &compilation.judged else { return Ok(Outcome::Rejected) };
    if arguments.golden {
        print(&golden::draw(judged).map_err(Failure::Usage)?)?;
    } else if let Some(path) = &arguments.output {
        let picture = svg::draw(judged, &compilation.report).map_err(Failure::Usage)?;
        write(path, &picture)?;
        if !target.quiet {
            print(&format!("wrote {}\n", path.display()))?;
        }
    } else {
        let width = arguments.width.map_or_else(terminal_width, usize::from);
        print(&terminal::draw(judged, &compilation.report, Look { width, colours: colours_out() }))?;
    }
    Ok(outcome(&compilation))
}
