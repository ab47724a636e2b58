//! The `pipec` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    pipec::main()
}
