//! Backends: what executes a program, as users choose it.

use crate::output::{Failure, warn};
use crate::training;
use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use pipe_distributed::Job;
use pipe_ir::program::Program;
use pipe_runtime::{Backend, Precision, RunError};
use serde::Serialize;

/// What executes.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BackendChoice {
    /// The best one that can run the program
    Auto,
    /// CPU threads, one per device
    Cpu,
    /// NVIDIA GPUs of this machine, over which devices are spread in equal blocks
    Cuda,
    /// Counts bytes and instructions, computes nothing
    Null,
}

/// How GPUs multiply matrices of single precision.
#[derive(ValueEnum, Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Products {
    /// As they are
    Fp32,
    /// With factors rounded to 10 bits of fraction; sums are in single precision
    Tf32,
    /// With factors rounded to 7 bits of fraction; sums are in single precision
    Bf16,
}

impl From<Products> for Precision {
    fn from(products: Products) -> Self {
        match products {
            Products::Fp32 => Self::Fp32,
            Products::Tf32 => Self::Tf32,
            Products::Bf16 => Self::Bf16,
        }
    }
}

impl BackendChoice {
    /// Those that compute, as arguments.
    pub(crate) fn computing() -> impl TypedValueParser<Value = Self> {
        let computing = Self::value_variants().iter().filter(|one| **one != Self::Null);
        let known = PossibleValuesParser::new(computing.filter_map(ValueEnum::to_possible_value));
        known.try_map(|name| Self::from_str(&name, false))
    }

    /// Whether GPUs are there, if it depends on them: of several ranks, one for each. Fails if a rank cannot go on.
    pub(crate) fn finds_gpus(self, job: Option<&Job>) -> Result<bool, Failure> {
        let is_wanted = self == Self::Auto;
        match job {
            None => Ok(is_wanted && pipe_cuda::gpus().is_ok()),
            Some(job) => {
                let told = |error: RunError| Failure::Usage(error.to_string());
                let found = pipe_cuda::all_have_gpus(job, is_wanted).map_err(told)?;
                if let Err(why) = &found
                    && is_wanted
                    && job.is_first()
                    && pipe_cuda::gpus().is_ok()
                {
                    warn(&format!("not on the GPUs: {why}; the processors run it instead"));
                }
                Ok(found.is_ok())
            }
        }
    }

    /// The one for a program, where there are GPUs or none.
    pub(crate) fn resolve(self, program: &Program, has_gpus: bool) -> Backend {
        match self {
            Self::Cpu => Backend::Cpu,
            Self::Cuda => pipe_cuda::BACKEND,
            Self::Null => Backend::Null,
            Self::Auto if !training::is_computable(program) => Backend::Null,
            Self::Auto if has_gpus => pipe_cuda::BACKEND,
            Self::Auto => Backend::Cpu,
        }
    }
}

/// As reports call it.
pub(crate) const fn name(backend: Backend) -> &'static str {
    match backend {
        Backend::Null => "null",
        Backend::Cpu => "cpu",
        Backend::Gpu(_) => "cuda",
    }
}
