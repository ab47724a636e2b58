//! Lanes: what of a device's list runs beside it.

use crate::ids::LaneId;
use crate::instruction::{Count, Instruction};

/// By instruction of a list: the lane that it runs on. None if the list itself takes it, as it does a `lane.start`.
pub fn queues(list: &[Instruction]) -> impl Iterator<Item = Option<LaneId>> + '_ {
    let mut now: Option<(LaneId, u32)> = None;
    list.iter().map(move |instruction| match (now, *instruction) {
        (Some((lane, left)), _) => {
            now = (left > 1).then(|| (lane, left - 1));
            Some(lane)
        }
        (None, Instruction::LaneStart { lane, count: Count(count), .. }) => {
            now = (count > 0).then_some((lane, count));
            None
        }
        (None, _) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TokenId;

    #[test]
    fn as_many_instructions_as_counted_run_on_a_lane() {
        let wait = Instruction::Wait { token: TokenId(0) };
        let start = |lane, count| Instruction::LaneStart { lane: LaneId(lane), count: Count(count), token: TokenId(1) };
        let list = [wait, start(1, 2), wait, wait, start(0, 1), wait, wait, start(0, 0), wait];
        let lanes: Vec<_> = queues(&list).map(|lane| lane.map(|lane| lane.0)).collect();
        assert_eq!(lanes, [None, None, Some(1), Some(1), None, Some(0), None, None, None]);
    }
}
