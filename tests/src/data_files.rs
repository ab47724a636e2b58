//! Data files of tests: arrays as NumPy writes them, and what a program learns from files.

use crate::training::{losses, steps};
use pipe_ir::verify::Verified;
use pipe_runtime::data::{Data, check};
use pipe_runtime::{Backend, Options, Run};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A `.npy` file (format 1.0) with this type, this shape and these bytes.
///
/// # Panics
/// If type and shape do not fit into 64 KiB.
#[must_use]
pub fn npy(descr: &str, shape: &str, numbers: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(u16::try_from(header.len()).expect("short").to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(numbers);
    bytes
}

/// The bits of the losses of some steps of a program whose data are in a folder.
///
/// # Errors
/// Why the files are refused.
///
/// # Panics
/// If `check` and `run` do not say the same of the files.
pub fn losses_from(program: Arc<Verified>, folder: &Path, of_steps: Range<u64>) -> Result<Vec<Vec<u64>>, String> {
    let checked = check(program.program(), folder).map_err(|error| error.to_string());
    let data = Data::open(program.program(), folder).map_err(|error| error.to_string());
    assert_eq!(checked.as_ref().err(), data.as_ref().err(), "`check` says what `run` says");
    let data = Arc::new(data?);
    assert!(data.identity().is_some_and(|identity| identity.contains("checksum")));
    let mut run = Run::start(program, &Options::new(Backend::Cpu, 5), data).map_err(|error| error.to_string())?;
    let all = losses(&steps(&mut run, of_steps));
    Ok(all.iter().map(|step| step.iter().map(|(_, loss)| *loss).collect()).collect())
}
