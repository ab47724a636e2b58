//! Launchers: which program started this process together with others, as its environment says.

use super::slurm;
use pipe_distributed::store::{Address, Keeper, Member};

/// A process that was started as one of several.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Launched {
    /// What started it.
    pub(crate) by: &'static str,
    /// Which of them it is, counted from 0.
    pub(crate) rank: u32,
    /// How many there are; never 1.
    pub(crate) n_ranks: u32,
}

/// What starts processes, and the variables that say which one of how many a process is. Libraries
/// come before resource managers: `srun` may have started an `mpirun`.
const LAUNCHERS: [(&str, &str, &str); 4] = [
    // Open MPI.
    ("mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    // MPICH, Intel MPI and MVAPICH, and `srun --mpi=pmi2`.
    ("mpirun", "PMI_RANK", "PMI_SIZE"),
    (SRUN, slurm::RANK, slurm::N_RANKS),
    // Whoever sets these by hand, for programs that ask nobody else.
    ("the environment", "RANK", "WORLD_SIZE"),
];

/// Slurm's.
const SRUN: &str = "srun";

/// torchrun also sets this variable. It starts its processes itself, whatever started it.
const TORCHRUN: (&str, &str, &str) = ("torchrun", "RANK", "WORLD_SIZE");
const RUN_ID: &str = "TORCHELASTIC_RUN_ID";

/// What connects processes that were started together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// An MPI library, which knows its launcher.
    Mpi,
    /// A store.
    Store(Address, Member),
}

impl Launched {
    /// What the variables of an environment say; nothing where this process is alone.
    pub(crate) fn read(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let number = |name: &str| variable(name)?.trim().parse::<u32>().ok();
        let torchrun = variable(RUN_ID).map(|_| TORCHRUN);
        let found = torchrun
            .into_iter()
            .chain(LAUNCHERS)
            .find_map(|(by, rank, size)| Some(Self { by, rank: number(rank)?, n_ranks: number(size)? }));
        // With `--mpi=pmi2` `srun` sets variables of MPI libraries, too; an `mpirun` that it
        // started counts otherwise than it does.
        let is_of_slurm = |one: &Self| Some((one.rank, one.n_ranks)) == number(slurm::RANK).zip(number(slurm::N_RANKS));
        let found =
            found.map(|one| if one.by == LAUNCHERS[1].0 && is_of_slurm(&one) { Self { by: SRUN, ..one } } else { one });
        found.filter(|launched| launched.n_ranks > 1)
    }

    /// What connects this process with the others. An error says what is missing.
    pub(crate) fn way(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Way, String> {
        let Self { by, rank, n_ranks } = *self;
        if by == LAUNCHERS[3].0 {
            return Err(format!(
                "RANK and WORLD_SIZE say that this is one of {n_ranks} processes, but not what connects them: start them with \
                 `torchrun --no-python --nproc-per-node {n_ranks} pipec ..` or `mpirun -n {n_ranks} pipec ..`, or unset WORLD_SIZE"
            ));
        }
        if by == SRUN && !is_for_mpi(&variable) {
            return slurm::store(rank, n_ranks, variable).map(|(address, member)| Way::Store(address, member));
        }
        if by != TORCHRUN.0 {
            return Ok(Way::Mpi);
        }
        if variable("TORCHELASTIC_USE_AGENT_STORE").as_deref() != Some("True") {
            return Err(format!(
                "torchrun started {n_ranks} processes, but no store for them (TORCHELASTIC_USE_AGENT_STORE is not True): it starts one unless \
                 TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 is set"
            ));
        }
        if rank >= n_ranks {
            return Err(format!("RANK is {rank}, but WORLD_SIZE is {n_ranks}: ranks are counted from 0"));
        }
        let host = variable("MASTER_ADDR").map(|host| host.trim().to_owned()).filter(|host| !host.is_empty());
        let host = host.ok_or("torchrun's store is at MASTER_ADDR, which is not set")?;
        let port = variable("MASTER_PORT").ok_or("torchrun's store is at the port MASTER_PORT, which is not set")?;
        let number = port.trim().parse().ok().filter(|port| *port > 0);
        let port =
            number.ok_or_else(|| format!("torchrun's store is at the port MASTER_PORT, but that is `{port}`"))?;
        let job = variable(RUN_ID).unwrap_or_default();
        // Ranks of one host follow each other. Of those that say nothing, each is alone.
        let count = |name: &str| variable(name)?.trim().parse::<u32>().ok();
        let first = rank.saturating_sub(count("LOCAL_RANK").unwrap_or(0));
        let near = first..first.saturating_add(count("LOCAL_WORLD_SIZE").unwrap_or(1)).min(n_ranks);
        Ok(Way::Store(Address { host, port, keeper: Keeper::Torchrun }, Member { rank, n_ranks, near, job }))
    }

    /// Whether its launcher starts processes again, with the same arguments: `torchrun` when one is
    /// lost, Slurm with jobs that it requeues.
    pub(crate) fn starts_again(&self) -> bool {
        [TORCHRUN.0, SRUN].contains(&self.by)
    }

    /// That `pipec` was built without MPI.
    #[cfg_attr(feature = "mpi", expect(dead_code, reason = "this one was built with it"))]
    pub(crate) fn without_mpi(&self) -> String {
        let Self { by, n_ranks, .. } = self;
        format!(
            "{by} started {n_ranks} processes, but this pipec was built without MPI: start them with `torchrun`, or build pipec with an MPI library \
             and libclang (Debian: libopenmpi-dev, libclang-dev), `cargo install --path compiler/cli --features mpi`"
        )
    }

    /// That MPI connects another number of processes.
    #[cfg_attr(not(feature = "mpi"), expect(dead_code, reason = "only a build with MPI counts"))]
    pub(crate) fn miscounted(&self, connected: usize) -> String {
        let Self { by, n_ranks, .. } = self;
        let hint = match *by {
            "srun" => "`srun --mpi=list` says what this Slurm can start, most often `srun --mpi=pmix` or `--mpi=pmi2`",
            _ => "the `mpirun` of the library that pipec was built with can start them",
        };
        format!("{by} started {n_ranks} processes, but MPI connects {connected}: {hint}")
    }
}

/// Whether MPI connects what `srun` started: if it can here.
#[cfg(feature = "mpi")]
fn is_for_mpi(variable: impl Fn(&str) -> Option<String>) -> bool {
    slurm::has_mpi(variable)
}

#[cfg(not(feature = "mpi"))]
fn is_for_mpi(_: impl Fn(&str) -> Option<String>) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::{Launched, Way};
    use pipe_distributed::store::{Address, Keeper, Member};

    fn of(variables: &[(&str, &str)], name: &str) -> Option<String> {
        variables.iter().find(|(other, _)| *other == name).map(|(_, text)| (*text).to_owned())
    }

    fn launched(by: &'static str, rank: u32, n_ranks: u32) -> Option<Launched> {
        Some(Launched { by, rank, n_ranks })
    }

    fn read(variables: &[(&str, &str)]) -> Option<Launched> {
        Launched::read(|name| of(variables, name))
    }

    fn way(variables: &[(&str, &str)]) -> Result<Way, String> {
        read(variables).expect("it is one of several").way(|name| of(variables, name))
    }

    #[test]
    fn every_launcher_is_known_by_its_variables() {
        assert_eq!(read(&[("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "4")]), launched("mpirun", 2, 4));
        assert_eq!(read(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")]), launched("mpirun", 0, 2));
        assert_eq!(read(&[("SLURM_PROCID", "7"), ("SLURM_STEP_NUM_TASKS", "8")]), launched("srun", 7, 8));
        assert_eq!(read(&[("RANK", "1"), ("WORLD_SIZE", "2")]), launched("the environment", 1, 2));
        // Slurm started one torchrun on each of two hosts, and those two processes each.
        let slurm = [("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "2")];
        let torchrun = [("RANK", "3"), ("WORLD_SIZE", "4"), ("TORCHELASTIC_RUN_ID", "none")];
        assert_eq!(read(&[&slurm[..], &torchrun].concat()), launched("torchrun", 3, 4));
    }

    #[test]
    fn a_process_is_alone_unless_its_environment_says_otherwise() {
        for alone in
            [&[][..], &[("RANK", "0")], &[("RANK", "x"), ("WORLD_SIZE", "2")], &[("PMI_RANK", "0"), ("PMI_SIZE", "1")]]
        {
            assert_eq!(read(alone), None, "{alone:?}");
        }
        // A batch script of Slurm is one process, whatever its allocation has room for.
        assert_eq!(read(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")]), None);
    }

    const TORCHRUN: [(&str, &str); 6] = [
        ("TORCHELASTIC_RUN_ID", "none"),
        ("TORCHELASTIC_USE_AGENT_STORE", "True"),
        ("RANK", "1"),
        ("WORLD_SIZE", "2"),
        ("MASTER_ADDR", "::1"),
        ("MASTER_PORT", "29500"),
    ];

    #[test]
    fn torchrun_connects_processes_by_its_store_and_others_by_mpi() {
        let address = Address { host: "::1".to_owned(), port: 29500, keeper: Keeper::Torchrun };
        assert_eq!(address.to_string(), "torchrun's store at [::1]:29500");
        let member = |near| Member { rank: 1, n_ranks: 2, near, job: "none".to_owned() };
        assert_eq!(way(&TORCHRUN), Ok(Way::Store(address.clone(), member(1..2))));
        let local = [("LOCAL_RANK", "1"), ("LOCAL_WORLD_SIZE", "2")];
        assert_eq!(way(&[&TORCHRUN[..], &local].concat()), Ok(Way::Store(address, member(0..2))));
        assert_eq!(way(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")]), Ok(Way::Mpi));
    }

    #[test]
    fn srun_connects_processes_by_a_store_of_the_first_one_or_by_mpi_if_it_is_for_that() {
        let step = [("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "2"), ("SLURM_STEP_NODELIST", "n[1-2]")];
        let Ok(Way::Store(address, member)) = way(&step) else { panic!("a store") };
        assert_eq!((address.to_string().as_str(), member.near), ("the store of rank 0 at n1:12000", 1..2));
        let pmi2 = [&step[..], &[("SLURM_MPI_TYPE", "pmi2"), ("PMI_RANK", "1"), ("PMI_SIZE", "2")]].concat();
        assert_eq!(read(&pmi2), launched("srun", 1, 2));
        assert_eq!(way(&pmi2) == Ok(Way::Mpi), cfg!(feature = "mpi"));
        // An `mpirun` of MPICH that `srun` started once on each host.
        let hydra = [&step[..], &[("PMI_RANK", "5"), ("PMI_SIZE", "8")]].concat();
        assert_eq!((read(&hydra), way(&hydra)), (launched("mpirun", 5, 8), Ok(Way::Mpi)));
    }

    #[test]
    fn whatever_is_missing_or_wrong_is_said() {
        let but = |name: &str, text: &'static str| {
            let variables = TORCHRUN.map(|(own, before)| (own, if own == name { text } else { before }));
            way(&variables).expect_err("something is wrong")
        };
        assert!(but("TORCHELASTIC_USE_AGENT_STORE", "False").contains("TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"));
        assert_eq!(but("RANK", "2"), "RANK is 2, but WORLD_SIZE is 2: ranks are counted from 0");
        assert_eq!(but("MASTER_ADDR", " "), "torchrun's store is at MASTER_ADDR, which is not set");
        for port in ["", "0", "65536", "http"] {
            let told = format!("torchrun's store is at the port MASTER_PORT, but that is `{port}`");
            assert_eq!(but("MASTER_PORT", port), told);
        }
        let by_hand = way(&[("RANK", "0"), ("WORLD_SIZE", "2")]).expect_err("nothing connects them");
        assert!(by_hand.contains("`torchrun --no-python --nproc-per-node 2 pipec ..`"), "{by_hand}");
    }
}
