//! Collectives: the members of a group add up their gradients, or exchange shares of their weights,
//! without buffers of their own (rendezvous).
//!
//! A queue per member pairs the n-th collective of each. Whoever comes last adds up the buffers of
//! all, in the order of the group, writes the sum to each of them, or to each its share, and marks
//! the tokens of all. So every member has the same bits, whoever came last, and a share of a sum
//! has the bits of the whole. Under stress a courier lets each collective wait for a random time
//! before that.

use crate::values::random::mix;
use pipe_distributed::collective::{Handed, Part, own_bytes, sum_up};
use pipe_distributed::tokens::{Tokens, locked};
use pipe_distributed::{Entry, Profile};
use pipe_ir::ids::{DeviceId, GroupId};
use pipe_ir::instruction::{Collective, Instruction};
use pipe_ir::program::Program;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// One group.
pub(crate) struct Group {
    members: Vec<DeviceId>,
    queue: Mutex<GroupQueue>,
    tokens: Arc<Tokens>,
}

struct GroupQueue {
    /// By member: what it has joined, and the others not yet.
    parts: Vec<VecDeque<Part>>,
    /// Room for one part of each.
    complete: Vec<Part>,
    /// By collective.
    profile: [Entry; Collective::ALL.len()],
    courier: Option<mpsc::Sender<Vec<Part>>>,
}

/// The longest delay of a collective under stress.
const STRESS_MICROS: u64 = 300;

impl Group {
    /// The groups of a program all of whose members are in this process, and with a seed their couriers.
    pub(crate) fn all(
        program: &Program,
        tokens: &Arc<Tokens>,
        stress: Option<u64>,
        is_here: &impl Fn(DeviceId) -> bool,
    ) -> (Vec<Option<Self>>, Vec<JoinHandle<()>>) {
        let (mut groups, mut couriers) = (Vec::new(), Vec::new());
        for (index, members) in program.groups.iter().enumerate() {
            if !members.iter().all(|device| is_here(*device)) {
                groups.push(None);
                continue;
            }
            let own = GroupId::from_index(index);
            let joins = |one: &&Instruction| one.joins(own);
            // No queue ever grows: a member is at most a whole step ahead of the others.
            let room = |device: &DeviceId| program.devices[device.index()].step.iter().filter(joins).count();
            let parts = members.iter().map(|device| VecDeque::with_capacity(2 * room(device))).collect();
            let courier = stress.map(|seed| {
                let (sender, receiver) = mpsc::channel();
                let tokens = Arc::clone(tokens);
                couriers.push(thread::spawn(move || add_late(&tokens, &receiver, mix(seed, index as u64))));
                sender
            });
            let complete = Vec::with_capacity(members.len());
            let queue = Mutex::new(GroupQueue { parts, complete, profile: Default::default(), courier });
            groups.push(Some(Self { members: members.clone(), queue, tokens: Arc::clone(tokens) }));
        }
        (groups, couriers)
    }

    /// Joins the member's next collective; does what it is if all others have joined it.
    pub(crate) fn join(&self, part: Part) {
        let Some(member) = self.members.iter().position(|device| *device == part.posted.device) else { return };
        let mut queue = locked(&self.queue);
        let GroupQueue { parts, complete, profile, courier } = &mut *queue;
        parts[member].push_back(part);
        if parts.iter().any(VecDeque::is_empty) {
            return;
        }
        complete.clear();
        complete.extend(parts.iter_mut().filter_map(VecDeque::pop_front));
        match courier {
            // The courier lives until the group is closed, after the last part.
            Some(courier) => drop(courier.send(complete.clone())),
            None => {
                let began = Instant::now();
                perform(complete);
                let Some(first) = complete.first() else { return };
                let elements = first.posted.region.len() / first.dtype.bytes().to_usize();
                let profile = &mut profile[first.collective as usize];
                profile.count += 1;
                profile.nanos += u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
                profile.elements += elements as u64;
                complete.iter().for_each(|part| self.tokens.mark(part.posted));
            }
        }
    }

    /// Adds what its collectives took.
    pub(crate) fn add_profile(&self, profile: &mut Profile) {
        let own = locked(&self.queue).profile;
        let entries =
            Collective::ALL.map(|one| one.word().into()).into_iter().zip(own).filter(|(_, own)| own.count > 0);
        profile.merge(&Profile { entries: entries.collect() });
    }

    /// Lets the courier end.
    pub(crate) fn close(&self) {
        locked(&self.queue).courier = None;
    }
}

/// The life of a courier.
fn add_late(tokens: &Tokens, complete: &mpsc::Receiver<Vec<Part>>, seed: u64) {
    for (count, parts) in complete.iter().enumerate() {
        thread::sleep(Duration::from_micros(mix(seed, count as u64) % STRESS_MICROS));
        perform(&parts);
        parts.iter().for_each(|part| tokens.mark(part.posted));
    }
}

/// Does what all members have joined; the verifier saw that it is the same for all of them.
fn perform(parts: &[Part]) {
    let Some(first) = parts.first() else { return };
    let bytes = first.posted.region.len();
    match first.collective {
        Collective::AllReduce => reduce(parts, parts, 0..bytes),
        Collective::ReduceScatter => {
            for (position, own) in parts.iter().enumerate() {
                reduce(parts, std::slice::from_ref(own), own_bytes(bytes, parts.len(), position));
            }
        }
        Collective::AllGather => {
            for (position, own) in parts.iter().enumerate() {
                let range = own_bytes(bytes, parts.len(), position);
                let of = |part: &Part| part.posted.region.part(range.start, range.len());
                let from = own.share.unwrap_or_else(|| of(own));
                let others = parts.iter().enumerate().filter(|(other, _)| *other != position || own.share.is_some());
                others.for_each(|(_, other)| of(other).copy_from(from));
            }
        }
        Collective::AllToAll => {
            for (from, one) in parts.iter().enumerate() {
                for (to, other) in parts.iter().enumerate() {
                    let handed = Handed::of(bytes, parts.len(), from, to);
                    let part = |part: &Part, range: Range<usize>| part.posted.region.part(range.start, range.len());
                    part(other, handed.arrives).copy_from(part(one, handed.leaves));
                }
            }
        }
    }
}

/// Writes the sum of some bytes of all parts, in their order, to some of the parts.
fn reduce(parts: &[Part], to: &[Part], bytes: Range<usize>) {
    let Some(first) = parts.first() else { return };
    let own = |part: &Part| part.posted.region.part(bytes.start, bytes.len());
    sum_up(first.dtype, parts.iter().map(own), to.iter().map(own));
}

#[cfg(test)]
mod tests {
    use super::*;
    use pipe_distributed::memory::Memory;
    use pipe_distributed::tokens::Posted;
    use pipe_ir::graph::DType;
    use pipe_ir::ids::TokenId;
    use pipe_ir::units::Bytes;

    /// Buffers of three members, the numbers of each the same.
    fn parts(collective: Collective, memories: &[Memory], length: u64) -> Vec<Part> {
        let numbers = [1e8_f32, 1.0, -1e8];
        let part = |(index, memory): (usize, &Memory)| {
            let region = memory.region(Bytes(0), Bytes(4 * length));
            region.numbers_mut::<f32>().fill(numbers[index]);
            let posted = Posted { device: DeviceId::from_index(index), token: TokenId(0), region };
            Part { posted, collective, dtype: DType::F32, share: None }
        };
        memories.iter().enumerate().map(part).collect()
    }

    fn memories() -> Vec<Memory> {
        (0..3).map(|_| Memory::new(Bytes(4096)).expect("a page")).collect()
    }

    /// The 1 is lost beside the first large number, before the second takes that away.
    const SUM: f32 = 0.0;

    #[test]
    fn every_member_gets_the_sum_in_the_order_of_the_group() {
        let memories = memories();
        let parts = parts(Collective::AllReduce, &memories, 600);
        perform(&parts);
        for part in &parts {
            assert!(part.posted.region.numbers::<f32>().iter().all(|x| *x == SUM));
        }
    }

    #[test]
    fn every_member_gets_its_share_of_the_sum_and_gives_it_to_the_others() {
        let memories = memories();
        // Shares of 208, 208 and 184 numbers.
        let mut all = parts(Collective::ReduceScatter, &memories, 600);
        perform(&all);
        for (position, part) in all.iter().enumerate() {
            let own = 208 * position..(208 * (position + 1)).min(600);
            let numbers = part.posted.region.numbers::<f32>().iter().enumerate();
            assert!(numbers.clone().all(|(index, x)| (*x == SUM) == own.contains(&index)));
            part.posted.region.numbers_mut::<f32>()[own].fill(position as f32 + 0.5);
        }
        all.iter_mut().for_each(|part| part.collective = Collective::AllGather);
        perform(&all);
        for part in &all {
            let numbers = part.posted.region.numbers::<f32>().iter().enumerate();
            assert!(numbers.clone().all(|(index, x)| *x == (index / 208) as f32 + 0.5));
        }
    }

    #[test]
    fn members_give_each_other_parts() {
        let memories = memories();
        // Three parts of 16 numbers to give, and three for what comes.
        let all = parts(Collective::AllToAll, &memories, 96);
        for (from, part) in all.iter().enumerate() {
            for (index, x) in part.posted.region.numbers_mut::<f32>()[..48].iter_mut().enumerate() {
                *x = (10 * from + index / 16) as f32;
            }
        }
        perform(&all);
        for (to, part) in all.iter().enumerate() {
            let numbers = part.posted.region.numbers::<f32>()[48..].iter().enumerate();
            assert!(numbers.clone().all(|(index, x)| *x == (10 * (index / 16) + to) as f32), "{to}");
        }
    }

    #[test]
    fn shares_in_buffers_of_their_own_come_to_every_member() {
        let memories = memories();
        let mut all = parts(Collective::AllGather, &memories, 608);
        for (position, (part, memory)) in all.iter_mut().zip(&memories).enumerate() {
            // Behind the 2432 bytes of all: 832, 832 and 768.
            let share = memory.region(Bytes(2432), Bytes(if position < 2 { 832 } else { 768 }));
            share.numbers_mut::<f32>().fill(position as f32 + 0.5);
            part.share = Some(share);
        }
        perform(&all);
        for part in &all {
            let numbers = part.posted.region.numbers::<f32>().iter().enumerate();
            assert!(numbers.clone().all(|(index, x)| *x == (index / 208) as f32 + 0.5));
        }
    }
}
