//! Heartbeats: signs of life. Each rank writes one key again and again, and reads those of others at
//! once, instead of a message from each to each.
//!
//! Of few ranks each looks after all. Of many the first one does, and every other one looks after
//! the first one and the one before it on its own host, whose process it sees: so a store has no
//! more to do for a rank, however many there are. Whoever finds a loss writes that to a key which
//! all ranks read.
//!
//! The first rank also answers there to those that knock, as long as it has not seen the signs of all.

use super::Member;
use super::requests::Requests;
use super::round::Names;
use crate::rank::Rank;
use std::collections::BTreeMap;

/// So many ranks all look after each other.
const FEW: u32 = 32;

/// What is known of one other rank.
#[derive(Default)]
struct Other {
    sign: Vec<u8>,
    /// The number that was answered to.
    answered: Vec<u8>,
}

/// The signs of all ranks.
pub(super) struct Heartbeats {
    names: Names,
    own: Rank,
    others: BTreeMap<Rank, Other>,
    /// Whose knocks and signs are asked for, in their order.
    asked: (Vec<Rank>, Vec<Rank>),
    /// Signs that were not seen before.
    new: Vec<(Rank, Vec<u8>)>,
    /// Who is lost.
    pub(super) announced: Vec<u8>,
    /// How often it was looked, and answered.
    pub(super) looks: (u64, u64),
}

impl Heartbeats {
    pub(super) fn new(names: Names, member: &Member) -> Self {
        let own = Rank(member.rank);
        // Around, so that the first one on a host looks after the last one.
        let before = if own.0 == member.near.start { member.near.end } else { own.0 }.saturating_sub(1);
        let looks_after_all = member.n_ranks <= FEW || own == Rank::FIRST;
        let seen = (0..member.n_ranks).filter(|rank| looks_after_all || *rank == 0 || *rank == before);
        let seen = seen.map(Rank).filter(|rank| *rank != own);
        let others = seen.map(|rank| (rank, Other::default())).collect();
        Self {
            names,
            own,
            others,
            asked: (Vec::new(), Vec::new()),
            new: Vec::new(),
            announced: Vec::new(),
            looks: (0, 0),
        }
    }

    /// Whose signs are read.
    pub(super) fn seen(&self) -> Vec<Rank> {
        self.others.keys().copied().collect()
    }

    /// Makes sure that all that will be read is there.
    pub(super) fn begin(&self, requests: &mut Requests) {
        requests.touch(&self.names.lost());
        for rank in self.others.keys() {
            requests.touch(&self.names.sign(*rank));
            if self.own == Rank::FIRST {
                requests.touch(&self.names.knock(*rank));
            }
        }
    }

    pub(super) fn show(&self, sign: &[u8], requests: &mut Requests) {
        requests.set(&self.names.sign(self.own), &[sign]);
    }

    pub(super) fn announce(&self, lost: &[u8], requests: &mut Requests) {
        requests.set(&self.names.lost(), &[lost]);
    }

    /// Asks for what others show. How many values come.
    pub(super) fn look(&mut self, requests: &mut Requests) -> usize {
        let knocks = |(_, other): &(&Rank, &Other)| self.own == Rank::FIRST && other.sign.is_empty();
        let knocking: Vec<Rank> = self.others.iter().filter(knocks).map(|(rank, _)| *rank).collect();
        let all: Vec<Rank> = self.others.keys().copied().collect();
        let keys = knocking.iter().map(|rank| self.names.knock(*rank));
        let keys = keys.chain(all.iter().map(|rank| self.names.sign(*rank)));
        let keys: Vec<String> = keys.chain([self.names.lost()]).collect();
        let n_values = keys.len();
        requests.get_all(keys.into_iter());
        self.asked = (knocking, all);
        self.looks.0 += 1;
        n_values
    }

    /// What was asked for.
    pub(super) fn read(&mut self, values: Vec<&[u8]>, requests: &mut Requests) {
        let (knocking, all) = std::mem::take(&mut self.asked);
        self.looks.1 += 1;
        let (knocks, signs) = values.split_at(knocking.len());
        for (rank, number) in knocking.into_iter().zip(knocks) {
            let Some(other) = self.others.get_mut(&rank) else { continue };
            if !number.is_empty() && other.answered != *number {
                requests.set(&self.names.answer(rank, number), &[self.names.round.as_bytes()]);
                other.answered = number.to_vec();
            }
        }
        if let Some(lost) = signs.last().filter(|lost| !lost.is_empty()) {
            self.announced = lost.to_vec();
        }
        for (rank, sign) in all.into_iter().zip(signs) {
            let Some(other) = self.others.get_mut(&rank) else { continue };
            if other.sign != *sign {
                other.sign = sign.to_vec();
                self.new.push((rank, sign.to_vec()));
            }
        }
    }

    /// Signs that were not seen before.
    pub(super) fn take(&mut self) -> Vec<(Rank, Vec<u8>)> {
        std::mem::take(&mut self.new)
    }
}
