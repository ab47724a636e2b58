//! The watch: which ranks still live. A rank says so many times a second, from the one thread that never computes; with it goes where
//! its devices are. On the same host the system is asked, too, so that an end is seen at once.

use super::lost::{Ailment, How, Lost, Position, Process};
use super::rank::{Division, Rank};
use pipe_ir::ids::DeviceId;
use std::time::{Duration, Instant};

/// Between two signs of life.
pub(crate) const BEAT: Duration = Duration::from_millis(100);
/// Silence that is enough where the system asks the process to end: most often because another one did.
const HURRIED: Duration = Duration::from_millis(600);

/// What is known of another rank.
struct Peer {
    rank: Rank,
    heard: Instant,
    process: Option<Process>,
    is_visible: bool,
    /// By its own devices, in their order.
    positions: Vec<u64>,
    has_left: bool,
}

/// What is known of all other ranks.
pub(crate) struct Watch {
    own: Rank,
    peers: Vec<Peer>,
    stall: Duration,
    /// The last turn, and the next one.
    last: Instant,
    next: Instant,
}

impl Watch {
    /// Of a job that begins now. A rank may be silent for so long.
    pub(crate) fn new(own: Rank, n_ranks: usize, stall: Duration) -> Self {
        let now = Instant::now();
        let peer =
            |rank| Peer { rank, heard: now, process: None, is_visible: false, positions: Vec::new(), has_left: false };
        let peers = (0..n_ranks).map(Rank::from_index).filter(|rank| *rank != own).map(peer).collect();
        Self { own, peers, stall, last: now, next: now }
    }

    fn peer(&mut self, rank: Rank) -> Option<&mut Peer> {
        self.peers.iter_mut().find(|peer| peer.rank == rank)
    }

    /// A letter of a rank came.
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

    /// Whether it is time for the next sign of life and [`Watch::lost`].
    pub(crate) fn is_due(&mut self) -> bool {
        let now = Instant::now();
        if now < self.next {
            return false;
        }
        if now - self.last > self.stall / 2 {
            // This process itself stood still: what others said meanwhile is still to be read.
            self.peers.iter_mut().for_each(|peer| peer.heard = now);
        }
        (self.last, self.next) = (now, now + BEAT);
        true
    }

    /// The ranks without which the job cannot go on, if any, and whether this is the rank to say so: the first one that is well.
    pub(crate) fn lost(&self, division: Option<Division>, is_hurried: bool) -> (Vec<Lost>, bool) {
        let limit = if is_hurried { self.stall.min(HURRIED) } else { self.stall };
        let mut lost = Vec::new();
        let mut first = self.own;
        for peer in self.peers.iter().filter(|peer| !peer.has_left) {
            let silence = peer.heard.elapsed();
            let ailment = peer.process.as_ref().filter(|_| peer.is_visible).and_then(Process::ailment);
            let how = match ailment {
                Some(Ailment::Ended) => How::Ended,
                _ if silence <= limit => {
                    first = first.min(peer.rank);
                    continue;
                }
                Some(Ailment::Stopped) => How::Stopped(silence),
                None if peer.process.is_none() => How::Absent(silence),
                None => How::Silent(silence),
            };
            let devices = division.map(|division| division.devices_of(peer.rank)).unwrap_or_default();
            let positions = devices
                .zip(&peer.positions)
                .filter_map(|(device, packed)| Position::unpack(DeviceId::from_index(device), *packed));
            lost.push(Lost { rank: peer.rank, process: peer.process.clone(), how, positions: positions.collect() });
        }
        (lost, first == self.own)
    }
}
