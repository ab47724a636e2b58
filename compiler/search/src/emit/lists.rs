//! Merges the orders of a device's compute queue and its lanes into one list.
//!
//! The search orders compute and each lane separately, like devices. In a list, a part on a lane waits for the compute
//! parts before it. So this places the part after all compute parts that have ended when it starts, and before the
//! others. The list then adds no wait, unless more than two parts of a lane overlap one compute part.

use pipe_ir::ids::{DeviceId, IndexVec};
use pipe_schedule::dispatch::job::TaskId;
use pipe_schedule::dispatch::plan::Plan;
use pipe_schedule::schedule::ScheduledTask;

/// Sets the place of each task in the list of its device. `orders` must have the tasks of `plan`, queue by queue.
pub(crate) fn set_places(orders: &mut [Vec<ScheduledTask>], plan: &Plan<'_>, n_devices: usize) {
    let mut rank: IndexVec<TaskId, usize> = plan.starts().map(|_| 0);
    for (place, task) in plan.sequence.iter().enumerate() {
        rank[*task] = place;
    }
    for device in 0..n_devices {
        let mut list = Vec::new();
        for queue in (device..orders.len()).step_by(n_devices) {
            let moment = |task: TaskId| if queue == device { plan.end(task) } else { plan.starts[task] };
            let tasks = plan.orders[DeviceId::from_index(queue)].iter().enumerate();
            list.extend(tasks.map(|(place, task)| (moment(*task), rank[*task], queue, place)));
        }
        list.sort_unstable();
        for (at, (.., queue, place)) in (0..).zip(list) {
            orders[queue][place].at = at;
        }
    }
}
