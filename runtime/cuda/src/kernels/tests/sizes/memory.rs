//! Address space for tensors that are larger than any memory: only pages that are touched take some.

use memmap2::{MmapMut, MmapOptions};

/// Addresses around every tensor. A mutant whose indices have 32 bits stays inside, so that it is wrong and not ended.
const ROOM: u64 = 1 << 36;

/// Tensors far from each other, all zero at first.
pub(super) struct Sparse {
    map: MmapMut,
    first: u64,
    starts: Vec<u64>,
}

impl Sparse {
    /// Tensors of so many bytes each; `None`, with a line that says so, where there is no address space for them.
    pub(super) fn new(sizes: &[u64]) -> Option<Self> {
        let mut end = ROOM;
        let place = |size: &u64| {
            let start = end;
            end = (start + size + ROOM).next_multiple_of(4096);
            start
        };
        let starts = sizes.iter().map(place).collect();
        let map = MmapOptions::new().len(usize::try_from(end).ok()?).no_reserve_swap().map_anon();
        let mut map =
            map.inspect_err(|error| eprintln!("sizes are not tested: {end} bytes of address space: {error}")).ok()?;
        // A huge page would hold two megabytes for each number. Without the advice the test takes more memory.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::NoHugePage);
        Some(Self { first: map.as_mut_ptr() as u64, map, starts })
    }

    /// Of a byte of a tensor.
    pub(super) fn address(&self, tensor: usize, offset: u64) -> u64 {
        self.first + self.starts[tensor] + offset
    }

    pub(super) fn write(&mut self, tensor: usize, offset: u64, bytes: &[u8]) {
        let start = (self.starts[tensor] + offset) as usize;
        self.map[start..start + bytes.len()].copy_from_slice(bytes);
    }

    pub(super) fn read(&self, tensor: usize, offset: u64, bytes: u64) -> &[u8] {
        let start = (self.starts[tensor] + offset) as usize;
        &self.map[start..start + bytes as usize]
    }
}
