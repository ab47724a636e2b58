//! Ownership: a run takes its folder of checkpoints before it starts, and no other run writes there until it ends.

use crate::input::parse_seconds;
use crate::ranks::session::Session;
use crate::training::Failure;
use pipe_runtime::checkpoint::{Home, Terms};
use std::path::Path;
use std::time::Duration;

/// Says after how many seconds of silence others may take the folder of this run, instead of 30.
const VARIABLE: &str = "PIPEC_LEASE_SECONDS";

/// Takes a folder, if there is one to take. All ranks do it at once. Fails if another run has it, or it cannot be read
/// and written.
pub(crate) fn take(folder: Option<&Path>, session: &Session<'_>) -> Result<Option<Home>, Failure> {
    let Some(folder) = folder else { return Ok(None) };
    let tell = |message: &str| session.warn(message);
    let mut terms = Terms { tell: &tell, ..Terms::default() };
    if let Ok(text) = std::env::var(VARIABLE) {
        match parse_seconds(&text).ok().filter(|seconds| (0.1..=86_400.0).contains(seconds)) {
            Some(seconds) => terms.patience = Duration::from_secs_f64(seconds),
            None => tell(&format!("{VARIABLE} is `{text}`, not a number of seconds from 0.1 to 86400: 30 are taken")),
        }
    }
    Ok(Some(Home::take(folder, session.job(), &terms)?))
}
