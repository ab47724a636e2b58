//! Graphs: what was asked of streams once, to be launched again and again.
//!
//! Safety. Between the beginning and the end of a capture the streams only note what they are asked
//! for. Handles are made once and destroyed once. What a graph launches uses areas and functions
//! that live as long as the machine, which owns the graph too.

use super::{DriverError, Stream, check};
use cudarc::driver::sys;

/// A capture in progress: what this stream, and all that wait for it, are asked for.
pub(crate) struct Capture<'a> {
    stream: &'a Stream,
    is_open: bool,
}

impl<'a> Capture<'a> {
    /// Begins.
    pub(crate) fn begin(stream: &'a Stream) -> Result<Self, DriverError> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is alive.
        check("cuStreamBeginCapture_v2", unsafe { sys::cuStreamBeginCapture_v2(stream.handle, mode) })?;
        Ok(Self { stream, is_open: true })
    }

    /// Ends, with a graph that can be launched.
    pub(crate) fn end(mut self) -> Result<Graph, DriverError> {
        let (mut graph, mut executable) = (std::ptr::null_mut(), std::ptr::null_mut());
        // What was captured last may be of another GPU.
        self.stream.gpu.activate()?;
        self.is_open = false;
        // SAFETY: writes one handle.
        check("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(self.stream.handle, &raw mut graph) })?;
        // Else all of it had the priority of the stream that launches it.
        let flags = u64::from(sys::CUgraphInstantiate_flags_enum::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY.0);
        // SAFETY: writes one handle; the graph was made just now.
        let made = check("cuGraphInstantiateWithFlags", unsafe {
            sys::cuGraphInstantiateWithFlags(&raw mut executable, graph, flags)
        });
        // SAFETY: made just now; what was instantiated does not need it.
        let destroyed = check("cuGraphDestroy", unsafe { sys::cuGraphDestroy(graph) });
        made?;
        let graph = Graph { executable };
        destroyed.map(|()| graph)
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if self.is_open {
            let mut graph = std::ptr::null_mut();
            let _ = self.stream.gpu.activate();
            // SAFETY: gives up what was begun; where the driver made a graph of it, that is destroyed.
            unsafe {
                if sys::cuStreamEndCapture(self.stream.handle, &raw mut graph) == sys::CUresult::CUDA_SUCCESS
                    && !graph.is_null()
                {
                    let _ = sys::cuGraphDestroy(graph);
                }
            }
        }
    }
}

/// A captured list of calls.
#[derive(Debug)]
pub(crate) struct Graph {
    executable: sys::CUgraphExec,
}

// SAFETY: a handle of the driver, which one thread at a time uses.
unsafe impl Send for Graph {}

impl Graph {
    /// Does all of it, in order after what the stream does.
    pub(crate) fn launch(&self, stream: &Stream) -> Result<(), DriverError> {
        // SAFETY: both are alive.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.executable, stream.handle) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: made once, and destroyed once.
        let _ = unsafe { sys::cuGraphExecDestroy(self.executable) };
    }
}
