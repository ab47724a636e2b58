//! Lines: what processes exchange bytes for, each with a communicator of its own.

use crate::ids::{DeviceId, GroupId};
use crate::instruction::Class;
use crate::program::Program;
use std::collections::{BTreeMap, BTreeSet};

/// What a communicator is for; `R` tells the processes apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Line<R> {
    /// Transfers of a class from a process to another.
    Transfer(R, R, Class),
    /// Collectives of a group.
    Group(GroupId),
}

/// All lines of a program whose devices are divided among processes, and which of these take part in each, ascending.
pub fn lines<R: Copy + Ord>(program: &Program, process_of: impl Fn(DeviceId) -> R) -> BTreeMap<Line<R>, Vec<R>> {
    let transfers = program.transfers().filter_map(|(from, to, class)| {
        let (from, to) = (process_of(from), process_of(to));
        let members = BTreeSet::from([from, to]);
        (from != to).then_some((Line::Transfer(from, to, class), members))
    });
    let groups = program.groups.iter().enumerate().map(|(index, members)| {
        let members: BTreeSet<R> = members.iter().map(|device| process_of(*device)).collect();
        (Line::Group(GroupId::from_index(index)), members)
    });
    let shared = transfers.chain(groups).filter(|(_, members)| members.len() > 1);
    shared.map(|(line, members)| (line, members.into_iter().collect())).collect()
}

/// Multiprocessors that all exchanges of a process take together while they wait: a quarter of those of an H100.
const WAITING: usize = 32;

/// Blocks of an exchange at most. Each has a multiprocessor for itself, from the moment at which
/// its queue comes to it until the other end has come, too. Were all of them taken by exchanges
/// that wait, the work that others wait for could not begin. A power of two, to which NCCL
/// would round it up.
pub fn most_blocks<R: Copy + Ord>(lines: &BTreeMap<Line<R>, Vec<R>>) -> u32 {
    let mut by_process = BTreeMap::<R, usize>::new();
    for process in lines.values().flatten() {
        *by_process.entry(*process).or_default() += 1;
    }
    let most = by_process.into_values().max().unwrap_or(1);
    1 << (WAITING / most).max(1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::{Line, most_blocks};
    use crate::ids::GroupId;

    #[test]
    fn exchanges_that_wait_leave_most_of_a_gpu_to_others() {
        let of = |pairs: &[(u32, u32)]| {
            let line = |(number, (one, other)): (usize, &(u32, u32))| {
                (Line::Group(GroupId::from_index(number)), vec![*one, *other])
            };
            most_blocks(&pairs.iter().enumerate().map(line).collect())
        };
        assert_eq!((of(&[]), of(&[(0, 1)]), of(&[(0, 1), (1, 2)])), (32, 32, 16));
        // Process 1 has three: 10 for each, rounded down.
        assert_eq!(of(&[(0, 1), (1, 2), (1, 3)]), 8);
        assert_eq!(of(&[(0, 1); 40]), 1);
    }
}
