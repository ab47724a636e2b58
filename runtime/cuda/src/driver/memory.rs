//! Memory of a GPU, and memory of the host that it reaches: allocated once, given back at the end.
//!
//! Safety. An [`Area`] lies inside its memory, which is checked when it is made. It carries no
//! lifetime: the machine owns all memories and waits for its streams before it drops them. Who may
//! read and write an area when is what [`pipe_ir::verify`] proved of the program, and what the race
//! check of the command list finds again; the host touches pinned memory between steps only.

use super::{DriverError, Gpu, check};
use cudarc::driver::sys;
use std::ffi::c_void;
use std::sync::Arc;

/// Where some bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// In memory of the host that GPUs reach.
    Host,
    /// In the memory of the GPU with this number.
    Gpu(usize, sys::CUcontext),
}

/// Some bytes of a memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Area {
    /// Its address on the GPU.
    pub(crate) address: u64,
    /// Its size.
    pub(crate) bytes: usize,
    pub(super) side: Side,
}

// SAFETY: an address and a number; see the head of this file for who touches the bytes when.
unsafe impl Send for Area {}

impl Area {
    /// Bytes `offset..offset + bytes` of it.
    pub(crate) fn part(self, offset: usize, bytes: usize) -> Self {
        let end = offset.checked_add(bytes).filter(|end| *end <= self.bytes);
        assert!(end.is_some(), "bytes {offset}..{offset}+{bytes} are not inside an area of {} bytes", self.bytes);
        Self { address: self.address + offset as u64, bytes, ..self }
    }

    /// The number of the GPU that has it; none for memory of the host.
    pub(crate) const fn gpu(self) -> Option<usize> {
        match self.side {
            Side::Host => None,
            Side::Gpu(ordinal, _) => Some(ordinal),
        }
    }

    /// Its contents for the host, now: nothing that was asked of a GPU uses it.
    pub(crate) fn read(self, out: &mut [u8]) -> Result<(), DriverError> {
        assert_eq!(out.len(), self.bytes, "as many bytes as the area has");
        match self.side {
            Side::Host => {
                // SAFETY: inside pinned memory that nobody writes meanwhile (head of this file).
                out.copy_from_slice(unsafe { std::slice::from_raw_parts(self.address as *const u8, self.bytes) });
                Ok(())
            }
            Side::Gpu(_, context) => {
                // SAFETY: the memory is alive, and so is its context.
                check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(context) })?;
                // SAFETY: as many bytes as there are on both sides.
                check("cuMemcpyDtoH_v2", unsafe {
                    sys::cuMemcpyDtoH_v2(out.as_mut_ptr().cast(), self.address, self.bytes)
                })
            }
        }
    }

    /// Replaces its contents, now.
    pub(crate) fn write(self, data: &[u8]) -> Result<(), DriverError> {
        assert_eq!(data.len(), self.bytes, "as many bytes as the area has");
        match self.side {
            Side::Host => {
                // SAFETY: inside pinned memory that nobody else touches meanwhile (head of this file).
                unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, self.bytes) }.copy_from_slice(data);
                Ok(())
            }
            Side::Gpu(_, context) => {
                // SAFETY: the memory is alive, and so is its context.
                check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(context) })?;
                // SAFETY: as many bytes as there are on both sides.
                check("cuMemcpyHtoD_v2", unsafe {
                    sys::cuMemcpyHtoD_v2(self.address, data.as_ptr().cast(), self.bytes)
                })?;
                // When a copy from memory that is not pinned returns, the bytes may still be on
                // their way, and no other stream waits for them. SAFETY: the default stream is
                // always there.
                check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(std::ptr::null_mut()) })
            }
        }
    }
}

/// Bytes of a GPU. What is in them at first is anything.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    gpu: Arc<Gpu>,
    pub(crate) all: Area,
}

/// The least that is asked for: no allocation is empty.
const LEAST: usize = 256;

impl DeviceMemory {
    /// That many bytes.
    pub(crate) fn new(gpu: &Arc<Gpu>, bytes: usize) -> Result<Self, DriverError> {
        gpu.activate()?;
        let (mut address, bytes) = (0, bytes.max(LEAST));
        // SAFETY: writes one address.
        check("cuMemAlloc_v2", unsafe { sys::cuMemAlloc_v2(&raw mut address, bytes) })?;
        Ok(Self { gpu: Arc::clone(gpu), all: Area { address, bytes, side: Side::Gpu(gpu.ordinal, gpu.context) } })
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: allocated once, and freed once; a GPU that has failed has nothing more to say.
        let _ =
            self.gpu.activate().and_then(|()| check("cuMemFree_v2", unsafe { sys::cuMemFree_v2(self.all.address) }));
    }
}

/// Bytes of the host that stay where they are, so that GPUs copy them by themselves. They are zeros at first.
#[derive(Debug)]
pub(crate) struct PinnedMemory {
    gpu: Arc<Gpu>,
    pub(crate) all: Area,
}

impl PinnedMemory {
    /// That many bytes, which all GPUs reach.
    pub(crate) fn new(gpu: &Arc<Gpu>, bytes: usize) -> Result<Self, DriverError> {
        gpu.activate()?;
        let (mut start, bytes) = (std::ptr::null_mut::<c_void>(), bytes.max(LEAST));
        // SAFETY: writes one pointer.
        check("cuMemHostAlloc", unsafe { sys::cuMemHostAlloc(&raw mut start, bytes, sys::CU_MEMHOSTALLOC_PORTABLE) })?;
        // SAFETY: just allocated, that long.
        unsafe { std::ptr::write_bytes(start.cast::<u8>(), 0, bytes) };
        Ok(Self { gpu: Arc::clone(gpu), all: Area { address: start as u64, bytes, side: Side::Host } })
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        let start = self.all.address as *mut c_void;
        // SAFETY: allocated once, and freed once.
        let _ = self.gpu.activate().and_then(|()| check("cuMemFreeHost", unsafe { sys::cuMemFreeHost(start) }));
    }
}
