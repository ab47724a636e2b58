//! Lost ranks: who of a job ended or fell silent, and where its devices were then.

use crate::rank::Rank;
use pipe_ir::ids::DeviceId;
use pipe_ir::verify::List;
use serde::{Deserialize, Serialize};
use std::fs;
use std::time::Duration;

/// Where a device was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// Which device.
    pub device: DeviceId,
    /// The list that it executed.
    pub list: List,
    /// The instruction that it had begun.
    pub index: usize,
}

impl Position {
    /// As one number; 0 stands for no position.
    pub(crate) const fn pack(list: List, index: usize) -> u64 {
        2 * (index as u64 + 1) + matches!(list, List::Step) as u64
    }

    /// Of such a number.
    pub(crate) fn unpack(device: DeviceId, packed: u64) -> Option<Self> {
        let index = usize::try_from(packed / 2).ok()?.checked_sub(1)?;
        let list = if packed.is_multiple_of(2) { List::Setup } else { List::Step };
        Some(Self { device, list, index })
    }
}

/// What is wrong with a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum How {
    /// Its process ended.
    Ended,
    /// Its process was stopped, and has said nothing for so long.
    Stopped(Duration),
    /// Nothing was heard of it for so long.
    Silent(Duration),
    /// It never joined the others.
    Absent(Duration),
}

impl How {
    /// How long nothing was heard of it.
    pub(crate) const fn silence(self) -> Duration {
        match self {
            Self::Ended => Duration::ZERO,
            Self::Stopped(silence) | Self::Silent(silence) | Self::Absent(silence) => silence,
        }
    }
}

/// A rank without which the job cannot go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lost {
    /// Which.
    pub rank: Rank,
    /// Its process, if it ever said so.
    pub process: Option<Process>,
    /// What is wrong.
    pub how: How,
    /// Where its devices were when it was last heard; none before its run.
    pub positions: Vec<Position>,
}

/// A process, told apart from all others.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub id: u32,
    /// The name of its host.
    pub host: String,
    /// When it started, in ticks of its host: numbers are used again.
    started: String,
}

impl Process {
    /// This one.
    pub fn own() -> Self {
        let id = std::process::id();
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
        Self { id, host, started: look(id).map(|(_, started)| started).unwrap_or_default() }
    }

    /// Whether it can be seen from here: it runs under the same number, so on the same host.
    pub fn is_visible(&self) -> bool {
        !self.started.is_empty() && look(self.id).is_some_and(|(_, started)| started == self.started)
    }

    /// What the system says of a process that could be seen before: `None` where it is well.
    pub fn ailment(&self) -> Option<Ailment> {
        match look(self.id) {
            Some((state, started)) if started == self.started => match state {
                'Z' | 'X' => Some(Ailment::Ended),
                'T' | 't' => Some(Ailment::Stopped),
                _ => None,
            },
            _ => Some(Ailment::Ended),
        }
    }
}

/// What can be wrong with a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ailment {
    /// It has ended.
    Ended,
    /// It was stopped.
    Stopped,
}

/// State and start time of a process of this host; `None` where there is none, or the system does not say.
fn look(id: u32) -> Option<(char, String)> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name of the program is in parentheses, and may hold any character.
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?.chars().next()?;
    // The 22nd field of all (proc(5)).
    Some((state, fields.nth(18)?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_packed_and_unpacked() {
        for list in [List::Setup, List::Step] {
            for index in [0, 1, 77] {
                let position = Position { device: DeviceId(3), list, index };
                assert_eq!(Position::unpack(DeviceId(3), Position::pack(list, index)), Some(position));
            }
        }
        assert_eq!(Position::unpack(DeviceId(3), 0), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_is_seen_while_it_lives() {
        assert!(Process::own().is_visible() && Process::own().ailment().is_none());
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("a process");
        let started = look(child.id()).map(|(_, started)| started).expect("it lives");
        let process = Process { id: child.id(), host: String::new(), started };
        assert!(process.is_visible() && process.ailment().is_none());
        child.kill().expect("it lives");
        while process.ailment() != Some(Ailment::Ended) {
            std::thread::yield_now();
        }
        child.wait().expect("it ended");
        assert!(process.ailment() == Some(Ailment::Ended) && !process.is_visible());
    }
}
