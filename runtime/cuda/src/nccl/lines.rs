//! Lines: what ranks exchange bytes for, each with a communicator of its own.

use pipe_distributed::{Division, Rank};
use pipe_ir::program::Program;
use std::collections::{BTreeMap, BTreeSet};

/// What a communicator is for.
pub(crate) type Line = pipe_ir::gpu::lines::Line<Rank>;

/// All lines of a program on so many ranks, and who takes part in each, ascending. Every rank counts them alike.
pub(crate) fn lines(program: &Program, division: Division) -> BTreeMap<Line, Vec<Rank>> {
    pipe_ir::gpu::lines::lines(program, |device| division.rank_of(device))
}

/// The lines in an order in which ranks join them one after the other without waiting for long chains of others: by
/// round, in each of which a rank has one line at most.
pub(crate) fn by_round(lines: &BTreeMap<Line, Vec<Rank>>) -> Vec<(u32, Line)> {
    let mut busy = BTreeMap::<Rank, BTreeSet<u32>>::new();
    let mut all = Vec::with_capacity(lines.len());
    for (line, members) in lines {
        let is_free = |round: &u32| members.iter().all(|rank| !busy.get(rank).is_some_and(|own| own.contains(round)));
        let round = (0..).find(is_free).unwrap_or_default();
        for rank in members {
            busy.entry(*rank).or_default().insert(round);
        }
        all.push((round, *line));
    }
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use super::{Line, by_round, lines};
    use pipe_distributed::{Division, Rank};
    use pipe_ir::instruction::Class::{Activation, Gradient};
    use pipe_ir::program::Program;
    use pipe_ir::text;

    /// Three devices that send to the next one, and the last one back to the first.
    fn program() -> Program {
        let device = |own: usize, sends: &str| {
            format!(
                "device d{own} arena 64 peak 64 tokens 1 {{ buffers {{ %0 64 at 0 }} setup {{ }} step {{ {sends} }} }}\n"
            )
        };
        let head = "program ring stages 1 microbatches 1\ngroup g0 (d0, d2)\ngroup g1 (d0, d1)\n";
        let devices = [
            device(0, "send.start %0 to d1 activation -> !0"),
            device(1, "send.start %0 to d2 activation -> !0"),
            device(2, "send.start %0 to d0 gradient -> !0"),
        ];
        text::parse(&format!("{head}{}", devices.concat())).expect("a program").program
    }

    #[test]
    fn lines_join_ranks_and_not_devices() {
        let of = |ranks: usize| lines(&program(), Division::new(3, ranks).expect("a device for each"));
        let [zero, one, two] = [0, 1, 2].map(Rank);
        let group = |index| Line::Group(pipe_ir::ids::GroupId(index));
        assert!(of(1).is_empty());
        let expected = [
            (Line::Transfer(zero, one, Activation), vec![zero, one]),
            (Line::Transfer(one, two, Activation), vec![one, two]),
            (Line::Transfer(two, zero, Gradient), vec![zero, two]),
            (group(0), vec![zero, two]),
            (group(1), vec![zero, one]),
        ];
        assert_eq!(of(3).into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_long_pipeline_is_joined_in_few_rounds() {
        let both = |from: u32| {
            let [one, other] = [Rank(from), Rank(from + 1)];
            [Line::Transfer(one, other, Activation), Line::Transfer(other, one, Gradient)]
                .map(|line| (line, vec![one, other]))
        };
        let all: std::collections::BTreeMap<_, _> = (0..63).flat_map(both).collect();
        let rounds = by_round(&all);
        assert_eq!(rounds.len(), all.len());
        // Not the 126 of a chain.
        assert_eq!(rounds.iter().map(|(round, _)| round).max(), Some(&3));
        for (round, line) in &rounds {
            let others = rounds.iter().filter(|(other, own)| other == round && own != line);
            let mut members = others.flat_map(|(_, own)| &all[own]);
            assert!(members.all(|rank| !all[line].contains(rank)), "{line:?}");
        }
    }
}
