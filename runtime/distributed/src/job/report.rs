//! Reports over ranks: the first rank has what all devices did in a step, with all times by its own clock.
//!
//! Clocks of processes are compared once, before the set-up: of some questions and answers the
//! quickest says how far two clocks are apart, up to half of the time that it took. The clocks of
//! two hosts drift apart by some microseconds a second; later steps are put where they began by
//! their own clock, and never before the step of the first rank.

use crate::fault::RunError;
use crate::job::mailbox::Mailbox;
use crate::rank::{Division, Rank};
use crate::report::{DeviceStep, Nanos, StepReport};
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// The most questions to each rank, and a time of question and answer that is short enough.
const ROUNDS: usize = 200;
const ENOUGH: i64 = 50_000;

/// What a rank did in a step.
#[derive(Serialize, Deserialize)]
struct RankShare {
    /// When it began, by the clock of the first rank.
    began: i64,
    wall: Nanos,
    devices: Vec<DeviceStep>,
}

impl Mailbox {
    /// Compares the clocks of all ranks with that of the first one. All ranks do it at once. How
    /// far apart they still may be, in nanoseconds: on the first rank, of all others; elsewhere, of
    /// its own.
    ///
    /// # Errors
    /// If a rank cannot go on.
    pub fn synchronise(&self) -> Result<i64, RunError> {
        if self.rank != Rank::FIRST {
            loop {
                let word = self.listen(Rank::FIRST)?;
                if let Some((offset, apart)) = word.split_first_chunk() {
                    self.set_clock(i64::from_le_bytes(*offset));
                    return Ok(number(apart));
                }
                self.say(Rank::FIRST, self.clock(Instant::now()).to_le_bytes().to_vec());
            }
        }
        let mut most = 0;
        for rank in (1..self.n_ranks).map(Rank::from_index) {
            let mut best: Option<(i64, i64)> = None;
            for _ in 0..ROUNDS {
                let asked = self.clock(Instant::now());
                self.say(rank, Vec::new());
                let theirs = number(&self.listen(rank)?);
                let answered = self.clock(Instant::now());
                let round = (answered - asked, (asked + answered) / 2 - theirs);
                best = Some(best.map_or(round, |best| best.min(round)));
                if round.0 < ENOUGH {
                    break;
                }
            }
            let (round, offset) = best.unwrap_or_default();
            most = most.max(round / 2);
            self.say(rank, [offset.to_le_bytes(), (round / 2).to_le_bytes()].concat());
        }
        Ok(most)
    }

    /// The report of a step: of all devices on the first rank, of a rank's own ones elsewhere. Fails if a rank cannot
    /// go on.
    pub(crate) fn merge(&self, own: StepReport, division: Division, began: Instant) -> Result<StepReport, RunError> {
        let own = RankShare { began: self.clock(began), wall: own.wall, devices: own.devices };
        let mut report =
            StepReport { devices: vec![DeviceStep::default(); division.n_devices()], ..StepReport::default() };
        let first = own.began;
        if self.rank == Rank::FIRST {
            let own_share = std::iter::once(Ok(own));
            let others = (1..self.n_ranks).map(Rank::from_index).map(|rank| {
                let text = self.listen(rank)?;
                serde_json::from_slice(&text).map_err(|error| RunError::Remote { rank, message: error.to_string() })
            });
            for (rank, share) in (0..self.n_ranks).map(Rank::from_index).zip(own_share.chain(others)) {
                report.place(share?, division.devices_of(rank).start, first);
            }
        } else {
            let text = serde_json::to_vec(&own).unwrap_or_default();
            self.say(Rank::FIRST, text);
            report.place(own, division.devices_of(self.rank).start, first);
        }
        report.losses = report.devices.iter().flat_map(|device| device.losses.iter().copied()).collect();
        report.losses.sort_by_key(|(microbatch, _)| *microbatch);
        Ok(report)
    }
}

impl StepReport {
    /// Puts the devices of a rank where they belong, from this one on, with their times counted from this moment.
    fn place(&mut self, share: RankShare, from: usize, start: i64) {
        let shift = u64::try_from(share.began - start).unwrap_or(0);
        self.wall = self.wall.max(Nanos(share.wall.0 + shift));
        for (to, mut device) in self.devices.iter_mut().skip(from).zip(share.devices) {
            let spans = device.spans.iter_mut().flat_map(|span| [&mut span.start, &mut span.end]);
            let joined = device.joined.iter_mut().flat_map(|joined| [&mut joined.start, &mut joined.end]);
            let ends = [&mut device.first_start, &mut device.last_end];
            spans.chain(joined).chain(ends).for_each(|time| time.0 += shift);
            *to = device;
        }
    }
}

fn number(text: &[u8]) -> i64 {
    text.try_into().map_or(0, i64::from_le_bytes)
}
