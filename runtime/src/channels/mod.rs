//! Channels: transfers between devices, without buffers of their own (rendezvous). What has an end
//! on another rank goes to the progress thread.
//!
//! A queue per (sender, receiver, class) pairs sends with receives in order. Whoever comes second
//! copies the bytes from arena to arena and marks the tokens of both; a `wait` blocks until its
//! token is marked. Under stress every queue has a courier that lets each pair wait for a random
//! time before it copies: still in order, but never when one expects it.

mod copies;
mod groups;
#[cfg(test)]
mod tests;

use crate::values::random::mix;
use copies::{Copies, Copy};
use groups::Group;
use pipe_distributed::collective::Part;
use pipe_distributed::memory::Region;
use pipe_distributed::remote::Remote;
use pipe_distributed::tokens::{End, Posted, Tokens, locked};
use pipe_distributed::{Fault, Profile, RankView, RunError};
use pipe_ir::ids::{DeviceId, GroupId, LaneId, TokenId};
use pipe_ir::instruction::{Class, Direction};
use pipe_ir::program::Program;
use pipe_ir::verify::List;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

#[derive(Default)]
struct Queue {
    sends: VecDeque<Posted>,
    receives: VecDeque<Posted>,
    courier: Option<mpsc::Sender<(Posted, Posted)>>,
}

/// All queues of a run.
pub(crate) struct Channels {
    queues: BTreeMap<(DeviceId, DeviceId, Class), Mutex<Queue>>,
    /// By group; none where members are on other ranks.
    groups: Vec<Option<Group>>,
    copies: Copies,
    /// What goes to other ranks, in a job of several.
    remote: Option<Remote>,
    tokens: Arc<Tokens>,
    couriers: Mutex<Vec<JoinHandle<()>>>,
}

/// The longest delay of a transfer under stress.
const STRESS_MICROS: u64 = 300;

impl Channels {
    /// The queues that a program uses; with a seed, under stress; in a job of several ranks, those of the devices of
    /// one. Fails if the machine lacks memory for what is exchanged with other ranks.
    pub(crate) fn new(program: &Program, stress: Option<u64>, rank_view: Option<&RankView>) -> Result<Self, RunError> {
        let is_here = |device: DeviceId| rank_view.is_none_or(|rank_view| rank_view.has(device));
        let devices = (0..).map(DeviceId).zip(&program.devices);
        let counts = devices.map(|(id, device)| if is_here(id) { device.n_tokens } else { 0 });
        let tokens = Arc::new(Tokens::new(counts, program.lanes.len()));
        let mut queues: BTreeMap<_, Mutex<Queue>> = BTreeMap::new();
        for queue in program.transfers() {
            if is_here(queue.0) && is_here(queue.1) {
                queues.entry(queue).or_default();
            }
        }
        let remote = rank_view.map(|rank_view| Remote::new(program, rank_view, &tokens)).transpose()?;
        let mut couriers = Vec::new();
        if let Some(seed) = stress {
            for (index, queue) in queues.values_mut().enumerate() {
                let (sender, receiver) = mpsc::channel();
                locked(queue).courier = Some(sender);
                let tokens = Arc::clone(&tokens);
                couriers.push(thread::spawn(move || deliver_late(&tokens, &receiver, mix(seed, index as u64))));
            }
        }
        let (groups, mut others) = Group::all(program, &tokens, stress, &is_here);
        couriers.append(&mut others);
        let (copies, mut threads) = Copies::new(program, &tokens, stress, &is_here);
        couriers.append(&mut threads);
        Ok(Self { queues, groups, copies, remote, tokens, couriers: Mutex::new(couriers) })
    }

    /// Says which thread waits for a device's tokens, in its list or on a lane; before its first wait.
    pub(crate) fn register(&self, device: DeviceId, lane: Option<LaneId>) {
        self.tokens.register(device, lane);
    }

    /// What a lane was given has ended.
    pub(crate) fn mark(&self, device: DeviceId, token: TokenId) {
        self.tokens.mark(Posted { device, token, region: Region::EMPTY });
    }

    /// Posts one end of a transfer; pairs it if the other end is there.
    pub(crate) fn post(&self, end: End, from: DeviceId, to: DeviceId, class: Class, posted: Posted) {
        if let Some(remote) = self.remote.as_ref().filter(|remote| remote.takes(from, to)) {
            remote.post(end, (from, to, class), posted);
            return;
        }
        let mut queue = locked(&self.queues[&(from, to, class)]);
        let (own, other) = match end {
            End::Send => (&mut *queue, End::Receive),
            End::Receive => (&mut *queue, End::Send),
        };
        let partner = match other {
            End::Send => own.sends.pop_front(),
            End::Receive => own.receives.pop_front(),
        };
        let Some(partner) = partner else {
            match end {
                End::Send => own.sends.push_back(posted),
                End::Receive => own.receives.push_back(posted),
            }
            return;
        };
        let (send, receive) = if end == End::Send { (posted, partner) } else { (partner, posted) };
        match &own.courier {
            // The courier lives until the channels are closed, after the last post.
            Some(courier) => drop(courier.send((send, receive))),
            None => {
                drop(queue);
                complete(&self.tokens, send, receive);
            }
        }
    }

    /// Joins the next collective of a group.
    pub(crate) fn join(&self, group: GroupId, part: Part) {
        match (&self.groups[group.index()], &self.remote) {
            (Some(group), _) => group.join(part),
            (None, Some(remote)) => remote.join(group, part),
            // Without other ranks every group is here.
            (None, None) => {}
        }
    }

    /// A device begins an instruction: other ranks want to know.
    pub(crate) fn at(&self, device: DeviceId, list: List, index: usize) {
        if self.remote.is_none() {
            return;
        }
        self.tokens.at(device, list, index);
    }

    /// Queues a copy between a device and its host.
    pub(crate) fn copy(&self, device: DeviceId, direction: Direction, copy: Copy) {
        self.copies.start(device, direction, copy);
    }

    /// What all collectives took so far.
    pub(crate) fn profile(&self) -> Profile {
        let mut profile = Profile::default();
        self.groups.iter().flatten().for_each(|group| group.add_profile(&mut profile));
        if let Some(remote) = &self.remote {
            profile.merge(&remote.profile());
        }
        profile
    }

    /// Whether a transfer or collective has ended; its mark is taken off.
    pub(crate) fn has_ended(&self, device: DeviceId, token: TokenId) -> bool {
        self.tokens.has_ended(device, token)
    }

    /// Blocks until a transfer or collective has ended.
    pub(crate) fn wait(&self, device: DeviceId, token: TokenId) -> Result<(), Fault> {
        self.tokens.wait(device, token)
    }

    /// Ends all waits, now and later: a device cannot go on.
    pub(crate) fn poison(&self) {
        self.tokens.poison();
    }
}

impl Drop for Channels {
    fn drop(&mut self) {
        for queue in self.queues.values() {
            locked(queue).courier = None;
        }
        self.groups.iter().flatten().for_each(Group::close);
        self.copies.close();
        for courier in self.couriers.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // A courier that panicked has poisoned the run already.
            let _ = courier.join();
        }
    }
}

/// The life of a courier.
fn deliver_late(tokens: &Tokens, pairs: &mpsc::Receiver<(Posted, Posted)>, seed: u64) {
    for (count, (send, receive)) in pairs.iter().enumerate() {
        thread::sleep(Duration::from_micros(mix(seed, count as u64) % STRESS_MICROS));
        complete(tokens, send, receive);
    }
}

fn complete(tokens: &Tokens, send: Posted, receive: Posted) {
    receive.region.copy_from(send.region);
    tokens.mark(send);
    tokens.mark(receive);
}
