//! Each rule on the smallest schedule that breaks it, and on ones that keep it.

use super::*;
use crate::examples::{block, by_hand, one_f_one_b, v_half};
use crate::memory_limit::MemoryLimit;
use crate::schedule::Schedule;
use crate::stage_graph::StageGraph;
use crate::units::Units;
use pipe_ir::ids::StageId;
use pipe_syntax::diagnostic::{Code, Diagnostic};

fn codes(schedule: &Schedule) -> Vec<Code> {
    check(schedule).err().unwrap_or_default().iter().map(|diagnostic| diagnostic.code).collect()
}

fn only(schedule: &Schedule) -> Diagnostic {
    let mut found = check(schedule).expect_err("the schedule breaks a rule");
    assert_eq!(found.len(), 1, "{found:#?}");
    found.remove(0)
}

#[test]
fn known_schedules_pass_and_keep_what_they_promise() {
    for devices in 1..=9 {
        for microbatches in [1, 2, 5, 20] {
            let schedule = one_f_one_b(devices, microbatches);
            let order = check(&schedule).expect("1F1B is sound");
            assert_eq!(order.sequence.len(), schedule.n_tasks());
            let peaks = memory::peaks(&schedule, &order.dependencies);
            let certificates = memory::certificates(&schedule).expect("it is a block");
            for (device, peak) in peaks.iter().enumerate() {
                let expected = u64::from(devices) - device as u64;
                let certificate = memory::Certificate { bound: expected, exact: expected, from: expected };
                assert_eq!(certificates[device], certificate);
                assert_eq!(peak.activations, expected.min(u64::from(microbatches)));
            }
        }
        let schedule = v_half(devices, 20);
        let order = check(&schedule).expect("V-Half is sound");
        let most = memory::peaks(&schedule, &order.dependencies).iter().map(|peak| peak.activations).max();
        let certified = memory::certificates(&schedule).expect("it is a block");
        assert_eq!(most, certified.iter().map(|certificate| certificate.exact).max());
        let stages = Units::of_stages(most.unwrap_or_default(), schedule.n_stages(), schedule.n_devices());
        assert!(stages <= Units((u64::from(devices) + 2) * Units::UNIT.0 / 2), "{stages}");
    }
}

#[test]
fn incomplete_stages_are_named_with_what_is_missing() {
    let no_weights = only(&by_hand(&[0], 1, &["F0.0 B0.0"]));
    assert_eq!(no_weights.code, Code::MissingWeightGradient);
    assert!(no_weights.help.is_some_and(|help| help.contains("`BW`") && help.contains("`W`")));
    assert_eq!(codes(&by_hand(&[0], 1, &["F0.0"])), [Code::MissingTask]);
    assert_eq!(codes(&by_hand(&[0], 1, &["F0.0 W0.0"])), [Code::MissingTask]);
    assert_eq!(codes(&by_hand(&[0], 1, &[""])), [Code::MissingTask, Code::MissingTask]);
    assert_eq!(codes(&by_hand(&[0], 2, &["F0.0 BW0.0 F0.1"])), [Code::MissingTask]);
    let many = only(&by_hand(&[0], 9, &["F0.0 F0.1 F0.2 F0.3 F0.4 F0.5 F0.6 F0.7 F0.8 BW0.2"]));
    assert_eq!(many.message, "`BW s0` does not run on m0, m1, m3, m4 and 4 more");
}

#[test]
fn superfluous_tasks_are_named() {
    let twice = only(&by_hand(&[0], 1, &["F0.0 F0.0 BW0.0"]));
    assert_eq!((twice.code, twice.labels.len()), (Code::DuplicateTask, 2));
    assert_eq!(codes(&by_hand(&[0], 1, &["F0.0 BW0.0 F0.1"])), [Code::TaskOutside]);
    assert_eq!(codes(&by_hand(&[0], 1, &["F0.0 BW0.0 U0.0"])), [Code::TaskOutside]);
    assert_eq!(codes(&by_hand(&[0], 1, &["F0.0 B0.0 W0.0 BW0.0"])), [Code::MixedBackward]);
}

#[test]
fn tasks_run_where_their_stage_lives() {
    let moved = only(&by_hand(&[0, 1], 1, &["F0.0 BW0.0 F1.0", "BW1.0"]));
    assert_eq!(moved.code, Code::WrongDevice);
    assert_eq!(codes(&by_hand(&[0, 5], 1, &["F0.0 BW0.0", "F1.0 BW1.0"]))[0], Code::StageOffDevices);
    assert_eq!(codes(&by_hand(&[0], 1, &["F0.0 BW0.0 F7.0"])), [Code::WrongDevice]);
}

#[test]
fn block_tasks_that_meet_modulo_the_period_are_named_with_their_slots() {
    let met = only(&block(&[0], 3, 3, "F0@0 BW0@2"));
    assert_eq!(met.code, Code::SlotCollision);
    assert_eq!(met.message, "`F s0` and `BW s0` meet on d0 in slot 0 of every 3, from 2 microbatches on");
    assert_eq!(codes(&block(&[0], 3, 1, "F0@0 BW0@2")), [Code::SlotCollision]);
    assert!(check(&block(&[0], 3, 3, "F0@0 BW0@1")).is_ok());
}

#[test]
fn block_tasks_start_after_their_inputs() {
    let early = only(&block(&[0, 1], 2, 6, "F0@0 F1@0 BW1@1 BW0@3"));
    assert_eq!(early.code, Code::StartsBeforeInput);
    assert_eq!(early.message, "`F s1` starts at slot 0, but its input `F s0` ends at 1");
}

#[test]
fn devices_that_wait_for_each_other_are_shown_in_a_cycle() {
    let itself = only(&by_hand(&[0], 1, &["BW0.0 F0.0"]));
    assert_eq!(itself.message, "d0 waits for itself: `BW s0 m0` comes before `F s0 m0`");
    let pair = only(&by_hand(&[0, 1], 2, &["F0.0 BW0.0 F0.1 BW0.1", "F1.0 F1.1 BW1.0 BW1.1"]));
    assert_eq!(pair.code, Code::Deadlock);
    assert_eq!(pair.message, "d0 waits for d1's `BW s1 m0`, and d1 for d0's `F s0 m1`");
    assert_eq!((pair.labels.len(), pair.notes.len()), (4, 2));
    assert_eq!(pair.help.as_deref(), Some("let d1 run `BW s1 m0` before `F s1 m1`"));
    // The last device wants m1 first, everyone else m0: three devices, one cycle.
    let ring = by_hand(&[0, 1, 2], 2, &["F0.0 BW0.0 F0.1 BW0.1", "F1.0 F1.1 BW1.0 BW1.1", "F2.1 F2.0 BW2.0 BW2.1"]);
    assert_eq!(codes(&ring), [Code::Deadlock]);
    // The devices stand in a cycle of three: d0 at F3.0, d2 at F2.0, d1 at F1.0. Behind, d0 wants BW1.1 before F0.0.
    let shorter = only(&by_hand(
        &[0, 1, 2, 0, 1, 2],
        2,
        &[
            "F0.1 F3.0 BW0.1 F0.0 F3.1 BW3.0 BW3.1 BW0.0",
            "F1.1 F1.0 BW1.1 BW1.0 F4.0 F4.1 BW4.0 BW4.1",
            "F2.0 F2.1 F5.0 F5.1 BW5.0 BW5.1 BW2.0 BW2.1",
        ],
    ));
    assert_eq!(shorter.message, "d1 waits for d0's `F s0 m0`, and d0 for d1's `BW s1 m1`");
    assert_eq!((shorter.labels.len(), shorter.notes.len()), (4, 2));
}

#[test]
fn limits_name_the_task_at_the_peak_and_what_is_alive() {
    let schedule = one_f_one_b(4, 8);
    let order = check(&schedule).expect("1F1B is sound");
    let dependencies = &order.dependencies;
    let peaks = memory::peaks(&schedule, dependencies);
    assert!(memory::check(&schedule, dependencies, &peaks, &MemoryLimit::of_all(Units(4_000_000))).is_ok());
    let found =
        memory::check(&schedule, dependencies, &peaks, &MemoryLimit::of_all(Units(3_500_000))).expect_err("d0 needs 4");
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].message, "d0 holds 4 units of activations at `F s0 m3`, but may hold 3.5");
    assert_eq!(found[0].notes, ["alive at this point: s0 of m0 to m3"]);
    let each = MemoryLimit::parse("4,2.5,2,0").expect("well-formed");
    let found = memory::check(&schedule, dependencies, &peaks, &each).expect_err("d1 needs 3, d3 1");
    assert_eq!(
        found.iter().map(|one| one.message.as_str()).collect::<Vec<_>>(),
        [
            "d1 holds 3 units of activations at `F s1 m2`, but may hold 2.5",
            "d3 holds 1 unit of activations at `F s3 m0`, but may hold 0",
        ]
    );
}

#[test]
fn a_stage_waits_for_every_stage_that_it_reads() {
    let edges = [(0, 1), (0, 2), (1, 2)].map(|(from, to)| (StageId(from), StageId(to)));
    let skips = |orders: &[&str]| Schedule { graph: StageGraph::new(3, edges), ..by_hand(&[0, 1, 0], 1, orders) };
    assert_eq!(codes(&skips(&["F0.0 F2.0 BW2.0 BW0.0", "F1.0 BW1.0"])), []);
    // Without the skip, s0 could run backward as soon as s1 has.
    let found = only(&skips(&["F0.0 BW0.0 F2.0 BW2.0", "F1.0 BW1.0"]));
    assert_eq!(found.code, Code::Deadlock);
    assert!(found.message.contains("waits for itself"), "{}", found.message);
}

#[test]
fn a_block_is_checked_along_every_edge() {
    let branches = StageGraph::new(3, [(0, 2), (1, 2)].map(|(from, to)| (StageId(from), StageId(to))));
    let both = "F0@0 F1@0 F2@1 BW2@2 BW0@4 BW1@4";
    assert_eq!(codes(&Schedule { graph: branches.clone(), ..block(&[0, 1, 2], 4, 3, both) }), []);
    let early = "F0@0 F1@2 F2@1 BW2@2 BW0@4 BW1@3";
    let found = codes(&Schedule { graph: branches, ..block(&[0, 1, 2], 4, 3, early) });
    assert_eq!(found, [Code::StartsBeforeInput, Code::StartsBeforeInput]);
}
