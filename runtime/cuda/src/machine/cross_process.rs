//! Collectives across processes: what a group does together that has members in several.
//!
//! The share of each member is added up by the process that has it: all others send it what their members have there,
//! and our own kernel adds in the order of the group, so that the bits are those of one process. Then the sums go to all
//! members. Of a reduce-scatter only the first half is done, of an all-gather only the second; in an all-to-all parts go
//! straight to their places. Each half is one group of sends and receives, which every process names in one order: by
//! share, and then by the other member.

use super::super::commands::{CommandList, Home, MemberPart, Queue, Work};
use super::super::driver::Area;
use super::super::kernels::MemberSum;
use super::super::nccl::{Line, Links, Move};
use crate::machine::launch_plan::{Builder, Operation};
use pipe_distributed::collective::{Handed, own_bytes};
use pipe_ir::graph::DType;
use pipe_ir::ids::{DeviceId, GroupId};
use pipe_ir::instruction::Collective;
use pipe_ir::program::Program;
use pipe_runtime::RunError;
use std::collections::BTreeMap;
use std::ops::Range;

/// A collective with members in other processes.
pub(super) struct CrossProcess<'a> {
    group: GroupId,
    members: &'a [DeviceId],
    collective: Collective,
    dtype: DType,
    /// Of the members in this process.
    parts: &'a [MemberPart],
    /// Of a buffer.
    bytes: usize,
}

impl<'a> CrossProcess<'a> {
    /// What a work of a queue is, if it is such a collective.
    pub(super) fn of(program: &'a Program, queue: Queue, work: &'a Work) -> Option<Self> {
        let (Queue::Group(group), Work::Together { collective, dtype, parts }) = (queue, work) else { return None };
        let (members, first) = (program.group(group), parts.first()?.home);
        let bytes = program.devices[first.device.index()].buffers[first.buffer.index()].bytes.to_usize();
        let team = Self { group, members, collective: *collective, dtype: *dtype, parts, bytes };
        (parts.len() < members.len()).then_some(team)
    }

    /// The part of a member, if it is in this process.
    fn own(&self, member: usize) -> Option<&MemberPart> {
        self.parts.iter().find(|part| part.home.device == self.members[member])
    }

    /// The share of a member.
    fn range(&self, member: usize) -> Range<usize> {
        own_bytes(self.bytes, self.members.len(), member)
    }

    fn adds(&self) -> bool {
        matches!(self.collective, Collective::AllReduce | Collective::ReduceScatter)
    }

    /// The members in this process whose share has any bytes.
    fn shares(&self) -> impl Iterator<Item = Range<usize>> {
        let own = (0..self.members.len()).filter(|member| self.own(*member).is_some());
        own.map(|member| self.range(member)).filter(|range| !range.is_empty())
    }

    fn sum(&self, bytes: usize) -> MemberSum {
        MemberSum { dtype: self.dtype, members: self.members.len(), to_one: false, bytes }
    }

    /// The sums that it needs.
    pub(super) fn sums(&self) -> Vec<MemberSum> {
        self.shares().filter(|_| self.adds()).map(|range| self.sum(range.len())).collect()
    }

    /// Bytes for what other processes send of the shares that are added up here.
    fn scratch(&self) -> usize {
        let others = self.members.len() - self.parts.len();
        self.shares().filter(|_| self.adds()).map(|range| range.len() * others).sum()
    }
}

/// Bytes that the collectives of a command list need beside the arenas, by group.
pub(super) fn scratch(program: &Program, commands: &CommandList) -> BTreeMap<GroupId, usize> {
    let mut most = BTreeMap::new();
    for call in &commands.calls {
        let super::super::commands::Call::Work(queue, work) = call else { continue };
        if let Some(team) = CrossProcess::of(program, commands.queue(*queue), work) {
            let bytes: &mut usize = most.entry(team.group).or_default();
            *bytes = team.scratch().max(*bytes);
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
        let (links, line) = (self.links()?, Line::Group(team.group));
        let peer = |member: usize| links.place(line, links.rank_of(team.members[member]));
        let n_members = team.members.len();
        if team.collective == Collective::AllToAll {
            let mut moves = Vec::new();
            for (to, from) in (0..n_members).flat_map(|to| (0..n_members).map(move |from| (to, from))) {
                let Handed { leaves, arrives } = Handed::of(team.bytes, n_members, from, to);
                let source = team.own(from).map(|part| self.area(part.home).part(leaves.start, leaves.len()));
                let target = team.own(to).map(|part| self.area(part.home).part(arrives.start, arrives.len()));
                match (source, target) {
                    (Some(from), Some(to)) => self.act(stream, Operation::Copy { to, from }),
                    (Some(area), None) => moves.push(Move { peer: peer(to), area, sends: true }),
                    (None, Some(area)) => moves.push(Move { peer: peer(from), area, sends: false }),
                    (None, None) => {}
                }
            }
            self.act(stream, Operation::Exchange { line, moves });
            return Ok(());
        }
        if team.adds() {
            let (mut moves, mut sums, mut used) = (Vec::new(), Vec::new(), 0);
            for share in (0..n_members).filter(|share| !team.range(*share).is_empty()) {
                let range = team.range(share);
                let mut summands = Vec::with_capacity(n_members);
                for member in 0..n_members {
                    let own = team.own(member).map(|part| self.area(part.home).part(range.start, range.len()));
                    match (team.own(share).is_some(), own) {
                        (true, Some(area)) => summands.push(area),
                        (true, None) => {
                            let area = self.arenas.scratch(team.group).part(used, range.len());
                            used += range.len();
                            moves.push(Move { peer: peer(member), area, sends: false });
                            summands.push(area);
                        }
                        (false, Some(area)) => moves.push(Move { peer: peer(share), area, sends: true }),
                        (false, None) => {}
                    }
                }
                if !summands.is_empty() {
                    sums.push((team.sum(range.len()), summands));
                }
            }
            self.act(stream, Operation::Exchange { line, moves });
            for (sum, summands) in sums {
                self.sum(stream, sum, &summands);
            }
        }
        if team.collective == Collective::ReduceScatter {
            return Ok(());
        }
        let mut moves = Vec::new();
        for share in (0..n_members).filter(|share| !team.range(*share).is_empty()) {
            let range = team.range(share);
            let of = |area: Area| area.part(range.start, range.len());
            let apart = team.own(share).and_then(|part| part.share);
            let from = match apart {
                Some(home) => Some(self.area(home).part(0, range.len())),
                None => team.own(share).map(|part| of(self.area(part.home))),
            };
            for member in 0..n_members {
                let to = team.own(member).map(|part| of(self.area(part.home)));
                match (from, to) {
                    (Some(area), None) => moves.push(Move { peer: peer(member), area, sends: true }),
                    (None, Some(area)) => moves.push(Move { peer: peer(share), area, sends: false }),
                    (Some(from), Some(to)) if !team.adds() && from != to => {
                        self.act(stream, Operation::Copy { to, from })
                    }
                    (Some(_), Some(_)) | (None, None) => {}
                }
            }
        }
        self.act(stream, Operation::Exchange { line, moves });
        Ok(())
    }
}
