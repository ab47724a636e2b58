//! Transfers: what crosses between devices, and where each side of it stands.

use super::order::GlobalOrder;
use super::{Buckets, index32};
use crate::program_tables::ProgramTables;
use pipe_ir::ids::{DeviceId, MicrobatchId, ValueId};
use pipe_ir::instruction::Class;
use pipe_ir::value::ValueKind;
use pipe_ir::verify::receive_slots;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::timing::latency::Latency;
use pipe_schedule::timing::timeline::Timeline;

/// One value of one microbatch on its way to one device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub(super) value: ValueId,
    pub(super) microbatch: MicrobatchId,
    pub(super) from: DeviceId,
    pub(super) to: DeviceId,
    pub(super) class: Class,
    /// The first task of the receiver that reads it, or the partner before that.
    pub(super) reader: u32,
    /// The task of the sender after which it is sent.
    sent_after: u32,
    /// The task of the receiver before which the receive is queued.
    queued_before: u32,
    /// The task of the sender before which the end of the transfer is waited for.
    waited_before: u32,
    /// Whether its receive is queued no earlier because the one that has its slot is read until then.
    is_held: bool,
}

/// All transfers of a step.
pub(super) struct Transfers {
    /// By receiver, then by reader.
    all: Vec<Transfer>,
    /// By device: where its receives begin.
    starts: Vec<usize>,
    /// By device: its number of tasks, and one for the end of the step, summed up: tables of tasks begin there.
    tasks: Vec<usize>,
    sent: Buckets,
    queued: Buckets,
    waited: Buckets,
}

impl Transfers {
    pub(super) fn new(
        schedule: &Schedule,
        timeline: &Timeline,
        work: &ProgramTables,
        order: &GlobalOrder,
        latency: &Latency,
    ) -> Self {
        let (mut all, starts, channels) = find(schedule, work, order);
        let times = Times { schedule, timeline, order, latency, slots: receive_slots(&work.execs, &work.values) };
        let n_channels = channels.iter().max().map_or(0, |last| last + 1);
        let grouped = Buckets::new(n_channels, channels.iter().copied().zip(0..));
        for channel in 0..n_channels {
            times.channel(&mut all, grouped.of(channel));
        }
        let mut tasks = vec![0];
        for order in &schedule.orders {
            tasks.push(tasks[tasks.len() - 1] + order.len() + 1);
        }
        let at = |device: DeviceId, position: u32| tasks[device.index()] + position as usize;
        let n_tasks = tasks[schedule.n_devices()];
        let bucket = |place: &dyn Fn(&Transfer) -> usize| {
            Buckets::new(n_tasks, all.iter().enumerate().map(|(index, transfer)| (place(transfer), index)))
        };
        let sent = bucket(&|transfer| at(transfer.from, transfer.sent_after));
        let queued = bucket(&|transfer| at(transfer.to, transfer.queued_before));
        let waited = bucket(&|transfer| at(transfer.from, transfer.waited_before));
        Self { all, starts, tasks, sent, queued, waited }
    }

    /// Number of transfers.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn get(&self, index: u32) -> &Transfer {
        &self.all[index as usize]
    }

    /// The receives of a device, in the order in which they are first read.
    pub(super) fn received(&self, device: DeviceId) -> std::ops::Range<u32> {
        index32(self.starts[device.index()])..index32(self.starts[device.index() + 1])
    }

    /// What is sent after a task.
    pub(super) fn sent_after(&self, device: DeviceId, position: usize) -> &[u32] {
        self.sent.of(self.tasks[device.index()] + position)
    }

    /// Receives that are queued before a task.
    pub(super) fn queued_before(&self, device: DeviceId, position: usize) -> &[u32] {
        self.queued.of(self.tasks[device.index()] + position)
    }

    /// Whether receives are queued right before a task only because others of their channel are read until then.
    pub(super) fn are_held_until(&self, device: DeviceId, position: usize) -> bool {
        self.queued_before(device, position).iter().any(|index| self.get(*index).is_held)
    }

    /// Sends whose end is waited for before a task.
    pub(super) fn waited_before(&self, device: DeviceId, position: usize) -> &[u32] {
        self.waited.of(self.tasks[device.index()] + position)
    }

    /// Everything that a device sends, task by task.
    pub(super) fn sent(&self, device: DeviceId) -> impl Iterator<Item = &Transfer> {
        let (first, last) = (self.tasks[device.index()], self.tasks[device.index() + 1]);
        let items = &self.sent.items[self.sent.starts[first] as usize..self.sent.starts[last] as usize];
        items.iter().map(|index| self.get(*index))
    }
}

/// Finds all transfers, by receiver and reader, where each receiver's begin, and the channel of each.
fn find(schedule: &Schedule, work: &ProgramTables, order: &GlobalOrder) -> (Vec<Transfer>, Vec<usize>, Vec<usize>) {
    let (mut all, mut starts, mut channels) = (Vec::new(), vec![0], Vec::new());
    // By value and microbatch: one more than the last device that was found to receive it.
    let mut known = vec![0_u32; work.n_entries()];
    let mut n_channels = 0;
    // By sender and class: the channel to the current receiver, marked with that receiver.
    let mut numbers: Vec<(u32, usize)> = vec![(0, 0); schedule.n_devices() * 2];
    for (to, tasks) in schedule.orders.iter().enumerate() {
        let to = DeviceId::from_index(to);
        let mut begins = 0;
        for (position, scheduled) in tasks.iter().enumerate() {
            // The second of two tasks that share the device has its inputs before the first starts.
            let is_second = position.checked_sub(1).is_some_and(|before| tasks[before].with_next);
            begins = if is_second { begins } else { position };
            let Some(exec) = work.exec(scheduled.task) else { continue };
            for (value, microbatch) in work.reads(exec, scheduled.task.microbatch) {
                let Some(from) = work.producer(value, microbatch).filter(|from| *from != to) else { continue };
                let entry = work.entry(value, microbatch);
                let Some(producer) = order.producer(entry) else { continue };
                if std::mem::replace(&mut known[entry], to.0 + 1) == to.0 + 1 {
                    continue;
                }
                let class = class_of(work.values[value.index()].kind);
                let (receiver, number) = &mut numbers[from.index() * 2 + class as usize];
                if *receiver != to.0 + 1 {
                    (*receiver, *number) = (to.0 + 1, n_channels);
                    n_channels += 1;
                }
                channels.push(*number);
                all.push(Transfer {
                    value,
                    microbatch,
                    from,
                    to,
                    class,
                    reader: index32(begins),
                    sent_after: index32(producer),
                    queued_before: 0,
                    waited_before: 0,
                    is_held: false,
                });
            }
        }
        starts.push(all.len());
    }
    (all, starts, channels)
}

fn class_of(kind: ValueKind) -> Class {
    match kind {
        ValueKind::Gradient
        | ValueKind::CarriedGradient
        | ValueKind::DeferredGradient
        | ValueKind::ParameterGradients => Class::Gradient,
        ValueKind::Held
        | ValueKind::Exchanged
        | ValueKind::Parameters
        | ValueKind::OptimizerState
        | ValueKind::GradientNorm
        | ValueKind::Scratch
        | ValueKind::Data
        | ValueKind::Loss
        | ValueKind::Activation
        | ValueKind::Carried
        | ValueKind::SavedForInput
        | ValueKind::SavedForWeight => Class::Activation,
    }
}

/// What decides when things happen.
struct Times<'a> {
    schedule: &'a Schedule,
    timeline: &'a Timeline,
    order: &'a GlobalOrder,
    latency: &'a Latency,
    slots: usize,
}

impl Times<'_> {
    /// Places the transfers of one channel, given in the order of their readers.
    fn channel(&self, all: &mut [Transfer], members: &[u32]) {
        let (mut sent_after, mut queued_before) = (0, 0);
        for (turn, member) in members.iter().enumerate() {
            let transfer = all[*member as usize];
            queued_before = queued_before.max(self.wished(&transfer));
            let slot = turn.checked_sub(self.slots).map(|before| self.behind(&all[members[before] as usize]));
            let is_held = slot.is_some_and(|free| free > queued_before);
            queued_before = queued_before.max(slot.unwrap_or(0)).min(transfer.reader);
            sent_after = transfer.sent_after.max(sent_after);
            let transfer = &mut all[*member as usize];
            (transfer.sent_after, transfer.queued_before, transfer.is_held) = (sent_after, queued_before, is_held);
            transfer.waited_before = self.ended(transfer);
        }
    }

    /// The task of the receiver behind those that read a value: either of two that share the device
    /// may be the one that does.
    fn behind(&self, transfer: &Transfer) -> u32 {
        transfer.reader + index32(self.schedule.node(transfer.to, transfer.reader as usize).len())
    }

    /// The task of the receiver that runs, or would run next, when the producer starts.
    fn wished(&self, transfer: &Transfer) -> u32 {
        let (from, to) = (transfer.from.index(), transfer.to.index());
        let producer = transfer.sent_after as usize;
        let rank = self.order.ranks[from][producer];
        let before = self.order.ranks[to].partition_point(|other| *other < rank);
        match before.checked_sub(1) {
            Some(last) if self.timeline.ends[to][last] > self.timeline.starts[from][producer] => index32(last),
            _ => index32(before),
        }
    }

    /// The first task of the sender after both sides were queued and the transfer had its time.
    fn ended(&self, transfer: &Transfer) -> u32 {
        let (from, to) = (transfer.from.index(), transfer.to.index());
        let sent = transfer.sent_after as usize;
        let (mut first, mut moment) = (sent + 1, self.timeline.ends[from][sent]);
        if let Some(last) = transfer.queued_before.checked_sub(1) {
            let rank = self.order.ranks[to][last as usize];
            first = first.max(self.order.ranks[from].partition_point(|other| *other < rank));
            moment = moment.max(self.timeline.ends[to][last as usize]);
        }
        let moment = moment + self.latency.between(transfer.from, transfer.to);
        index32(first.max(self.timeline.starts[from].partition_point(|start| *start < moment)))
    }
}
