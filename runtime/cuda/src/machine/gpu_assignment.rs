//! GPU assignment: which GPU each device of a program has. Devices are spread over the GPUs in equal blocks;
//! several may share one.

use super::super::driver::{Area, DriverError, Gpu, Stream};
use pipe_distributed::{Mailbox, Process, Rank, RankView};
use pipe_ir::ids::DeviceId;
use pipe_ir::program::Program;
use pipe_ir::units::Bytes;
use pipe_runtime::{RunError, UsedGpu};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// The GPUs of a run.
#[derive(Debug)]
pub(super) struct GpuAssignment {
    /// By device of the program; of those of other processes, nothing follows from it.
    devices: Vec<Arc<Gpu>>,
    /// Those that are used.
    pub(super) gpus: Vec<Arc<Gpu>>,
    own: Range<usize>,
    /// By device of the program: which of the hosts it is on.
    hosts: Vec<usize>,
    /// Pairs of GPUs, by their numbers, of which the first does not reach the memory of the second.
    apart: BTreeSet<(usize, usize)>,
    /// What should be said of it.
    note: Option<&'static str>,
}

/// Of ranks that each see one of several GPUs of their host.
const SEES_ONE: &str = "every rank sees one GPU of its host alone, as `srun --gpus-per-task` makes it: they may not reach \
                        each other's memory, so that NCCL copies through the host; with `--gpus-per-node 8 \
                        --gpu-bind=none` every rank sees all, and takes its own";

impl GpuAssignment {
    /// GPUs for all devices of a program; in a job of several ranks, one GPU for those of this rank. An error says in
    /// one line why there are none, or why they cannot work together.
    pub(super) fn new(program: &Program, rank_view: Option<&RankView>) -> Result<Self, RunError> {
        let n_gpus = Gpu::count().map_err(RunError::Unsupported)?;
        let n_devices = program.devices.len();
        let Some(rank_view) = rank_view else {
            return Self::of(program, 0..n_devices, &spread(n_devices, n_gpus)).map_err(RunError::Unsupported);
        };
        let (mailbox, own) = (&rank_view.mailbox, rank_view.division.devices_of(rank_view.mailbox.rank));
        let hosts = hosts(mailbox)?;
        let neighbours = neighbours(mailbox, &hosts);
        let ordinal = of_rank(n_gpus, neighbours).map_err(RunError::Unsupported)?;
        let mut assignment = Self::of(program, own, &vec![ordinal; n_devices]).map_err(RunError::Unsupported)?;
        let host_of = |device| hosts[rank_view.division.rank_of(DeviceId::from_index(device)).index()];
        assignment.hosts = (0..n_devices).map(host_of).collect();
        assignment.note = (n_gpus == 1 && neighbours.1 > 1).then_some(SEES_ONE);
        let uuid = assignment.gpus.first().map_or(Ok(String::new()), |gpu| gpu.uuid())?;
        apart_from_others(mailbox, &format!("{} {uuid}", Process::own().host))?;
        Ok(assignment)
    }

    /// What should be said of it.
    pub(super) const fn note(&self) -> Option<&'static str> {
        self.note
    }

    fn of(program: &Program, own: Range<usize>, ordinals: &[usize]) -> Result<Self, String> {
        let mut gpus = BTreeMap::new();
        for ordinal in ordinals.iter().collect::<BTreeSet<_>>() {
            let gpu = Gpu::at(*ordinal).map_err(|error| format!("GPU {ordinal} cannot be used: {error}"))?;
            gpus.insert(*ordinal, gpu);
        }
        let devices = ordinals.iter().map(|ordinal| Arc::clone(&gpus[ordinal])).collect();
        let gpus: Vec<_> = gpus.into_values().collect();
        let assignment = Self { hosts: vec![0; ordinals.len()], devices, apart: apart(&gpus)?, gpus, own, note: None };
        assignment.analyze(program)?;
        Ok(assignment)
    }

    /// A GPU that adds up reads what all members of a group have, and gives the sum to all: one of them must reach all.
    fn analyze(&self, program: &Program) -> Result<(), String> {
        for group in &program.groups {
            let gpus: Vec<usize> = group.iter().map(|device| self.place(*device)).collect();
            let lacking: Vec<_> = gpus.iter().map(|gpu| self.lacks(*gpu, &gpus)).collect();
            if let Some(&Some((first, other))) = lacking.first()
                && lacking.iter().all(Option::is_some)
            {
                let members: Vec<String> = group.iter().map(DeviceId::to_string).collect();
                return Err(format!(
                    "{} work together, but GPU {first} does not reach the memory of GPU {other}: \
                     CUDA_VISIBLE_DEVICES can name one GPU, or GPUs that reach each other",
                    members.join(", ")
                ));
            }
        }
        Ok(())
    }

    /// The number of a GPU, and of one among others whose memory it does not reach.
    fn lacks(&self, gpu: usize, others: &[usize]) -> Option<(usize, usize)> {
        let own = self.gpus[gpu].ordinal;
        let mut pairs = others.iter().map(|other| (own, self.gpus[*other].ordinal));
        pairs.find(|(own, other)| self.apart.contains(&(*own, *other)))
    }

    /// By member of a group in this process: the place of the GPU that does its share. It is its own, or, where that
    /// does not reach those of all members, the first one that does.
    pub(super) fn doers(&self, members: impl Iterator<Item = DeviceId>) -> Vec<usize> {
        let gpus: Vec<usize> = members.map(|member| self.place(member)).collect();
        let reaches = |gpu: &usize| self.lacks(*gpu, &gpus).is_none();
        let first = gpus.iter().copied().find(reaches);
        gpus.iter().map(|gpu| if reaches(gpu) { *gpu } else { first.unwrap_or(*gpu) }).collect()
    }

    /// Whether all GPUs that a copy has to do with, that of its stream and those of its ends, reach
    /// each other's memory.
    pub(super) fn are_near(&self, stream: &Stream, ends: [Area; 2]) -> bool {
        let met: BTreeSet<usize> = ends.iter().filter_map(|area| area.gpu()).chain([stream.gpu.ordinal]).collect();
        !self.apart.iter().any(|(from, to)| met.contains(from) && met.contains(to))
    }

    /// The devices of this process.
    pub(super) fn own(&self) -> Range<usize> {
        self.own.clone()
    }

    /// The GPU of a device of this process.
    pub(super) fn gpu_of(&self, device: DeviceId) -> &Arc<Gpu> {
        &self.devices[device.index()]
    }

    /// The host of a device, as a number.
    pub(super) fn host_of(&self, device: DeviceId) -> usize {
        self.hosts[device.index()]
    }

    /// The place of a device's GPU among those that are used.
    pub(super) fn place(&self, device: DeviceId) -> usize {
        let ordinal = self.gpu_of(device).ordinal;
        self.gpus.iter().position(|gpu| gpu.ordinal == ordinal).unwrap_or(0)
    }

    /// Names, with the devices on each and what multiplies matrices there.
    pub(super) fn used(&self, products: &str) -> Vec<UsedGpu> {
        let on =
            |gpu: usize| self.own().map(DeviceId::from_index).filter(|device| self.place(*device) == gpu).collect();
        let gpus = self.gpus.iter().enumerate();
        gpus.map(|(gpu, found)| UsedGpu { name: found.name.clone(), devices: on(gpu), products: products.to_owned() })
            .collect()
    }

    /// Whether several devices have one.
    pub(super) fn are_shared(&self) -> bool {
        self.own().len() > self.gpus.len()
    }

    /// Free memory of the first one.
    pub(super) fn free_memory(&self) -> Result<Bytes, DriverError> {
        self.gpus.first().map_or(Ok(Bytes::ZERO), |gpu| gpu.free_memory())
    }

    /// Waits for all of them.
    pub(super) fn synchronise(&self) -> Result<(), DriverError> {
        self.gpus.iter().try_for_each(|gpu| gpu.synchronise())
    }
}

/// Lets GPUs touch each other's memory, as far as they can: transfers are then direct. Answers which cannot.
fn apart(gpus: &[Arc<Gpu>]) -> Result<BTreeSet<(usize, usize)>, String> {
    let mut apart = BTreeSet::new();
    for from in gpus {
        for to in gpus.iter().filter(|to| to.ordinal != from.ordinal) {
            let reached = from.reach(to).map_err(|error| format!("GPU {} cannot be used: {error}", from.ordinal))?;
            if !reached {
                apart.insert((from.ordinal, to.ordinal));
            }
        }
    }
    Ok(apart)
}

/// Whether this rank has a GPU. All ranks ask at once. Fails if a rank cannot go on.
pub(crate) fn has_gpu(mailbox: &Mailbox) -> Result<bool, RunError> {
    let neighbours = neighbours(mailbox, &hosts(mailbox)?);
    Ok(Gpu::count().is_ok_and(|n_gpus| of_rank(n_gpus, neighbours).is_ok()))
}

/// By rank: the first rank on its host. All ranks ask at once.
fn hosts(mailbox: &Mailbox) -> Result<Vec<usize>, RunError> {
    let hosts = mailbox.gather(Process::own().host.into_bytes())?;
    let first = |host: &Vec<u8>| hosts.iter().position(|other| other == host);
    let hosts: Vec<_> = hosts.iter().filter_map(first).collect();
    let hosts = mailbox.spread(serde_json::to_vec(&hosts).unwrap_or_default())?;
    let hosts: Vec<usize> = serde_json::from_slice(&hosts).unwrap_or_default();
    let n_ranks = mailbox.n_ranks;
    if hosts.len() == n_ranks {
        Ok(hosts)
    } else {
        Err(RunError::Unsupported("the hosts of the ranks are unknown".to_owned()))
    }
}

/// Which of the ranks on its host a rank is, and how many there are.
fn neighbours(mailbox: &Mailbox, hosts: &[usize]) -> (usize, usize) {
    let own = mailbox.rank.index();
    let here = |ranks: &[usize]| ranks.iter().filter(|host| **host == hosts[own]).count();
    (here(&hosts[..own]), here(hosts))
}

/// Whether no other rank of the job has this GPU. All ranks ask at once.
fn apart_from_others(mailbox: &Mailbox, gpu: &str) -> Result<(), RunError> {
    let all = mailbox.gather(gpu.as_bytes().to_vec())?;
    let mut ranks = BTreeMap::<_, Vec<String>>::new();
    for (rank, gpu) in all.iter().enumerate() {
        ranks.entry(gpu).or_default().push(Rank::from_index(rank).to_string());
    }
    let same = ranks.into_values().find(|ranks| ranks.len() > 1).unwrap_or_default();
    let same = String::from_utf8_lossy(&mailbox.spread(same.join(" and ").into_bytes())?).into_owned();
    if same.is_empty() {
        return Ok(());
    }
    Err(RunError::Unsupported(format!(
        "{same} have the same GPU, and every rank needs one of its own: CUDA_VISIBLE_DEVICES shows each of them that one \
         alone"
    )))
}

/// The GPU of a rank: the first rank of a host has the first GPU, and so on. A launcher may also
/// have given each rank the sight of one GPU only.
fn of_rank(n_gpus: usize, (place, count): (usize, usize)) -> Result<usize, String> {
    match n_gpus {
        _ if count <= n_gpus => Ok(place),
        1 => Ok(0),
        _ => Err(format!("{count} ranks on this host, but {n_gpus} GPUs: every rank needs one of its own")),
    }
}

/// The GPU of each device, in equal blocks.
fn spread(n_devices: usize, n_gpus: usize) -> Vec<usize> {
    (0..n_devices).map(|device| device * n_gpus / n_devices.max(1)).collect()
}

#[cfg(test)]
mod tests {
    use super::{of_rank, spread};

    #[test]
    fn ranks_of_a_host_have_a_gpu_each() {
        assert_eq!((of_rank(8, (3, 4)), of_rank(4, (3, 4))), (Ok(3), Ok(3)));
        // CUDA_VISIBLE_DEVICES hides the others.
        assert_eq!(of_rank(1, (3, 4)), Ok(0));
        let told = "4 ranks on this host, but 2 GPUs: every rank needs one of its own";
        assert_eq!(of_rank(2, (1, 4)), Err(told.to_owned()));
    }

    #[test]
    fn devices_are_spread_in_equal_blocks() {
        assert_eq!(spread(4, 1), [0, 0, 0, 0]);
        assert_eq!(spread(4, 2), [0, 0, 1, 1]);
        assert_eq!(spread(3, 2), [0, 0, 1]);
        assert_eq!(spread(2, 4), [0, 2]);
        assert!(spread(0, 1).is_empty());
    }
}
