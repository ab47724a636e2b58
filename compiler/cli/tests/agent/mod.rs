//! Agents: what launchers do on a host. They start processes, and end all when one fails. That of
//! torchrun keeps a store which the processes find, Slurm's leaves that to the first of them.

use crate::job::{signal, texts};
use crate::store::Store;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// The real one; nothing where it is missing, which is said once.
pub(crate) fn torchrun() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let named = std::env::var_os("PIPEC_TORCHRUN").map_or_else(|| PathBuf::from("torchrun"), PathBuf::from);
        let starts = Command::new(&named).arg("--help").output().is_ok_and(|output| output.status.success());
        if !starts {
            eprintln!("skipped: the real torchrun, which is not here (PIPEC_TORCHRUN can name it)");
        }
        starts.then_some(named)
    });
    found.as_deref()
}

/// One of ours.
pub(crate) struct Agent {
    /// That of torchrun keeps one.
    store: Option<Store>,
    folder: PathBuf,
    libraries: Option<PathBuf>,
    /// Further environment variables of all processes.
    variables: Vec<(String, String)>,
    /// Processes per host, where there are several hosts.
    per_host: Option<u32>,
}

impl Agent {
    /// That of torchrun, working in a folder.
    pub(crate) fn new(folder: &Path) -> Self {
        let mut agent = Self::of_slurm(folder);
        agent.store = Some(Store::start());
        agent
    }

    /// Slurm's.
    pub(crate) fn of_slurm(folder: &Path) -> Self {
        Self { store: None, folder: folder.to_owned(), libraries: None, variables: Vec::new(), per_host: None }
    }

    /// On a machine with four fake GPUs.
    pub(crate) fn with_gpus(mut self, libraries: &Path) -> Self {
        self.libraries = Some(libraries.to_owned());
        self
    }

    /// Puts `per_host` processes on each host. Each host has its own name.
    pub(crate) fn on_hosts(mut self, per_host: u32) -> Self {
        self.per_host = Some(per_host);
        self
    }

    /// Sets an environment variable of all processes. The value `RANK` becomes the rank of each.
    pub(crate) fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.variables.push((name.to_owned(), value.to_string()));
        self
    }

    /// Starts so many processes, each with its own arguments.
    pub(crate) fn run(&mut self, n_ranks: u32, arguments: impl Fn(u32) -> String) -> Processes {
        let port = self.store.as_ref().map_or_else(free_port, Store::port).to_string();
        let start = |rank: u32| {
            let mut command = self.on_host(rank);
            command.args(arguments(rank).split_whitespace()).current_dir(&self.folder);
            if self.store.is_some() {
                command.env("RANK", rank.to_string()).env("WORLD_SIZE", n_ranks.to_string());
                command.env("MASTER_ADDR", "localhost").env("MASTER_PORT", &port);
                command.env("TORCHELASTIC_RUN_ID", "none").env("TORCHELASTIC_USE_AGENT_STORE", "True");
            } else {
                let per_host = self.per_host.unwrap_or(n_ranks);
                let near = (0..n_ranks).filter(|other| other / per_host == rank / per_host);
                let ranks: Vec<String> = near.map(|rank| rank.to_string()).collect();
                command.env("SLURM_NODEID", (rank / per_host).to_string());
                command.env("SLURM_LOCALID", (rank % per_host).to_string());
                command.env("SLURM_PROCID", rank.to_string()).env("SLURM_STEP_NUM_TASKS", n_ranks.to_string());
                command.env("SLURM_STEP_NODELIST", "localhost").env("SLURM_GTIDS", ranks.join(","));
                command.env("SLURM_JOB_ID", "7").env("SLURM_STEP_ID", "0").env("MASTER_PORT", &port);
            }
            command.env("NO_COLOR", "1").env("COLUMNS", "100");
            if let Some(libraries) = &self.libraries {
                command.env("LD_LIBRARY_PATH", libraries).env("PIPEC_EMULATOR_CACHE", libraries.join("kernels"));
                command.env("XDG_CACHE_HOME", self.folder.join("cache")).env("PIPEC_FAKE_DEVICES", "4");
            }
            let own = rank.to_string();
            let value = |value: &String| if value == "RANK" { own.clone() } else { value.clone() };
            command.envs(self.variables.iter().map(|(name, given)| (name, value(given))));
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().expect("the command starts")
        };
        Processes((0..n_ranks).map(start).collect())
    }

    /// The command, perhaps under the name of its host.
    fn on_host(&self, rank: u32) -> Command {
        let pipec = env!("CARGO_BIN_EXE_pipec");
        let Some(per_host) = self.per_host else { return Command::new(pipec) };
        let mut command = Command::new("unshare");
        // The shell becomes the command, so that its process has the same number.
        command.args(["-u", "sh", "-c", "hostname \"$0\" && exec \"$@\""]);
        command.arg(format!("node{}", rank / per_host)).arg(pipec);
        command
    }

    /// The store ends before the processes.
    pub(crate) fn end_store(&self) {
        self.store.as_ref().expect("it keeps one").end();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let mistakes = self.store.as_ref().map(Store::mistakes).unwrap_or_default();
        assert!(mistakes.is_empty() || thread::panicking(), "{mistakes:?}");
    }
}

/// A port that nobody has now.
fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    listener.local_addr().expect("it is bound").port()
}

/// Processes that were started together, by rank.
pub(crate) struct Processes(Vec<Child>);

impl Processes {
    /// The number of one.
    pub(crate) fn id(&self, rank: u32) -> u32 {
        self.0[rank as usize].id()
    }

    /// Kills all of them.
    pub(crate) fn kill(mut self) {
        for child in &mut self.0 {
            child.kill().expect("it is ours");
        }
        for child in &mut self.0 {
            child.wait().expect("it is ours");
        }
    }

    /// Ends when all of them have, or fails after a while. When one fails the others are asked to
    /// end, as torchrun does, and a stopped one is killed.
    pub(crate) fn ended(mut self, most: Duration) -> Vec<Output> {
        let began = Instant::now();
        let mut is_asked = false;
        loop {
            let states: Vec<_> = self.0.iter_mut().map(|child| child.try_wait().expect("it is ours")).collect();
            let running =
                || self.0.iter().zip(&states).filter(|(_, state)| state.is_none()).map(|(child, _)| child.id());
            if running().next().is_none() {
                break;
            }
            if !is_asked && states.iter().flatten().any(|state| !state.success()) {
                running().for_each(|process| signal(process, "TERM"));
                is_asked = true;
            }
            let is_stopped = |process: u32| {
                let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
                stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
            };
            if is_asked && running().all(is_stopped) {
                running().for_each(|process| signal(process, "KILL"));
            }
            if began.elapsed() > most {
                let left: Vec<u32> = running().collect();
                left.iter().for_each(|process| signal(*process, "KILL"));
                let outputs = self.0.into_iter().map(|child| child.wait_with_output().expect("it has ended"));
                panic!("the job hangs: {left:?}\n{:?}", outputs.map(|output| texts(&output)).collect::<Vec<_>>());
            }
            thread::sleep(Duration::from_millis(10));
        }
        self.0.into_iter().map(|child| child.wait_with_output().expect("it has ended")).collect()
    }
}
