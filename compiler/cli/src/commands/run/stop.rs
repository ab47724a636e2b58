//! Stopping: a run that is asked to end does so after the step at hand.

use crate::output::{print_error, warn};
use pipe_distributed::Job;
use pipe_runtime::RunError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The first Ctrl-C (or a request to terminate) asks the run to stop after its step; the second one
/// ends the process. Of a job, all ranks stop together, whichever was asked, and launchers end
/// those that take too long. Answers whether to stop.
pub(crate) fn stop_on_signal(job: Option<&Job>) -> impl FnMut() -> Result<bool, RunError> {
    let stop = Arc::new(AtomicBool::new(false));
    let (asked, hurry) = (Arc::clone(&stop), job.map(Job::hurry));
    let handler = move || match &hurry {
        Some(hurry) => {
            asked.store(true, Ordering::Relaxed);
            hurry();
        }
        None if asked.swap(true, Ordering::Relaxed) => {
            pipe_cuda::leave(130);
            std::process::exit(130)
        }
        None => print_error("\nstopping after this step; once more to stop at once\n"),
    };
    // Without a handler Ctrl-C still ends the run, only without its checkpoint.
    if let Err(error) = ctrlc::set_handler(handler) {
        warn(&format!("Ctrl-C will not save a checkpoint: {error}"));
    }
    move || {
        let own = stop.load(Ordering::Relaxed);
        job.map_or(Ok(own), |job| job.any(own))
    }
}
