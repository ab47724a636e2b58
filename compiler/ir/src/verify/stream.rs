//! Rules about how the microbatches of a program's step list are counted: steps of a window, slices of a sequence, and the
//! versions of weights that each step reads.

use super::Place;
use super::report::Report;
use crate::program::Program;

/// Checks the counts. Whether microbatches can be told by step and slice at all: nothing else can be judged without.
pub(super) fn check(program: &Program, report: &mut Report) -> bool {
    let per_step = program.microbatches_of_step();
    if program.n_steps == 0 || !program.n_microbatches.is_multiple_of(program.n_steps) {
        let (all, steps) = (program.n_microbatches, program.n_steps);
        report.error(Place::Program, format!("{all} microbatches cannot be dealt out to {steps} steps"));
    } else if !program.lags.is_empty() {
        let complete = |lags: &Vec<u32>| lags.len() == per_step as usize;
        if program.lags.len() != program.n_stages as usize || !program.lags.iter().all(complete) {
            let (stages, rows) = (program.n_stages, program.lags.len());
            let message = format!("{stages} stages with {per_step} microbatches in a step have {rows} rows of lags");
            report.error(Place::Program, message);
        }
    }
    let is_whole = program.n_slices != 0 && program.n_microbatches.is_multiple_of(program.n_slices);
    if !is_whole {
        let (count, slices) = (program.n_microbatches, program.n_slices);
        let message = format!("{count} microbatches are not a number of wholes of {slices} slices each");
        report.error(Place::Program, message);
    }
    is_whole
}
