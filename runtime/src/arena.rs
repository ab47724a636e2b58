//! Arenas: the memory of a device, allocated once, handed out at the offsets that the compiler chose.
//!
//! This file is one of the few with `unsafe`. Why it is sound: an arena is only ever used to execute a [`Verified`]
//! program. The verifier has proved that live buffers never overlap, that an operand is written by at most one party at
//! a time, and that a buffer in a started transfer is neither written nor freed until its `wait`. A device thread and
//! the peers that copy to or from its buffers therefore never touch the same bytes at once; the mutex of the channel and
//! the release/acquire pair of a token order their accesses. The host reads and writes only between steps, when all device threads
//! are idle.
//!
//! [`Verified`]: pipe_ir::verify::Verified

use pipe_ir::program::Buffer;
use pipe_ir::units::Bytes;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// The memory of one device.
pub struct Arena {
    /// `None` where bytes are only counted.
    memory: Option<NonNull<u8>>,
    layout: Layout,
}

// SAFETY: see the head of this file; the pointer is owned, and accesses are exclusive because the program is verified.
unsafe impl Send for Arena {}
// SAFETY: likewise.
unsafe impl Sync for Arena {}

/// Alignment of the arena itself: a cache line and the widest vector registers.
const ALIGNMENT: usize = 64;

impl Arena {
    /// An arena without memory, for a device that only counts.
    #[must_use]
    pub fn counting() -> Self {
        Self { memory: None, layout: Layout::new::<u8>() }
    }

    /// Takes this many zeroed bytes from the system.
    ///
    /// # Errors
    /// If the size is beyond what this machine can address.
    pub fn allocate(bytes: Bytes) -> Result<Self, String> {
        let size =
            usize::try_from(bytes.0.max(1)).map_err(|_| format!("an arena of {bytes} is beyond this machine"))?;
        let layout =
            Layout::from_size_align(size, ALIGNMENT).map_err(|error| format!("an arena of {bytes}: {error}"))?;
        // SAFETY: the layout has a size of at least 1.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(memory) = NonNull::new(memory) else { handle_alloc_error(layout) };
        Ok(Self { memory: Some(memory), layout })
    }

    /// Whether there is memory at all.
    #[must_use]
    pub fn is_counting(&self) -> bool {
        self.memory.is_none()
    }

    /// The contents of a buffer that the caller may read at this point of the program; empty in a counting arena.
    #[must_use]
    pub fn bytes(&self, buffer: Buffer) -> &[u8] {
        let Some(start) = self.start_of(buffer) else { return &[] };
        // SAFETY: inside the allocation (checked by `start_of`); nobody writes meanwhile (head of this file).
        unsafe { std::slice::from_raw_parts(start, buffer.bytes.to_usize()) }
    }

    /// The contents of a buffer that the caller may write at this point of the program; empty in a counting arena.
    #[expect(clippy::mut_from_ref, reason = "exclusivity is proved by the verifier, not by the borrow checker")]
    #[must_use]
    pub fn bytes_mut(&self, buffer: Buffer) -> &mut [u8] {
        let Some(start) = self.start_of(buffer) else { return &mut [] };
        // SAFETY: inside the allocation (checked by `start_of`); nobody else touches it meanwhile (head of this file).
        unsafe { std::slice::from_raw_parts_mut(start, buffer.bytes.to_usize()) }
    }

    /// The first byte of a buffer, for kernels that address several operands at once; `None` in a counting arena.
    #[must_use]
    pub fn start_of(&self, buffer: Buffer) -> Option<*mut u8> {
        let end = buffer.offset.to_usize() + buffer.bytes.to_usize();
        let memory = self.memory?;
        assert!(end <= self.layout.size(), "the verifier keeps buffers inside the arena");
        // SAFETY: the offset is at most the size of the allocation.
        Some(unsafe { memory.as_ptr().add(buffer.offset.to_usize()) })
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if let Some(memory) = self.memory {
            // SAFETY: allocated in `allocate` with this layout.
            unsafe { dealloc(memory.as_ptr(), self.layout) }
        }
    }
}
