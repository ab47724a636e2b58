//! Streams and events: what works in order, and points in it that others wait for.
//!
//! Safety. A [`Stream`] and an [`Event`] are made in the context of their GPU, hold it, and are
//! destroyed once. Areas lie inside memory that lives until the machine has waited for all streams
//! (see `memory.rs`). What a kernel does with its arguments is the business of `kernels/`, whose
//! sources are tested against the CPU device.

use super::memory::Side;
use super::{Area, DriverError, Function, Gpu, check};
use crate::gemm::{Addresses, Library, Shape as ShapeOfProduct};
use cudarc::driver::sys;
use pipe_runtime::RunError;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// What works in order.
#[derive(Debug)]
pub(crate) struct Stream {
    /// Its GPU.
    pub(crate) gpu: Arc<Gpu>,
    pub(super) handle: sys::CUstream,
}

// SAFETY: a handle of the driver, which any thread may use.
unsafe impl Send for Stream {}

/// How a kernel is launched.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
}

impl Stream {
    /// A new one, that waits for no other by itself.
    pub(crate) fn new(gpu: &Arc<Gpu>) -> Result<Self, DriverError> {
        Self::with(gpu, 0)
    }

    /// The same for work that others wait for: where blocks of several streams could begin, its own come first.
    pub(crate) fn urgent(gpu: &Arc<Gpu>) -> Result<Self, DriverError> {
        gpu.activate()?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: writes two numbers.
        check("cuCtxGetStreamPriorityRange", unsafe {
            sys::cuCtxGetStreamPriorityRange(&raw mut least, &raw mut greatest)
        })?;
        Self::with(gpu, greatest)
    }

    fn with(gpu: &Arc<Gpu>, priority: c_int) -> Result<Self, DriverError> {
        gpu.activate()?;
        let mut handle = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: writes one handle.
        check("cuStreamCreateWithPriority", unsafe {
            sys::cuStreamCreateWithPriority(&raw mut handle, flags, priority)
        })?;
        Ok(Self { gpu: Arc::clone(gpu), handle })
    }

    /// Goes on from here only when what was before the event is over.
    pub(crate) fn wait(&self, event: &Event) -> Result<(), DriverError> {
        // SAFETY: both are alive.
        check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(self.handle, event.handle, 0) })
    }

    /// The event is over when what was asked so far is.
    pub(crate) fn record(&self, event: &Event) -> Result<(), DriverError> {
        // SAFETY: both are alive, and of one GPU.
        check("cuEventRecord", unsafe { sys::cuEventRecord(event.handle, self.handle) })
    }

    /// The same for an event that the host looks at, and that no stream waits for. In a graph it is recorded each time.
    pub(crate) fn mark(&self, event: &Event, is_captured: bool) -> Result<(), DriverError> {
        use sys::CUevent_record_flags::{CU_EVENT_RECORD_DEFAULT, CU_EVENT_RECORD_EXTERNAL};
        let flags = if is_captured { CU_EVENT_RECORD_EXTERNAL } else { CU_EVENT_RECORD_DEFAULT };
        // SAFETY: both are alive, and of one GPU.
        check("cuEventRecordWithFlags", unsafe { sys::cuEventRecordWithFlags(event.handle, self.handle, flags as u32) })
    }

    /// Copies all bytes of an area to another of its size. Of two that GPUs have, each of them and
    /// that of the stream reaches the memory of the others.
    pub(crate) fn copy(&self, to: Area, from: Area) -> Result<(), DriverError> {
        assert_eq!(to.bytes, from.bytes, "a copy joins areas of the same size");
        let (bytes, stream) = (to.bytes, self.handle);
        let (target, source) = (to.address, from.address);
        // SAFETY: both areas are inside memory that is alive, and as long as is said.
        unsafe {
            match (to.side, from.side) {
                // By addresses alone: the driver captures no copies that name contexts.
                (Side::Gpu(there, _), Side::Gpu(here, _)) if [there, here] != [self.gpu.ordinal; 2] => {
                    check("cuMemcpyAsync", sys::cuMemcpyAsync(target, source, bytes, stream))
                }
                (Side::Gpu(..), Side::Gpu(..)) => {
                    check("cuMemcpyDtoDAsync_v2", sys::cuMemcpyDtoDAsync_v2(target, source, bytes, stream))
                }
                (Side::Gpu(..), Side::Host) => check(
                    "cuMemcpyHtoDAsync_v2",
                    sys::cuMemcpyHtoDAsync_v2(target, source as *const c_void, bytes, stream),
                ),
                (Side::Host, _) => check(
                    "cuMemcpyDtoHAsync_v2",
                    sys::cuMemcpyDtoHAsync_v2(target as *mut c_void, source, bytes, stream),
                ),
            }
        }
    }

    /// The same between GPUs that do not reach each other's memory: the driver takes the way
    /// through the host. It is not captured.
    pub(crate) fn copy_around(&self, to: Area, from: Area) -> Result<(), DriverError> {
        assert_eq!(to.bytes, from.bytes, "a copy joins areas of the same size");
        let (Side::Gpu(_, there), Side::Gpu(_, here)) = (to.side, from.side) else { return self.copy(to, from) };
        // SAFETY: both areas are inside memory that is alive, and as long as is said; the contexts
        // are those of their GPUs.
        check("cuMemcpyPeerAsync", unsafe {
            sys::cuMemcpyPeerAsync(to.address, there, from.address, here, to.bytes, self.handle)
        })
    }

    /// Fills an area with copies of four bytes; its size is a multiple of four.
    pub(crate) fn fill(&self, area: Area, word: u32) -> Result<(), DriverError> {
        assert!(area.bytes.is_multiple_of(size_of::<u32>()), "buffers have multiples of 64 bytes");
        // SAFETY: inside memory that is alive.
        check("cuMemsetD32Async", unsafe {
            sys::cuMemsetD32Async(area.address, word, area.bytes / size_of::<u32>(), self.handle)
        })
    }

    /// Launches a kernel. Each argument is in the low bytes of its word.
    pub(crate) fn launch(&self, function: &Function, shape: &Shape, arguments: &[u64]) -> Result<(), DriverError> {
        let ([x, y, z], [a, b, c]) = (shape.grid, shape.block);
        let mut pointers: Vec<*mut c_void> =
            arguments.iter().map(|word| (&raw const *word).cast_mut().cast()).collect();
        // SAFETY: the driver copies as many bytes from each pointer as the parameter has, at most 8, before it returns.
        check("cuLaunchKernel", unsafe {
            let (parameters, none) = (pointers.as_mut_ptr(), std::ptr::null_mut());
            sys::cuLaunchKernel(function.handle, x, y, z, a, b, c, shape.shared, self.handle, parameters, none)
        })
    }

    /// A matrix product by the library.
    pub(crate) fn product(&self, library: &Library, shape: &ShapeOfProduct, at: Addresses) -> Result<(), RunError> {
        let queued = library.queue(shape, at, self.handle.cast());
        queued.map_err(|error| RunError::Driver(format!("cublasLtMatmul answers {error}")))
    }

    /// Does nothing for a while.
    pub(crate) fn pause(&self, time: Duration) -> Result<(), DriverError> {
        let micros = usize::try_from(time.as_micros()).unwrap_or(0);
        // SAFETY: the function takes the number for what it is, and calls no driver.
        check("cuLaunchHostFunc", unsafe { sys::cuLaunchHostFunc(self.handle, Some(sleep), micros as *mut c_void) })
    }

    /// Whether all that was asked is over.
    pub(crate) fn is_over(&self) -> Result<bool, DriverError> {
        // SAFETY: it is alive.
        match unsafe { sys::cuStreamQuery(self.handle) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            code => check("cuStreamQuery", code).map(|()| true),
        }
    }

    /// The handle, for other libraries.
    pub(crate) const fn raw(&self) -> *mut c_void {
        self.handle.cast()
    }

    /// Waits until all that was asked is over.
    pub(crate) fn synchronise(&self) -> Result<(), DriverError> {
        // SAFETY: it is alive.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.handle) })
    }
}

/// What a thread of the driver calls for a pause.
unsafe extern "C" fn sleep(micros: *mut c_void) {
    std::thread::sleep(Duration::from_micros(micros as usize as u64));
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: made once, and destroyed once.
        let _ = self
            .gpu
            .activate()
            .and_then(|()| check("cuStreamDestroy_v2", unsafe { sys::cuStreamDestroy_v2(self.handle) }));
    }
}

/// A point in a stream.
#[derive(Debug)]
pub(crate) struct Event {
    gpu: Arc<Gpu>,
    handle: sys::CUevent,
}

// SAFETY: a handle of the driver, which any thread may use.
unsafe impl Send for Event {}

impl Event {
    /// One that streams wait for.
    pub(crate) fn new(gpu: &Arc<Gpu>) -> Result<Self, DriverError> {
        Self::with(gpu, sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    /// One that knows when it was.
    pub(crate) fn timed(gpu: &Arc<Gpu>) -> Result<Self, DriverError> {
        Self::with(gpu, sys::CUevent_flags::CU_EVENT_DEFAULT)
    }

    fn with(gpu: &Arc<Gpu>, flags: sys::CUevent_flags) -> Result<Self, DriverError> {
        gpu.activate()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: writes one handle.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&raw mut handle, flags as u32) })?;
        Ok(Self { gpu: Arc::clone(gpu), handle })
    }

    /// Whether what it was recorded after is over.
    pub(crate) fn is_over(&self) -> Result<bool, DriverError> {
        // SAFETY: it is alive.
        match unsafe { sys::cuEventQuery(self.handle) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            code => check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Nanoseconds since an earlier event of the same GPU; both are over.
    pub(crate) fn since(&self, earlier: &Self) -> Result<u64, DriverError> {
        let mut millis = 0_f32;
        let (name, elapsed) = elapsed_time();
        // SAFETY: writes one number; both are alive and of one context.
        check(name, unsafe { elapsed(&raw mut millis, earlier.handle, self.handle) })?;
        Ok((f64::from(millis.max(0.0)) * 1e6).round() as u64)
    }
}

type ElapsedTime = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> sys::CUresult;

/// The call that says how long it is from one event to another. Drivers before CUDA 12.8 have its first version alone,
/// which `cudarc` does not name.
fn elapsed_time() -> (&'static str, ElapsedTime) {
    static FOUND: OnceLock<(&str, ElapsedTime)> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let names = ["cuEventElapsedTime_v2", "cuEventElapsedTime"];
        // SAFETY: the type is that of both functions in `cuda.h`; the library stays.
        let found = |name: &'static str| unsafe { sys::culib().get(name.as_bytes()) }.ok().map(|call| (name, *call));
        names.into_iter().find_map(found).expect("`open` has looked for the first version")
    })
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made once, and destroyed once.
        let _ = self
            .gpu
            .activate()
            .and_then(|()| check("cuEventDestroy_v2", unsafe { sys::cuEventDestroy_v2(self.handle) }));
    }
}
