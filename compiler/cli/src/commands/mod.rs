//! The subcommands: a file each, or a folder whose `mod.rs` has the arguments.

mod build;
pub(crate) mod check;
mod completions;
pub(crate) mod diff;
pub(crate) mod eval;
mod explain;
mod export;
mod fmt;
mod lsp;
mod man;
mod plot;
pub(crate) mod profile;
pub(crate) mod run;
pub(crate) mod sample;
pub(crate) mod search;
mod std;
mod tune;
mod watch;

use crate::Outcome;
use crate::output::Failure;
use clap::Subcommand;

/// What to do.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Proves a schedule or pipeline, and prints its figures
    Check(check::Arguments),
    /// Writes what a schedule or pipeline was compiled to
    Build(build::Arguments),
    /// Executes a pipeline on this machine, and compares what it measures with what was predicted
    Run(run::Arguments),
    /// Says what the trained weights of a pipeline lose on a file of data, without training
    Eval(eval::Arguments),
    /// Writes text with the trained weights of a language model
    Sample(sample::Arguments),
    /// Measures a pipeline's tasks and links on this machine, and compares what they predict with its steps
    Profile(profile::Arguments),
    /// Says where each millisecond went between the plan of a target and a measured trace of it
    Diff(diff::Arguments),
    /// Draws the timeline: in the terminal, as a figure (SVG, PDF, TikZ) or as a page
    Plot(plot::Arguments),
    /// Serves the picture on this machine, and redraws it whenever the file or one that it imports is saved
    Watch(watch::Arguments),
    /// Writes the weights of a checkpoint in the format of Hugging Face
    Export(export::Arguments),
    /// Finds a schedule under a memory limit, and writes it as source
    Search(search::Arguments),
    /// Finds how to divide a model among the devices of a cluster, with which schedule and settings
    Tune(tune::Arguments),
    /// Brings sources into the one style: only spaces and line ends change
    Fmt(fmt::Arguments),
    /// Speaks with editors: findings while one types, figures, names, completion
    Lsp(lsp::Arguments),
    /// Lists the standard schedules, or prints one
    Std(std::Arguments),
    /// Says what an error means and how to repair it
    Explain(explain::Arguments),
    /// Prints what a shell needs to complete commands, options and their values
    Completions(completions::Arguments),
    /// Prints a page of the manual, or writes all of them
    Man(man::Arguments),
}

impl Command {
    /// Does it.
    pub(crate) fn run(self) -> Result<Outcome, Failure> {
        match self {
            Self::Check(arguments) => check::run(&arguments),
            Self::Build(arguments) => build::run(&arguments),
            Self::Run(arguments) => run::run(&arguments),
            Self::Eval(arguments) => eval::run(&arguments),
            Self::Sample(arguments) => sample::run(&arguments),
            Self::Profile(arguments) => profile::run(&arguments),
            Self::Diff(arguments) => diff::run(&arguments),
            Self::Plot(arguments) => plot::run(&arguments),
            Self::Watch(arguments) => watch::run(&arguments),
            Self::Export(arguments) => export::run(&arguments),
            Self::Search(arguments) => search::run(&arguments),
            Self::Tune(arguments) => tune::run(&arguments),
            Self::Fmt(arguments) => fmt::run(&arguments),
            Self::Lsp(arguments) => lsp::run(&arguments),
            Self::Std(arguments) => std::run(&arguments),
            Self::Explain(arguments) => explain::run(&arguments),
            Self::Completions(arguments) => completions::run(&arguments),
            Self::Man(arguments) => man::run(&arguments),
        }
    }
}
