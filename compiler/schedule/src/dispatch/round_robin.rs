//! An order for any costs: that of slots of equal length, in which devices run forwards and backwards in turn.
//!
//! Of what could run, a device prefers a forward after a backward and a backward after a forward,
//! and the latest of its stages. As many microbatches are under way as its memory holds. What
//! nothing waits for takes no slot: it is put where devices wait ([`crate::dispatch::backfill`]).
//! Under real costs a list schedule follows every small delay, and its order gets irregular; that
//! of equal slots stays regular. With one stage on each device this is the order of ZB-H1 and ZB-H2
//! (arXiv 2401.10241), in a V that of its ZB-V.

use super::job::{Job, Mention, Orders, SeriesId};
use crate::dispatch::backfill::Fill;
use pipe_ir::ids::{DeviceId, IndexVec};
use pipe_ir::task::TaskKind;

/// The frame of such a schedule, in which every forward leaves room for so many activations of each
/// later stage of its device. None where tasks occupy several devices, or it gets stuck for want of
/// memory.
pub fn in_turns(job: &Job, fill: &Fill<'_>, spare: i64) -> Option<Orders> {
    if job.series.iter().any(|series| series.devices.len() > 1) {
        return None;
    }
    let rows = rows(job, fill, spare);
    let mut devices: IndexVec<DeviceId, Device> = rows.map(|_| Device::default());
    let (mut done, mut before) = (job.series.map(|_| 0), IndexVec::default());
    let mut left = rows.iter().map(Vec::len).sum::<usize>() * job.microbatches;
    while left > 0 {
        before.clone_from(&done);
        let mut chosen = 0;
        for ((device, rows), capacity) in devices.iter_mut().zip(&rows).zip(&job.capacity) {
            let could_run = |row: &&Row| {
                let microbatch = before[row.series];
                let is_there = |(need, _): &(SeriesId, _)| before[*need] > microbatch;
                let fits = row.takes <= 0 || device.held + row.takes + row.leaves <= *capacity;
                microbatch < job.microbatches && fits && job.series[row.series].needs.iter().all(is_there)
            };
            let urgency = |row: &&Row| (row.is_forward != device.ran_forward, row.series);
            if let Some(row) = rows.iter().filter(could_run).max_by_key(urgency) {
                device.held += row.takes;
                device.ran_forward = row.is_forward;
                device.order.push(Mention::Series(row.series));
                done[row.series] += 1;
                chosen += 1;
            }
        }
        if chosen == 0 {
            return None;
        }
        left -= chosen;
    }
    Some(devices.iter_mut().map(|device| std::mem::take(&mut device.order)).collect())
}

/// A series that something waits for.
struct Row {
    series: SeriesId,
    is_forward: bool,
    /// What it takes, and what waits for nothing but it gives back.
    takes: i64,
    /// What it leaves to the later stages of its device.
    leaves: i64,
}

/// A device so far.
#[derive(Default)]
struct Device {
    held: i64,
    ran_forward: bool,
    order: Vec<Mention>,
}

/// By device: its series.
fn rows(job: &Job, fill: &Fill<'_>, spare: i64) -> IndexVec<DeviceId, Vec<Row>> {
    let row = |series: SeriesId| {
        let own = &job.series[series];
        let after = own.feeds.iter().filter(|(next, _)| fill.is_filler(*next));
        let later = job.on_device[own.devices[0]].iter().filter(|other| **other > series);
        Row {
            series,
            is_forward: own.kind == TaskKind::Forward,
            takes: own.takes + after.map(|(next, _)| job.series[*next].takes).sum::<i64>(),
            leaves: spare * later.map(|other| job.series[*other].takes.max(0)).sum::<i64>(),
        }
    };
    let of_device =
        |all: &Vec<SeriesId>| all.iter().copied().filter(|series| !fill.is_filler(*series)).map(row).collect();
    job.on_device.iter().map(of_device).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::Objective;
    use crate::dispatch::samples::{staged, v};

    fn words(job: &Job, spare: i64) -> Option<Vec<String>> {
        let fill = Fill::new(job, Objective::Makespan)?;
        let letter = |mention: &Mention| {
            let series = &job.series[job.series_of(*mention).0];
            match (series.kind, series.stage.index() < job.capacity.len()) {
                (TaskKind::Forward, true) => 'F',
                (TaskKind::Forward, false) => 'f',
                (_, true) => 'B',
                (_, false) => 'b',
            }
        };
        let orders = in_turns(job, &fill, spare)?;
        Some(orders.iter().map(|order| order.iter().map(letter).collect()).collect())
    }

    #[test]
    fn devices_run_forwards_and_backwards_in_turn() {
        let line = staged(&[0, 1, 2], 6, 6, [5, 7, 3], 1);
        assert_eq!(words(&line, 0).expect("it fits"), ["FFFFFBFBBBBB", "FFFBFBFBFBBB", "FBFBFBFBFBFB"]);
        let bent = v(3, 6, 6, [5, 7, 3], 1);
        assert_eq!(
            words(&bent, 0).expect("it fits"),
            ["FFFFFfbfbfbFBfbBfbBfbBBB", "FFFfFfbfbFBfbFBfbBfbBbBB", "FfFfFfbFBfbFBfbFBfbBbBbB"]
        );
    }

    #[test]
    fn forwards_leave_room_for_later_stages_where_memory_is_scarce() {
        let scarce = v(4, 6, 3, [1, 1, 1], 0);
        assert!(words(&scarce, 0).is_none() && words(&scarce, 1).is_some());
    }
}
