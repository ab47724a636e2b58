//! A step of a layer of each family of models, at the sizes of published ones: every task on the processor and on the
//! emulator, from the same operands.

mod shapes;

use super::arena::Arena;
use super::module::{Address, Module};
use crate::kernels::{Sources, fault};
use crate::launch::{Launch, WORKING_BYTES};
use pipe_compiler::{Request, compile};
use pipe_distributed::memory::{Memory, Region};
use pipe_ir::graph::DType;
use pipe_ir::ids::BufferId;
use pipe_ir::instruction::{Fill, Instruction};
use pipe_ir::kernels::{Extent, Kernel, KernelPlan, Location, RowOp, Storage, plan};
use pipe_ir::program::Body;
use pipe_ir::units::Bytes;
use pipe_ir::verify::Verified;
use pipe_runtime::data::Data;
use pipe_runtime::numbers::decode;
use pipe_runtime::{init, run_plan};
use pipe_syntax::source::{Source, Sources as Texts};
use shapes::{SHAPES, Shape};
use std::collections::BTreeMap;
use std::path::Path;

/// A shape in one precision.
struct Step {
    name: String,
    program: Verified,
    /// Of each executable that has a graph.
    plans: Vec<Option<Planned>>,
}

/// Kernels, and what to launch for each.
struct Planned {
    kernels: Vec<(Kernel, Vec<Launch>)>,
    scratch: Bytes,
}

impl Step {
    fn new(shape: &Shape, dtype: DType, sources: &mut Sources) -> Result<Self, String> {
        let (name, config) = (format!("{} in {dtype}", shape.name), shape.config());
        let root = Source { name: "x.pipe".to_owned(), text: shape.pipeline(dtype) };
        let load = |_: &str| Ok(config.clone());
        let compilation = compile(&mut Texts::default(), root, &load, &Request::default());
        let Some(program) = compilation.program else {
            let found: Vec<&str> = compilation.diagnostics.iter().map(|one| one.message.as_str()).collect();
            return Err(format!("{name}: {}", found.join("; ")));
        };
        let planned = |body: &Body| match body {
            Body::Graph(graph) => {
                let KernelPlan { kernels, scratch } = plan(graph);
                let kernels = kernels.into_iter().map(|kernel| {
                    let launches = sources.launches(&kernel);
                    (kernel, launches)
                });
                Some(Planned { kernels: kernels.collect(), scratch })
            }
            Body::Abstract | Body::Optimizer | Body::Squares => None,
        };
        let plans = program.program().execs.iter().map(|exec| &exec.body).map(planned).collect();
        Ok(Self { name, program, plans })
    }

    /// Runs a step on the processor, and each kernel beside that on the emulator.
    fn check(&self, module: &Module) {
        let program = self.program.program();
        let [device] = program.devices.as_slice() else { panic!("one device") };
        let memory = Memory::new(device.arena).expect("memory");
        let region = |buffer: BufferId| {
            let place = device.buffers[buffer.index()];
            memory.region(place.offset, place.bytes)
        };
        let data = Data::synthetic(program);
        let mut n_tasks = 0;
        for instruction in device.setup.iter().chain(&device.step) {
            match *instruction {
                Instruction::Fill { buffer, value, with } => {
                    region(buffer).bytes_mut().fill(0);
                    if with == Fill::Init {
                        init::fill(program.value(value), 7, (region(buffer), 0));
                    }
                }
                Instruction::Load { buffer, value, microbatch } => {
                    data.load(0, value, microbatch, region(buffer).bytes_mut()).expect("numbers");
                }
                Instruction::Run { exec, operands, .. } => {
                    let Some(planned) = &self.plans[exec.index()] else { continue };
                    let operands = device.operands(operands).iter().map(|own| region(*own)).collect();
                    let name = format!("{}, {}", self.name, program.exec(exec).name());
                    Task::new(name, operands, planned.scratch).check(module, planned);
                    n_tasks += 1;
                }
                _ => {}
            }
        }
        assert!(n_tasks > 1, "{}: a forward and a backward", self.name);
    }
}

/// A task at work.
struct Task {
    name: String,
    /// Its operands, and scratch.
    regions: Vec<Region>,
    /// Copies of them for the emulator, then its working memory and the error word.
    arena: Arena,
    _scratch: Memory,
}

impl Task {
    fn new(name: String, operands: Vec<Region>, scratch: Bytes) -> Self {
        let memory = Memory::new(scratch).expect("memory");
        let mut regions = operands;
        regions.push(memory.region(Bytes::ZERO, scratch));
        let sizes = regions.iter().map(|region| Bytes(region.len() as u64)).chain([WORKING_BYTES, Bytes(8)]);
        let arena = Arena::new(sizes.collect());
        let own = regions.len();
        [own, own + 1].into_iter().for_each(|position| arena.region(position).bytes_mut().fill(0));
        Self { name, regions, arena, _scratch: memory }
    }

    /// Runs each kernel on both sides from what the processor has, and leaves its results.
    fn check(&self, module: &Module, planned: &Planned) {
        let n = self.regions.len();
        let address = |address| match address {
            Address::Place(at) => self.arena.address(self.position(at.place), at.offset.0),
            Address::Working => self.arena.address(n, 0),
            Address::Error => self.arena.address(n + 1, 0),
            Address::Part(_) | Address::Step => panic!("{address:?} in an executable's graph"),
        };
        (0..n).for_each(|position| self.arena.region(position).copy_from(self.regions[position]));
        for (kernel, launches) in &planned.kernels {
            self.arena.launch(module, launches, &address);
            assert_eq!(fault(self.arena.region(n + 1).numbers::<u64>()[0]), None, "{}", self.name);
            let parts = self.parts(kernel);
            let before: Vec<Vec<Page>> = parts.iter().map(|part| part.written()).collect();
            let alone = KernelPlan { kernels: vec![kernel.clone()], scratch: planned.scratch };
            run_plan(alone, &self.regions).expect("the processor runs every kernel");
            for (part, before) in parts.iter().zip(before) {
                part.compare(before, kernel, &self.name);
            }
        }
        // Scratch has rooms that each side fills as it likes.
        for position in 0..n - 1 {
            let is_same = self.arena.region(position).bytes() == self.regions[position].bytes();
            assert!(is_same, "{}: operand {position} was written where no result is", self.name);
        }
    }

    /// What a kernel writes on both sides: from each result to the next one, or to the end of the operand.
    fn parts(&self, kernel: &Kernel) -> Vec<Part> {
        let mut results: Vec<(usize, usize, Option<DType>)> = results(kernel)
            .into_iter()
            .map(|(at, dtype)| (self.position(at.place), at.offset.to_usize(), dtype))
            .collect();
        results.sort_by_key(|(position, offset, _)| (*position, *offset));
        let part = |nth: usize| {
            let (position, offset, dtype) = results[nth];
            let own = self.regions[position];
            let end = results.get(nth + 1).filter(|next| next.0 == position).map_or(own.len(), |next| next.1);
            let of = |region: Region| region.part(offset, end - offset);
            Part { dtype, expected: of(own), found: of(self.arena.region(position)) }
        };
        (0..results.len()).map(part).collect()
    }

    fn position(&self, place: Storage) -> usize {
        match place {
            Storage::Operand(operand) => operand as usize,
            Storage::Scratch => self.regions.len() - 1,
        }
    }
}

/// Memory from a result on, of the processor and of the emulator. Of rooms there is no type.
struct Part {
    dtype: Option<DType>,
    expected: Region,
    found: Region,
}

/// A page that was written, by its number, and what it held before.
type Page = (usize, Vec<u8>);

/// Most pages of large operands stay what they are.
const PAGE: usize = 4096;

impl Part {
    fn page(&self, page: usize) -> [Region; 2] {
        let from = page * PAGE;
        [self.expected, self.found].map(|region| region.part(from, PAGE.min(region.len() - from)))
    }

    /// The pages that the emulator wrote before the processor does.
    fn written(&self) -> Vec<Page> {
        let differ = |page: &usize| {
            let [expected, found] = self.page(*page);
            expected.bytes() != found.bytes()
        };
        let all = (0..self.found.len().div_ceil(PAGE)).filter(differ);
        all.map(|page| (page, self.page(page)[0].bytes().to_vec())).collect()
    }

    /// Compares numbers that are not what they were before, and gives the emulator those of the processor.
    fn compare(&self, before: Vec<Page>, kernel: &Kernel, name: &str) {
        let mut pages: BTreeMap<usize, Vec<u8>> = before.into_iter().collect();
        for (page, _) in self.written() {
            // What only the processor wrote is as it was on the emulator.
            pages.entry(page).or_insert_with(|| self.page(page)[1].bytes().to_vec());
        }
        let mut written = Vec::new();
        for (page, before) in pages {
            let [expected, found] = self.page(page);
            if let Some(dtype) = self.dtype {
                let whole = before.len() / dtype.bytes().to_usize() * dtype.bytes().to_usize();
                let numbers = [&before, expected.bytes(), found.bytes()].map(|bytes| decode(dtype, &bytes[..whole]));
                written.extend((0..numbers[0].len()).filter_map(|nth| {
                    let [before, expected, found] = [0, 1, 2].map(|side| numbers[side][nth]);
                    let is_kept = before.to_bits() == expected.to_bits() && before.to_bits() == found.to_bits();
                    (!is_kept).then_some((expected, found))
                }));
            }
            found.copy_from(expected);
        }
        let Some(dtype) = self.dtype else { return };
        let tolerance = match (dtype, kernel) {
            (DType::I32, _) => 0.0,
            // What is rounded on the way to products, or to be stored, may be rounded otherwise.
            (_, Kernel::Attention(attention)) if attention.factors == DType::BF16 => 2e-2,
            (DType::BF16, _) => 1.0 / 128.0,
            // Some sums are those of 256,000 numbers.
            _ => 5e-5,
        };
        let scale = written.iter().fold(1e-30_f64, |scale, (expected, _)| scale.max(expected.abs()));
        for (expected, found) in written {
            assert!(
                found.to_bits() == expected.to_bits() || (found - expected).abs() <= tolerance * scale,
                "{name}: {found} instead of {expected}, of numbers up to {scale}, by {kernel:#?}"
            );
        }
    }
}

/// Where a kernel writes, and what; rooms hold what each side likes.
fn results(kernel: &Kernel) -> Vec<(Location, Option<DType>)> {
    match kernel {
        Kernel::Gemm(gemm) => vec![(gemm.c.at, Some(gemm.result))],
        Kernel::Elementwise(chain) => {
            let types = chain.expression.outputs.iter().map(|output| Some(output.dtype));
            chain.outputs.iter().map(|output| output.at).zip(types).collect()
        }
        Kernel::Copy { to, .. } => vec![(to.at, Some(to.dtype))],
        Kernel::Sum(sum) => vec![(sum.out, Some(sum.dtype))],
        Kernel::Rows(rows) => {
            let dtype = match (rows.op, rows.op.signature().result) {
                (RowOp::TopK { .. } | RowOp::OwnIndices { .. }, _) => DType::I32,
                (_, Extent::Rows) => rows.result,
                _ => rows.dtype,
            };
            vec![(rows.out, Some(dtype))]
        }
        Kernel::Attention(attention) => {
            let more = attention.derivatives.iter().flat_map(|more| [more.by_keys.at, more.by_values.at]);
            let all = [attention.out.at].into_iter().chain(more).map(|at| (at, Some(attention.result)));
            [(attention.room, None)].into_iter().chain(all).collect()
        }
        Kernel::Routed(routed) => vec![(routed.room, None), (routed.out, Some(routed.dtype))],
    }
}

#[test]
fn layers_of_published_sizes_compute_what_the_processor_does() {
    let takes_all = std::env::var("PIPEC_ALL").is_ok_and(|all| all != "0");
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/transformers"));
    // `card.sh` runs the test binary on machines without the repository.
    for entry in folder.read_dir().into_iter().flatten().flatten().filter(|entry| entry.path().is_dir()) {
        let family = entry.file_name();
        assert!(SHAPES.iter().any(|shape| shape.family == family), "no shape of {}", family.display());
    }
    let mut sources = Sources::default();
    // Of all others a slice, each in one precision.
    let precisions = |(nth, shape): (usize, &'static Shape)| {
        let one = nth / 11 % 2;
        let taken = if takes_all { 0..2 } else { one..one + usize::from(nth % 11 == 8) };
        taken.filter_map(|precision| shape.precisions().get(precision)).map(move |dtype| (shape, *dtype))
    };
    let (mut steps, mut refused) = (Vec::new(), Vec::new());
    for (shape, dtype) in SHAPES.iter().enumerate().flat_map(precisions) {
        match Step::new(shape, dtype, &mut sources) {
            Ok(step) => steps.push(step),
            Err(why) => refused.push(why),
        }
    }
    assert!(refused.is_empty(), "{refused:#?}");
    let Some(module) = Module::new(sources) else { return };
    steps.iter().for_each(|step| step.check(&module));
}
