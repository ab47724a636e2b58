//! Beside: what driver and libraries take of the memory of GPUs, where a cluster does not say it.

use super::{Cluster, SlotLayout};
use pipe_ir::gpu::room::Beside;
use pipe_ir::program::Program;
use pipe_model::pipeline::Pipeline;

impl Cluster {
    /// What the device of a pipeline that needs most has of its GPU beside what is counted, where `pipec run` trains it
    /// on GPUs with this cluster's memory, with a process for each. None where the file says what is reserved, or the
    /// pipeline what memory there is, and where devices are too small to be GPUs.
    pub fn beside(&self, pipeline: &Pipeline, program: &Program) -> Option<Beside> {
        let is_ours = pipeline.memory.as_ref().is_some_and(|(_, span)| Some(*span) == self.memory_span());
        let runs = pipeline.transformer.is_none() && pipeline.training.is_some();
        let layout = SlotLayout::of(self, Some(pipeline), program.devices.len())?;
        let counts = is_ours && runs && self.counts_beside();
        let all = counts.then(|| Beside::all(program, |device| layout.node_before(device, 0, 0)));
        all?.into_iter().max_by_key(|own| own.sum())
    }
}
