//! Launch plans: a command list with streams, events and addresses. Nothing is left to look up when
//! it is submitted.
//!
//! Before the command list, a main stream of each GPU brings the numbers of the step and clears the records
//! of errors, and all queues wait for it. After the command list it waits for all queues, and brings the
//! records back. The main stream of the first GPU waits for the others.

use super::super::commands::{Call, CommandList, Home, Queue, Recorded, Work};
use super::super::driver::{Area, Event, Function, Shape, Stream};
use super::super::launch::Launch;
use super::super::nccl::{Line, Links, Move};
use super::arenas::Arenas;
use super::libraries::Queued;
use crate::gemm::Product;
use crate::machine::gpu_assignment::GpuAssignment;
use crate::machine::kernel_args::KernelArgs;
use crate::machine::modules::{Compiled, Doing, Modules, shape};
use pipe_distributed::Amount;
use pipe_ir::ids::{DeviceId, ExecId, GroupId, LaneId, MicrobatchId, ValueId};
use pipe_ir::instruction::{Collective, Fill, Instruction, OperandRange};
use pipe_ir::program::Program;
use pipe_ir::value::{Init, Value};
use pipe_ir::verify::List;
use pipe_runtime::{NO_NUMBER, RunError};
use std::collections::BTreeMap;
use std::ops::Range;

/// What is asked of a stream, by its place.
#[derive(Clone, Debug)]
pub(super) struct Action {
    pub(super) stream: usize,
    pub(super) task: Operation,
}

/// What to do; events and marks by their places.
#[derive(Clone, Debug)]
pub(super) enum Operation {
    /// Goes on after an event.
    Wait(usize),
    /// An event is over.
    Record(usize),
    /// Notes the time.
    Mark(usize),
    /// A kernel.
    Launch { function: Function, shape: Shape, arguments: Vec<u64> },
    /// A matrix product by the library.
    Product(Box<Queued>),
    /// A copy.
    Copy { to: Area, from: Area },
    /// A copy between GPUs that do not reach each other's memory.
    CopyAround { to: Area, from: Area },
    /// Bytes to and from other processes.
    Exchange { line: Line, moves: Vec<Move> },
    /// Copies of four bytes.
    Fill(Area, u32),
    /// Initial contents of a value of a device, which the host brings: in set-up lists.
    Init(Area, ValueId, DeviceId),
    /// Zeros in memory of the host: the same.
    Zero(Area),
}

/// What to look at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looks {
    pub(super) list: List,
    /// The time of every kernel.
    pub(super) profile: bool,
    /// The time of every collective.
    pub(super) trace: bool,
    /// Each executable by itself: on every GPU they run one after the other, in the order of the command list.
    pub(super) one_by_one: bool,
}

/// A run of an executable.
#[derive(Clone, Debug)]
pub(super) struct Ran {
    pub(super) device: DeviceId,
    /// The lane that it is on, if it is on one.
    pub(super) lane: Option<LaneId>,
    /// Its place in the device's list.
    pub(super) instruction: u32,
    pub(super) exec: ExecId,
    pub(super) microbatch: MicrobatchId,
    pub(super) gpu: usize,
    /// What is asked of the driver for it.
    pub(super) actions: Range<usize>,
    /// Its start, and its end; in a profile, the end of each kernel.
    pub(super) marks: Vec<usize>,
    /// Where the host reads whether its data are wrong, if it looks at data.
    pub(super) error: Option<Area>,
    /// In a profile: kind of each kernel, and what it does.
    pub(super) kinds: Vec<(&'static str, Amount)>,
}

/// A collective.
#[derive(Clone, Debug)]
pub(super) struct Joint {
    pub(super) collective: Collective,
    pub(super) group: GroupId,
    pub(super) members: Vec<DeviceId>,
    pub(super) gpu: usize,
    pub(super) marks: Range<usize>,
}

/// A command list that can be submitted.
#[derive(Default)]
pub(super) struct LaunchPlan {
    /// Devices of this process.
    pub(super) own: Range<usize>,
    pub(super) actions: Vec<Action>,
    /// The main stream of each GPU, then one per queue, then those of other GPUs that take part in what a group does.
    pub(super) streams: Vec<Stream>,
    pub(super) events: Vec<Event>,
    pub(super) marks: Vec<Event>,
    /// By GPU: when it began.
    pub(super) starts: Vec<usize>,
    pub(super) runs: Vec<Ran>,
    pub(super) joint: Vec<Joint>,
}

/// What a launch plan is made from.
#[derive(Clone, Copy)]
pub(super) struct Means<'a> {
    pub(super) assignment: &'a GpuAssignment,
    pub(super) arenas: &'a Arenas,
    pub(super) code: &'a Modules,
    /// In a job of several ranks.
    pub(super) links: Option<&'a Links>,
}

pub(super) struct Builder<'a> {
    pub(super) program: &'a Program,
    pub(super) looks: Looks,
    pub(super) assignment: &'a GpuAssignment,
    pub(super) arenas: &'a Arenas,
    pub(super) code: &'a Modules,
    pub(super) links: Option<&'a Links>,
    queues: &'a [Queue],
    pub(super) launch_plan: LaunchPlan,
    /// The place of each event of the command list, once it is recorded.
    events: Vec<Option<usize>>,
    /// By device: where its next run may be in its list.
    next: Vec<u32>,
    /// Runs so far that look at data.
    checks: usize,
    /// By stream: the mark at which it still is, if it did nothing since that takes time.
    pub(super) here: Vec<Option<usize>>,
    /// By GPU, one by one: when its last run is over.
    over: Vec<Option<usize>>,
    /// By stream of a group and GPU: the stream with which that takes part.
    pub(super) helpers: BTreeMap<(usize, usize), usize>,
}

impl LaunchPlan {
    /// Of one of the lists.
    pub(super) fn new(
        program: &Program,
        recorded: &Recorded,
        means: Means<'_>,
        looks: Looks,
    ) -> Result<Self, RunError> {
        let Means { assignment, arenas, code, links } = means;
        let commands = match looks.list {
            List::Setup => &recorded.setup,
            List::Step => &recorded.step,
        };
        let place = |queue: &Queue| match queue {
            Queue::Compute(device) | Queue::Lane(device, _) | Queue::Copy(device, _) | Queue::Transfer(device, ..) => {
                assignment.place(*device)
            }
            Queue::Group(group) => program.group(*group).first().map_or(0, |device| assignment.place(*device)),
        };
        // What others wait for comes before what computes.
        let stream = |queue: &Queue| {
            let gpu = &assignment.gpus[place(queue)];
            Ok(if matches!(queue, Queue::Compute(_) | Queue::Lane(..)) {
                Stream::new(gpu)?
            } else {
                Stream::urgent(gpu)?
            })
        };
        let mains = assignment.gpus.iter().map(|gpu| Ok(Stream::new(gpu)?));
        let streams = mains.chain(commands.queues.iter().map(stream)).collect::<Result<_, RunError>>()?;
        let launch_plan = Self { own: assignment.own(), streams, ..Self::default() };
        let (events, next) = (vec![None; commands.n_events as usize], vec![0; program.devices.len()]);
        let queues = &commands.queues;
        let (here, over) = (vec![None; launch_plan.streams.len()], vec![None; assignment.gpus.len()]);
        let mut builder = Builder {
            program,
            looks,
            assignment,
            arenas,
            code,
            links,
            queues,
            launch_plan,
            events,
            next,
            checks: 0,
            here,
            over,
            helpers: BTreeMap::new(),
        };
        builder.begin()?;
        builder.commands(commands)?;
        builder.end()?;
        Ok(builder.launch_plan)
    }

    /// The stream that begins, and that ends last.
    pub(super) fn main(&self) -> &Stream {
        &self.streams[0]
    }
}

/// Whether all of a value's initial contents are zeros.
fn is_zero(value: &Value) -> bool {
    value.tensors.iter().all(|slot| matches!(slot.init, None | Some(Init::Zeros)))
}

impl Builder<'_> {
    pub(super) fn act(&mut self, stream: usize, task: Operation) {
        if !matches!(task, Operation::Mark(_) | Operation::Record(_)) {
            self.here[stream] = None;
        }
        self.launch_plan.actions.push(Action { stream, task });
    }

    pub(super) fn gpu_of(&self, stream: usize) -> usize {
        let ordinal = self.launch_plan.streams[stream].gpu.ordinal;
        self.assignment.gpus.iter().position(|gpu| gpu.ordinal == ordinal).unwrap_or(0)
    }

    /// A new event, over from here on.
    pub(super) fn record(&mut self, stream: usize) -> Result<usize, RunError> {
        let event = self.launch_plan.events.len();
        self.launch_plan.events.push(Event::new(&self.launch_plan.streams[stream].gpu)?);
        self.act(stream, Operation::Record(event));
        Ok(event)
    }

    /// A mark: the time at which the stream comes here. Behind another one there is no need of a new one.
    pub(super) fn mark(&mut self, stream: usize) -> Result<usize, RunError> {
        if let Some(mark) = self.here[stream] {
            return Ok(mark);
        }
        let mark = self.launch_plan.marks.len();
        self.launch_plan.marks.push(Event::timed(&self.launch_plan.streams[stream].gpu)?);
        self.act(stream, Operation::Mark(mark));
        self.here[stream] = Some(mark);
        Ok(mark)
    }

    pub(super) fn is_step(&self) -> bool {
        self.looks.list == List::Step
    }

    fn begin(&mut self) -> Result<(), RunError> {
        let n_gpus = self.assignment.gpus.len();
        let first = self.record(0)?;
        for gpu in 0..n_gpus {
            if gpu > 0 {
                self.act(gpu, Operation::Wait(first));
            }
            if self.is_step() {
                let (to, from) = self.arenas.numbers(gpu);
                self.act(gpu, Operation::Copy { to, from });
                if let Some((errors, _)) = self.arenas.errors(gpu) {
                    self.act(gpu, Operation::Fill(errors, 0));
                }
                let start = self.mark(gpu)?;
                self.launch_plan.starts.push(start);
            }
            let begun = self.record(gpu)?;
            for stream in n_gpus..n_gpus + self.queues.len() {
                if self.gpu_of(stream) == gpu {
                    self.act(stream, Operation::Wait(begun));
                }
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), RunError> {
        let n_gpus = self.assignment.gpus.len();
        for stream in n_gpus..n_gpus + self.queues.len() {
            let ended = self.record(stream)?;
            self.act(self.gpu_of(stream), Operation::Wait(ended));
        }
        for gpu in 0..n_gpus {
            if let Some((from, to)) = self.arenas.errors(gpu).filter(|_| self.is_step()) {
                self.act(gpu, Operation::Copy { to, from });
            }
            if gpu > 0 {
                let ended = self.record(gpu)?;
                self.act(0, Operation::Wait(ended));
            }
        }
        Ok(())
    }

    fn commands(&mut self, commands: &CommandList) -> Result<(), RunError> {
        let n_gpus = self.assignment.gpus.len();
        for call in &commands.calls {
            match call {
                Call::Wait(queue, event) => {
                    if let Some(event) = self.events[event.0 as usize] {
                        self.act(n_gpus + queue.0 as usize, Operation::Wait(event));
                    }
                }
                Call::Record(queue, event) => {
                    let place = self.record(n_gpus + queue.0 as usize)?;
                    self.events[event.0 as usize] = Some(place);
                }
                Call::Work(queue, work) => self.work(n_gpus + queue.0 as usize, self.queues[queue.0 as usize], work)?,
            }
        }
        Ok(())
    }

    pub(super) fn area(&self, home: Home) -> Area {
        let place = self.program.devices[home.device.index()].buffers[home.buffer.index()];
        self.arenas.area(home.device, place)
    }

    fn work(&mut self, stream: usize, queue: Queue, work: &Work) -> Result<(), RunError> {
        let task = match work {
            Work::Run { device, exec, microbatch, operands } => {
                return self.run((stream, queue), (*device, *exec, *microbatch), *operands);
            }
            Work::Together { collective, dtype, parts } => {
                return self.together(stream, (queue, *collective, *dtype), parts, work);
            }
            Work::Fill { home, value, with: Fill::Init } if !is_zero(self.program.value(*value)) => {
                Operation::Init(self.area(*home), *value, home.device)
            }
            Work::Fill { home, .. } => match self.area(*home) {
                area if area.gpu().is_none() => Operation::Zero(area),
                area => Operation::Fill(area, 0),
            },
            Work::Load { home, value, microbatch } => {
                let from = self.arenas.loaded(*value, *microbatch);
                Operation::Copy { to: self.area(*home).part(0, from.bytes), from }
            }
            Work::Emit { home, number, .. } => {
                let bytes = self.program.loss_type().bytes().to_usize();
                let to = self.arenas.loss(home.device.index() - self.launch_plan.own.start, *number as usize, bytes);
                Operation::Copy { to, from: self.area(*home).part(0, bytes) }
            }
            Work::Copy { from, to } => self.copied(stream, self.area(*to), self.area(*from)),
            Work::Spoil { home } => Operation::Fill(self.area(*home), NO_NUMBER),
            Work::Send { from, .. } => return self.transfer(stream, queue, *from, true),
            Work::Receive { to, .. } => return self.transfer(stream, queue, *to, false),
        };
        self.act(stream, task);
        Ok(())
    }

    fn run(
        &mut self,
        (stream, queue): (usize, Queue),
        (device, exec, microbatch): (DeviceId, ExecId, MicrobatchId),
        operands: OperandRange,
    ) -> Result<(), RunError> {
        let (code, gpu) = (self.code, self.gpu_of(stream));
        let compiled: &Compiled = code.exec(exec);
        let own = &self.program.devices[device.index()];
        let operands: Vec<Area> =
            own.operands(operands).iter().map(|buffer| self.area(Home { device, buffer: *buffer })).collect();
        let instruction = self.next_run(device);
        let first = self.launch_plan.actions.len();
        let error = compiled.checks().then(|| {
            self.checks += 1;
            self.arenas.error(gpu, self.checks - 1)
        });
        let places = KernelArgs {
            operands: &operands,
            scratch: compiled.scratch,
            parts: &[],
            step: self.arenas.numbers_of(gpu, self.program.step_of(microbatch) as usize).address,
            error: error.map_or(0, |(on_gpu, _)| on_gpu.address),
            working: self.arenas.working(device, queue).address,
        };
        if let Some(over) = self.over[gpu].filter(|_| self.looks.one_by_one) {
            self.act(stream, Operation::Wait(over));
        }
        let mut marks = Vec::new();
        if self.is_step() {
            marks.push(self.mark(stream)?);
        }
        let mut kinds = Vec::new();
        for (position, step) in compiled.steps.iter().enumerate() {
            match &step.doing {
                Doing::Launches(launches) => launches.iter().for_each(|one| self.launch(stream, one, &places)),
                Doing::Products(calls) => {
                    calls.iter().for_each(|one| self.product((stream, queue), one, &places, device))
                }
            }
            if self.looks.profile {
                kinds.push((step.kind, step.amount));
                if position + 1 < compiled.steps.len() {
                    marks.push(self.mark(stream)?);
                }
            }
        }
        if self.is_step() {
            marks.push(self.mark(stream)?);
            let error = error.map(|(_, on_host)| on_host);
            let lane = queue.lane();
            let actions = first..self.launch_plan.actions.len();
            let ran = Ran { device, lane, instruction, exec, microbatch, gpu, actions, marks, error, kinds };
            self.launch_plan.runs.push(ran);
        }
        if self.looks.one_by_one {
            self.over[gpu] = Some(self.record(stream)?);
        }
        Ok(())
    }

    /// The place of a device's next run in its list: the command list has them in their order.
    fn next_run(&mut self, device: DeviceId) -> u32 {
        let own = &self.program.devices[device.index()];
        let list = if self.is_step() { &own.step } else { &own.setup };
        let from = self.next[device.index()];
        let mut rest = list.iter().zip(0..).skip(from as usize);
        let found = rest.find(|(one, _)| matches!(one, Instruction::Run { .. })).map_or(from, |(_, place)| place);
        self.next[device.index()] = found + 1;
        found
    }

    fn product(&mut self, (stream, queue): (usize, Queue), call: &Product, places: &KernelArgs<'_>, device: DeviceId) {
        let queued = Queued::new(self.gpu_of(stream), call, places, self.arenas.workspace(device, queue));
        self.act(stream, Operation::Product(Box::new(queued)));
    }

    pub(super) fn launch(&mut self, stream: usize, launch: &Launch, places: &KernelArgs<'_>) {
        let arguments = launch.arguments.iter().map(|argument| places.word(argument)).collect();
        let function = self.code.function(self.gpu_of(stream), launch.function);
        self.act(stream, Operation::Launch { function, shape: shape(launch), arguments });
    }
}
