//! Slurm: what `srun` says to the processes of a step, where no MPI library connects them. The
//! first one keeps a store for all.

use pipe_distributed::store::{Address, Keeper, Member};

/// The variables that tell a process of a step which one of how many it is.
pub(super) const RANK: &str = "SLURM_PROCID";
pub(super) const N_RANKS: &str = "SLURM_STEP_NUM_TASKS";

/// Ports of stores: below those that systems give away by themselves, from 32768 on.
const FIRST_PORT: u64 = 12_000;
const N_PORTS: u64 = 20_000;

/// Whether the step connects its processes for MPI libraries (`--mpi`, or what the cluster has for it).
#[cfg_attr(not(feature = "mpi"), expect(dead_code, reason = "only a build with MPI asks"))]
pub(super) fn has_mpi(variable: impl Fn(&str) -> Option<String>) -> bool {
    variable("SLURM_MPI_TYPE").is_some_and(|kind| !kind.is_empty() && kind != "none")
}

/// Where the store of a step is, and who this process is there. MASTER_ADDR and MASTER_PORT, where somebody set them,
/// come first. An error says what is missing.
pub(super) fn store(
    rank: u32,
    n_ranks: u32,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<(Address, Member), String> {
    let text = |name: &str| variable(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    let number = |name: &str| text(name)?.parse::<u64>().ok();
    let nodes = ["SLURM_STEP_NODELIST", "SLURM_NODELIST"].into_iter().find_map(text);
    if rank == 0 && number("SLURM_NODEID").is_some_and(|node| node != 0) && text("MASTER_ADDR").is_none() {
        return Err(
            "rank 0 is not on the first host of this step: set MASTER_ADDR to its host, on all ranks".to_owned()
        );
    }
    let host = text("MASTER_ADDR").or_else(|| nodes.as_deref().and_then(first_host));
    let host = host.ok_or(
        "srun says nothing of the hosts of this step (SLURM_STEP_NODELIST): set MASTER_ADDR to that of rank 0",
    )?;
    let (job, step) = (number("SLURM_JOB_ID"), number("SLURM_STEP_ID"));
    let port = match text("MASTER_PORT") {
        Some(text) => text.parse().ok().filter(|port| *port > 0),
        // Steps of a job, and jobs that share a host, follow each other: no two of some hundreds have the same port.
        None => u16::try_from(FIRST_PORT + (job.unwrap_or(0) * 61 + step.unwrap_or(0)) % N_PORTS).ok(),
    };
    let port = port.ok_or("the ranks meet at the port MASTER_PORT, but that is not a number from 1 to 65535")?;
    let name = format!("slurm-{}.{}", job.unwrap_or(0), step.unwrap_or(0));
    let near = text("SLURM_GTIDS").and_then(|ranks| near(&ranks, rank)).unwrap_or(rank..rank + 1);
    Ok((Address { host, port, keeper: Keeper::FirstRank }, Member { rank, n_ranks, near, job: name }))
}

/// The first host of a list such as `a[01-03,07],b`.
fn first_host(list: &str) -> Option<String> {
    let end = list.find([',', '[']).unwrap_or(list.len());
    let (name, rest) = list.split_at(end);
    let Some(rest) = rest.strip_prefix('[') else { return Some(name.to_owned()).filter(|name| !name.is_empty()) };
    let (numbers, rest) = rest.split_once(']')?;
    let number = numbers.split([',', '-']).next()?;
    // What follows the brackets belongs to each name, and may have brackets, too.
    let end = rest.find(',').unwrap_or(rest.len());
    let tail = if rest[..end].is_empty() { String::new() } else { first_host(&rest[..rest.len()])? };
    Some(format!("{name}{number}{tail}"))
}

/// The ranks on this host, if they follow each other.
fn near(ranks: &str, own: u32) -> Option<std::ops::Range<u32>> {
    let mut ranks: Vec<u32> = ranks.split(',').map(|rank| rank.trim().parse().ok()).collect::<Option<_>>()?;
    ranks.sort_unstable();
    let (first, last) = (*ranks.first()?, *ranks.last()?);
    let follow = (first..=last).eq(ranks.iter().copied()) && ranks.contains(&own);
    follow.then_some(first..last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: [(&str, &str); 5] = [
        ("SLURM_JOB_ID", "4711"),
        ("SLURM_STEP_ID", "2"),
        ("SLURM_STEP_NODELIST", "gpu[007-009,012],login"),
        ("SLURM_GTIDS", "4,5,6,7"),
        ("SLURM_NODEID", "1"),
    ];

    fn of(rank: u32, more: &[(&str, &str)]) -> Result<(Address, Member), String> {
        let find =
            |name: &str| more.iter().chain(&STEP).find(|(other, _)| *other == name).map(|(_, text)| (*text).to_owned());
        store(rank, 16, find)
    }

    #[test]
    fn the_store_is_on_the_first_host_at_a_port_of_the_step() {
        let (address, member) = of(5, &[]).expect("a step");
        assert_eq!(address, Address { host: "gpu007".to_owned(), port: 12_000 + 7_373, keeper: Keeper::FirstRank });
        assert_eq!(member, Member { rank: 5, n_ranks: 16, near: 4..8, job: "slurm-4711.2".to_owned() });
        let other = of(5, &[("SLURM_STEP_ID", "3")]).expect("a step").0;
        assert_ne!(other.port, address.port);
        let named = of(5, &[("MASTER_ADDR", "10.0.0.7"), ("MASTER_PORT", "29500")]).expect("a step").0;
        assert_eq!((named.host.as_str(), named.port), ("10.0.0.7", 29_500));
    }

    #[test]
    fn what_cannot_be_is_said() {
        for port in ["0", "70000", "x"] {
            let error = of(5, &[("MASTER_PORT", port)]).expect_err("no port");
            assert!(error.contains("MASTER_PORT, but that is not a number"), "{error}");
        }
        let error = of(0, &[]).expect_err("on the second host");
        assert!(error.contains("rank 0 is not on the first host"), "{error}");
        let error = store(1, 2, |_| None).expect_err("nothing is said");
        assert!(error.contains("set MASTER_ADDR"), "{error}");
    }

    #[test]
    fn first_hosts_are_found_in_all_kinds_of_lists() {
        for (list, first) in [
            ("vm", "vm"),
            ("a,b", "a"),
            ("n[1-4]", "n1"),
            ("n[08,10-12],m3", "n08"),
            ("r[1-2]n[5-8]", "r1n5"),
            ("n[01-02]-ib.cluster,x", "n01-ib.cluster"),
            ("ip-10-0-0-5", "ip-10-0-0-5"),
        ] {
            assert_eq!(first_host(list).as_deref(), Some(first), "{list}");
        }
        for wrong in ["", "n[1-2", ",a"] {
            assert_eq!(first_host(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn ranks_of_a_host_that_do_not_follow_each_other_are_not_counted_as_near() {
        assert_eq!(near("6,5,4", 5), Some(4..7));
        for (ranks, own) in [("0,2,4", 2), ("0,1", 7), ("", 0), ("a", 0)] {
            assert_eq!(near(ranks, own), None, "{ranks}");
        }
    }
}
