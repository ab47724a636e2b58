//! Jobs: processes under a launcher, who they are, and how they end.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// A small pipeline on two devices.
pub(crate) const TINY: &str = include_str!("../data/adam.pipe");

/// Two pipelines side by side, whose sums of gradients go over ranks.
const REPLICAS: &str = include_str!("../../../../tests/data/data_parallel.pipe");

/// The small pipeline on four devices with as many blocks, a schedule, and a line more.
pub(crate) fn pipeline(schedule: &str, line: &str) -> String {
    let text = TINY.replace("devices 2", "devices 4").replace("blocks = 2", "blocks = 8");
    let text = text.replace("schedule 1f1b", &format!("schedule {schedule}\n    {line}"));
    if schedule == "data_parallel" { text + "\n" + REPLICAS } else { text }
}

/// A command with its launcher, which also runs more processes than there are cores, for whoever asks.
pub(crate) fn launcher(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env("OMPI_MCA_rmaps_base_oversubscribe", "1").env("OMPI_MCA_mpi_yield_when_idle", "1");
    // Containers most often refuse that one process reads the memory of another.
    command.env("OMPI_MCA_btl_vader_single_copy_mechanism", "none");
    command.env("NO_COLOR", "1").env("COLUMNS", "100");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What was written to standard output, and to standard error.
pub(crate) fn texts(output: &Output) -> (String, String) {
    (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The processes of a job, by rank.
pub(crate) fn ranks(launcher: &Child) -> BTreeMap<u32, u32> {
    let mut ranks = BTreeMap::new();
    for entry in fs::read_dir("/proc").expect("Linux").flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse::<u32>().ok());
        if parent == Some(launcher.id()) {
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            let mut variables =
                environment.split(|byte| *byte == 0).filter_map(|variable| std::str::from_utf8(variable).ok());
            let rank = |variable: &str| {
                let rank = variable.strip_prefix("OMPI_COMM_WORLD_RANK=").or_else(|| variable.strip_prefix("RANK="));
                rank?.parse().ok()
            };
            let rank = variables.find_map(rank);
            ranks.extend(rank.map(|rank| (rank, process)));
        }
    }
    ranks
}

/// Sends a process a signal.
pub(crate) fn signal(process: u32, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &process.to_string()]).status();
    assert!(status.expect("`kill` is there").success(), "{process}");
}

/// Waits for a condition. After a timeout of minutes, as a busy machine needs, it ends the job and the test fails.
pub(crate) fn until(what: &str, launcher: &Child, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        if began.elapsed() > Duration::from_secs(240) {
            ranks(launcher).into_values().chain([launcher.id()]).for_each(|process| signal(process, "KILL"));
            panic!("{what}");
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Ends when all processes of a job have, or fails after a while. A launcher that goes on without
/// them is ended: Open MPI 4 does that at times where a rank is killed while it connects.
pub(crate) fn ended(mut child: Child, most: Duration) -> Output {
    let began = Instant::now();
    let mut seen = None;
    while child.try_wait().expect("it is ours").is_none() {
        let now = Instant::now();
        if !ranks(&child).is_empty() {
            seen = Some(now);
        } else if seen.is_some_and(|seen| now - seen > Duration::from_secs(15)) {
            drop(child.kill());
        }
        if began.elapsed() > most {
            let ranks = ranks(&child);
            ranks.values().for_each(|process| signal(*process, "KILL"));
            drop(child.kill());
            panic!("the job hangs: ranks {ranks:?}\n{:?}", child.wait_with_output().map(|output| texts(&output)));
        }
        thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().expect("it has ended")
}
