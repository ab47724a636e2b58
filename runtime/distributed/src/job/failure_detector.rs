//! The failure detector: which ranks still live. A rank says so many times a second, from the one thread that
//! never computes; with it goes where its devices are. On the same host the system is asked, too,
//! so that an end is seen at once.

use crate::job::rank_state::RankState;
use crate::lost::{Ailment, How, Lost, Position, Process};
use crate::rank::{Division, Rank};
use pipe_ir::ids::DeviceId;
use std::time::{Duration, Instant};

/// Between two messages that say so.
pub(crate) const BEAT: Duration = Duration::from_millis(100);
/// Silence that is enough where the system asks the process to end: most often because another one did.
const HURRIED: Duration = Duration::from_millis(600);
/// Longer than ranks live that end because another one is lost. Who is heard after that goes on.
const FAREWELL: Duration = Duration::from_secs(3);

/// What is known of another rank.
struct Peer {
    rank: Rank,
    heard: Instant,
    process: Option<Process>,
    /// Where ranks show signs: the number of its last one, and how many looks at signs had begun
    /// when its process was seen to have ended.
    sign: u64,
    ended: Option<u64>,
    is_visible: bool,
    /// By its own devices, in their order.
    positions: Vec<u64>,
    has_left: bool,
}

/// What is known of the other ranks that this one looks after.
pub(crate) struct FailureDetector {
    own: Rank,
    peers: Vec<Peer>,
    stall: Duration,
    /// Between two signs of life.
    pub(crate) interval: Duration,
    /// The last turn, and the next one.
    last: Instant,
    next: Instant,
    /// How long this process stood still, where that is longer than a rank may be silent, and when it went on.
    away: Option<(Duration, Instant)>,
}

impl FailureDetector {
    /// Of a job that begins now. A rank says so often that it lives, and may be silent for so long.
    pub(crate) fn new(own: Rank, others: Vec<Rank>, interval: Duration, stall: Duration) -> Self {
        let now = Instant::now();
        let peer = |rank| Peer {
            rank,
            heard: now,
            process: None,
            sign: 0,
            ended: None,
            is_visible: false,
            positions: Vec::new(),
            has_left: false,
        };
        let peers = others.into_iter().map(peer).collect();
        Self { own, peers, stall, interval, last: now, next: now, away: None }
    }

    fn peer(&mut self, rank: Rank) -> Option<&mut Peer> {
        self.peers.iter_mut().find(|peer| peer.rank == rank)
    }

    /// A message of a rank came.
    pub(crate) fn heard(&mut self, rank: Rank) {
        if let Some(peer) = self.peer(rank) {
            peer.heard = Instant::now();
        }
    }

    /// A rank said which process it is.
    pub(crate) fn met(&mut self, rank: Rank, process: Process) {
        if let Some(peer) = self.peer(rank) {
            peer.is_visible = process.is_visible();
            peer.process = Some(process);
        }
    }

    /// A rank said where its devices are.
    pub(crate) fn at(&mut self, rank: Rank, beat: &[u8]) {
        let positions =
            beat.chunks_exact(8).map(|bytes| bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)));
        if let Some(peer) = self.peer(rank) {
            peer.positions.clear();
            peer.positions.extend(positions);
        }
    }

    /// A rank showed a sign, perhaps once more.
    pub(crate) fn saw(&mut self, rank: Rank, sign: RankState) {
        let Some(peer) = self.peer(rank).filter(|peer| peer.sign != sign.number) else { return };
        if peer.process.is_none() {
            peer.is_visible = sign.process.is_visible();
            peer.process = Some(sign.process);
        }
        peer.sign = sign.number;
        peer.heard = Instant::now();
        peer.positions = sign.positions;
        peer.has_left = sign.has_left;
    }

    /// Nothing can be said about any rank now.
    pub(crate) fn excuse(&mut self) {
        let now = Instant::now();
        self.peers.iter_mut().for_each(|peer| peer.heard = now);
    }

    /// A rank took its leave: what becomes of its process says nothing any more.
    pub(crate) fn left(&mut self, rank: Rank) {
        if let Some(peer) = self.peer(rank) {
            peer.has_left = true;
        }
    }

    /// Whether all others took their leave.
    pub(crate) fn is_alone(&self) -> bool {
        self.peers.iter().all(|peer| peer.has_left)
    }

    /// Whether it is time for the next sign of life and [`FailureDetector::lost`].
    pub(crate) fn is_due(&mut self) -> bool {
        let now = Instant::now();
        if now < self.next {
            return false;
        }
        self.wake(now);
        self.next = now + self.interval;
        true
    }

    /// Notices that this process itself stood still: what others said meanwhile is still to be read.
    fn wake(&mut self, now: Instant) {
        let stood = now - self.last;
        if stood > self.stall / 2 {
            self.excuse();
        }
        if stood > self.stall {
            self.away = Some((stood, now));
        }
        self.last = now;
    }

    /// How long this process stood still, if that was so long that the others count it as lost,
    /// unless one of them has gone on with it.
    pub(crate) fn away(&mut self) -> Option<Duration> {
        self.wake(Instant::now());
        let (stood, back) = self.away?;
        let after = back + FAREWELL.max(6 * self.interval);
        if self.peers.iter().any(|peer| peer.heard > after) {
            self.away = None;
        }
        self.away.map(|_| stood)
    }

    /// Whether all others are among these, or took their leave.
    pub(crate) fn is_deserted(&self, lost: &[Lost]) -> bool {
        self.peers.iter().all(|peer| peer.has_left || lost.iter().any(|lost| lost.rank == peer.rank))
    }

    /// Whether the system says of any other rank that it is well.
    pub(crate) fn sees_any(&self) -> bool {
        self.peers.iter().any(|peer| !peer.has_left && peer.is_visible && peer.ailment().is_none())
    }

    /// The same of ranks that another one found to be lost.
    pub(crate) fn named(&self, division: Option<Division>, all: &[(Rank, How)]) -> (Vec<Lost>, bool) {
        let is_well = |rank: &Rank| all.iter().all(|(lost, _)| lost != rank);
        let first = self.peers.iter().map(|peer| peer.rank).chain([self.own]).filter(is_well).min();
        let lost = all.iter().filter(|(rank, _)| *rank != self.own).map(|(rank, how)| {
            let peer = self.peers.iter().find(|peer| peer.rank == *rank);
            peer.map_or_else(
                || Lost { rank: *rank, process: None, how: *how, positions: Vec::new() },
                |peer| peer.lost(division, *how),
            )
        });
        (lost.collect(), first == Some(self.own))
    }

    /// A rank that is lost in this way, as far as is known: the system may say more of its process.
    pub(crate) fn seen_lost(&self, division: Option<Division>, rank: Rank, how: How) -> Lost {
        let Some(peer) = self.peers.iter().find(|peer| peer.rank == rank) else {
            return Lost { rank, process: None, how, positions: Vec::new() };
        };
        let how = match (peer.ailment(), how) {
            (Some(Ailment::Ended), _) => How::Ended,
            (Some(Ailment::Stopped), How::Silent(silence)) => How::Stopped(silence),
            _ => how,
        };
        peer.lost(division, how)
    }

    /// Whether no rank before this one, but for one that is lost, lives on this host.
    pub(crate) fn is_first_here(&self, lost: Rank) -> bool {
        let before = self.peers.iter().filter(|peer| peer.rank < self.own && peer.rank != lost && !peer.has_left);
        !before.into_iter().any(|peer| peer.is_visible && peer.ailment().is_none())
    }

    /// The ranks without which the job cannot go on, if any, and whether this is the rank to say
    /// so: the first one that is well. Where ranks show signs, with how many looks at them have
    /// begun and ended: a process that has ended may have shown that it took its leave.
    pub(crate) fn lost(
        &mut self,
        division: Option<Division>,
        is_hurried: bool,
        looks: Option<(u64, u64)>,
    ) -> (Vec<Lost>, bool) {
        let limit = if is_hurried { self.stall.min(HURRIED.max(6 * self.interval)) } else { self.stall };
        let mut lost = Vec::new();
        let mut first = self.own;
        for peer in self.peers.iter_mut().filter(|peer| !peer.has_left) {
            let silence = peer.heard.elapsed();
            let ailment = peer.ailment();
            let how = match ailment {
                Some(Ailment::Ended)
                    if looks.is_some_and(|(begun, ended)| ended <= *peer.ended.get_or_insert(begun)) =>
                {
                    continue;
                }
                Some(Ailment::Ended) => How::Ended,
                _ if silence <= limit => {
                    first = first.min(peer.rank);
                    continue;
                }
                Some(Ailment::Stopped) => How::Stopped(silence),
                None if peer.process.is_none() => How::Absent(silence),
                None => How::Silent(silence),
            };
            lost.push(peer.lost(division, how));
        }
        (lost, first == self.own)
    }
}

impl Peer {
    /// What the system says of its process, if that is on this host.
    fn ailment(&self) -> Option<Ailment> {
        self.process.as_ref().filter(|_| self.is_visible).and_then(Process::ailment)
    }

    /// What is told of it when it is lost.
    fn lost(&self, division: Option<Division>, how: How) -> Lost {
        let devices = division.map(|division| division.devices_of(self.rank)).unwrap_or_default();
        let positions = devices
            .zip(&self.positions)
            .filter_map(|(device, packed)| Position::unpack(DeviceId::from_index(device), *packed));
        Lost { rank: self.rank, process: self.process.clone(), how, positions: positions.collect() }
    }
}
