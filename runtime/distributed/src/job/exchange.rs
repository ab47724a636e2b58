//! Exchanges: collectives whose members are in several processes.
//!
//! The share of each member is cut into pieces. A piece is owned by the rank of the member whose
//! share it is: all other ranks send it what their members have of the piece, it adds them up in
//! the order of the group, and sends the sum to all others; of a reduce-scatter only the first half
//! is done, of an all-gather only the second; of an all-to-all only the first, without adding up. So
//! the sums have the bits of one process. A few pieces are under way at once, in scratch that is
//! allocated with the exchange. The n-th exchange of a group begins on a rank when all its own
//! members have joined it.

use crate::collective::{Handed, Part, own_bytes, sum_up};
use crate::fault::RunError;
use crate::memory::{Memory, Region};
use crate::profile::{Entry, Profile};
use crate::rank::{Division, Rank};
use crate::tokens::Tokens;
use crate::wire::{Tag, Wire};
use pipe_ir::ids::{DeviceId, GroupId};
use pipe_ir::instruction::{Collective, Instruction};
use pipe_ir::program::Program;
use pipe_ir::units::Bytes;
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

/// The largest piece, in bytes.
const PIECE: usize = 256 << 10;
/// Pieces that are under way at once.
const WINDOW: usize = 4;
/// Tags of one group: each place in the window has one for what is added up and one for sums.
const TAGS: Tag = 2 * WINDOW as Tag;

/// One group of which some members are here and some elsewhere.
pub(crate) struct Exchange {
    own: Rank,
    first_tag: Tag,
    members: Vec<(DeviceId, Rank)>,
    /// The ranks of the members, each once.
    ranks: Vec<Rank>,
    /// By member: what it has joined and is not done; only of those that are here.
    joined: Vec<VecDeque<Part>>,
    current: Option<Current>,
    places: [PieceState; WINDOW],
    /// For each place, room for a piece of each member.
    scratch: Memory,
    /// By collective.
    profile: [Entry; Collective::ALL.len()],
}

/// The collective under way.
#[derive(Clone, Copy)]
struct Current {
    collective: Collective,
    began: Instant,
    /// Pieces before this one are done.
    done: usize,
    /// The next one to begin.
    next: usize,
    n_pieces: usize,
}

/// A piece under way.
#[derive(Clone, Copy, Default)]
struct PieceState {
    piece: usize,
    half: Half,
    /// Messages of this half that have not ended.
    open: usize,
}

/// What is done with a piece.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Half {
    Adds,
    Spreads,
    #[default]
    Done,
}

/// Whose a message of an exchange is: to be given back to [`Exchange::ended`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ticket {
    pub(crate) group: GroupId,
    place: usize,
}

/// Where the messages go that an exchange starts.
pub(crate) struct Outlet<'a, W: Wire> {
    pub(crate) wire: &'a mut W,
    pub(crate) started: &'a mut Vec<(W::Request, Ticket)>,
}

impl Exchange {
    /// Those of a program, by group; `None` for groups without members here or elsewhere. Tags begin with this one.
    /// Fails if the machine lacks memory for their scratch.
    pub(crate) fn all(
        program: &Program,
        division: Division,
        own: Rank,
        tag: Tag,
    ) -> Result<Vec<Option<Self>>, RunError> {
        let exchange = |(index, devices): (usize, &Vec<DeviceId>)| {
            let members: Vec<_> = devices.iter().map(|device| (*device, division.rank_of(*device))).collect();
            let here = members.iter().filter(|(_, rank)| *rank == own).count();
            if here == 0 || here == members.len() {
                return Ok(None);
            }
            let group = GroupId::from_index(index);
            let starts = |one: &&Instruction| one.joins(group);
            let room = |device: &DeviceId| program.devices[device.index()].step.iter().filter(starts).count();
            let joined = devices.iter().map(|device| VecDeque::with_capacity(2 * room(device))).collect();
            let mut ranks: Vec<Rank> = members.iter().map(|(_, rank)| *rank).collect();
            ranks.sort_unstable();
            ranks.dedup();
            let bytes = Bytes((WINDOW * members.len() * PIECE) as u64);
            let device = members.iter().find(|(_, rank)| *rank == own).map_or(DeviceId(0), |(device, _)| *device);
            let scratch = Memory::new(bytes).ok_or(RunError::OutOfMemory { device, bytes })?;
            let (current, places, profile) = (None, Default::default(), Default::default());
            let first_tag = tag + TAGS * index as Tag;
            Ok(Some(Self { own, first_tag, members, ranks, joined, current, places, scratch, profile }))
        };
        program.groups.iter().enumerate().map(exchange).collect()
    }

    /// A member that is here joins its next collective.
    pub(crate) fn join(&mut self, part: Part) {
        if let Some(member) = self.members.iter().position(|(device, _)| *device == part.posted.device) {
            self.joined[member].push_back(part);
        }
    }

    /// A message has ended.
    pub(crate) fn ended(&mut self, ticket: Ticket) {
        self.places[ticket.place].open -= 1;
    }

    /// Goes on as far as it can; marks the tokens of what is done. Whether it moved.
    pub(crate) fn advance<W: Wire>(&mut self, group: GroupId, outlet: &mut Outlet<'_, W>, tokens: &Tokens) -> bool {
        let mut moved = false;
        while self.begin() {
            while self.turn(group, outlet) {
                moved = true;
            }
            let Some(current) = self.current.filter(|current| current.done == current.n_pieces) else { break };
            self.current = None;
            self.count(&current);
            let own = self.own;
            let here = self.members.iter().zip(&mut self.joined).filter(|((_, rank), _)| *rank == own);
            here.filter_map(|(_, joined)| joined.pop_front()).for_each(|part| tokens.mark(part.posted));
            moved = true;
        }
        moved
    }

    /// Adds what its collectives took; of its ranks the first one does.
    pub(crate) fn add_profile(&self, profile: &mut Profile) {
        if self.ranks.first() != Some(&self.own) {
            return;
        }
        let entries = Collective::ALL.map(|one| one.word().into()).into_iter().zip(self.profile);
        profile.merge(&Profile { entries: entries.filter(|(_, own)| own.count > 0).collect() });
    }

    fn count(&mut self, current: &Current) {
        let Some(part) = self.heads().next().map(|(_, part)| *part) else { return };
        let profile = &mut self.profile[current.collective as usize];
        profile.count += 1;
        profile.nanos += u64::try_from(current.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        profile.elements += (part.posted.region.len() / part.dtype.bytes().to_usize()) as u64;
    }

    /// Begins the next collective if none is under way and all members that are here have joined it. Whether one is.
    fn begin(&mut self) -> bool {
        if self.current.is_some() {
            return true;
        }
        let here = self.members.iter().filter(|(_, rank)| *rank == self.own).count();
        if self.heads().count() < here {
            return false;
        }
        let Some((collective, bytes)) =
            self.heads().next().map(|(_, part)| (part.collective, part.posted.region.len()))
        else {
            return false;
        };
        let n_members = self.members.len();
        let share = match collective {
            Collective::AllToAll => Handed::of(bytes, n_members, 0, 0).leaves,
            _ => own_bytes(bytes, n_members, 0),
        };
        let rounds = share.len().div_ceil(PIECE);
        let n_pieces = rounds * n_members;
        self.places = Default::default();
        self.current = Some(Current { collective, began: Instant::now(), done: 0, next: 0, n_pieces });
        true
    }

    /// Parts of the current collective, of the members that are here, with their positions.
    fn heads(&self) -> impl Iterator<Item = (usize, &Part)> + Clone {
        self.joined.iter().enumerate().filter_map(|(member, joined)| Some((member, joined.front()?)))
    }

    /// The member whose share a piece is of, and its bytes.
    fn piece(&self, piece: usize) -> (usize, Range<usize>) {
        let (round, member) = (piece / self.members.len(), piece % self.members.len());
        let share = match self.handed(0, member) {
            Some(handed) => handed.leaves,
            None => own_bytes(self.bytes(), self.members.len(), member),
        };
        let from = (share.start + round * PIECE).min(share.end);
        (member, from..(from + PIECE).min(share.end))
    }

    /// The bytes of the current collective's buffers.
    fn bytes(&self) -> usize {
        self.heads().next().map_or(0, |(_, part)| part.posted.region.len())
    }

    /// What a member gives another one, if the current collective is an all-to-all.
    fn handed(&self, from: usize, to: usize) -> Option<Handed> {
        self.current.filter(|current| current.collective == Collective::AllToAll)?;
        Some(Handed::of(self.bytes(), self.members.len(), from, to))
    }

    /// One turn over all places. Whether anything moved.
    fn turn<W: Wire>(&mut self, group: GroupId, outlet: &mut Outlet<'_, W>) -> bool {
        let Some(mut current) = self.current else { return false };
        let before = (current.done, current.next);
        while current.next < current.n_pieces && current.next < current.done + WINDOW {
            let place = current.next % WINDOW;
            self.places[place] = PieceState { piece: current.next, half: Half::Adds, open: 0 };
            current.next += 1;
            if current.collective == Collective::AllGather {
                self.spread(group, place, outlet);
            } else {
                self.add(group, place, outlet);
            }
        }
        let mut moved = false;
        for number in current.done..current.next {
            let place = number % WINDOW;
            if self.places[place].open > 0 || self.places[place].half == Half::Done {
                continue;
            }
            moved = true;
            match self.places[place].half {
                Half::Adds => {
                    self.sum(place, current.collective);
                    self.spread(group, place, outlet);
                    if self.has_one_half() {
                        self.places[place].half = Half::Done;
                    }
                }
                Half::Spreads => {
                    self.copy(place);
                    self.places[place].half = Half::Done;
                }
                Half::Done => {}
            }
        }
        while current.done < current.next && self.places[current.done % WINDOW].half == Half::Done {
            current.done += 1;
        }
        self.current = Some(current);
        moved || before != (current.done, current.next)
    }

    /// Whether what comes to the owner of a piece stays there.
    fn has_one_half(&self) -> bool {
        self.current
            .is_some_and(|current| matches!(current.collective, Collective::ReduceScatter | Collective::AllToAll))
    }

    fn room(&self, place: usize, member: usize, bytes: usize) -> Region {
        let offset = (place * self.members.len() + member) * PIECE;
        self.scratch.region(Bytes(offset as u64), Bytes(bytes as u64))
    }

    /// Starts the first half of a piece: what members have of it goes to its owner.
    fn add<W: Wire>(&mut self, group: GroupId, place: usize, outlet: &mut Outlet<'_, W>) {
        let (target, range) = self.piece(self.places[place].piece);
        self.places[place].half = Half::Adds;
        if range.is_empty() {
            return;
        }
        let (owner, tag) = (self.members[target].1, self.first_tag + 2 * place as Tag);
        let mut open = 0;
        if owner == self.own {
            for (member, (_, rank)) in self.members.iter().enumerate().filter(|(_, (_, rank))| *rank != self.own) {
                let request = outlet.wire.receive(*rank, tag, self.room(place, member, range.len()));
                outlet.started.push((request, Ticket { group, place }));
                open += 1;
            }
        } else {
            for (_, part) in self.heads() {
                let request = outlet.wire.send(owner, tag, part.posted.region.part(range.start, range.len()));
                outlet.started.push((request, Ticket { group, place }));
                open += 1;
            }
        }
        self.places[place].open = open;
    }

    /// Its owner adds a piece up, in the order of the group, or puts what each member gave it where it belongs.
    fn sum(&mut self, place: usize, collective: Collective) {
        let (target, range) = self.piece(self.places[place].piece);
        let Some((_, first)) = self.heads().next().filter(|_| self.members[target].1 == self.own) else { return };
        let own = |part: &Part| part.posted.region.part(range.start, range.len());
        let of_member = |member: usize| match self.joined[member].front() {
            Some(part) => own(part),
            None => self.room(place, member, range.len()),
        };
        if collective == Collective::AllToAll {
            let Some(to) = self.joined[target].front() else { return };
            for member in 0..self.members.len() {
                let Some(Handed { leaves, arrives }) = self.handed(member, target) else { return };
                let start = arrives.start + range.start - leaves.start;
                to.posted.region.part(start, range.len()).copy_from(of_member(member));
            }
            return;
        }
        let all = (0..self.members.len()).map(of_member);
        let gets = |member: usize| collective == Collective::AllReduce || member == target;
        let to = self.heads().filter(|(member, _)| gets(*member)).map(|(_, part)| own(part));
        sum_up(first.dtype, all, to);
    }

    /// Starts the second half of a piece: it goes from its owner to all others.
    fn spread<W: Wire>(&mut self, group: GroupId, place: usize, outlet: &mut Outlet<'_, W>) {
        let (target, range) = self.piece(self.places[place].piece);
        self.places[place].half = Half::Spreads;
        if range.is_empty() || self.has_one_half() {
            return;
        }
        let (owner, tag) = (self.members[target].1, self.first_tag + 2 * place as Tag + 1);
        // The owner sends from its own member, all others receive into their first.
        let holds = |member: usize| owner != self.own || member == target;
        let Some((member, part)) = self.heads().find(|(member, _)| holds(*member)) else { return };
        let region = if owner == self.own {
            self.given(member, part, &range)
        } else {
            part.posted.region.part(range.start, range.len())
        };
        let mut open = 0;
        if owner == self.own {
            for rank in self.ranks.iter().filter(|rank| **rank != self.own) {
                outlet.started.push((outlet.wire.send(*rank, tag, region), Ticket { group, place }));
                open += 1;
            }
        } else {
            outlet.started.push((outlet.wire.receive(owner, tag, region), Ticket { group, place }));
            open = 1;
        }
        self.places[place].open = open;
    }

    /// Some bytes of a member's share, from where it is.
    fn given(&self, member: usize, part: &Part, range: &Range<usize>) -> Region {
        let Some(share) = part.share else { return part.posted.region.part(range.start, range.len()) };
        let start = own_bytes(part.posted.region.len(), self.members.len(), member).start;
        share.part(range.start - start, range.len())
    }

    /// Hands a piece that came to the other members that are here, and also to its own one where that has it elsewhere.
    fn copy(&mut self, place: usize) {
        let (target, range) = self.piece(self.places[place].piece);
        let is_sum = self.current.is_some_and(|current| current.collective == Collective::AllReduce);
        if is_sum && self.members[target].1 == self.own {
            // All of them have it already.
            return;
        }
        let part = |part: &Part| part.posted.region.part(range.start, range.len());
        let is_own = self.members[target].1 == self.own;
        let holder = if is_own { Some(target) } else { self.heads().map(|(member, _)| member).next() };
        let Some((member, holding)) = self.heads().find(|(member, _)| Some(*member) == holder) else { return };
        let from = if is_own { self.given(member, holding, &range) } else { part(holding) };
        let lacks = |member: usize| Some(member) != holder || is_own && holding.share.is_some();
        self.heads().filter(|(member, _)| lacks(*member)).for_each(|(_, to)| part(to).copy_from(from));
    }
}
