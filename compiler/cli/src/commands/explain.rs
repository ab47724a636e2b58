//! `pipec explain CODE`: the page of an error.

use crate::Outcome;
use crate::output::{Failure, print};
use pipe_compiler::diagnostic::Code;

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
        print(&lines)?;
        return Ok(Outcome::Accepted);
    };
    let Some(code) = Code::ALL.iter().find(|code| code.name() == name) else {
        return Err(Failure::Usage(format!("there is no error `{name}`; `pipec explain` lists all of them")));
    };
    print(code.page())?;
    Ok(Outcome::Accepted)
}
