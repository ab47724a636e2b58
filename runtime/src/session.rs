//! Sessions: a verified program at work, one thread per device, driven step by step from the calling thread.
//!
//! Between two steps all device threads are idle, so the host may read and write weights there.

use crate::arena::Arena;
use crate::channel::{Channel, Endpoint, Tokens};
use crate::checkpoint::NamedTensor;
use crate::data::Data;
use crate::device::{Context, Device};
use crate::devices;
use crate::executor::{Executor, Failure, Ports};
use crate::fault::Fault;
use crate::ledger::Ledger;
use crate::random::{Counter, mix};
use crate::trace::{DeviceStep, Step};
use pipe_ir::ids::{DeviceId, MicrobatchId, ValueId};
use pipe_ir::instruction::Instruction;
use pipe_ir::program::{Buffer, Program};
use pipe_ir::units::Bytes;
use pipe_ir::value::{TensorSlot, ValueKind};
use pipe_ir::verify::Verified;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// What executes the instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backend {
    /// Counts bytes and instructions, computes nothing.
    Null,
    /// Computes on CPU threads, one per device.
    Cpu,
}

/// How to run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// On what.
    pub backend: Backend,
    /// Delays every queue and instruction at random from this seed, and checks every buffer.
    pub stress: Option<u64>,
}

/// Why a run cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A device failed; all have stopped.
    #[error("{0}")]
    Device(String),
    /// The program has no bodies to compute with.
    #[error("this program was compiled without a model: it runs on the null device only")]
    NoModel,
    /// A checkpoint does not fit the program.
    #[error("{0}")]
    State(String),
}

enum Command {
    SetUp,
    Step(u64),
}

type Outcome = Result<DeviceStep, Failure>;

/// Measured memory of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Measured {
    /// The most bytes alive at once.
    pub peak: Bytes,
    /// The end of the highest buffer.
    pub high_water: Bytes,
}

/// A program at work.
pub struct Session {
    program: Arc<Verified>,
    arenas: Vec<Arc<Arena>>,
    commands: Vec<mpsc::Sender<Command>>,
    outcomes: mpsc::Receiver<(DeviceId, Outcome, Measured)>,
    measured: Vec<Measured>,
    threads: Vec<JoinHandle<()>>,
    fault: Arc<Fault>,
}

impl Session {
    /// Starts the device threads and runs the set-up lists.
    ///
    /// # Errors
    /// If an arena cannot be allocated, the program cannot be computed, or a device fails in its set-up.
    pub fn start(program: Verified, data: Data, options: Options) -> Result<Self, RunError> {
        let context = Arc::new(Context {
            seed: program.program().training.as_ref().map_or(0, |training| training.seed),
            program: Arc::new(program),
            data,
        });
        let epoch = Instant::now();
        let fault = Arc::new(Fault::default());
        let endpoints = open_endpoints(context.program(), options.backend)?;
        let mut ports = open_channels(context.program(), &endpoints, options.stress);
        let (reports, outcomes) = mpsc::channel();
        let mut session = Self {
            program: Arc::clone(&context.program),
            arenas: endpoints.iter().map(|endpoint| Arc::clone(&endpoint.arena)).collect(),
            commands: Vec::new(),
            outcomes,
            measured: vec![Measured::default(); endpoints.len()],
            threads: Vec::new(),
            fault: Arc::clone(&fault),
        };
        for (index, endpoint) in endpoints.iter().enumerate().rev() {
            let id = DeviceId::from_index(index);
            let (inbound, outbound) = ports.pop().expect("one pair of ports per device");
            let executor = Executor {
                id,
                device: open_device(options.backend, &context, id, endpoint)?,
                context: Arc::clone(&context),
                tokens: Arc::clone(&endpoint.tokens),
                inbound,
                outbound,
                ledger: Ledger::new(options.stress.is_some()),
                fault: Arc::clone(&fault),
                epoch,
                delays: options.stress.map(|seed| Counter::new(mix(seed, index as u64), "instructions")),
                contents: vec![MicrobatchId(0); context.program().devices[index].buffers.len()],
                operands: Vec::new(),
            };
            session.spawn(executor, &reports);
        }
        session.commands.reverse();
        session.all(|| Command::SetUp)?;
        Ok(session)
    }

    fn spawn(&mut self, mut executor: Executor, reports: &mpsc::Sender<(DeviceId, Outcome, Measured)>) {
        let (sender, commands) = mpsc::channel();
        let reports = reports.clone();
        self.commands.push(sender);
        self.threads.push(thread::spawn(move || {
            executor.tokens.claim();
            for command in commands {
                let outcome = obey(&mut executor, &command);
                let measured = Measured { peak: executor.ledger.peak(), high_water: executor.ledger.high_water() };
                if reports.send((executor.id, outcome, measured)).is_err() {
                    break;
                }
            }
        }));
    }

    /// Runs one optimizer step on all devices. Steps count from 0.
    ///
    /// # Errors
    /// If a device fails; the session is then over.
    pub fn step(&mut self, step: u64) -> Result<Step, RunError> {
        self.all(|| Command::Step(step))
    }

    /// Gives every device a command and collects what each has to say.
    fn all(&mut self, command: impl Fn() -> Command) -> Result<Step, RunError> {
        let gone = || RunError::Device("a device thread has ended before its time".to_owned());
        for commands in &self.commands {
            commands.send(command()).map_err(|_| gone())?;
        }
        let mut step = Step { devices: vec![DeviceStep::default(); self.commands.len()] };
        for _ in 0..self.commands.len() {
            let (device, outcome, measured) = self.outcomes.recv().map_err(|_| gone())?;
            self.measured[device.index()] = measured;
            match outcome {
                Ok(report) => step.devices[device.index()] = report,
                Err(Failure::Elsewhere) => {}
                Err(Failure::Here(message)) => self.fault.raise(message),
            }
        }
        self.fault.message().map_or(Ok(step), |message| Err(RunError::Device(message)))
    }

    /// Measured memory of each device, so far.
    #[must_use]
    pub fn measured(&self) -> &[Measured] {
        &self.measured
    }

    /// The program at work.
    #[must_use]
    pub fn program(&self) -> &Program {
        self.program.program()
    }

    /// The tensors of every persistent value of a kind, in the order of the program's values.
    #[must_use]
    pub fn read(&self, kind: ValueKind) -> Vec<NamedTensor> {
        let mut tensors = Vec::new();
        self.each_tensor(kind, |slot, bytes| {
            let data = bytes
                .chunks_exact(4)
                .map(|element| f32::from_ne_bytes([element[0], element[1], element[2], element[3]]));
            tensors.push(NamedTensor { name: slot.name.clone(), shape: slot.ty.shape.clone(), data: data.collect() });
        });
        tensors
    }

    /// Replaces the tensors of every persistent value of a kind by those of the same name; others in `tensors` are ignored.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape; nothing is then certain about the weights, so the session must end.
    pub fn write(&mut self, kind: ValueKind, tensors: &[NamedTensor]) -> Result<(), RunError> {
        let mut first_error = None;
        self.each_tensor(kind, |slot, bytes| match tensors.iter().find(|tensor| tensor.name == slot.name) {
            Some(tensor) if tensor.shape == slot.ty.shape => bytes.copy_from_slice(bytemuck::cast_slice(&tensor.data)),
            Some(tensor) => {
                first_error.get_or_insert(format!(
                    "the checkpoint's `{}` has shape {:?}, the model's {:?}",
                    slot.name, tensor.shape, slot.ty.shape
                ));
            }
            None => {
                first_error.get_or_insert(format!("the checkpoint has no tensor `{}`", slot.name));
            }
        });
        first_error.map_or(Ok(()), |error| Err(RunError::State(error)))
    }

    fn each_tensor(&self, kind: ValueKind, mut visit: impl FnMut(&TensorSlot, &mut [u8])) {
        for (index, value) in self.program().values.iter().enumerate().filter(|(_, value)| value.kind == kind) {
            let Some((device, buffer)) = self.home(ValueId::from_index(index)) else { continue };
            let bytes = self.arenas[device].bytes_mut(buffer);
            if bytes.is_empty() {
                continue;
            }
            for slot in &value.tensors {
                let start = slot.offset.to_usize();
                visit(slot, &mut bytes[start..start + slot.ty.bytes().to_usize()]);
            }
        }
    }

    /// Where a persistent value lives.
    fn home(&self, value: ValueId) -> Option<(usize, Buffer)> {
        self.program().devices.iter().enumerate().find_map(|(index, device)| {
            let buffer = device.setup.iter().find_map(|instruction| match instruction {
                Instruction::Fill { buffer, value: filled, .. } if *filled == value => Some(*buffer),
                _ => None,
            });
            buffer.map(|buffer| (index, device.buffers[buffer.index()]))
        })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.commands.clear();
        for thread in self.threads.drain(..) {
            // A panic in a device thread was caught and reported as its outcome.
            drop(thread.join());
        }
    }
}

/// Runs a command; a failure or a panic stops the other devices too.
fn obey(executor: &mut Executor, command: &Command) -> Outcome {
    let outcome = catch_unwind(AssertUnwindSafe(|| match command {
        Command::SetUp => executor.set_up(),
        Command::Step(step) => executor.step(*step),
    }));
    let outcome = outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Err(Failure::Here(format!("{} stopped by a bug in pipec: {text}", executor.id)))
    });
    if let Err(Failure::Here(message)) = &outcome {
        executor.fault.raise(message.clone());
    }
    outcome
}

fn open_endpoints(program: &Program, backend: Backend) -> Result<Vec<Endpoint>, RunError> {
    let endpoint = |device: &pipe_ir::program::DeviceProgram| {
        let arena = match backend {
            Backend::Null => Ok(Arena::counting()),
            Backend::Cpu => Arena::allocate(device.arena),
        };
        Ok(Endpoint {
            arena: Arc::new(arena.map_err(RunError::Device)?),
            tokens: Arc::new(Tokens::new(device.n_tokens)),
        })
    };
    program.devices.iter().map(endpoint).collect()
}

fn open_device(
    backend: Backend,
    context: &Context,
    id: DeviceId,
    endpoint: &Endpoint,
) -> Result<Box<dyn Device>, RunError> {
    match backend {
        Backend::Null => Ok(Box::new(devices::null::Null)),
        Backend::Cpu => {
            let arena = Arc::clone(&endpoint.arena);
            let _ = (context, id, arena);
            Err(RunError::NoModel)
        }
    }
}

/// A channel for every pair of devices and class that the program sends on: inbound and outbound ports by device.
fn open_channels(program: &Program, endpoints: &[Endpoint], stress: Option<u64>) -> Vec<(Ports, Ports)> {
    let n_devices = endpoints.len();
    let mut ports: Vec<_> = (0..n_devices).map(|_| (Ports::new(n_devices), Ports::new(n_devices))).collect();
    for (from, device) in program.devices.iter().enumerate() {
        let mut opened = std::collections::BTreeSet::new();
        for instruction in &device.step {
            let Instruction::SendStart { to, class, .. } = *instruction else { continue };
            if !opened.insert((to, class)) {
                continue;
            }
            let name = format!("{from} {to} {class:?}");
            let delays = stress.map(|seed| Counter::new(seed, &name));
            let channel = Channel::new(endpoints[from].clone(), endpoints[to.index()].clone(), delays);
            let channel = Arc::new(channel);
            ports[to.index()].0.connect(DeviceId::from_index(from), class, Arc::clone(&channel));
            ports[from].1.connect(to, class, channel);
        }
    }
    ports
}
