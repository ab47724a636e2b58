//! Memory: the bytes of one device's arena, and regions of them. One of the few files with `unsafe` code.
//!
//! Safety. Regions of one arena may be read and written from several threads: the device's own, and
//! those that copy a transfer into or out of it, or from one memory space to the other. That no two
//! of them touch the same bytes at once is what [`pipe_ir::verify`] proved of the program: buffers
//! that are alive at once do not overlap, an instruction that writes a buffer runs while no
//! transfer and no other operand uses it, and a transfer's buffers stay alive and untouched until
//! its token was waited for. Regions are handed out to executors of verified programs only. Every
//! [`Region`] lies inside its memory (checked when it is made) and all memory outlives the threads:
//! the run owns both and joins the threads first.

use bytemuck::Pod;
use memmap2::MmapMut;
use pipe_ir::program::{Buffer, DeviceProgram, Space};
use pipe_ir::units::{ALIGNMENT, Bytes};
use std::ptr::NonNull;
use std::sync::Arc;

/// Zeroed bytes, aligned to a page, for a whole run.
#[derive(Debug)]
pub struct Memory {
    // Only ever touched through `start`.
    _map: MmapMut,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: plain bytes without thread affinity; see the head of this file for who touches them when.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// Memory from this size on is asked for in huge pages: matrices then need far fewer entries of the address cache.
const LARGE: usize = 4 << 20;

impl Memory {
    /// That many bytes, or `None` if the machine has no more.
    pub fn new(bytes: Bytes) -> Option<Self> {
        let len = usize::try_from(bytes.0.max(ALIGNMENT.0)).ok()?;
        let mut map = MmapMut::map_anon(len).ok()?;
        #[cfg(target_os = "linux")]
        if len >= LARGE {
            // A wish: without huge pages everything works, only slower.
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        Some(Self { start: NonNull::new(map.as_mut_ptr())?, len, _map: map })
    }

    /// Some of its bytes.
    pub fn region(&self, offset: Bytes, bytes: Bytes) -> Region {
        Region { start: self.start.as_ptr(), len: self.len }.part(offset.to_usize(), bytes.to_usize())
    }
}

/// The arenas of one device, in both spaces.
#[derive(Clone, Debug)]
pub struct Memories([Arc<Memory>; Space::ALL.len()]);

impl Memories {
    /// Both arenas of a device, or `None` if the machine has not that much.
    pub fn new(code: &DeviceProgram) -> Option<Self> {
        let [device, host] = Space::ALL.map(|space| Memory::new(code.extent(space).arena).map(Arc::new));
        Some(Self([device?, host?]))
    }

    /// The bytes of a place.
    pub fn region(&self, place: Buffer) -> Region {
        self.0[place.space.index()].region(place.offset, place.bytes)
    }
}

/// Some bytes of a [`Memory`].
#[derive(Clone, Copy, Debug)]
pub struct Region {
    start: *mut u8,
    len: usize,
}

// SAFETY: as for `Memory`.
unsafe impl Send for Region {}

impl Region {
    /// No bytes: what a device without memory has.
    pub const EMPTY: Self = Self { start: NonNull::<u64>::dangling().as_ptr().cast(), len: 0 };

    /// Bytes `offset..offset + len` of it.
    pub fn part(self, offset: usize, len: usize) -> Self {
        let end = offset.checked_add(len).filter(|end| *end <= self.len);
        assert!(end.is_some(), "bytes {offset}..{offset}+{len} are not inside a region of {} bytes", self.len);
        // SAFETY: just checked to be inside the allocation.
        Self { start: unsafe { self.start.add(offset) }, len }
    }

    /// How many.
    pub const fn len(self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The first of them.
    pub const fn as_ptr(self) -> *mut u8 {
        self.start
    }

    /// Its contents as numbers or indices of a type.
    pub fn numbers<T: Pod>(&self) -> &[T] {
        bytemuck::cast_slice(self.bytes())
    }

    /// Its contents as numbers of a type, to be written.
    pub fn numbers_mut<T: Pod>(&self) -> &mut [T] {
        bytemuck::cast_slice_mut(self.bytes_mut())
    }

    /// Its contents.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: inside its memory; nobody writes it meanwhile (head of this file).
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    /// Its contents, to be written.
    #[expect(clippy::mut_from_ref, reason = "a region is a pointer: the head of this file says who may write")]
    pub fn bytes_mut(&self) -> &mut [u8] {
        // SAFETY: inside its memory; nobody else touches it meanwhile (head of this file).
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }

    /// Its contents, lent to a library that sends them.
    pub fn lent(self) -> &'static [u8] {
        // SAFETY: inside its memory, which outlives the message: a run waits for its own, and one
        // that failed forgets its memory. Nobody writes it until the message has ended (head of
        // this file).
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    /// Its contents, lent to a library that receives them.
    pub fn lent_mut(self) -> &'static mut [u8] {
        // SAFETY: as above; nobody else touches it until the message has ended.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }

    /// Copies all bytes of a region of the same size.
    pub fn copy_from(self, from: Self) {
        assert_eq!(self.len, from.len, "a transfer joins buffers of the same size");
        self.bytes_mut().copy_from_slice(from.bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_and_zeroed() {
        let memory = Memory::new(Bytes(256)).unwrap();
        let region = memory.region(Bytes(64), Bytes(128));
        assert_eq!(region.as_ptr() as usize % 64, 0);
        assert!(region.numbers::<f64>().iter().all(|x| *x == 0.0));
        region.part(4, 4).numbers_mut::<f32>()[0] = 1.5;
        assert_eq!(region.numbers::<f32>()[1], 1.5);
    }

    #[test]
    fn too_much_memory_is_refused() {
        assert!(Memory::new(Bytes(u64::MAX)).is_none());
    }
}
