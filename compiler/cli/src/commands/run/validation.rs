//! The validation of a run: the same pipeline, compiled once more to run forward only, on data that are not trained on.

use super::Arguments;
use crate::output::Failure;
use crate::ranks::session::Session;
use crate::training::evaluation::Validator;
use pipe_compiler::{Request, elaborate};
use pipe_ir::program::Program;
use pipe_runtime::Backend;
use pipe_runtime::data::Data;
use pipe_runtime::windows::Steps;
use pipe_syntax::diagnostic::Severity;
use std::sync::Arc;

/// The most steps of an evaluation: their windows are spread over the data.
const MOST_STEPS: u64 = 50;

/// The target was rejected, and that is said.
pub(super) struct Rejected;

impl Arguments {
    /// What the run is evaluated with, if it is. It is done on the processor, and by one process alone. Fails if data
    /// cannot be read, or nothing can run the pipeline forward.
    pub(super) fn validator(
        &self,
        program: &Program,
        backend: Backend,
        session: &Session<'_>,
    ) -> Result<Result<Option<Validator>, Rejected>, Failure> {
        let validation = program.training.as_ref().and_then(|training| training.validation.as_ref());
        let Some(validation) = validation.filter(|_| backend.computes()) else { return Ok(Ok(None)) };
        if session.n_ranks() > 1 {
            session.warn("several processes do no validation: `pipec eval` evaluates their checkpoints");
            return Ok(Ok(None));
        }
        if self.target.target.ends_with(".ir") {
            session.warn("instructions say nothing of forwards alone: there is no validation in this run");
            return Ok(Ok(None));
        }
        if backend.is_gpu() {
            session.warn("the validation runs on the processor, and the GPUs wait for it");
        }
        let request = self.target.request();
        let choice = elaborate::Request { forward_only: true, ..request.choice.clone() };
        let (mut compilation, sources) = self.target.compile_for(&Request { program: true, choice, ..request })?;
        compilation.diagnostics.retain(|found| found.severity == Severity::Error);
        let Some((forward, _)) = session.accepted(compilation, &sources)? else { return Ok(Err(Rejected)) };
        let forward = Arc::new(forward.of_members());
        let data = Data::held_out(forward.program(), &self.target.folder(), Steps::AtMost(MOST_STEPS));
        let data = data.map_err(|error| Failure::Usage(error.to_string()))?;
        let validator = data.map(|data| Validator::new(&forward, data, u64::from(validation.every)));
        let validator = validator.transpose().map_err(|error| Failure::Usage(error.to_string()))?;
        Ok(Ok(validator))
    }
}
