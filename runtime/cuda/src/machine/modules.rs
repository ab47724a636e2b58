//! Modules: what each executable and each collective launches, compiled for the GPUs of the run and loaded there.

use super::super::cache::{cached, folder};
use super::super::commands::{Call, CommandList, Recorded, Work};
use super::super::driver::{
    DriverError, Function, Gpu, Module, Shape, compile, compiler_version, target, version as driver_version,
};
use super::super::kernels::{MemberSum, Sources};
use super::super::launch::{Argument, FunctionId, Launch};
use super::libraries::Libraries;
use crate::gemm::{Library, Product, WORKSPACE};
use crate::machine::cross_process::CrossProcess;
use crate::machine::gpu_assignment::GpuAssignment;
use crate::machine::together::sums_of;
use pipe_distributed::Amount;
use pipe_ir::digest::Digest;
use pipe_ir::ids::{DeviceId, ExecId};
use pipe_ir::kernels::{Kernel, Location, Storage, plan};
use pipe_ir::program::{Body, Exec, Program};
use pipe_ir::value::ValueKind;
use pipe_runtime::{Precision, RunError, makes_new_version, squared, updated};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One kernel of an executable's plan.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// As profiles name it.
    pub(super) kind: &'static str,
    pub(super) amount: Amount,
    pub(super) doing: Doing,
}

/// How a kernel is computed.
#[derive(Clone, Debug)]
pub(super) enum Doing {
    /// By functions of our own.
    Launches(Vec<Launch>),
    /// By the vendor's library.
    Products(Vec<Product>),
}

impl Step {
    fn launches(&self) -> &[Launch] {
        match &self.doing {
            Doing::Launches(launches) => launches,
            Doing::Products(_) => &[],
        }
    }
}

/// What an executable does.
#[derive(Clone, Debug)]
pub(super) struct Compiled {
    pub(super) steps: Vec<Step>,
    /// Which operand is scratch.
    pub(super) scratch: Option<usize>,
}

impl Compiled {
    /// Whether it looks at data, and says what is wrong with them.
    pub(super) fn checks(&self) -> bool {
        let launches = self.steps.iter().flat_map(Step::launches);
        launches.flat_map(|launch| &launch.arguments).any(|argument| *argument == Argument::Error)
    }
}

/// All code of a run.
pub(super) struct Modules {
    execs: BTreeMap<ExecId, Compiled>,
    sums: BTreeMap<MemberSum, Launch>,
    libraries: Libraries,
    /// By GPU.
    functions: Vec<BTreeMap<FunctionId, Function>>,
    _modules: Vec<Module>,
}

impl Modules {
    /// Writes, compiles and loads what the command lists need; matrix products have that precision, and the libraries
    /// compute those that they can. Fails if an executable has no body, or there is no compiler.
    pub(super) fn new(
        program: &Program,
        recorded: &Recorded,
        assignment: &GpuAssignment,
        (products, mut libraries): (Precision, Libraries),
    ) -> Result<Self, RunError> {
        let mut sources = Sources::new(products);
        let (mut execs, mut sums) = (BTreeMap::new(), BTreeMap::new());
        let lists = [&recorded.setup, &recorded.step];
        for (list, call) in lists.into_iter().flat_map(|list| list.calls.iter().map(move |call| (list, call))) {
            match call {
                Call::Work(_, Work::Run { device, exec, .. }) if !execs.contains_key(exec) => {
                    let own = (*device, program.exec(*exec));
                    execs.insert(*exec, compiled(program, own, &mut sources, &mut libraries)?);
                }
                Call::Work(queue, work @ Work::Together { .. }) => {
                    let needed = match CrossProcess::of(program, assignment, list.queue(*queue), work) {
                        Some(team) => team.sums(),
                        None => sums_of(program, assignment, work),
                    };
                    for sum in needed {
                        sums.entry(sum).or_insert_with(|| sources.member_sum(sum));
                    }
                }
                _ => {}
            }
        }
        let mut code = Self { execs, sums, libraries, functions: Vec::new(), _modules: Vec::new() };
        code.load(&sources, assignment)?;
        Ok(code)
    }

    /// Of kernels that are run one by one, each as an executable of its own. Fails if there is no compiler.
    pub(super) fn of_kernels(
        kernels: &[Kernel],
        assignment: &GpuAssignment,
        products: Precision,
    ) -> Result<Self, RunError> {
        let (mut sources, mut libraries) = (Sources::new(products), Libraries::open(assignment, products)?);
        let each = kernels.iter().zip((0..).map(ExecId)).map(|(kernel, id)| {
            let steps = vec![step(kernel, &mut sources, &mut libraries)?];
            Ok((id, Compiled { steps, scratch: None }))
        });
        let execs = each.collect::<Result<_, RunError>>()?;
        let mut code = Self { execs, sums: BTreeMap::new(), libraries, functions: Vec::new(), _modules: Vec::new() };
        code.load(&sources, assignment)?;
        Ok(code)
    }

    fn load(&mut self, sources: &Sources, assignment: &GpuAssignment) -> Result<(), RunError> {
        let shared = self.shared_memory();
        let text = sources.text();
        for gpu in &assignment.gpus {
            if shared.is_empty() {
                self.functions.push(BTreeMap::new());
                continue;
            }
            let image = binary(&text, gpu).map_err(RunError::Unsupported)?;
            let module = Module::load(gpu, &image).map_err(refused)?;
            let function = |(id, bytes): (&FunctionId, &u32)| {
                let function = module.function(sources.name(*id))?;
                function.allow_shared(*bytes)?;
                Ok((*id, function))
            };
            self.functions.push(shared.iter().map(function).collect::<Result<_, RunError>>()?);
            self._modules.push(module);
        }
        Ok(())
    }

    /// All functions that are launched, with the most shared memory that any launch has.
    fn shared_memory(&self) -> BTreeMap<FunctionId, u32> {
        let of_execs = self.execs.values().flat_map(|exec| &exec.steps).flat_map(Step::launches);
        let mut most = BTreeMap::new();
        for launch in of_execs.chain(self.sums.values()) {
            let bytes = most.entry(launch.function).or_insert(0);
            *bytes = launch.shared.max(*bytes);
        }
        most
    }

    /// What an executable does.
    pub(super) fn exec(&self, id: ExecId) -> &Compiled {
        &self.execs[&id]
    }

    /// How many runs of a command list look at data.
    pub(super) fn n_checks(&self, commands: &CommandList) -> usize {
        let checks = |call: &&Call| matches!(call, Call::Work(_, Work::Run { exec, .. }) if self.exec(*exec).checks());
        commands.calls.iter().filter(checks).count()
    }

    /// A sum that a collective needs.
    pub(super) fn sum(&self, sum: &MemberSum) -> &Launch {
        &self.sums[sum]
    }

    /// What is said of the library of matrix products, once.
    pub(super) fn note(&mut self) -> Option<String> {
        self.libraries.note()
    }

    /// What multiplies matrices, in the words of reports.
    pub(super) fn multiplied_by(&self) -> String {
        self.libraries.told()
    }

    /// The library of matrix products on a GPU.
    pub(super) fn library(&self, gpu: usize) -> Option<&Library> {
        self.libraries.of(gpu)
    }

    /// Bytes that each device's products need beside its arena.
    pub(super) fn workspace(&self) -> usize {
        let steps = self.execs.values().flat_map(|exec| &exec.steps);
        let by_library = |step: &Step| matches!(step.doing, Doing::Products(_));
        if steps.into_iter().any(by_library) { WORKSPACE } else { 0 }
    }

    /// A function on a GPU.
    pub(super) fn function(&self, gpu: usize, id: FunctionId) -> Function {
        self.functions[gpu][&id]
    }
}

/// The shape of a launch.
pub(super) const fn shape(launch: &Launch) -> Shape {
    Shape { grid: launch.grid, block: launch.block, shared: launch.shared }
}

fn compiled(
    program: &Program,
    (device, exec): (DeviceId, &Exec),
    sources: &mut Sources,
    libraries: &mut Libraries,
) -> Result<Compiled, RunError> {
    let operand_of = |kind| exec.operands.iter().position(|operand| program.value(operand.value).kind == kind);
    let scratch = operand_of(ValueKind::Scratch);
    match &exec.body {
        Body::Abstract => Err(RunError::Unsupported(format!(
            "@{} has no body: a schedule without a model runs on the null backend only",
            exec.name()
        ))),
        Body::Graph(graph) => {
            let kernels = plan(graph).kernels;
            let steps = kernels.iter().map(|kernel| step(kernel, sources, libraries));
            Ok(Compiled { steps: steps.collect::<Result<_, RunError>>()?, scratch })
        }
        Body::Optimizer => {
            let Some(training) = &program.training else {
                return Err(RunError::Unsupported(
                    "an update needs training settings, but the program has none".to_owned(),
                ));
            };
            let part = updated(program, exec);
            let norm = operand_of(ValueKind::GradientNorm).and_then(|norm| u32::try_from(norm).ok());
            let how = (makes_new_version(exec), norm.zip(training.clip_norm));
            let doing = Doing::Launches(sources.optimizer(&training.optimizer, &part, how));
            let (elements, bytes) = (part.by_number() / part.dtype.bytes().0, part.by_number());
            let amount = Amount::of_update(&training.optimizer, elements, bytes);
            let mut steps = vec![Step { kind: "optimizer", amount, doing }];
            steps.retain(|step| !step.launches().is_empty());
            for (piece, matrices) in part.pieces.iter().filter_map(|piece| Some((piece, piece.matrices?))) {
                let operand = scratch.and_then(|scratch| u32::try_from(scratch).ok()).unwrap_or_default();
                let made = matrices.orthogonalization(operand);
                let places = [made.from, made.to].map(|offset| Location { place: Storage::Operand(operand), offset });
                let what = (&part, piece, matrices);
                let [momentum, last] = sources.matrices(&training.optimizer, what, how, places);
                let own = |amount, launch| Step { kind: "optimizer", amount, doing: Doing::Launches(vec![launch]) };
                steps.push(own(Amount::of_muon_momentum(matrices), momentum));
                for kernel in &made.kernels {
                    steps.push(step(kernel, sources, libraries)?);
                }
                steps.push(own(Amount::of_muon_step(matrices), last));
            }
            Ok(Compiled { steps, scratch })
        }
        Body::Squares => {
            let part = squared(program, device, exec);
            let bytes: u64 = part.bytes.iter().map(|own| own.len() as u64).sum();
            let amount = Amount { flops: 0, bytes, elements: bytes / part.dtype.bytes().0 };
            let doing = Doing::Launches(sources.squares(&part));
            Ok(Compiled { steps: vec![Step { kind: "norm of gradients", amount, doing }], scratch })
        }
    }
}

fn step(kernel: &Kernel, sources: &mut Sources, libraries: &mut Libraries) -> Result<Step, RunError> {
    let doing = match libraries.prepare(kernel)? {
        Some(products) => Doing::Products(products),
        None => Doing::Launches(sources.launches(kernel)),
    };
    Ok(Step { kind: kernel.kind(), amount: Amount::of(kernel), doing })
}

/// Why a driver does not load what was compiled: a compiler may be too new for it.
fn refused(error: DriverError) -> RunError {
    match (driver_version(), compiler_version()) {
        (Ok(driver), Ok(compiler)) if compiler > driver => RunError::Unsupported(format!(
            "{error}: NVRTC {}.{} has compiled the kernels, and the driver is that of CUDA {}.{}, which is older \
             (`pip install nvidia-cuda-nvrtc-cu12` is NVRTC for CUDA 12)",
            compiler.0, compiler.1, driver.0, driver.1
        )),
        _ => error.into(),
    }
}

/// The compiled text for a GPU: from the cache, or made now.
fn binary(text: &str, gpu: &Arc<Gpu>) -> Result<Vec<u8>, String> {
    let target = target(gpu.capability())?;
    let (major, minor) = compiler_version()?;
    let digest = Digest::default().and(text.as_bytes());
    // Two digests of different beginnings: one of 64 bits is short for something that is trusted.
    let second = Digest::default().and(b"pipec").and(text.as_bytes());
    let kind = if target.is_known { "sm" } else { "compute" };
    let key = format!("{digest}{second}-{kind}_{}-nvrtc-{major}.{minor}", target.capability);
    cached(folder().as_deref(), &key, || compile(text, target))
}
