//! `pipec completions SHELL`: what a shell needs to complete commands, options and their values.

use crate::Outcome;
use crate::output::{Failure, print_with};
use clap_complete::{Shell, generate};

const EXAMPLES: &str = "\
Examples:
  pipec completions bash > ~/.local/share/bash-completion/completions/pipec
  pipec completions zsh > ~/.zfunc/_pipec   # a folder of $fpath
  pipec completions fish > ~/.config/fish/completions/pipec.fish
  pipec completions powershell >> $PROFILE
  pipec completions elvish >> ~/.config/elvish/rc.elv";

/// Arguments of `pipec completions`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Which shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script.
pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let mut script = Vec::new();
    generate(arguments.shell, &mut crate::command(), "pipec", &mut script);
    print_with(|out| out.write_all(&script))?;
    Ok(Outcome::Accepted)
}
