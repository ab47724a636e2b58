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
    /// A checkpoint, or a folder of them, of which the newest is taken
    checkpoint: PathBuf,
    /// How files and tensors are named
    #[arg(long, value_enum, default_value_t = Format::Hf)]
    format: Format,
    /// The folder to write; it must not be there yet
    #[arg(short, long, value_name = "FOLDER")]
    output: PathBuf,
    /// Type of the elements; unless said, that of the `config.json`
    #[arg(long, value_enum)]
    dtype: Option<Type>,
    /// The most bytes of a file; where weights have more, there are several files and an index
    #[arg(long, value_name = "BYTES", default_value = "5GiB", value_parser = memory::bytes)]
    shard: Bytes,
    /// Also writes the optimizer's state, to a file of its own
    #[arg(long)]
    optimizer: bool,
}

/// Whose names are written.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    /// Of Hugging Face: safetensors, an index if need be, and `config.json`
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

/// Writes the files, and says what they are.
pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let Format::Hf = arguments.format;
    let usage = |error: &dyn std::fmt::Display| Failure::Usage(error.to_string());
    let path = newest(&arguments.checkpoint)?;
    let state = checkpoint::load(&path).map_err(|error| usage(&error))?;
    let dtype = arguments.dtype.map(ExportDType::from);
    let written = weights::export(&state, &arguments.output, dtype, arguments.shard.0, arguments.optimizer);
    let Exported { files, tensors, bytes: size, dtype } = written.map_err(|error| usage(&error))?;
    print(&format!(
        "{} of step {}: {tensors} tensors, {} as {dtype}\n  {}\n",
        arguments.output.display(),
        state.step,
        bytes(size),
        files.join("\n  ")
    ))?;
    Ok(Outcome::Accepted)
}

/// The checkpoint that is meant.
fn newest(path: &Path) -> Result<PathBuf, Failure> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let found = checkpoint::latest(path).map_err(|error| Failure::Usage(error.to_string()))?;
    found.ok_or_else(|| Failure::Usage(format!("there is no checkpoint in {}", path.display())))
}
