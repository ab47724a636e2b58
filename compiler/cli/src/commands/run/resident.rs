//! Memory of this process, as Linux counts it: what a run takes beside its arenas.

use pipe_distributed::{Division, Job, Rank};
use pipe_ir::program::{DeviceProgram, Program};
use pipe_ir::units::Bytes;
use pipe_runtime::{Backend, RunError};

/// Measures from here on.
pub(crate) struct Watch {
    before: Bytes,
}

impl Watch {
    /// Begins with what is resident now. `None` where the system does not say.
    pub(crate) fn start() -> Option<Self> {
        // Lets the highest mark start anew; where that is refused, it has the compiler's memory in it.
        let _ = std::fs::write("/proc/self/clear_refs", "5");
        Some(Self { before: status("VmRSS:")? })
    }

    /// The most that was resident at once, beyond what was at the start.
    pub(crate) fn most(&self) -> Option<Bytes> {
        Some(Bytes(status("VmHWM:")?.0.saturating_sub(self.before.0)))
    }
}

/// What a run took of the memory of a process, and how much of that are the arenas of the devices there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Resident {
    /// Of which process of a job.
    pub(crate) rank: Rank,
    pub(crate) bytes: Bytes,
    pub(crate) arenas: Bytes,
}

impl Resident {
    /// Of this process; in a job, on its first rank, of the one that took most. Nothing where no system says it. Fails
    /// if another rank cannot go on.
    pub(crate) fn most(
        own: Option<Bytes>,
        program: &Program,
        backend: Backend,
        job: Option<&Job>,
    ) -> Result<Option<Self>, RunError> {
        let n_ranks = job.map_or(1, Job::n_ranks);
        let Some(division) = Division::new(program.devices.len(), n_ranks) else { return Ok(None) };
        let of = |(rank, bytes): (usize, Option<Bytes>)| {
            let rank = Rank::from_index(rank);
            let devices = &program.devices[division.devices_of(rank)];
            // What a GPU has is no memory of the process.
            let own = |device: &DeviceProgram| if backend.is_gpu() { Bytes::ZERO } else { device.arena };
            let arenas = Bytes(devices.iter().map(|device| own(device).0 + device.host.arena.0).sum());
            Some(Self { rank, bytes: bytes?, arenas })
        };
        let all = match job {
            None => vec![own],
            Some(job) => {
                let word = own.map_or_else(Vec::new, |bytes| bytes.0.to_le_bytes().to_vec());
                let number = |word: Vec<u8>| word.try_into().ok().map(|bytes| Bytes(u64::from_le_bytes(bytes)));
                job.gather(word)?.into_iter().map(number).collect()
            }
        };
        Ok(all.into_iter().enumerate().filter_map(of).max_by_key(|resident| resident.bytes))
    }
}

fn status(field: &str) -> Option<Bytes> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let kibibytes = text.lines().find_map(|line| line.strip_prefix(field))?.trim().strip_suffix(" kB")?;
    Some(Bytes(kibibytes.parse::<u64>().ok()? << 10))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_most_that_was_resident_has_what_was_freed_again() {
        let watch = Watch::start().expect("Linux says");
        let large = vec![1_u8; 64 << 20];
        assert!(std::hint::black_box(&large).iter().all(|byte| *byte == 1));
        drop(large);
        let most = watch.most().expect("Linux says");
        // Other tests of this process free memory meanwhile.
        assert!(most >= Bytes(32 << 20), "{most}");
    }
}
