//! Memory of a device: regions with bytes between them that no kernel may touch.

use super::module::{Address, Module};
use crate::launch::{COLUMN_BLOCKS, LOSS_BLOCKS, Launch, WORKING_BYTES};
use pipe_distributed::memory::{Memory, Region};
use pipe_ir::kernels::Storage;
use pipe_ir::units::Bytes;
use pipe_kernel_cases::Operand;

/// Bytes between regions.
const GAP: Bytes = Bytes(192);
/// What they hold, and regions before they are written: NaN.
const UNTOUCHED: u8 = 0xFF;

pub(super) struct Arena {
    memory: Memory,
    regions: Vec<Region>,
    sizes: Vec<Bytes>,
}

impl Arena {
    /// Regions of these sizes, whose bits are all set.
    pub(super) fn new(sizes: Vec<Bytes>) -> Self {
        let memory = Memory::new(extent(&sizes)).expect("memory");
        memory.region(Bytes::ZERO, extent(&sizes)).bytes_mut().fill(UNTOUCHED);
        let mut offset = GAP;
        let mut regions = Vec::new();
        for size in &sizes {
            regions.push(memory.region(offset, *size));
            offset += size.aligned() + GAP;
        }
        Self { memory, regions, sizes }
    }

    pub(super) fn region(&self, position: usize) -> Region {
        self.regions[position]
    }

    pub(super) fn address(&self, position: usize, offset: u64) -> u64 {
        self.regions[position].as_ptr() as u64 + offset
    }

    /// Launches kernels on what is in the regions, and fails if they write a byte between these.
    pub(super) fn launch(&self, module: &Module, launches: &[Launch], address: &dyn Fn(Address) -> u64) {
        match module {
            Module::Emulated(module) => launches.iter().for_each(|launch| module.launch(launch, address)),
            Module::Card(card) => card.launch(launches, self.all(), address),
        }
        self.check_gaps(launches);
    }

    /// The regions, and what is between them.
    pub(super) fn all(&self) -> Region {
        self.memory.region(Bytes::ZERO, extent(&self.sizes))
    }

    /// Fails if a byte between regions was written.
    pub(super) fn check_gaps(&self, launches: &[Launch]) {
        let all = self.all();
        let mut end = 0;
        for (region, size) in self.regions.iter().zip(&self.sizes) {
            let start = region.as_ptr() as usize - all.as_ptr() as usize;
            let is_untouched = all.bytes()[end..start].iter().all(|byte| *byte == UNTOUCHED);
            assert!(is_untouched, "bytes outside of operands were written: {launches:#?}");
            end = start + size.to_usize();
        }
    }
}

fn extent(sizes: &[Bytes]) -> Bytes {
    sizes.iter().map(|size| size.aligned() + GAP).sum::<Bytes>() + GAP
}

/// The operands of an executable after some launches, and the error word.
pub(super) fn run(module: &Module, launches: &[Launch], operands: &[Operand], scratch: Bytes) -> (Vec<Vec<f64>>, u64) {
    let sizes = operands.iter().map(Operand::bytes).chain([scratch, WORKING_BYTES, Bytes(8)]).collect();
    let arena = Arena::new(sizes);
    let [at_scratch, working, error] = [0, 1, 2].map(|position| operands.len() + position);
    arena.region(working).bytes_mut().fill(0);
    arena.region(error).bytes_mut().fill(0);
    operands.iter().enumerate().for_each(|(position, operand)| operand.write(arena.region(position)));
    let address = |address| match address {
        Address::Place(at) => match at.place {
            Storage::Operand(operand) => arena.address(operand as usize, at.offset.0),
            Storage::Scratch => arena.address(at_scratch, at.offset.0),
        },
        Address::Working => arena.address(working, 0),
        Address::Error => arena.address(error, 0),
        Address::Part(..) | Address::Step => panic!("{address:?} in an executable's graph"),
    };
    arena.launch(module, launches, &address);
    let working = arena.region(working);
    let words = working.numbers::<u32>();
    let counters = words[..1].iter().chain(&words[2 + 2 * LOSS_BLOCKS as usize..][..COLUMN_BLOCKS as usize]);
    assert!(counters.into_iter().all(|counter| *counter == 0), "the counters in working memory");
    let results = operands.iter().enumerate().map(|(position, operand)| operand.read(arena.region(position))).collect();
    (results, arena.region(error).numbers::<u64>()[0])
}
