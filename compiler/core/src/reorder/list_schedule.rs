//! List scheduling under a memory limit: whenever a device is free, it runs the most urgent task that is ready and
//! admitted. How urgent a task is follows from a guide, a timeline that is known to work.

use super::lanes::{Lane, Lanes, Starts, Time};
use pipe_ir::task::TaskKind;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What a list scheduler does with a choice.
pub(super) struct Policy<'a> {
    /// The most urgent task is the one that starts first in this timeline ...
    pub(super) guide: &'a Starts,
    /// ... after moving each kind (`F`, `B`, `W`, `BW`) by this much.
    pub(super) delay: [Time; 4],
    /// An `F` starts at most this long before its guide time.
    pub(super) advance: Time,
    /// Parts of activations per device.
    pub(super) limit: &'a [u64],
    /// For each lane: activations that the device's earlier stages must leave to this `F`.
    pub(super) reserve: &'a [usize],
}

/// Start times under a policy, or `None` where it gets stuck.
pub(super) fn list_schedule(lanes: &Lanes, policy: &Policy, microbatches: usize) -> Option<Starts> {
    let mut devices = vec![Device { busy_until: 0, live: 0, runs: None }; lanes.on_device.len()];
    let mut run = Run {
        lanes,
        policy,
        microbatches,
        starts: lanes.all.iter().map(|_| Vec::with_capacity(microbatches)).collect(),
        live: vec![0; policy.reserve.len()],
    };
    let mut left = lanes.all.len() * microbatches;
    let mut wake: BinaryHeap<_> = (0..devices.len()).map(|device| Reverse((0, device))).collect();
    while let Some(Reverse((now, index))) = wake.pop() {
        let device = devices.get_mut(index)?;
        if device.busy_until > now {
            continue;
        }
        run.release(device);
        match run.pick(index, device.live, now) {
            Choice::Start(lane) => {
                left = left.checked_sub(1)?;
                let end = run.start(lane, device, now)?;
                wake.push(Reverse((end, index)));
                wake.extend(lanes.all.get(lane)?.wakes.iter().map(|&other| Reverse((end, other))));
            }
            Choice::Until(time) => wake.push(Reverse((time, index))),
            Choice::Wait => {}
        }
    }
    (left == 0).then_some(run.starts)
}

#[derive(Clone)]
struct Device {
    busy_until: Time,
    /// In parts of activations.
    live: u64,
    /// The lane of the running task.
    runs: Option<usize>,
}

struct Run<'a> {
    lanes: &'a Lanes,
    policy: &'a Policy<'a>,
    microbatches: usize,
    starts: Starts,
    /// Live activations per stage.
    live: Vec<usize>,
}

enum Choice {
    Start(usize),
    Until(Time),
    Wait,
}

impl Run<'_> {
    fn release(&mut self, device: &mut Device) {
        let Some(lane) = device.runs.take().and_then(|lane| self.lanes.all.get(lane)) else { return };
        device.live = device.live.saturating_sub(lane.gives_back);
        if let Some(live) = self.live.get_mut(lane.stage).filter(|_| lane.ends()) {
            *live = live.saturating_sub(1);
        }
    }

    fn start(&mut self, index: usize, device: &mut Device, now: Time) -> Option<Time> {
        let lane = self.lanes.all.get(index)?;
        device.live += lane.takes;
        *self.live.get_mut(lane.stage)? += usize::from(lane.begins());
        device.runs = Some(index);
        device.busy_until = now + lane.duration;
        self.starts.get_mut(index)?.push(now);
        Some(device.busy_until)
    }

    fn pick(&self, device: usize, live: u64, now: Time) -> Choice {
        let mut best: Option<(Time, usize)> = None;
        let mut later: Option<Time> = None;
        for &index in self.lanes.on_device.get(device).into_iter().flatten() {
            let Some((lane, urgency, ready)) = self.candidate(index, live) else {
                continue;
            };
            if ready > now {
                later = Some(later.map_or(ready, |time| time.min(ready)));
                continue;
            }
            let delay = self.policy.delay.get(lane.kind.index()).copied().unwrap_or(0);
            let key = (urgency.saturating_add(delay), index);
            best = Some(best.map_or(key, |other| other.min(key)));
        }
        match (best, later) {
            (Some((_, lane)), _) => Choice::Start(lane),
            (None, Some(time)) => Choice::Until(time),
            (None, None) => Choice::Wait,
        }
    }

    /// A lane's next task, if its inputs are on their way and memory admits it.
    fn candidate(&self, index: usize, live: u64) -> Option<(&Lane, Time, Time)> {
        let lane = self.lanes.all.get(index)?;
        let microbatch = self.starts.get(index)?.len();
        let guide = *self.policy.guide.get(index)?.get(microbatch)?;
        let ready = self.lanes.ready(&self.starts, lane, microbatch)?;
        if lane.kind != TaskKind::Forward {
            return Some((lane, guide, ready));
        }
        let admitted = self.admits(lane, live)?;
        admitted.then_some((lane, guide, ready.max(guide.saturating_sub(self.policy.advance))))
    }

    /// Whether one more activation leaves the later stages of the device what is reserved for them.
    fn admits(&self, lane: &Lane, live: u64) -> Option<bool> {
        let mut needed = live + lane.takes;
        for &index in self.lanes.on_device.get(lane.device)? {
            let later = self.lanes.all.get(index)?;
            if later.begins() && later.stage > lane.stage {
                let left = self.microbatches.saturating_sub(self.starts.get(index)?.len());
                let reserve = *self.policy.reserve.get(later.stage)?;
                needed += later.takes * reserve.saturating_sub(*self.live.get(later.stage)?).min(left) as u64;
            }
        }
        Some(needed <= *self.policy.limit.get(lane.device)?)
    }
}
