//! Kernels at sizes at which indices of 32 bits overflow: elements, and bytes, before, at and behind number 2^31 and
//! number 2^32.
//!
//! Each case is a small tensor operation, mapped into a large one: element `i` along a stretched axis is element
//! `places[i]` of the large tensor. The large tensors are sparse virtual memory, zero everywhere else, so sums along a
//! stretched axis only add zeros. Only the blocks that compute mapped elements run, and their results must equal those
//! of the small case.

mod blocks;
mod memory;
mod table;

use super::emulated::Emulated;
use super::module::{Address, is_on_gpu};
use crate::kernels::Sources;
use crate::launch::{Launch, WORKING_BYTES};
use blocks::{Places, blocks};
use memory::Sparse;
use pipe_ir::graph::{DType, Graph, Op};
use pipe_ir::ids::NodeId;
use pipe_ir::kernels::{Fusion, Storage, plan_with};
use pipe_kernel_cases::{Case, interpreter};
use pipe_runtime::Precision;
use pipe_runtime::numbers::{decode, encode};

/// A stretched axis: its large size, and the index there of each element of the small axis.
#[derive(Clone, Debug)]
struct Axis {
    size: u64,
    places: Vec<u64>,
}

impl Axis {
    /// `count` indices: the first and last ones, and those around 2^31 and 2^32 elements and f32 bytes, in a tensor
    /// with `step` elements for each index.
    fn new(count: usize, size: u64, step: u64) -> Self {
        let ends = [0, 1, size - 2, size - 1];
        let around = [29, 30, 31, 32].map(|power| (1_u64 << power) / step).into_iter().filter(|place| *place > 0);
        let mut places: std::collections::BTreeSet<u64> =
            around.flat_map(|place| [place - 1, place, place + 1]).filter(|place| *place < size).chain(ends).collect();
        assert!(places.len() <= count, "{} places instead of {count}", places.len());
        (1..).map(|nth| nth * (size / 41)).take_while(|place| *place < size).for_each(|place| {
            if places.len() < count {
                places.insert(place);
            }
        });
        assert_eq!(places.len(), count, "an axis is so long that it has them all");
        Self { size, places: places.into_iter().collect() }
    }

    /// The last `count` indices.
    fn end(count: u64, size: u64) -> Self {
        Self { size, places: (size - count..size).collect() }
    }
}

/// A tensor of a case.
struct Tensor {
    dtype: DType,
    /// Of the small case.
    shape: Vec<u64>,
    before: Vec<f64>,
    /// Of an output.
    after: Option<Vec<f64>>,
}

/// A case with the launches at its large size.
struct Stretched {
    name: String,
    axes: Vec<Axis>,
    tensors: Vec<Tensor>,
    launches: Vec<Launch>,
    scratch: u64,
    /// Numbers of the step.
    step: Vec<u8>,
    tolerance: f64,
    /// Along each axis of the result, elements before this one are not compared: what they see begins before the case.
    from: Vec<u64>,
    /// Whether the kernel reaches large offsets only by short steps, so that 32-bit indices are enough.
    is_walked: bool,
}

impl Stretched {
    /// The axis that a small size stands for.
    fn axis(&self, size: u64) -> Option<&Axis> {
        self.axes.iter().find(|axis| axis.places.len() as u64 == size)
    }

    fn large(&self, shape: &[u64]) -> Vec<u64> {
        shape.iter().map(|size| self.axis(*size).map_or(*size, |axis| axis.size)).collect()
    }

    fn places(&self, shape: &[u64]) -> Places {
        let along = |size: &u64| self.axis(*size).map_or_else(|| (0..*size).collect(), |axis| axis.places.clone());
        Places { sizes: self.large(shape), along: shape.iter().map(along).collect() }
    }

    /// The case of a graph: results are those of plain arithmetic times a factor.
    fn new(name: &str, axes: &[Axis], case: &Case, (sources, factor): (&mut Sources, f64)) -> Self {
        let expected = interpreter::run(&case.graph, &case.operands);
        let scaled = |numbers: Vec<f64>| numbers.into_iter().map(|number| number * factor).collect();
        let tensors = case.operands.iter().zip(expected).enumerate().map(|(position, (operand, after))| Tensor {
            dtype: operand.dtype,
            shape: shape_of(&case.graph, position),
            before: operand.numbers.clone(),
            after: after.map(scaled),
        });
        let is_half = case.operands.iter().any(|operand| operand.dtype == DType::BF16);
        let mut own = Self {
            name: name.to_owned(),
            axes: axes.to_vec(),
            tensors: tensors.collect(),
            launches: Vec::new(),
            scratch: 0,
            step: Vec::new(),
            tolerance: if is_half || sources.precision != Precision::Fp32 { 2e-2 } else { 1e-5 },
            from: Vec::new(),
            is_walked: false,
        };
        own.name_places(&case.graph);
        let mut graph = case.graph.clone();
        graph.nodes.iter_mut().for_each(|node| node.ty.shape = own.large(&node.ty.shape));
        let plan = plan_with(&graph, Fusion::On);
        own.launches = plan.kernels.iter().flat_map(|kernel| sources.launches(kernel)).collect();
        own.scratch = plan.scratch.0;
        own
    }

    /// Indices into a long axis name places along it.
    fn name_places(&mut self, graph: &Graph) {
        let inputs = |id: &NodeId| match graph.node(*id).op {
            Op::Input { operand, .. } => Some(operand as usize),
            _ => None,
        };
        for node in &graph.nodes {
            let of = |input: usize| graph.node(node.inputs[input]).ty.shape.clone();
            let (indices, size) = match node.op {
                Op::Gather => (1, of(0)[0]),
                Op::ScatterAdd => (0, node.ty.shape[0]),
                _ => continue,
            };
            let Some(places) = self.axis(size).map(|axis| axis.places.clone()) else { continue };
            let tensor = &mut self.tensors[inputs(&node.inputs[indices]).expect("indices are an operand")];
            tensor.before.iter_mut().for_each(|index| *index = places[*index as usize] as f64);
        }
    }

    /// What is wrong with the results.
    fn check(&self, module: &Emulated) -> Result<(), String> {
        let bytes = |tensor: &Tensor| self.large(&tensor.shape).iter().product::<u64>() * tensor.dtype.bytes().0;
        let sizes: Vec<u64> = self.tensors.iter().map(bytes).collect();
        let n = sizes.len();
        let more = [self.scratch, WORKING_BYTES.0, 8, 64];
        let memory = Sparse::new(&sizes.iter().copied().chain(more).collect::<Vec<_>>());
        let mut memory = memory.expect("as much address space as there was at first");
        let [scratch, working, error, step] = [n, n + 1, n + 2, n + 3];
        memory.write(step, 0, &self.step);
        for (position, tensor) in self.tensors.iter().enumerate() {
            let element = tensor.dtype.bytes().0;
            let numbers = encode(tensor.dtype, tensor.before.iter().copied());
            let places = self.places(&tensor.shape).elements();
            for (place, number) in places.into_iter().zip(numbers.chunks(element as usize)) {
                memory.write(position, place * element, number);
            }
        }
        let inputs: Vec<Places> = self.tensors.iter().map(|tensor| self.places(&tensor.shape)).collect();
        let results = self.tensors.iter().filter(|tensor| tensor.after.is_some());
        for launch in &self.launches {
            let name = module.name(launch);
            let mut own: Vec<u64> =
                results.clone().flat_map(|result| blocks(name, launch, &self.places(&result.shape), &inputs)).collect();
            own.sort_unstable();
            own.dedup();
            if name.starts_with("cross_entropy") {
                // Losses are added up by the block that ends last: those that do not run have ended, and found 0.
                let ended = launch.grid[0] - u32::try_from(own.len()).expect("few blocks");
                memory.write(working, 0, &ended.to_ne_bytes());
            }
            let address = |address| match address {
                Address::Place(at) => match at.place {
                    Storage::Operand(operand) => memory.address(operand as usize, at.offset.0),
                    Storage::Scratch => memory.address(scratch, at.offset.0),
                },
                Address::Part(member) => memory.address(member as usize, 0),
                Address::Working => memory.address(working, 0),
                Address::Error => memory.address(error, 0),
                Address::Step => memory.address(step, 0),
            };
            module.launch_some(launch, &own, &address);
        }
        if memory.read(error, 0, 8) != [0; 8] {
            return Err(format!("{}: an error is noted", self.name));
        }
        (0..n).try_for_each(|position| self.compare(position, &memory))
    }

    fn compare(&self, position: usize, memory: &Sparse) -> Result<(), String> {
        let tensor = &self.tensors[position];
        let Some(expected) = &tensor.after else { return Ok(()) };
        let element = tensor.dtype.bytes().0;
        let scale = expected.iter().fold(1e-3_f64, |scale, x| scale.max(x.abs()));
        for (nth, (place, expected)) in self.places(&tensor.shape).elements().into_iter().zip(expected).enumerate() {
            if !self.is_compared(&tensor.shape, nth as u64) {
                continue;
            }
            let found = decode(tensor.dtype, memory.read(position, place * element, element))[0];
            let is_close = (found - expected).abs() <= self.tolerance * scale.max(expected.abs());
            if !is_close {
                let name = &self.name;
                return Err(format!("{name}: element {place} of operand {position} is {found} instead of {expected}"));
            }
        }
        Ok(())
    }

    fn is_compared(&self, shape: &[u64], mut element: u64) -> bool {
        for (axis, size) in shape.iter().enumerate().rev() {
            if element % size < self.from.get(axis).copied().unwrap_or(0) {
                return false;
            }
            element /= size;
        }
        true
    }
}

/// Of an operand.
fn shape_of(graph: &Graph, operand: usize) -> Vec<u64> {
    let is_own = |op: &Op| matches!(op, Op::Input { operand: own, .. } if *own as usize == operand);
    let read = graph.nodes.iter().find(|node| is_own(&node.op)).map(|node| node.ty.shape.clone());
    let stored = graph.stores.iter().find(|store| store.operand as usize == operand);
    read.or_else(|| stored.map(|store| graph.node(store.node).ty.shape.clone())).expect("an operand of the graph")
}

#[test]
fn indices_have_64_bits() {
    let mut sources = Sources::default();
    let takes_all = std::env::var("PIPEC_ALL").is_ok_and(|all| all != "0");
    let one_in = if takes_all { 1 } else { 6 };
    let all: Vec<Stretched> = table::all().into_iter().step_by(one_in).map(|make| make(&mut sources)).collect();
    if is_on_gpu() {
        eprintln!("no GPU has memory for tensors of this size");
        return;
    }
    // As much as any case takes.
    if Sparse::new(&[1 << 40]).is_none() {
        return;
    }
    let Some(module) = Emulated::new(sources.clone()) else { return };
    let wrong: Vec<String> = all.iter().filter_map(|case| case.check(&module).err()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    // Every case must fail with 32-bit indices, signed and unsigned.
    for index in ["unsigned", "int"].iter().take(if takes_all { 2 } else { 1 }) {
        let narrow = Emulated::narrow(sources.clone(), index).expect("a compiler");
        let judged = all.iter().filter(|case| !case.is_walked);
        let unseen: Vec<&str> =
            judged.filter(|case| case.check(&narrow).is_ok()).map(|case| case.name.as_str()).collect();
        assert!(unseen.is_empty(), "nobody notices that indices are of type {index}: {unseen:?}");
    }
}
