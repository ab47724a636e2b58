//! Launchers: which program started this process together with others, as its environment says.

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

/// What starts processes, and the variables that say which one of how many a process is. Libraries come before resource managers: `srun`
/// may have started an `mpirun`.
const LAUNCHERS: [(&str, &str, &str); 4] = [
    // Open MPI.
    ("mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    // MPICH, Intel MPI and MVAPICH, and `srun --mpi=pmi2`.
    ("mpirun", "PMI_RANK", "PMI_SIZE"),
    ("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("torchrun", "RANK", "WORLD_SIZE"),
];

impl Launched {
    /// What the variables of an environment say; nothing where this process is alone.
    pub(crate) fn read(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let number = |name: &str| variable(name)?.trim().parse::<u32>().ok();
        let found = LAUNCHERS
            .into_iter()
            .find_map(|(by, rank, size)| Some(Self { by, rank: number(rank)?, n_ranks: number(size)? }));
        found.filter(|launched| launched.n_ranks > 1)
    }

    /// That `pipec` was built without MPI.
    #[cfg_attr(feature = "mpi", expect(dead_code, reason = "this one was built with it"))]
    pub(crate) fn without_mpi(&self) -> String {
        let Self { by, n_ranks, .. } = self;
        format!(
            "{by} started {n_ranks} processes, but this pipec was built for one: with an MPI library and libclang (Debian: libopenmpi-dev, \
             libclang-dev), `cargo install --path compiler/cli --features mpi` builds one for several"
        )
    }

    /// That MPI connects another number of processes.
    #[cfg_attr(not(feature = "mpi"), expect(dead_code, reason = "only a build with MPI counts"))]
    pub(crate) fn miscounted(&self, connected: usize) -> String {
        let Self { by, n_ranks, .. } = self;
        let hint = match *by {
            "srun" => "`srun --mpi=list` says what this Slurm can start, most often `srun --mpi=pmix` or `--mpi=pmi2`",
            "torchrun" => "MPI knows nothing of torchrun: start them with `mpirun` or `srun`",
            _ => "the `mpirun` of the library that pipec was built with can start them",
        };
        format!("{by} started {n_ranks} processes, but MPI connects {connected}: {hint}")
    }
}

#[cfg(test)]
mod tests {
    use super::Launched;

    fn read(variables: &[(&str, &str)]) -> Option<Launched> {
        let of = |name: &str| variables.iter().find(|(other, _)| *other == name);
        Launched::read(|name| of(name).map(|(_, text)| (*text).to_owned()))
    }

    #[test]
    fn every_launcher_is_known_by_its_variables() {
        let of = |by, rank, n_ranks| Some(Launched { by, rank, n_ranks });
        assert_eq!(read(&[("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "4")]), of("mpirun", 2, 4));
        assert_eq!(read(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")]), of("mpirun", 0, 2));
        assert_eq!(read(&[("SLURM_PROCID", "7"), ("SLURM_STEP_NUM_TASKS", "8")]), of("srun", 7, 8));
        assert_eq!(read(&[("RANK", "1"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "1")]), of("torchrun", 1, 2));
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
}
