//! Turns: as many building blocks side by side as it takes until the same devices run the same tasks again.
//!
//! A block has `R` microbatches, and the devices of replicated stages repeat after `P` of them. So
//! everything repeats after the least common multiple of the two. Every rule about blocks is
//! checked on one turn.

use crate::placement::Placement;
use crate::ratio::gcd;
use crate::schedule::{Block, BlockTask};
use pipe_ir::ids::MicrobatchId;

/// What is repeated on every device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Turn {
    /// Microbatches from one turn to the next.
    pub microbatches: u64,
    /// Slots from one turn to the next; none where one step ends before the devices repeat.
    pub period: Option<u64>,
    /// The tasks of the first turn, by device: microbatches and slots count from the beginning of the turn.
    pub tasks: Vec<Vec<BlockTask>>,
}

/// A microbatch, counted from the first one of a block or turn, as one of its own block or turn, and how many blocks or
/// turns later that is. `size` is the number of microbatches of each.
pub fn position(number: i64, size: u64) -> (MicrobatchId, i64) {
    let size = i64::try_from(size.max(1)).unwrap_or(i64::MAX);
    let own = u32::try_from(number.rem_euclid(size)).expect("steps have fewer than 2^32 microbatches");
    (MicrobatchId(own), number.div_euclid(size))
}

/// How many blocks a turn has, and whether it is repeated: not if a step ends before devices repeat.
pub fn blocks(size: u32, placement: &Placement, n_microbatches: u32) -> (u32, bool) {
    let size = size.max(1);
    let repeated = placement.repeats().map(|period| (period, period / gcd(size, period)));
    let fits = |(period, blocks): &(u32, u32)| {
        *period == 1 || u64::from(*blocks) * u64::from(size) <= u64::from(n_microbatches)
    };
    repeated.filter(fits).map_or((n_microbatches.div_ceil(size), false), |(_, blocks)| (blocks, true))
}

/// Lays blocks side by side.
pub fn turn(block: &Block, placement: &Placement, (n_devices, n_microbatches): (usize, u32)) -> Turn {
    let (blocks, repeats) = blocks(block.microbatches, placement, n_microbatches);
    let mut tasks: Vec<Vec<BlockTask>> = vec![Vec::new(); n_devices];
    for index in 0..blocks {
        let (first, moved) = (index * block.microbatches, block.period.saturating_mul(u64::from(index)));
        for task in &block.slots {
            let microbatch = MicrobatchId(first + task.microbatch.0);
            if !repeats && microbatch.0 >= n_microbatches {
                continue;
            }
            for device in placement.get(task.stage, microbatch) {
                // Devices that are not there are the placement's business.
                if let Some(tasks) = tasks.get_mut(device.index()) {
                    tasks.push(BlockTask { microbatch, slot: task.slot.saturating_add(moved), ..*task });
                }
            }
        }
    }
    let period = repeats.then(|| block.period.max(1).saturating_mul(u64::from(blocks)));
    Turn { microbatches: u64::from(blocks) * u64::from(block.microbatches), period, tasks }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pipe_ir::ids::{DeviceId, StageId};
    use pipe_ir::task::TaskKind;

    fn placement(rows: &[u32]) -> Placement {
        let devices: Vec<DeviceId> = rows.iter().map(|device| DeviceId(*device)).collect();
        let repeats = u32::try_from(devices.len()).ok();
        Placement::repeated(1, devices, repeats)
    }

    /// One forward for each microbatch of a block.
    fn block(microbatches: u32) -> Block {
        let task = |microbatch| BlockTask {
            kind: TaskKind::Forward,
            stage: StageId(0),
            microbatch: MicrobatchId(microbatch),
            slot: u64::from(microbatch),
            origin: 0,
        };
        let slots = (0..microbatches).map(task).collect();
        Block { microbatches, period: 10, every: None, slots, durations: [1; 6], of_parts: Vec::new(), only: None }
    }

    fn places(turn: &Turn) -> Vec<Vec<(u32, u64)>> {
        turn.tasks.iter().map(|tasks| tasks.iter().map(|task| (task.microbatch.0, task.slot)).collect()).collect()
    }

    #[test]
    fn blocks_and_devices_repeat_together() {
        let two_on_three = turn(&block(2), &placement(&[0, 1, 2]), (3, 6));
        assert_eq!((two_on_three.microbatches, two_on_three.period), (6, Some(30)));
        let expected = [vec![(0, 0), (3, 11)], vec![(1, 1), (4, 20)], vec![(2, 10), (5, 21)]];
        assert_eq!(places(&two_on_three), expected);
        let alone = turn(&block(2), &placement(&[0]), (1, 1));
        assert_eq!((alone.microbatches, alone.period), (2, Some(10)));
        assert_eq!(places(&alone), [[(0, 0), (1, 1)]]);
    }

    #[test]
    fn microbatches_before_and_after_are_of_other_blocks() {
        let found = |number| position(number, 3);
        assert_eq!([found(-4), found(-1)], [(MicrobatchId(2), -2), (MicrobatchId(2), -1)]);
        assert_eq!([found(0), found(2), found(7)], [(MicrobatchId(0), 0), (MicrobatchId(2), 0), (MicrobatchId(1), 2)]);
    }

    #[test]
    fn a_step_that_ends_before_devices_repeat_has_no_period() {
        let short = turn(&block(2), &placement(&[0, 1, 2]), (3, 3));
        assert_eq!((short.microbatches, short.period), (4, None));
        assert_eq!(places(&short), [[(0, 0)], [(1, 1)], [(2, 10)]]);
    }
}
