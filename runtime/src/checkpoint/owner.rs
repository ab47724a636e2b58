//! Owners: which run has a folder of checkpoints, as others read it there.

use crate::checksum;
use pipe_distributed::{Ailment, Process};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fmt, fs};

/// The run that has a folder: all ranks of a job are one, and their first process stands for them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Owner {
    /// Its identifier, which is in the names of its files.
    pub run: String,
    /// Its process.
    #[serde(flatten)]
    pub process: Process,
    /// What tells the host, since it started, and its space of process numbers from others: a
    /// number means a process only there.
    machine: String,
    /// When it took the folder, in seconds since 1970.
    pub since: u64,
}

impl Owner {
    /// This process, under a new identifier.
    pub(super) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (process, machine) = (Process::own(), machine());
        let own = format!("{process:?} {machine} {} {}", now.as_nanos(), COUNT.fetch_add(1, Ordering::Relaxed));
        let run = checksum::of(own.as_bytes()).chars().take(12).collect();
        Self { run, process, machine, since: now.as_secs() }
    }

    /// What can be seen of its process from here.
    pub(super) fn sign(&self) -> RankState {
        if self.machine.is_empty() || self.machine != machine() {
            return RankState::Unknown;
        }
        match self.process.ailment() {
            None => RankState::Runs,
            // Some systems hide the processes of other users, as the first one is.
            Some(Ailment::Ended) if fs::read("/proc/1/stat").is_ok() => RankState::Ended,
            Some(Ailment::Ended | Ailment::Stopped) => RankState::Unknown,
        }
    }
}

/// What can be seen of the process of an owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RankState {
    /// It runs.
    Runs,
    /// It has ended.
    Ended,
    /// It is stopped, or on another host.
    Unknown,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { run, process: Process { id, host, .. }, since, .. } = self;
        write!(f, "run {run} (process {id} on {host}, since {})", utc(*since))
    }
}

/// The identifier of this start of the host, and of the space of process numbers; empty where the system has none.
fn machine() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let space = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    if boot.is_empty() { String::new() } else { format!("{} {}", boot.trim(), space.display()) }
}

/// A moment as a date and time: `2026-11-24 02:25:07 UTC`. Days to dates as in Howard Hinnant,
/// "chrono-Compatible Low-Level Date Algorithms".
fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// What an owner writes, again and again, into its file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) format: String,
    #[serde(flatten)]
    pub(super) owner: Owner,
    /// How long it may write nothing before others take the folder, in milliseconds.
    patience: u64,
    /// How often it was written.
    pub(super) beat: u64,
    /// Whether the owner has let the folder go.
    pub(super) ended: bool,
}

const FORMAT: &str = "pipec.owner/1";
/// Every writing has as many bytes, so that it replaces the one before it.
const BYTES: usize = 1024;
const PREFIX: &str = ".owner-";
const SUFFIX: &str = ".json";

impl Note {
    pub(super) fn new(owner: Owner, patience: Duration) -> Self {
        let patience = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        Self { format: FORMAT.to_owned(), owner, patience, beat: 0, ended: false }
    }

    pub(super) fn patience(&self) -> Duration {
        Duration::from_millis(self.patience)
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec(self).unwrap_or_default();
        bytes.resize(BYTES.max(bytes.len()), b' ');
        bytes
    }

    /// Nothing where it is only half there, or of another version.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok().filter(|note: &Self| note.format == FORMAT)
    }
}

/// The file of the owner with this number: each that takes a folder has the next one.
pub(super) fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{PREFIX}{number:08}{SUFFIX}"))
}

/// The numbers of all owners that a folder has, ascending.
pub(super) fn numbers(folder: &Path) -> std::io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let digits = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX));
        numbers.extend(digits.and_then(|digits| digits.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates() {
        for (seconds, date) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_795_488_907, "2026-11-24 02:55:07 UTC"),
            (4_102_444_799, "2099-12-31 23:59:59 UTC"),
        ] {
            assert_eq!(utc(seconds), date);
        }
    }

    #[test]
    fn notes_are_read_as_they_were_written() {
        let note = Note::new(Owner::new(), Duration::from_secs(30));
        let bytes = note.to_bytes();
        assert_eq!((bytes.len(), Note::from_bytes(&bytes)), (BYTES, Some(note.clone())));
        assert_eq!(Note::from_bytes(&bytes[..100]), None);
        assert_eq!(note.owner.sign(), RankState::Runs);
        assert_ne!(Owner::new().run, note.owner.run);
    }
}
