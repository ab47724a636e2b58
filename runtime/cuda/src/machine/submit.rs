//! Submission: the driver is asked for every action of a launch plan, in order; or once for a graph
//! that was captured of all of them.

use super::super::driver::{Capture, Graph, Stream};
use super::super::nccl::Links;
use super::libraries::Queued;
use crate::machine::launch_plan::{LaunchPlan, Operation};
use crate::machine::modules::Modules;
use pipe_distributed::memory::Memory;
use pipe_ir::program::Program;
use pipe_ir::units::Bytes;
use pipe_runtime::RunError;
use pipe_runtime::init;
use pipe_runtime::random::Counter;
use std::collections::BTreeSet;
use std::time::Duration;

/// The longest pause under stress, before one action in four.
const PAUSE_MICROS: u64 = 100;

/// Who submits.
pub(super) struct Submitter<'a> {
    pub(super) launch_plan: &'a LaunchPlan,
    pub(super) code: &'a Modules,
    /// Under stress: streams pause at random.
    pub(super) pauses: Option<&'a mut Counter>,
    pub(super) is_captured: bool,
    /// In a job of several ranks.
    pub(super) links: Option<&'a Links>,
}

impl<'a> Submitter<'a> {
    /// One graph of all actions. Fails if the driver captures no graph of them.
    pub(super) fn capture(launch_plan: &'a LaunchPlan, code: &'a Modules) -> Result<Graph, RunError> {
        let around = launch_plan.actions.iter().find_map(|action| {
            let Operation::CopyAround { to, from } = &action.task else { return None };
            from.gpu().zip(to.gpu())
        });
        if let Some((from, to)) = around {
            return Err(RunError::Driver(format!(
                "copies from GPU {from} to GPU {to} go through the host, because they do not reach each other's memory"
            )));
        }
        launch_plan.main().gpu.activate()?;
        let capture = Capture::begin(launch_plan.main())?;
        Self { launch_plan, code, pauses: None, is_captured: true, links: None }.submit(None)?;
        Ok(capture.end()?)
    }

    /// Asks for one product of every shape that the library computes on a GPU: it loads its own kernels when it first
    /// needs them, and a capture may not let it. Fails if it refuses one.
    pub(super) fn warm_up(launch_plan: &LaunchPlan, code: &Modules) -> Result<(), RunError> {
        let mut known = BTreeSet::new();
        for action in &launch_plan.actions {
            if let Operation::Product(queued) = &action.task
                && known.insert((queued.gpu, queued.call.shape))
            {
                let stream = &launch_plan.streams[action.stream];
                stream.gpu.activate()?;
                multiply(code, stream, queued)?;
            }
        }
        Ok(())
    }

    /// Asks for all actions. Initial contents, of a program under a seed, are waited for. Fails if the driver refuses
    /// one, the host lacks memory for initial contents, or other ranks cannot be reached.
    pub(super) fn submit(&mut self, init: Option<(&Program, u64)>) -> Result<(), RunError> {
        let mut current = None;
        for action in &self.launch_plan.actions {
            let stream = &self.launch_plan.streams[action.stream];
            let gpu = stream.gpu.ordinal;
            if current != Some(gpu) {
                stream.gpu.activate()?;
                current = Some(gpu);
            }
            if let Some(random) = self.pauses.as_mut().map(|pauses| pauses.next_u64()).filter(|random| random % 4 == 0)
            {
                stream.pause(Duration::from_micros((random >> 32) % PAUSE_MICROS))?;
            }
            match &action.task {
                Operation::Wait(event) => stream.wait(&self.launch_plan.events[*event])?,
                Operation::Record(event) => stream.record(&self.launch_plan.events[*event])?,
                Operation::Mark(mark) => stream.mark(&self.launch_plan.marks[*mark], self.is_captured)?,
                Operation::Launch { function, shape, arguments } => stream.launch(function, shape, arguments)?,
                Operation::Product(queued) => multiply(self.code, stream, queued)?,
                Operation::Copy { to, from } => stream.copy(*to, *from)?,
                Operation::CopyAround { to, from } => stream.copy_around(*to, *from)?,
                Operation::Exchange { line, moves } => {
                    if let Some(links) = self.links {
                        links.exchange(*line, moves, stream)?;
                    }
                }
                Operation::Fill(area, word) => stream.fill(*area, *word)?,
                Operation::Zero(area) => {
                    stream.synchronise()?;
                    area.write(&vec![0; area.bytes])?;
                }
                Operation::Init(area, value, device) => {
                    stream.synchronise()?;
                    let (bytes, device) = (Bytes(area.bytes as u64), *device);
                    let Some((program, seed)) = init else { continue };
                    let memory = Memory::new(bytes).ok_or(RunError::OutOfMemory { device, bytes })?;
                    let region = memory.region(Bytes::ZERO, bytes);
                    init::fill(program.value(*value), seed, (region, program.member(device)));
                    area.write(region.bytes())?;
                }
            }
        }
        Ok(())
    }
}

fn multiply(code: &Modules, stream: &Stream, queued: &Queued) -> Result<(), RunError> {
    code.library(queued.gpu).map_or(Ok(()), |library| stream.product(library, &queued.call.shape, queued.at))
}
