//! `pipec man`: the pages of the manual, one for the command and one for each subcommand.

use crate::Outcome;
use crate::output::{Failure, print, print_with, write_with};
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use pipe_syntax::suggest;
use std::io::{self, Write};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  pipec man check | man -l -
  pipec man -o ~/.local/share/man/man1   # all pages; then `man pipec-check`";

/// What a block of help begins with whose lines are kept, and its title in the manual.
const SECTIONS: [(&str, &str); 2] = [("Examples:\n", "EXAMPLES"), ("Exit codes:\n", "EXIT STATUS")];

/// Arguments of `pipec man`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The page of this subcommand; otherwise that of `pipec` itself
    command: Option<String>,
    /// Writes all pages to this folder, which is made where it is missing
    #[arg(long, short, value_name = "FOLDER", conflicts_with = "command")]
    output: Option<PathBuf>,
}

/// Prints a page, or writes all of them.
pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let mut command = crate::command().disable_help_subcommand(true);
    command.build();
    if let Some(folder) = &arguments.output {
        let pages: Vec<Command> = std::iter::once(&command).chain(command.get_subcommands()).cloned().collect();
        std::fs::create_dir_all(folder).map_err(|error| Failure::Io(folder.display().to_string(), error))?;
        for page in &pages {
            write_with(&folder.join(Man::new(page.clone()).get_filename()), |out| render(page, out))?;
        }
        print(&format!("wrote {} pages to {}\n", pages.len(), folder.display()))?;
        return Ok(Outcome::Accepted);
    }
    let page = match &arguments.command {
        None => &command,
        Some(name) => command.find_subcommand(name).ok_or_else(|| {
            let help = suggest::help(name, command.get_subcommands().map(Command::get_name)).unwrap_or_default();
            Failure::Usage(format!("there is no command `{name}`; {help}"))
        })?,
    };
    print_with(|out| render(page, out))?;
    Ok(Outcome::Accepted)
}

/// Writes a page. What follows the options in `--help`, such as examples, keeps its lines.
fn render(command: &Command, out: &mut dyn Write) -> io::Result<()> {
    let man = Man::new(command.clone()).source(concat!("pipec ", env!("CARGO_PKG_VERSION")));
    man.render_title(out)?;
    man.render_name_section(out)?;
    man.render_synopsis_section(out)?;
    man.render_description_section(out)?;
    man.render_options_section(out)?;
    if command.has_subcommands() {
        man.render_subcommands_section(out)?;
    }
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let mut roff = Roff::default();
    for block in after.split("\n\n").filter(|block| !block.is_empty()) {
        match SECTIONS.iter().find_map(|(head, title)| Some((title, block.strip_prefix(head)?))) {
            Some((title, lines)) => {
                roff.control("SH", [*title]).control("nf", []);
                for line in lines.lines() {
                    roff.text([roman(line.trim())]);
                }
                roff.control("fi", []);
            }
            None => {
                roff.control("PP", []).text([roman(block)]);
            }
        }
    }
    roff.to_writer(out)
}
