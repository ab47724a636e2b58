//! Collectives of groups with members in several processes.
//!
//! `pipe_distributed::across_hosts` plans messages and additions in the order of the group, so that results are
//! bit-identical to one process. Members in the same process read each other's buffers directly. All-to-alls send parts
//! directly to their destinations. The messages of a round are one NCCL group, in the same order on all processes.

use super::super::commands::{CommandList, Home, MemberPart, Queue, Work};
use super::super::driver::Area;
use super::super::kernels::MemberSum;
use super::super::nccl::{Line, Links, Move};
use crate::machine::gpu_assignment::GpuAssignment;
use crate::machine::launch_plan::{Builder, Operation};
use pipe_distributed::across_hosts::{Addition, Message, Room, Round, rounds};
use pipe_distributed::collective::{Handed, own_bytes};
use pipe_ir::graph::DType;
use pipe_ir::ids::{DeviceId, GroupId};
use pipe_ir::instruction::Collective;
use pipe_ir::program::Program;
use pipe_ir::units::Bytes;
use pipe_runtime::RunError;
use std::collections::BTreeMap;
use std::ops::Range;

/// A collective with members in other processes.
pub(super) struct CrossProcess<'a> {
    group: GroupId,
    members: &'a [DeviceId],
    collective: Collective,
    dtype: DType,
    /// By member: what it joins, if it is in this process.
    parts: Vec<Option<MemberPart>>,
    /// Of a buffer.
    bytes: usize,
    /// What this process has a part in; nothing for an all-to-all.
    rounds: Vec<Round>,
}

/// Room in scratch for what comes to a member, by that member.
type Rooms = BTreeMap<(usize, Room), RoomPlace>;

/// Where a room is.
#[derive(Clone, Copy)]
struct RoomPlace {
    offset: usize,
    /// The first byte of a buffer that it is for.
    start: usize,
    bytes: usize,
}

impl<'a> CrossProcess<'a> {
    /// What a work of a queue is, if it is such a collective.
    pub(super) fn of(program: &'a Program, assignment: &GpuAssignment, queue: Queue, work: &'a Work) -> Option<Self> {
        let (Queue::Group(group), Work::Together { collective, dtype, parts }) = (queue, work) else { return None };
        let (members, first) = (program.group(group), parts.first()?.home);
        if parts.len() == members.len() {
            return None;
        }
        let bytes = program.devices[first.device.index()].buffers[first.buffer.index()].bytes.to_usize();
        let own = |member: &DeviceId| parts.iter().find(|part| part.home.device == *member).copied();
        let hosts: Vec<usize> = members.iter().map(|member| assignment.host_of(*member)).collect();
        let parts: Vec<Option<MemberPart>> = members.iter().map(own).collect();
        let mut rounds = rounds(&hosts, *collective, bytes);
        for round in &mut rounds {
            round.messages.retain(|message| [message.from, message.to].iter().any(|member| parts[*member].is_some()));
            round.additions.retain(|addition| parts[addition.member].is_some());
        }
        Some(Self { group, members, collective: *collective, dtype: *dtype, parts, bytes, rounds })
    }

    fn sum(&self, addition: &Addition) -> MemberSum {
        let Addition { goes_on, run, bytes, .. } = addition;
        MemberSum { dtype: self.dtype, members: usize::from(*goes_on) + run.len(), to_one: true, bytes: bytes.len() }
    }

    /// The sums that it needs.
    pub(super) fn sums(&self) -> Vec<MemberSum> {
        self.rounds.iter().flat_map(|round| &round.additions).map(|addition| self.sum(addition)).collect()
    }

    /// Room for what other processes send to be added up here, and how many bytes it needs.
    fn rooms(&self) -> (Rooms, usize) {
        let mut rooms = Rooms::new();
        for Message { from, to, room, bytes } in self.rounds.iter().flat_map(|round| &round.messages) {
            if *room != Room::Buffer && self.parts[*from].is_none() {
                let known = rooms.entry((*to, *room)).or_insert(RoomPlace { offset: 0, start: bytes.start, bytes: 0 });
                known.bytes = known.bytes.max(bytes.len());
            }
        }
        let mut all = 0;
        for room in rooms.values_mut() {
            room.offset = all;
            all += Bytes(room.bytes as u64).aligned().to_usize();
        }
        (rooms, all)
    }
}

/// Bytes that the collectives of a command list need beside the arenas, by group.
pub(super) fn scratch(
    program: &Program,
    assignment: &GpuAssignment,
    commands: &CommandList,
) -> BTreeMap<GroupId, usize> {
    let mut most = BTreeMap::new();
    for call in &commands.calls {
        let super::super::commands::Call::Work(queue, work) = call else { continue };
        if let Some(team) = CrossProcess::of(program, assignment, commands.queue(*queue), work) {
            let bytes: &mut usize = most.entry(team.group).or_default();
            *bytes = team.rooms().1.max(*bytes);
        }
    }
    most.retain(|_, bytes| *bytes > 0);
    most
}

impl<'a> Builder<'a> {
    fn links(&self) -> Result<&'a Links, RunError> {
        self.links.ok_or_else(|| RunError::Nccl("this process is alone".to_owned()))
    }

    /// A buffer goes to another process, or comes from it.
    pub(super) fn transfer(&mut self, stream: usize, queue: Queue, home: Home, sends: bool) -> Result<(), RunError> {
        let (links, Queue::Transfer(from, to, class)) = (self.links()?, queue) else { return Ok(()) };
        let [from, to] = [from, to].map(|device| links.rank_of(device));
        let line = Line::Transfer(from, to, class);
        let peer = links.place(line, if sends { to } else { from });
        let moves = vec![Move { peer, area: self.area(home), sends }];
        self.act(stream, Operation::Exchange { line, moves });
        Ok(())
    }

    /// A collective with members in other processes.
    pub(super) fn apart(&mut self, stream: usize, team: &CrossProcess<'_>) -> Result<(), RunError> {
        if team.collective == Collective::AllToAll {
            return self.hand_over_apart(stream, team);
        }
        let (links, line) = (self.links()?, Line::Group(team.group));
        let (rooms, _) = team.rooms();
        // Of a share that is not in the buffer itself.
        for (member, part) in team.parts.iter().enumerate() {
            if let Some(MemberPart { home, share: Some(share) }) = part {
                let Range { start, end } = own_bytes(team.bytes, team.members.len(), member);
                let (to, from) = (self.area(*home).part(start, end - start), self.area(*share).part(0, end - start));
                if end > start {
                    self.act(stream, Operation::Copy { to, from });
                }
            }
        }
        let of = |builder: &Self, member: usize, bytes: &Range<usize>| {
            team.parts[member].map(|part| builder.area(part.home).part(bytes.start, bytes.len()))
        };
        let kept = |builder: &Self, member: usize, room: Room, bytes: &Range<usize>| {
            let RoomPlace { offset, start, .. } = rooms[&(member, room)];
            let inside = if room == Room::Before { 0 } else { bytes.start - start };
            builder.arenas.scratch(team.group).part(offset + inside, bytes.len())
        };
        for round in &team.rounds {
            let mut moves = Vec::new();
            for Message { from, to, room, bytes } in &round.messages {
                let peer = |member: usize| links.place(line, links.rank_of(team.members[member]));
                match (of(self, *from, bytes), of(self, *to, bytes)) {
                    (Some(from), Some(to)) if *room == Room::Buffer => self.act(stream, Operation::Copy { to, from }),
                    // It is read where it is.
                    (Some(_), Some(_)) | (None, None) => {}
                    (Some(area), None) => moves.push(Move { peer: peer(*to), area, sends: true }),
                    (None, Some(area)) => {
                        let area = if *room == Room::Buffer { area } else { kept(self, *to, *room, bytes) };
                        moves.push(Move { peer: peer(*from), area, sends: false });
                    }
                }
            }
            if !moves.is_empty() {
                self.act(stream, Operation::Exchange { line, moves });
            }
            for addition in &round.additions {
                let Addition { member, goes_on, run, bytes } = addition;
                let before = goes_on.then(|| kept(self, *member, Room::Before, bytes));
                let summand = |other: usize| {
                    of(self, other, bytes).unwrap_or_else(|| kept(self, *member, Room::Of(other), bytes))
                };
                let summands = before.into_iter().chain(run.clone().map(summand));
                let places: Vec<Area> = summands.chain(of(self, *member, bytes)).collect();
                self.sum(stream, team.sum(addition), &places);
            }
        }
        Ok(())
    }

    /// Every member gives each other one a part, wherever that is.
    fn hand_over_apart(&mut self, stream: usize, team: &CrossProcess<'_>) -> Result<(), RunError> {
        let (links, line) = (self.links()?, Line::Group(team.group));
        let peer = |member: usize| links.place(line, links.rank_of(team.members[member]));
        let n_members = team.members.len();
        let mut moves = Vec::new();
        for (to, from) in (0..n_members).flat_map(|to| (0..n_members).map(move |from| (to, from))) {
            let Handed { leaves, arrives } = Handed::of(team.bytes, n_members, from, to);
            let source = team.parts[from].map(|part| self.area(part.home).part(leaves.start, leaves.len()));
            let target = team.parts[to].map(|part| self.area(part.home).part(arrives.start, arrives.len()));
            match (source, target) {
                (Some(from), Some(to)) => self.act(stream, Operation::Copy { to, from }),
                (Some(area), None) => moves.push(Move { peer: peer(to), area, sends: true }),
                (None, Some(area)) => moves.push(Move { peer: peer(from), area, sends: false }),
                (None, None) => {}
            }
        }
        self.act(stream, Operation::Exchange { line, moves });
        Ok(())
    }
}
