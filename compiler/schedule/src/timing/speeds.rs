//! How fast devices are: what tasks take on a device is their cost, divided by its speed.

use super::durations::{Costs, Times};
use crate::ratio::Ratio;
use crate::schedule::Schedule;
use crate::units::Ticks;
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use std::sync::Arc;

/// The speed of each device; a device of speed 1 takes what costs say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Speeds(Arc<[Ratio]>);

impl Speeds {
    /// Of these devices, each faster than nothing.
    pub fn new(each: Vec<Ratio>) -> Self {
        Self(each.into())
    }

    /// Whether some device takes another time than costs say.
    pub fn matter(&self) -> bool {
        self.0.iter().any(|speed| *speed != Ratio::ONE)
    }

    /// Of a task that occupies these devices: all of them wait for the slowest.
    fn slowest(&self, devices: &[DeviceId]) -> Ratio {
        let speeds = devices.iter().map(|device| self.0.get(device.index()).copied().unwrap_or(Ratio::ONE));
        speeds.reduce(|one, other| if other.is_below(one) { other } else { one }).unwrap_or(Ratio::ONE)
    }

    /// Costs of the tasks of a schedule on the devices that run them, each rounded to the next millionth of a unit.
    pub fn applied(&self, mut costs: Costs, schedule: &Schedule) -> Costs {
        let placement = &schedule.placement;
        let n_microbatches = if placement.is_replicated() { schedule.microbatches_of_step() } else { 1 };
        for stage in placement.stages() {
            let own = |microbatch| self.slowest(placement.devices(stage, MicrobatchId(microbatch)));
            let first = own(0);
            if (0..n_microbatches).all(|microbatch| own(microbatch) == first) {
                costs.tasks[stage.index()] = scaled(&costs.tasks[stage.index()], first);
                let each = costs.each.get_mut(stage.index()).and_then(Option::as_mut);
                each.into_iter().for_each(|each| *each = each.iter().map(|times| scaled(times, first)).collect());
            } else {
                differ(&mut costs, stage, (0..n_microbatches).map(own));
            }
        }
        costs
    }
}

/// The tasks of a stage, whose microbatches run on devices of these speeds.
fn differ(costs: &mut Costs, stage: StageId, speeds: impl Iterator<Item = Ratio>) {
    let rows = costs.rows(stage);
    let each: Vec<Times> = speeds.zip(rows.iter().cycle()).map(|(speed, times)| scaled(times, speed)).collect();
    let least = |index: usize| each.iter().map(|times| times[index]).min().unwrap_or_default();
    costs.tasks[stage.index()] = std::array::from_fn(least);
    costs.each.resize(costs.tasks.len(), None);
    costs.each[stage.index()] = Some(each.into());
}

fn scaled(times: &Times, speed: Ratio) -> Times {
    times.map(|time| {
        let (time, above) = (u128::from(time.0) * u128::from(speed.below), u128::from(speed.above).max(1));
        Ticks(u64::try_from((time + above / 2) / above).unwrap_or(u64::MAX))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examples::{by_hand, one_f_one_b};
    use crate::placement::Placement;
    use crate::timing::costs::{StageCosts, of_stages};
    use pipe_ir::task::{Task, TaskKind};

    #[test]
    fn a_task_takes_its_cost_divided_by_the_speed_of_its_device() {
        let schedule = one_f_one_b(2, 3);
        let costs = of_stages(&StageCosts::parse("F=1,B=2,W=1").expect("well-formed"), 2);
        let speeds = Speeds::new(vec![Ratio::new(3, 2).expect("a number"), Ratio::new(1, 2).expect("a number")]);
        assert!(speeds.matter() && !Speeds::new(vec![Ratio::ONE; 2]).matter());
        let costs = speeds.applied(costs, &schedule);
        let of = |stage| [TaskKind::Forward, TaskKind::Backward].map(|kind| costs.of(kind, StageId(stage)).0);
        assert_eq!([of(0), of(1)], [[666_667, 2_000_000], [2_000_000, 6_000_000]]);
        assert!(!costs.differ());
    }
    #[test]
    fn replicas_take_what_their_own_device_takes() {
        let mut schedule = by_hand(&[0], 3, &["F0.0 BW0.0 F0.2 BW0.2", "F0.1 BW0.1"]);
        schedule.placement = Placement::of_tasks(1, [0, 1, 0].map(DeviceId).to_vec());
        let costs = of_stages(&StageCosts::parse("F=1,BW=2").expect("well-formed"), 1);
        let costs = Speeds::new(vec![Ratio::whole(2), Ratio::ONE]).applied(costs, &schedule);
        let of = |microbatch| {
            let task = Task { kind: TaskKind::Backward, stage: StageId(0), microbatch: MicrobatchId(microbatch) };
            costs.of_task(task).0
        };
        assert_eq!([of(0), of(1), of(2)], [1_000_000, 2_000_000, 1_000_000]);
        assert_eq!(costs.of(TaskKind::Forward, StageId(0)).0, 500_000);
    }
}
