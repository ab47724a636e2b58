//! Submission: the driver is asked for every action of a launch plan, in order; or once for a graph
//! that was captured of all of them.

use super::super::driver::{Capture, Graph, Stream};
use super::super::nccl::Links;
use super::libraries::Queued;
use crate::machine::launch_plan::{LaunchPlan, Operation};
use crate::machine::modules::Modules;
use pipe_distributed::memory::Memory;
use pipe_ir::ids::DeviceId;
use pipe_ir::program::Program;
use pipe_ir::units::Bytes;
use pipe_ir::verify::List;
use pipe_runtime::init;
use pipe_runtime::random::Counter;
use pipe_runtime::{Fault, RunError};
use std::collections::BTreeSet;
use std::time::Duration;

/// The longest pause under stress, before one action in four.
const PAUSE_MICROS: u64 = 100;

/// The most calls of a step that become a graph. The driver makes a node of each, in some microseconds, and keeps it in
/// memory of the host and of the GPU; a step of so many calls takes so long that asking for each by itself is no loss.
const MOST_NODES: usize = 100_000;

/// Who submits.
pub(super) struct Submitter<'a> {
    pub(super) launch_plan: &'a LaunchPlan,
    pub(super) code: &'a Modules,
    /// Under stress: streams pause at random.
    pub(super) pauses: Option<&'a mut Counter>,
    pub(super) is_captured: bool,
    /// The program, if each kernel is waited for.
    pub(super) blocks: Option<&'a Program>,
    /// In a job of several ranks.
    pub(super) links: Option<&'a Links>,
}

impl<'a> Submitter<'a> {
    /// One graph of all actions. Fails if they are too many, or the driver captures no graph of them.
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
        fits_a_graph(launch_plan.actions.iter().map(|action| &action.task))?;
        launch_plan.main().gpu.activate()?;
        let capture = Capture::begin(launch_plan.main())?;
        Self { launch_plan, code, pauses: None, is_captured: true, blocks: None, links: None }.submit(None)?;
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
        for (position, action) in self.launch_plan.actions.iter().enumerate() {
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
            if let Some(program) = self.blocks.filter(|_| is_kernel(&action.task)) {
                self.look(program, position, stream)?;
            }
        }
        Ok(())
    }

    /// Waits for a kernel. Fails at the instruction that it belongs to, if it does.
    fn look(&self, program: &Program, position: usize, stream: &Stream) -> Result<(), RunError> {
        let waited = match self.links {
            Some(links) => links.wait(stream, |_| Ok(())),
            None => stream.synchronise().map_err(RunError::from),
        };
        let Err(RunError::Driver(why)) = waited else { return waited };
        let Some(run) = self.launch_plan.runs.iter().find(|run| run.actions.contains(&position)) else {
            return Err(RunError::Driver(why));
        };
        let number =
            self.launch_plan.actions[run.actions.start..position].iter().filter(|before| is_kernel(&before.task));
        let fault = Fault::new(format!("the GPU stopped at kernel {} of it: {why}", 1 + number.count()));
        let (device, index) = (run.device, run.instruction as usize);
        let instruction = text_of(program, device, index);
        Err(RunError::Instruction { device, list: List::Step, index, instruction, fault })
    }
}

/// An instruction of the step of a device, as it is written in Rust.
pub(super) fn text_of(program: &Program, device: DeviceId, index: usize) -> String {
    let instruction = program.devices[device.index()].step.get(index);
    instruction.map(|instruction| format!("{instruction:?}")).unwrap_or_default()
}

/// Whether the GPU computes.
const fn is_kernel(task: &Operation) -> bool {
    matches!(task, Operation::Launch { .. } | Operation::Product(_))
}

/// Whether actions are few enough for a graph. Waits, and events that no clock looks at, become edges of it.
fn fits_a_graph<'a>(actions: impl Iterator<Item = &'a Operation>) -> Result<(), RunError> {
    let nodes = actions.filter(|action| !matches!(action, Operation::Wait(_) | Operation::Record(_))).count();
    if nodes <= MOST_NODES {
        return Ok(());
    }
    Err(RunError::Driver(format!("a step has {nodes} calls, and a graph of more than {MOST_NODES} takes long to make")))
}

fn multiply(code: &Modules, stream: &Stream, queued: &Queued) -> Result<(), RunError> {
    code.library(queued.gpu).map_or(Ok(()), |library| stream.product(library, &queued.call.shape, queued.at))
}

#[cfg(test)]
mod tests {
    use super::{MOST_NODES, Operation, fits_a_graph};

    #[test]
    fn a_graph_has_no_more_nodes_than_can_be_made_in_time() {
        let of = |marks: usize, waits: usize| {
            let waits = std::iter::repeat_n(Operation::Wait(0), waits);
            let actions: Vec<_> = std::iter::repeat_n(Operation::Mark(0), marks).chain(waits).collect();
            fits_a_graph(actions.iter()).map_err(|error| error.to_string())
        };
        assert_eq!(of(MOST_NODES, 50), Ok(()));
        let told = "a step has 100001 calls, and a graph of more than 100000 takes long to make";
        assert!(of(MOST_NODES + 1, 0).is_err_and(|error| error.ends_with(told)));
    }
}
