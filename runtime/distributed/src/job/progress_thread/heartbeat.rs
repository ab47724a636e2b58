//! The heartbeat of a rank's progress thread: it says that its rank lives, looks who else does, and ends
//! where one is lost or nothing connects them any more.

use super::ProgressThread;
use crate::job::control_messages::Subject;
use crate::lost::{How, Lost};
use crate::rank::Rank;
use crate::wire::{Cut, Wire};
use std::time::{Duration, Instant};

/// How long the others wait until the user was told of a loss, before they say it themselves.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a rank that told the user lets the others know.
const FAREWELL: Duration = Duration::from_millis(300);
/// How long one waits at least before it ends, so that its last messages arrive: more than from one
/// look at the others to the next.
const LINGER: Duration = Duration::from_millis(150);

/// A moment at which one would have to be gone by now.
pub(super) fn long_ago() -> Option<Instant> {
    Instant::now().checked_sub(2 * FAREWELL)
}

impl<W: Wire> ProgressThread<W> {
    /// Says that this rank lives and where its devices are, and looks who else does.
    pub(super) fn beat(&mut self) {
        self.say_that_it_lives();
        if self.lost.is_some() || self.mailbox.failure().is_some() {
            return;
        }
        let division = self.opened.as_ref().map(|opened| opened.division);
        let looks = self.wire.signs().map(|signs| signs.looks());
        let named = self.announced();
        let away = self.watch.away();
        if let Some((_, how)) = named.iter().find(|(rank, _)| *rank == self.mailbox.rank) {
            return self.stand_back(away.unwrap_or(how.silence()));
        }
        let (mut lost, mut is_first) = self.watch.lost(division, self.mailbox.is_hurried(), looks);
        if let Some(stood) = away.filter(|_| !lost.is_empty()) {
            // Either all others end because of this one, or those that are well will be heard once more.
            if self.watch.is_deserted(&lost) {
                self.stand_back(stood);
            }
            return;
        }
        if let Some(signs) = self.wire.signs() {
            if lost.is_empty() {
                (lost, is_first) = self.watch.named(division, &named);
            } else {
                let named: Vec<(Rank, How)> = lost.iter().map(|lost| (lost.rank, lost.how)).collect();
                signs.announce(&serde_json::to_vec(&named).unwrap_or_default());
            }
        }
        if lost.is_empty() {
            return;
        }
        if is_first && !self.mailbox.is_told() {
            self.tell(&lost);
        }
        self.lost =
            Some((lost, Instant::now(), if is_first { FAREWELL } else { PATIENCE.max(5 * self.watch.interval) }));
    }

    /// What another rank has found; nothing, most often.
    fn announced(&mut self) -> Vec<(Rank, How)> {
        let found = self.wire.signs().and_then(|signs| serde_json::from_slice(signs.announced()).ok());
        found.unwrap_or_default()
    }

    /// Ends because this process was suspended for so long that the others have told the user, and have ended.
    fn stand_back(&mut self, stood: Duration) {
        if self.mailbox.failure().is_none() {
            (self.settings.away)(stood);
        }
        self.mailbox.told();
        self.lost = Some((Vec::new(), Instant::now(), Duration::ZERO));
    }

    /// By a sign, or by messages.
    pub(super) fn say_that_it_lives(&mut self) {
        let own = self.mailbox.rank;
        let positions = self
            .opened
            .iter()
            .flat_map(|opened| opened.division.devices_of(own).map(|device| opened.tokens.position(device)));
        let positions: Vec<u64> = positions.collect();
        if let Some(signs) = self.wire.signs() {
            signs.show(&self.sign.next(positions, self.has_said_bye));
            signs.look();
            if signs.is_late() {
                self.watch.excuse();
            }
            return;
        }
        let text: Vec<u8> = positions.into_iter().flat_map(u64::to_le_bytes).collect();
        for rank in (0..self.mailbox.n_ranks).map(Rank::from_index).filter(|rank| *rank != own) {
            // Who does not read needs no second one.
            if !self.messages.is_behind(rank) && !self.has_said_bye {
                self.messages.send(rank, Subject::Beat, &text);
            }
        }
    }

    /// Nothing connects the ranks any more.
    pub(super) fn cut(&mut self, why: Cut) -> bool {
        if self.has_said_bye {
            // The others have all that they need.
            self.parts = long_ago();
        } else if self.lost.is_none() && self.parts.is_none() {
            let sees_any = self.watch.sees_any();
            if let Some(stood) = self.watch.away().filter(|_| !sees_any) {
                self.stand_back(stood);
                return false;
            }
            let has_failed = self.mailbox.failure().is_some();
            let (mut lost, mut patience) = (Vec::new(), Duration::ZERO);
            match why {
                Cut::Keeper(keeper, how) => {
                    let division = self.opened.as_ref().map(|opened| opened.division);
                    lost.push(self.watch.seen_lost(division, keeper, how));
                    // Nobody can hear that the user was told: on each host the first one does, and
                    // the others see that it lives.
                    if !has_failed && self.watch.is_first_here(keeper) {
                        (self.settings.lost)(&lost);
                    }
                    patience = FAREWELL;
                }
                Cut::Failed(_) if has_failed => {}
                Cut::Failed(why) => (self.settings.cut)(&why),
            }
            self.mailbox.told();
            self.lost = Some((lost, Instant::now(), patience));
        }
        false
    }

    /// Tells the user who is lost.
    fn tell(&mut self, lost: &[Lost]) {
        (self.settings.lost)(lost);
        self.mailbox.told();
        self.messages.send_all(Subject::Told, &[]);
    }

    /// Whether this rank may end without the others: it wants to, or one was lost and the user was
    /// told; and the others know.
    pub(super) fn is_over(&mut self) -> bool {
        if let Some(since) = self.parts {
            return since.elapsed() > FAREWELL || since.elapsed() > LINGER && !self.is_behind(&[]);
        }
        let Some((lost, since, patience)) = self.lost.take() else { return false };
        let was_told = self.mailbox.is_told();
        let is_heard = was_told && since.elapsed() > LINGER && !self.is_behind(&lost);
        if !is_heard && since.elapsed() < patience {
            self.lost = Some((lost, since, patience));
            return false;
        }
        if !was_told {
            self.tell(&lost);
        }
        self.wire.linger(&lost);
        (self.settings.end)();
        match lost.first() {
            Some(lost) => self.fail(lost.rank, "it was lost".to_owned()),
            None => self.fail(self.mailbox.rank, "nothing connects it with the others".to_owned()),
        }
        true
    }
}
