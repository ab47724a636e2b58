//! `pipec explain CODE`: the page of an error.

use crate::Outcome;
use crate::output::markdown::render;
use crate::output::{Failure, colours_out, columns_out, print, print_page};
use pipe_syntax::diagnostic::Code;
use pipe_syntax::suggest;

/// The most columns that paragraphs of a page take.
const WIDEST: usize = 100;

/// Arguments of `pipec explain`.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Name of an error, as it stands in brackets; all names are listed without one
    code: Option<String>,
}

/// Prints a page, or the list of pages.
pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let Some(name) = &arguments.code else {
        let title = |code: &Code| code.page().lines().next().unwrap_or_default().trim_start_matches("# ").to_owned();
        let lines: String = Code::ALL.iter().map(|code| format!("{:26} {}\n", code.name(), title(code))).collect();
        print_page(&lines)?;
        return Ok(Outcome::Accepted);
    };
    // As it may be copied from a message.
    let name = name.trim().trim_start_matches("error").trim_start_matches("warning");
    let name = name.trim_matches(['[', ']', ':']).to_lowercase().replace('_', "-");
    let Some(code) = Code::ALL.iter().find(|code| code.name() == name) else {
        let near = suggest::question(&name, Code::ALL.iter().map(|code| code.name()));
        let near = near.map_or(String::new(), |question| format!("{question} "));
        return Err(Failure::Usage(format!("there is no error `{name}`; {near}`pipec explain` lists all of them")));
    };
    match columns_out() {
        Some(columns) => print(&render(code.page(), columns.min(WIDEST), colours_out()))?,
        None => print(code.page())?,
    }
    Ok(Outcome::Accepted)
}
