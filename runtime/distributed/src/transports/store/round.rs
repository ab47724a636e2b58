//! Rounds: ranks that were started together agree on a name for all that they write.
//!
//! A launcher that starts ranks again keeps the store, with what the ranks before them left there,
//! and not all of them know how often that was. So the first rank counts the rounds. Every other
//! one knocks with a number that nobody else has, and the first one answers to that number which
//! round it is: an answer to another number is for a rank that has ended.

use super::Member;
use super::line::Line;
use crate::rank::Rank;
use std::hash::{BuildHasher, RandomState};
use std::io;

/// The names of all keys.
#[derive(Clone, Debug)]
pub(super) struct Names {
    job: String,
    /// Which round it is.
    pub(super) round: String,
}

impl Names {
    /// Where the number is with which a rank knocks.
    pub(super) fn knock(&self, rank: Rank) -> String {
        format!("{}/knock/{}", self.job, rank.0)
    }

    /// Where the first rank answers to a number.
    pub(super) fn answer(&self, rank: Rank, number: &[u8]) -> String {
        format!("{}/answer/{}/{}", self.job, rank.0, String::from_utf8_lossy(number))
    }

    /// What counts the slots of an inbox.
    pub(super) fn counter(&self, to: Rank) -> String {
        format!("{}/{}/inbox/{}", self.job, self.round, to.0)
    }

    /// One slot.
    pub(super) fn slot(&self, to: Rank, slot: i64) -> String {
        format!("{}/{}/inbox/{}/{slot}", self.job, self.round, to.0)
    }

    /// Where it is announced who is lost.
    pub(super) fn lost(&self) -> String {
        format!("{}/{}/lost", self.job, self.round)
    }

    /// Where a rank shows its sign.
    pub(super) fn sign(&self, of: Rank) -> String {
        format!("{}/{}/sign/{}", self.job, self.round, of.0)
    }
}

/// Finds out which round it is.
pub(super) fn join(mut line: Line, member: &Member) -> io::Result<(Line, Names)> {
    let mut names = Names { job: format!("pipec/{}", member.job), round: String::new() };
    let rank = Rank(member.rank);
    if rank == Rank::FIRST {
        line.requests.add(&format!("{}/rounds", names.job), 1);
        line.ask()?;
        names.round = line.number()?.to_string();
        return Ok((line, names));
    }
    let number = format!("{:016x}", RandomState::new().hash_one((std::process::id(), rank.0)));
    let answer = names.answer(rank, number.as_bytes());
    line.requests.set(&names.knock(rank), &[number.as_bytes()]);
    line.requests.wait(&answer);
    line.ask()?;
    line.byte()?;
    line.requests.get(&answer);
    line.requests.delete(&answer);
    line.requests.set(&names.knock(rank), &[]);
    line.ask()?;
    names.round = String::from_utf8_lossy(&line.value()?).into_owned();
    line.number()?;
    Ok((line, names))
}
