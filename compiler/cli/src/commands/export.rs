//! `pipec export CHECKPOINT`: the weights of a checkpoint as other tools load them.

use crate::Outcome;
use crate::input::memory;
use crate::output::{Failure, print};
use pipe_ir::units::Bytes;
use pipe_plot::numbers::bytes;
use pipe_runtime::checkpoint;
use pipe_runtime::weights::{self, ExportDType, Exported};
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  pipec export checkpoints/tuned -o tuned
  pipec export checkpoints/tuned/step-00000300.5aed06ae02a0.safetensors --dtype bf16 -o tuned
  pipec export checkpoints/tuned --shard 5GiB --optimizer -o tuned";

/// Arguments of `pipec export`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// A checkpoint, or a folder: its newest checkpoint is exported
    checkpoint: PathBuf,
    /// Naming of files and tensors
    #[arg(long, value_enum, default_value_t = Format::Hf)]
    format: Format,
    /// Folder to create
    #[arg(short, long, value_name = "FOLDER")]
    output: PathBuf,
    /// Element type [default: the `dtype` of the `config.json`]
    #[arg(long, value_enum)]
    dtype: Option<Type>,
    /// Largest file; larger models are split into several files with an index
    #[arg(long, value_name = "BYTES", default_value = "5GiB", value_parser = memory::bytes)]
    shard: Bytes,
    /// Also write the optimizer state, to `optimizer.safetensors`
    #[arg(long)]
    optimizer: bool,
    /// Prints nothing but errors
    #[arg(long, short)]
    quiet: bool,
}

/// Naming schemes.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    /// Hugging Face: safetensors files with `config.json`
    Hf,
}

/// Types of elements.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Type {
    /// Double precision
    F64,
    /// Single precision
    F32,
    /// bfloat16
    Bf16,
    /// Half precision
    F16,
}

impl From<Type> for ExportDType {
    fn from(dtype: Type) -> Self {
        match dtype {
            Type::F64 => Self::F64,
            Type::F32 => Self::F32,
            Type::Bf16 => Self::BF16,
            Type::F16 => Self::F16,
        }
    }
}

/// Writes the files and prints their names.
pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let Format::Hf = arguments.format;
    let usage = |error: &dyn std::fmt::Display| Failure::Usage(error.to_string());
    let path = newest(&arguments.checkpoint)?;
    let state = checkpoint::load(&path).map_err(|error| usage(&error))?;
    let dtype = arguments.dtype.map(ExportDType::from);
    let written = weights::export(&state, &arguments.output, dtype, arguments.shard.0, arguments.optimizer);
    let Exported { files, tensors, bytes: size, dtype } = written.map_err(|error| usage(&error))?;
    if arguments.quiet {
        return Ok(Outcome::Accepted);
    }
    print(&format!(
        "{} of step {}: {tensors} tensors, {} as {dtype}\n  {}\n",
        arguments.output.display(),
        state.step,
        bytes(size),
        files.join("\n  ")
    ))?;
    Ok(Outcome::Accepted)
}

/// The checkpoint itself, or the newest one of a folder.
fn newest(path: &Path) -> Result<PathBuf, Failure> {
    if path.is_file() {
        return Ok(path.to_owned());
    }
    if !path.exists() {
        return Err(Failure::Usage(format!("there is no checkpoint at {}", path.display())));
    }
    let found = checkpoint::latest(path).map_err(|error| Failure::Usage(error.to_string()))?;
    found.ok_or_else(|| Failure::Usage(format!("there is no checkpoint in {}", path.display())))
}
