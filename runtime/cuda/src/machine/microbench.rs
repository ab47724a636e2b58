//! What GPUs do while they do nothing else: matrix products, copies and transfers, by their own clocks.

use super::super::driver::{Area, DeviceMemory, DriverError, Event, PinnedMemory, Stream};
use super::super::launch::WORKING_BYTES;
use super::super::nccl::{Line, Links, Move};
use super::libraries::Queued;
use crate::gemm::WORKSPACE;
use crate::machine::gpu_assignment::GpuAssignment;
use crate::machine::kernel_args::KernelArgs;
use crate::machine::modules::{Doing, Modules, shape};
use pipe_distributed::{Job, Rank, RankView};
use pipe_ir::graph::DType;
use pipe_ir::ids::{DeviceId, ExecId};
use pipe_ir::instruction::Class;
use pipe_ir::kernels::{Gemm, Kernel};
use pipe_ir::program::Program;
use pipe_ir::units::Bytes;
use pipe_runtime::calibrate::{lengths, median, there_and_back};
use pipe_runtime::numbers::encode;
use pipe_runtime::random::Counter;
use pipe_runtime::{Precision, RunError};
use std::sync::Arc;
use std::time::Duration;

/// The GPUs that this process has for a program. Its devices are not there yet.
pub struct Gpus {
    assignment: GpuAssignment,
}

/// What a matrix product took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProductTime {
    /// One of several in a row, in the median.
    pub time: Duration,
    /// Whether it was computed by the vendor's library, and not by a kernel of ours.
    pub by_library: bool,
}

/// Time for the host to ask for everything, before the GPU begins: it must not wait for the host while it is measured.
const HEAD_START: Duration = Duration::from_millis(2);

/// Random numbers, after which they come again.
const RANDOM: usize = 1 << 16;

impl Gpus {
    /// Those of all devices, or, in a job, the one of this rank. All ranks ask at once.
    ///
    /// # Errors
    /// Says in one line why there are none, or why they cannot work together.
    pub fn new(program: &Program, job: Option<&Job>) -> Result<Self, RunError> {
        let rank_view = job.map(|job| RankView::new(program, job)).transpose()?;
        Ok(Self { assignment: GpuAssignment::new(program, rank_view.as_ref())? })
    }

    /// The place of a device's GPU among these; the device is one of this process.
    pub fn of(&self, device: DeviceId) -> usize {
        self.assignment.place(device)
    }

    fn stream(&self, gpu: usize) -> Result<Stream, DriverError> {
        Stream::new(&self.assignment.gpus[gpu])
    }

    fn memory(&self, gpu: usize, bytes: usize) -> Result<DeviceMemory, DriverError> {
        DeviceMemory::new(&self.assignment.gpus[gpu], bytes)
    }

    /// What matrix products take on the first GPU, each so often in a row, on random numbers:
    /// constants take less power, and so less time.
    ///
    /// # Errors
    /// If there is no compiler, too little memory, or the driver fails.
    pub fn products(&self, gemms: &[Gemm], precision: Precision, times: u32) -> Result<Vec<ProductTime>, RunError> {
        let kernels: Vec<Kernel> = gemms.iter().map(|gemm| Kernel::Gemm(gemm.clone())).collect();
        let code = Modules::of_kernels(&kernels, &self.assignment, precision)?;
        let (stream, working) = (self.stream(0)?, self.memory(0, WORKING_BYTES.to_usize())?);
        working.all.write(&vec![0; working.all.bytes])?;
        let workspace = self.memory(0, if code.workspace() > 0 { WORKSPACE } else { 0 })?;
        let mut found = Vec::with_capacity(gemms.len());
        for (gemm, id) in gemms.iter().zip((0..).map(ExecId)) {
            let types = [gemm.factors, gemm.factors, gemm.result];
            let memories = types.into_iter().zip(lengths(gemm)).map(|(dtype, count)| self.numbers(dtype, count));
            let memories = memories.collect::<Result<Vec<_>, _>>()?;
            let operands: Vec<Area> = memories.iter().map(|memory| memory.all).collect();
            let places = KernelArgs { operands: &operands, working: working.all.address, ..KernelArgs::default() };
            let time = timed(&stream, times, || product(&code, id, &stream, &places, workspace.all.address))?;
            let by_library = code.exec(id).steps.iter().any(|step| matches!(step.doing, Doing::Products(_)));
            found.push(ProductTime { time, by_library });
        }
        Ok(found)
    }

    /// Random numbers on the first GPU.
    fn numbers(&self, dtype: DType, count: u64) -> Result<DeviceMemory, RunError> {
        let (mut random, bytes) = (Counter::new(0, "numbers"), Bytes(dtype.bytes().0 * count).to_usize());
        let memory = self.memory(0, bytes)?;
        let mut all = encode(dtype, std::iter::repeat_with(|| random.normal()).take(RANDOM));
        all = all.repeat(bytes.div_ceil(all.len()));
        memory.all.part(0, bytes).write(&all[..bytes])?;
        Ok(memory)
    }

    /// What copies of so many bytes take between pinned memory of the host and the first GPU: the slower way of both.
    ///
    /// # Errors
    /// If there is too little memory, or the driver fails.
    pub fn copy(&self, bytes: Bytes, times: u32) -> Result<Duration, RunError> {
        let (stream, own) = (self.stream(0)?, self.memory(0, bytes.to_usize())?);
        let host = PinnedMemory::new(&self.assignment.gpus[0], bytes.to_usize())?;
        own.all.write(&vec![0; own.all.bytes])?;
        let way = |to: Area, from: Area| timed(&stream, times, || Ok(stream.copy(to, from)?));
        Ok(way(own.all, host.all)?.max(way(host.all, own.all)?))
    }

    /// What a transfer of so many bytes takes between two devices on these GPUs, which may be the
    /// same: half of there and back again, between queues that wait for each other as those of a
    /// step do.
    ///
    /// # Errors
    /// If there is too little memory, or the driver fails.
    pub fn link(&self, [from, to]: [usize; 2], bytes: Bytes, times: u32) -> Result<Duration, RunError> {
        let ends = [self.memory(from, bytes.to_usize())?, self.memory(to, bytes.to_usize())?];
        ends[0].all.write(&vec![0; ends[0].all.bytes])?;
        let queues = [from, from, to, to].map(|gpu| self.stream(gpu));
        let [compute, there, other, back] = queues;
        let [compute, there, other, back] = [compute?, there?, other?, back?];
        let events = [&compute, &there, &other, &back].map(|stream| Event::new(&stream.gpu));
        let events = events.into_iter().collect::<Result<Vec<_>, _>>()?;
        let [here, yonder] = [ends[0].all, ends[1].all];
        // In this order each waits for the one before, and the first one for the last.
        let turns = [(&compute, None), (&there, Some((yonder, here))), (&other, None), (&back, Some((here, yonder)))];
        let time = timed(&compute, times, || {
            let mut before: Option<&Event> = None;
            for ((stream, copy), event) in turns.iter().zip(&events) {
                stream.gpu.activate()?;
                before.map_or(Ok(()), |before| stream.wait(before))?;
                match *copy {
                    Some((to, from)) if self.assignment.are_near(stream, [to, from]) => stream.copy(to, from)?,
                    Some((to, from)) => stream.copy_around(to, from)?,
                    None => {}
                }
                stream.record(event)?;
                before = Some(event);
            }
            compute.gpu.activate()?;
            Ok(before.map_or(Ok(()), |before| compute.wait(before))?)
        })?;
        Ok(time / 2)
    }

    /// The same between the GPUs of two ranks of a job, for several sizes. All of its ranks do it
    /// at once; the first one has the answers.
    ///
    /// # Errors
    /// If there is no library between processes, a rank lacks memory, or cannot go on.
    pub fn rank_links(
        &self,
        job: &Job,
        ranks: [Rank; 2],
        sizes: &[Bytes],
        times: u32,
    ) -> Result<Vec<Duration>, RunError> {
        let program = there_and_back(job.n_ranks(), ranks.map(Rank::index));
        let (rank_view, stream, gpu) = (RankView::new(&program, job)?, self.stream(0)?, &self.assignment.gpus[0]);
        // Where that fails, the GPU is left as it is: the library may still be at work.
        let mut links = Links::open(&program, &rank_view, gpu).inspect_err(|_| std::mem::forget(Arc::clone(gpu)))?;
        let own = job.rank();
        let measured = if ranks.contains(&own) {
            sizes.iter().map(|bytes| self.rounds(&links, (own, ranks), &stream, *bytes, times)).collect()
        } else {
            Ok(Vec::new())
        };
        links.close(measured.is_ok());
        let nanos = |time: &Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).to_le_bytes();
        let words: Vec<u8> = measured?.iter().flat_map(nanos).collect();
        let all = job.gather(words)?;
        // Nobody goes on to other links before all have ended with these.
        job.any(false)?;
        let of_leader = all.get(ranks[0].index()).map_or(&[][..], Vec::as_slice);
        let times = of_leader.chunks_exact(size_of::<u64>()).filter_map(|word| word.try_into().ok());
        Ok(times.map(|word| Duration::from_nanos(u64::from_le_bytes(word))).collect())
    }

    fn rounds(
        &self,
        links: &Links,
        (own, [leader, other]): (Rank, [Rank; 2]),
        stream: &Stream,
        bytes: Bytes,
        times: u32,
    ) -> Result<Duration, RunError> {
        let memory = self.memory(0, bytes.to_usize())?;
        memory.all.write(&vec![0; memory.all.bytes])?;
        let marks = marks(stream, times)?;
        stream.mark(&marks[0], false)?;
        for mark in &marks[1..] {
            for (from, to) in [(leader, other), (other, leader)] {
                let line = Line::Transfer(from, to, Class::Activation);
                let peer = links.place(line, if own == from { to } else { from });
                links.exchange(line, &[Move { peer, area: memory.all, sends: own == from }], stream)?;
            }
            stream.mark(mark, false)?;
        }
        links.wait(stream, |_| Ok(()))?;
        Ok(between(&marks)? / 2)
    }
}

fn product(
    code: &Modules,
    id: ExecId,
    stream: &Stream,
    places: &KernelArgs<'_>,
    workspace: u64,
) -> Result<(), RunError> {
    for step in &code.exec(id).steps {
        match &step.doing {
            Doing::Launches(launches) => {
                for launch in launches {
                    let words: Vec<u64> = launch.arguments.iter().map(|argument| places.word(argument)).collect();
                    stream.launch(&code.function(0, launch.function), &shape(launch), &words)?;
                }
            }
            Doing::Products(calls) => {
                for call in calls {
                    let queued = Queued::new(0, call, places, workspace);
                    let Some(library) = code.library(0) else { continue };
                    stream.product(library, &queued.call.shape, queued.at)?;
                }
            }
        }
    }
    Ok(())
}

/// One for the beginning, one for a round that warms up, and one for each of so many more.
fn marks(stream: &Stream, times: u32) -> Result<Vec<Event>, DriverError> {
    (0..times.max(1) + 2).map(|_| Event::timed(&stream.gpu)).collect()
}

/// What something takes that a stream is asked for again and again, in the median.
fn timed(stream: &Stream, times: u32, mut ask: impl FnMut() -> Result<(), RunError>) -> Result<Duration, RunError> {
    stream.gpu.activate()?;
    let marks = marks(stream, times)?;
    stream.pause(HEAD_START)?;
    stream.mark(&marks[0], false)?;
    for mark in &marks[1..] {
        ask()?;
        stream.mark(mark, false)?;
    }
    stream.synchronise()?;
    between(&marks)
}

/// From one mark to the next, in the median; the first round only warms up.
fn between(marks: &[Event]) -> Result<Duration, RunError> {
    let rounds = marks[1..].windows(2).map(|pair| Ok(Duration::from_nanos(pair[1].since(&pair[0])?)));
    Ok(median(rounds.collect::<Result<Vec<_>, RunError>>()?))
}
