//! Collectives of a group on several hosts, as rounds of messages between its members.
//!
//! Sums are computed in the order of the group, so they are bit-identical to those of one process. Consecutive members
//! on one host are a run. The buffer is divided into columns, and each run has one member, the adder, for each column.
//! The adder receives the partial sum of the previous runs, adds the members of its own run in order, and sends the
//! result to the adder of the next run. The last adder has the complete sum and returns it the same way. Columns travel
//! in pieces, so that several messages are in flight. So the network carries each column once in each direction, and
//! not once for each member of a host.
//!
//! ```text
//! run 0: m0 + m1 ───────> run 1: (..) + m2 + m3 ───────> run 2: (..) + m4 + m5
//!             <─────────                        <─────────
//! ```
//!
//! The latency of the chain grows with the number of runs. If direct messages are faster, every member sums its own
//! share, which all others send to it, and sends the sum to all of them.

use crate::collective::own_bytes;
use pipe_ir::instruction::Collective;
use std::ops::Range;

/// Where a message is received.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Room {
    /// In the receiver's buffer, at the same offset.
    Buffer,
    /// In scratch for a column of this member.
    Of(usize),
    /// In scratch for a piece of the partial sum of the previous runs.
    Before,
}

/// A message from a member's buffer to another member. In an all-gather it is sent from the member's share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The position of the sender in the group.
    pub from: usize,
    /// The position of the receiver in the group.
    pub to: usize,
    /// Where the receiver stores it.
    pub room: Room,
    /// Which bytes of a buffer it has.
    pub bytes: Range<usize>,
}

/// A sum of bytes that a member writes into its own buffer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Addition {
    /// The position of the member in the group.
    pub member: usize,
    /// Whether it starts from the partial sum of the previous runs.
    pub goes_on: bool,
    /// The positions of the members that it adds, in order.
    pub run: Range<usize>,
    /// Which bytes of all buffers.
    pub bytes: Range<usize>,
}

/// Messages in flight at the same time, and the additions after all of them are received.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Round {
    /// In an order that is the same on all members.
    pub messages: Vec<Message>,
    /// In an order that is the same on all members.
    pub additions: Vec<Addition>,
}

/// The latency of a round in bytes: 20 microseconds at 50 GB/s, a guess.
const ROUND: u128 = 1 << 20;

/// Maximum number of pieces of a column.
const MOST_PIECES: usize = 64;

/// How the members of a group divide a collective.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Route {
    runs: Vec<Range<usize>>,
    /// Number of columns, and of adders in each run.
    n_columns: usize,
    /// Pieces of each column.
    n_pieces: usize,
    bytes: usize,
}

impl Route {
    /// The route of a collective over `bytes` bytes; `hosts` has the host of each member.
    fn new(hosts: &[usize], collective: Collective, bytes: usize) -> Self {
        let n_members = hosts.len();
        let together = Self { runs: std::iter::once(0..n_members).collect(), n_columns: n_members, n_pieces: 1, bytes };
        let mut runs = Vec::<Range<usize>>::new();
        for (member, host) in hosts.iter().enumerate() {
            match runs.last_mut() {
                Some(run) if hosts[run.start] == *host => run.end = member + 1,
                _ => runs.push(member..member + 1),
            }
        }
        let shortest = runs.iter().map(Range::len).min().unwrap_or(0);
        if runs.len() < 2 || shortest < 2 {
            return together;
        }
        let (n_runs, column) = (runs.len(), own_bytes(bytes, shortest, 0).len() as u128);
        // The bytes that a member sends to other hosts, which are as many as it receives from them.
        let to_others = |bytes: u128| (bytes * (n_members - shortest) as u128).div_ceil(n_members as u128);
        let far = to_others(bytes as u128);
        let (rounds, direct, back) = match collective {
            Collective::AllReduce => (2 * n_runs - 3, 2 * (far + ROUND), 0),
            Collective::ReduceScatter => (n_runs - 2, far + ROUND, to_others(column)),
            Collective::AllGather | Collective::AllToAll => (0, u128::MAX, 0),
        };
        let chain = |pieces: usize| back + (pieces + rounds) as u128 * (column.div_ceil(pieces as u128) + ROUND);
        let n_pieces = (1..=MOST_PIECES).min_by_key(|pieces| chain(*pieces)).unwrap_or(1);
        // If both take about as long, prefer fewer bytes.
        if chain(n_pieces) > direct.saturating_add(direct / 16) {
            return together;
        }
        Self { runs, n_columns: shortest, n_pieces, bytes }
    }

    fn column(&self, column: usize) -> Range<usize> {
        own_bytes(self.bytes, self.n_columns, column)
    }

    fn piece(&self, column: usize, piece: usize) -> Range<usize> {
        let Range { start, end } = self.column(column);
        let piece = own_bytes(end - start, self.n_pieces, piece);
        start + piece.start..start + piece.end
    }

    /// The member of a run that adds up a column.
    fn adder(&self, run: usize, column: usize) -> usize {
        let run = &self.runs[run];
        run.start + column * run.len() / self.n_columns
    }

    /// All columns that have bytes.
    fn columns(&self) -> impl Iterator<Item = usize> + Clone {
        (0..self.n_columns).filter(|column| !self.column(*column).is_empty())
    }

    /// The messages of one piece between the adders of two runs.
    fn between(&self, [from, to]: [usize; 2], piece: usize, room: Room) -> impl Iterator<Item = Message> {
        let message = move |column| {
            let (from, to) = (self.adder(from, column), self.adder(to, column));
            Message { from, to, room, bytes: self.piece(column, piece) }
        };
        self.columns().map(message).filter(|message| !message.bytes.is_empty())
    }

    /// The first round: members send their columns to the adders of their run.
    fn first(&self) -> Round {
        let mut round = Round::default();
        for (run, members) in self.runs.iter().enumerate() {
            for column in self.columns() {
                let (to, bytes) = (self.adder(run, column), self.column(column));
                let message = |from| Message { from, to, room: Room::Of(from), bytes: bytes.clone() };
                round.messages.extend(members.clone().filter(|member| *member != to).map(message));
                if run == 0 {
                    round.additions.push(Addition { member: to, goes_on: false, run: members.clone(), bytes });
                }
            }
        }
        round
    }

    /// The rounds of the chain. In each, every run sends a piece to the next one, and the next one returns a piece.
    fn chain(&self, goes_back: bool) -> Vec<Round> {
        let (last, n_pieces) = (self.runs.len() - 1, self.n_pieces);
        let n_rounds = match last {
            0 => 0,
            _ => n_pieces + if goes_back { 2 * last - 1 } else { last - 1 },
        };
        let mut rounds = vec![Round::default(); n_rounds];
        for (number, round) in rounds.iter_mut().enumerate() {
            let piece = |before: usize| number.checked_sub(before).filter(|piece| *piece < n_pieces);
            for run in 0..last {
                if let Some(piece) = piece(run) {
                    let messages = self.between([run, run + 1], piece, Room::Before);
                    for message in messages {
                        let (member, bytes) = (message.to, message.bytes.clone());
                        round.messages.push(message);
                        round.additions.push(Addition {
                            member,
                            goes_on: true,
                            run: self.runs[run + 1].clone(),
                            bytes,
                        });
                    }
                }
                if let Some(piece) = piece(2 * last - 1 - run).filter(|_| goes_back) {
                    round.messages.extend(self.between([run + 1, run], piece, Room::Buffer));
                }
            }
        }
        rounds
    }

    /// The last round of an all-reduce: adders send sums to all members of their run.
    fn spread(&self) -> Round {
        let mut round = Round::default();
        for (run, members) in self.runs.iter().enumerate() {
            for column in self.columns() {
                let (from, bytes) = (self.adder(run, column), self.column(column));
                let message = |to| Message { from, to, room: Room::Buffer, bytes: bytes.clone() };
                round.messages.extend(members.clone().filter(|member| *member != from).map(message));
            }
        }
        round
    }

    /// The last round of a reduce-scatter: the adders of the last run send each share to its owner.
    fn scatter(&self, n_members: usize) -> Round {
        let mut round = Round::default();
        for to in 0..n_members {
            let share = own_bytes(self.bytes, n_members, to);
            for column in self.columns() {
                let (from, all) = (self.adder(self.runs.len() - 1, column), self.column(column));
                let bytes = share.start.max(all.start)..share.end.min(all.end);
                if from != to && !bytes.is_empty() {
                    round.messages.push(Message { from, to, room: Room::Buffer, bytes });
                }
            }
        }
        round
    }

    /// The rounds of an all-gather: shares go to all members of the run, and to one member of each other run, which
    /// forwards them.
    fn gather(&self, n_members: usize) -> [Round; 2] {
        let mut rounds = [Round::default(), Round::default()];
        for owner in 0..n_members {
            let bytes = own_bytes(self.bytes, n_members, owner);
            for run in self.runs.iter().filter(|_| !bytes.is_empty()) {
                let is_own = run.contains(&owner);
                let from = if is_own { owner } else { run.start + owner % run.len() };
                let message = |from, to| Message { from, to, room: Room::Buffer, bytes: bytes.clone() };
                if !is_own {
                    rounds[0].messages.push(message(owner, from));
                }
                let others = run.clone().filter(|member| *member != from).map(|to| message(from, to));
                rounds[usize::from(!is_own)].messages.extend(others);
            }
        }
        rounds
    }
}

/// The rounds of a collective; `hosts` has the host of each member, and buffers have `bytes` bytes. The result is the
/// same on all members. An all-to-all has no rounds.
pub fn rounds(hosts: &[usize], collective: Collective, bytes: usize) -> Vec<Round> {
    let route = Route::new(hosts, collective, bytes);
    let mut rounds = match collective {
        Collective::AllReduce => [vec![route.first()], route.chain(true), vec![route.spread()]].concat(),
        Collective::ReduceScatter => {
            [vec![route.first()], route.chain(false), vec![route.scatter(hosts.len())]].concat()
        }
        Collective::AllGather => route.gather(hosts.len()).to_vec(),
        Collective::AllToAll => Vec::new(),
    };
    rounds.retain(|round| !round.messages.is_empty() || !round.additions.is_empty());
    rounds
}

#[cfg(test)]
mod tests {
    use super::{MOST_PIECES, Message, ROUND, Room, Round, Route, rounds};
    use crate::collective::own_bytes;
    use pipe_ir::instruction::Collective;
    use std::collections::BTreeMap;
    use std::ops::Range;

    const NUMBER: usize = size_of::<f32>();

    /// Members on hosts in blocks of these lengths.
    fn blocks(lengths: &[usize]) -> Vec<usize> {
        lengths.iter().enumerate().flat_map(|(host, length)| std::iter::repeat_n(host, *length)).collect()
    }

    /// Numbers of very different sizes, so that the order of a sum shows in its bits.
    fn numbers(member: usize, count: usize) -> Vec<f32> {
        let word = |at: usize| ((member * 7919 + at + 1) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
        (0..count).map(|at| (word(at) as f32 - 1e9) * 10_f32.powi((word(at + 1) % 9) as i32)).collect()
    }

    /// What members have when all rounds are over.
    fn performed(rounds: &[Round], members: &[Vec<f32>]) -> Vec<Vec<f32>> {
        let mut buffers = members.to_vec();
        let mut rooms = BTreeMap::<(usize, Room), Vec<f32>>::new();
        for round in rounds {
            let all = round.messages.iter();
            let sent: Vec<Vec<f32>> = all.map(|one| buffers[one.from][numbers_of(&one.bytes)].to_vec()).collect();
            for (&Message { to, room, ref bytes, .. }, sent) in round.messages.iter().zip(sent) {
                let target = match room {
                    Room::Buffer => &mut buffers[to],
                    _ => rooms.entry((to, room)).or_insert_with(|| vec![f32::NAN; members[to].len()]),
                };
                target[numbers_of(bytes)].copy_from_slice(&sent);
            }
            for one in &round.additions {
                let numbers = numbers_of(&one.bytes);
                let room = |room| rooms[&(one.member, room)][numbers.clone()].to_vec();
                let of = |member: usize| {
                    if member == one.member {
                        buffers[member][numbers.clone()].to_vec()
                    } else {
                        room(Room::Of(member))
                    }
                };
                let all: Vec<Vec<f32>> =
                    one.goes_on.then(|| room(Room::Before)).into_iter().chain(one.run.clone().map(of)).collect();
                buffers[one.member][numbers.clone()].copy_from_slice(&added(&all));
            }
        }
        buffers
    }

    fn numbers_of(bytes: &Range<usize>) -> Range<usize> {
        bytes.start / NUMBER..bytes.end / NUMBER
    }

    /// A sum in the order of the group.
    fn added(all: &[Vec<f32>]) -> Vec<f32> {
        let mut sum = all[0].clone();
        for other in &all[1..] {
            sum.iter_mut().zip(other).for_each(|(sum, number)| *sum += *number);
        }
        sum
    }

    /// Nobody reads in a round what a message of it overwrites.
    #[track_caller]
    fn assert_apart(round: &Round) {
        for read in &round.messages {
            for written in round.messages.iter().filter(|one| one.room == Room::Buffer && one.to == read.from) {
                let [one, other] = [&read.bytes, &written.bytes];
                assert!(one.end <= other.start || other.end <= one.start, "{read:?} {written:?}");
            }
        }
    }

    #[test]
    fn sums_have_the_bits_of_the_order_of_the_group_wherever_members_are() {
        // Large buffers are sent in several pieces.
        const MANY: usize = 3 << 19;
        let small = [&[4][..], &[1, 1, 1], &[2, 2], &[2, 2, 2, 2], &[3, 2, 4], &[3, 3, 3], &[8, 8], &[1, 5]];
        let small = small.iter().flat_map(|lengths| [(*lengths, 40), (*lengths, 1000)]);
        for (lengths, count) in small.chain([(&[2, 2][..], MANY), (&[3, 3, 3], MANY)]) {
            let hosts = blocks(lengths);
            let members: Vec<_> = (0..hosts.len()).map(|member| numbers(member, count)).collect();
            let sum = added(&members);
            for collective in [Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather] {
                let rounds = rounds(&hosts, collective, NUMBER * count);
                rounds.iter().for_each(assert_apart);
                let share = |member| numbers_of(&own_bytes(NUMBER * count, hosts.len(), member));
                for (member, found) in performed(&rounds, &members).iter().enumerate() {
                    let is_right = match collective {
                        Collective::AllReduce => *found == sum,
                        Collective::ReduceScatter => found[share(member)] == sum[share(member)],
                        _ => (0..hosts.len()).all(|owner| found[share(owner)] == members[owner][share(owner)]),
                    };
                    assert!(is_right, "{collective:?} of {lengths:?}, {count} numbers, member {member}");
                }
            }
        }
        let pieces = |lengths| Route::new(&blocks(lengths), Collective::AllReduce, NUMBER * MANY).n_pieces;
        assert!(pieces(&[2, 2]) > 1 && pieces(&[3, 3, 3]) > 1);
    }

    /// The most that a member sends to other hosts, in bytes.
    fn far(hosts: &[usize], collective: Collective, bytes: usize) -> usize {
        let mut sent = vec![0; hosts.len()];
        for message in rounds(hosts, collective, bytes).iter().flat_map(|round| &round.messages) {
            if hosts[message.from] != hosts[message.to] {
                sent[message.from] += message.bytes.len();
            }
        }
        sent.into_iter().max().unwrap_or(0)
    }

    #[test]
    fn a_network_carries_a_sum_once_in_each_direction() {
        let (hosts, bytes) = (blocks(&[8, 8]), 64 << 20);
        // Of eight members on each of two hosts every one sends an eighth. If all sent to all it would be all of it.
        assert_eq!(far(&hosts, Collective::AllReduce, bytes), bytes / 8);
        assert_eq!(far(&hosts, Collective::AllGather, bytes), bytes / 16);
        // The first run hands on what it has summed up, the last one gives the others their shares.
        assert_eq!(far(&hosts, Collective::ReduceScatter, bytes), bytes / 8);
        // In the middle of a chain there and back.
        assert_eq!(far(&blocks(&[8, 8, 8]), Collective::AllReduce, bytes), bytes / 4);
    }

    #[test]
    fn a_long_chain_of_few_bytes_is_none() {
        let runs = |hosts: &[usize], bytes| Route::new(hosts, Collective::AllReduce, bytes).runs.len();
        let many = blocks(&[8; 64]);
        assert_eq!((runs(&many, 1 << 16), runs(&many, 1 << 30)), (1, 64));
        // Hosts of one member each, and members of two hosts in turns.
        assert_eq!((runs(&blocks(&[1; 8]), 1 << 30), runs(&[0, 1, 0, 1], 1 << 30)), (1, 1));
        let pieces = |bytes| Route::new(&blocks(&[8, 8]), Collective::AllReduce, bytes).n_pieces;
        assert_eq!((pieces(ROUND as usize), pieces(1 << 36)), (1, MOST_PIECES));
    }
}
