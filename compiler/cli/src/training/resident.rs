//! Memory of this process, as Linux counts it: what a run takes beside its arenas.

use pipe_ir::units::Bytes;

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
        assert!(most >= Bytes(60 << 20), "{most}");
    }
}
