//! `pipec std [NAME]`: the schedules of the standard library.

use crate::Outcome;
use crate::input::standard;
use crate::output::figures::units;
use crate::output::table::Table;
use crate::output::{Failure, Style, colours_out, paint, print, print_page};
use pipe_compiler::elaborate::{DEFAULT_DEVICES, DEFAULT_MICROBATCHES};
use pipe_compiler::{Request, compile};
use pipe_syntax::source::{Source, Sources};
use pipe_syntax::stdlib::{SCHEDULES, summary};

const EXAMPLES: &str = "\
Examples:
  pipec std
  pipec std v_half > mine.pipe
  pipec check std:v_half --devices 8";

/// Arguments of `pipec std`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Prints the source of this schedule; all are listed without one
    name: Option<String>,
}

/// A schedule in the list.
struct Row {
    name: &'static str,
    peak: String,
    words: String,
}

/// Lists the schedules, or prints one.
pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    match &arguments.name {
        Some(name) => print(standard(name.strip_prefix("std:").unwrap_or(name))?)?,
        None => print_page(&list(colours_out()))?,
    }
    Ok(Outcome::Accepted)
}

fn list(colours: bool) -> String {
    let row = |(name, text): &(&'static str, &str)| Row { name, peak: peak(name, text), words: summary(text) };
    let table = Table::new(colours)
        .left("schedule", 0, 19, |row: &Row| row.name)
        .right("peak", 2, 8, |row| row.peak.clone())
        .left("in a few words", 3, 0, |row| row.words.clone());
    let about = format!(
        "peaks of {DEFAULT_DEVICES} devices and {DEFAULT_MICROBATCHES} microbatches; `pipec std NAME` prints the source"
    );
    table.draw(&SCHEDULES.iter().map(row).collect::<Vec<_>>()) + "\n" + &paint(&about, Style::Faint, colours) + "\n"
}

/// The most activations that a device holds, where nothing says how many devices and microbatches there are.
fn peak(name: &str, text: &str) -> String {
    let source = Source { name: format!("std:{name}"), text: text.to_owned() };
    let nothing = |_: &str| Err("a schedule of the standard library imports nothing".to_owned());
    let compilation = compile(&mut Sources::default(), source, &nothing, &Request::default());
    let peak = compilation.report.figures.peak_activation;
    peak.map_or_else(String::new, units)
}
