//! `pipec lsp`: a language server for editors.

use crate::Outcome;
use crate::lsp::serve;
use crate::output::Failure;

const EXAMPLES: &str = "\
Editors start it: VS Code with editors/vscode, others as docs/editor.md says.
Speaks the Language Server Protocol over standard input and output until the client says goodbye or goes away.";

/// Arguments of `pipec lsp`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// As clients say it; there is no other way
    #[arg(long, hide = true)]
    stdio: bool,
}

/// Serves one client.
pub(crate) fn run(_: &Arguments) -> Result<Outcome, Failure> {
    serve()
}
