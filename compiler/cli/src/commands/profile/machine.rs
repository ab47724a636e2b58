//! Machines: what copies, transfers and matrix products take while nothing else runs, on the processor or on GPUs.

use pipe_cuda::{Gpus, ProductTime};
use pipe_distributed::{Division, Job, Rank};
use pipe_ir::ids::DeviceId;
use pipe_ir::instruction::Instruction;
use pipe_ir::kernels::{Gemm, Kernel};
use pipe_ir::program::Program;
use pipe_ir::units::Bytes;
use pipe_runtime::calibrate::{self, gemms};
use pipe_runtime::{Backend, Precision, RunError};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Repetitions of each copy and transfer, and of each matrix product.
const TIMES: u32 = 51;
const PRODUCT_TIMES: u32 = 11;
/// Larger than what caches hold.
const COPY: Bytes = Bytes(32 << 20);

/// What a machine does in a second, and what it takes for what the program does.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub(crate) struct MachineReport {
    /// Bytes that a copy moves in a second: between a device and its host, on GPUs.
    copy_bytes_per_second: u64,
    /// By size of what the program sends between devices of one process, ascending; on GPUs,
    /// between devices that share one.
    links: Vec<Link>,
    /// By GPUs and size of what it sends between GPUs of one process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gpu_links: Vec<GpuLink>,
    /// By ranks and size of what it sends between processes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rank_links: Vec<RankLink>,
    /// The matrix products of the program, on one GPU.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gemms: Vec<GemmTime>,
}

/// A transfer between two devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
struct Link {
    bytes: u64,
    ns: u64,
}

/// A transfer between devices of two GPUs, from the first to the second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
struct GpuLink {
    gpus: [usize; 2],
    bytes: u64,
    ns: u64,
}

/// A transfer between devices of two ranks, either way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
struct RankLink {
    ranks: [Rank; 2],
    bytes: u64,
    ns: u64,
}

/// A matrix product, or a batch of them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct GemmTime {
    batch: u64,
    rows: u64,
    columns: u64,
    /// Columns of the left factor.
    inner: u64,
    ns: u64,
    flops: u64,
    /// Whether cuBLASLt computed it.
    by_library: bool,
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1)
}

/// Bytes that the program sends, by who sends them to whom.
#[derive(Default)]
struct Sent {
    /// Between devices of one rank.
    here: BTreeSet<(DeviceId, DeviceId, Bytes)>,
    between: BTreeMap<[Rank; 2], BTreeSet<Bytes>>,
}

impl Sent {
    fn of(program: &Program, job: Option<&Job>) -> Self {
        let division = Division::new(program.devices.len(), job.map_or(1, Job::n_ranks));
        let rank_of = |device: DeviceId| division.map_or(Rank::FIRST, |division| division.rank_of(device));
        let mut sent = Self::default();
        for (own, device) in (0..).map(DeviceId).zip(&program.devices) {
            for instruction in &device.step {
                let Instruction::SendStart { buffer, to, .. } = *instruction else { continue };
                let (bytes, ranks) = (device.buffers[buffer.index()].bytes, [rank_of(own), rank_of(to)]);
                let [low, high] = [ranks[0].min(ranks[1]), ranks[0].max(ranks[1])];
                if low == high {
                    sent.here.insert((own, to, bytes));
                } else {
                    sent.between.entry([low, high]).or_default().insert(bytes);
                }
            }
        }
        sent
    }
}

impl MachineReport {
    /// What it takes to send the largest of what the program sends, on the slowest link.
    pub(crate) fn slowest_link(&self) -> u64 {
        let links = self.links.iter().map(|link| link.ns).chain(self.gpu_links.iter().map(|link| link.ns));
        links.chain(self.rank_links.iter().map(|link| link.ns)).max().unwrap_or_default()
    }

    /// Measures a machine for a program. All ranks of a job do it at once; the first one has the answer. Fails if the
    /// machine lacks memory or what computes, or another rank cannot go on.
    pub(crate) fn measure(
        program: &Program,
        backend: Backend,
        products: Precision,
        job: Option<&Job>,
    ) -> Result<Self, RunError> {
        let sent = Sent::of(program, job);
        match backend {
            Backend::Null | Backend::Cpu => Self::of_processor(&sent, job),
            Backend::Gpu(_) => Self::of_gpus(program, &sent, products, job),
        }
    }

    fn of_processor(sent: &Sent, job: Option<&Job>) -> Result<Self, RunError> {
        let mut machine = Self::default();
        if job.is_none_or(Job::is_first) {
            // The others wait, so that nothing else runs on this host but for their progress threads.
            let sizes: BTreeSet<Bytes> = sent.here.iter().map(|(_, _, bytes)| *bytes).collect();
            for bytes in sizes {
                machine.links.push(Link { bytes: bytes.0, ns: nanos(calibrate::link(bytes, TIMES)?) });
            }
            machine.copy_bytes_per_second = per_second(calibrate::copy(COPY, TIMES)?);
        }
        if let Some(job) = job {
            job.any(false)?;
            for (ranks, sizes) in &sent.between {
                for bytes in sizes {
                    let ns = nanos(calibrate::rank_link(job, *ranks, *bytes, TIMES)?);
                    machine.rank_links.push(RankLink { ranks: *ranks, bytes: bytes.0, ns });
                }
            }
        }
        Ok(machine)
    }

    fn of_gpus(program: &Program, sent: &Sent, products: Precision, job: Option<&Job>) -> Result<Self, RunError> {
        let mut machine = Self::default();
        let gpus = Gpus::new(program, job)?;
        if job.is_none_or(Job::is_first) {
            let first = Division::new(program.devices.len(), job.map_or(1, Job::n_ranks));
            let is_own = |device: DeviceId| first.is_none_or(|first| first.rank_of(device) == Rank::FIRST);
            let own = sent.here.iter().filter(|(from, _, _)| is_own(*from));
            let links: BTreeSet<_> = own.map(|(from, to, bytes)| ([gpus.of(*from), gpus.of(*to)], *bytes)).collect();
            for (ends, bytes) in links {
                let ns = nanos(gpus.link(ends, bytes, TIMES)?);
                match ends {
                    [from, to] if from == to => machine.links.push(Link { bytes: bytes.0, ns }),
                    gpus => machine.gpu_links.push(GpuLink { gpus, bytes: bytes.0, ns }),
                }
            }
            // GPUs of one machine are alike: of several that send to themselves, the first one says it.
            machine.links.sort_by_key(|link| link.bytes);
            machine.links.dedup_by_key(|link| link.bytes);
            machine.copy_bytes_per_second = per_second(gpus.copy(COPY, PRODUCT_TIMES)?);
            machine.gemms = products_of(program, &gpus, products)?;
        }
        if let Some(job) = job {
            job.any(false)?;
            for (ranks, sizes) in &sent.between {
                let sizes: Vec<Bytes> = sizes.iter().copied().collect();
                let times = gpus.rank_links(job, *ranks, &sizes, TIMES)?;
                let link =
                    |(bytes, time): (&Bytes, Duration)| RankLink { ranks: *ranks, bytes: bytes.0, ns: nanos(time) };
                machine.rank_links.extend(sizes.iter().zip(times).map(link));
            }
        }
        Ok(machine)
    }
}

fn products_of(program: &Program, gpus: &Gpus, products: Precision) -> Result<Vec<GemmTime>, RunError> {
    let gemms = gemms(program);
    let times = gpus.products(&gemms, products, PRODUCT_TIMES)?;
    let of = |(gemm, found): (Gemm, ProductTime)| GemmTime {
        batch: gemm.batch.iter().product(),
        rows: gemm.m,
        columns: gemm.n,
        inner: gemm.k,
        ns: nanos(found.time),
        by_library: found.by_library,
        flops: Kernel::Gemm(gemm).flops(),
    };
    Ok(gemms.into_iter().zip(times).map(of).collect())
}

/// Bytes a second of a copy that took so long.
fn per_second(time: Duration) -> u64 {
    u64::try_from(u128::from(COPY.0) * 1_000_000_000 / u128::from(nanos(time))).unwrap_or(u64::MAX)
}
