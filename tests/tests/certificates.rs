//! Certificates against brute force: what they say of every number of microbatches is what steps of every length show.

use pipe_compiler::{Certificates, Request, elaborate};
use pipe_ir::ids::StageId;
use pipe_ir::task::{Task, TaskKind};
use pipe_schedule::check::memory::certificates;
use pipe_schedule::check::{check, collisions};
use pipe_schedule::policy::activation::{Activations, Held};
use pipe_schedule::schedule::ScheduledTask;
use pipe_syntax::diagnostic::Code;
use pipe_syntax::stdlib;
use pipe_tests::blocks::{certified, collides, loaded, random_block, request, unrolled};
use pipe_tests::cases::compiled;
use pipe_tests::schedules::Dice;
use pipe_tests::steps::shares;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// The most activations alive at once on each device, counted along its order, in parts.
fn counted(orders: &[Vec<ScheduledTask>], activations: &Activations) -> Vec<u64> {
    let most = |order: &Vec<ScheduledTask>| {
        let again: BTreeSet<StageId> =
            order.iter().filter(|one| one.task.kind == TaskKind::Recompute).map(|one| one.task.stage).collect();
        let (mut alive, mut most) = (0_u64, 0);
        for Task { kind, stage, .. } in order.iter().map(|one| one.task) {
            let first = if again.contains(&stage) { TaskKind::Recompute } else { TaskKind::Forward };
            let Held { saved, waiting } = activations.of(stage);
            alive += if kind == first { saved } else { 0 };
            most = most.max(alive);
            alive -= match kind {
                TaskKind::BackwardInput => saved - waiting,
                TaskKind::BackwardWeight => waiting,
                TaskKind::Backward => saved,
                _ => 0,
            };
        }
        most
    };
    orders.iter().map(most).collect()
}

#[test]
fn standard_blocks_hold_what_their_certificates_say() {
    let mut n_blocks = 0;
    for (name, text) in stdlib::SCHEDULES {
        for devices in 1..=7 {
            let Some(certified) = certified(text, &[("devices", devices)]) else { continue };
            n_blocks += 1;
            let reached = certified.devices.iter().map(|held| held.from).max().unwrap_or_default();
            for microbatches in 1..=i64::try_from(reached).expect("few") + 3 {
                let sizes = [("devices", devices), ("microbatches", microbatches)];
                let step = match elaborate::elaborate(&loaded(text), &request(&sizes).choice) {
                    Ok(elaborated) => elaborated.schedule,
                    Err(found) if found.iter().all(|one| one.code == Code::ConditionFailed) => continue,
                    Err(found) => panic!("{name} {devices} {microbatches}: {found:#?}"),
                };
                assert!(check(&step).is_ok(), "{name} {devices} {microbatches}");
                // Of blocks that are others for every number of microbatches each has a certificate of its own.
                let is_varied = step.block.as_ref().is_some_and(|block| block.only.is_some());
                let own = if is_varied { pipe_tests::blocks::certified(text, &sizes) } else { None };
                let devices_of = own.as_ref().unwrap_or(&certified).devices.iter();
                for (device, (peak, held)) in
                    counted(&step.orders, &step.activations).into_iter().zip(devices_of).enumerate()
                {
                    // Blocks that run on from step to step reach it with the microbatches of all steps.
                    let is_reached = u64::from(step.n_microbatches) >= held.from;
                    assert_eq!(peak == held.exact, is_reached, "{name} {devices} {microbatches} d{device}");
                    assert!(peak <= held.exact && held.exact <= held.bound);
                }
            }
        }
    }
    assert!(n_blocks >= 10 * 7, "only {n_blocks} blocks were certified");
}

#[test]
fn the_pace_is_that_of_long_steps() {
    for name in ["1f1b", "eager_1f1b", "zb_h1", "zb_h2", "v_min", "v_zb"] {
        // Reordered, a step may go on faster than its block.
        let text = stdlib::schedule(name).expect("it exists").replace("    reorder\n", "");
        for costs in [
            "F=1,B=1,W=1",
            "F=5,B=6,W=4,comm=1",
            "F=1,B=2,W=1,comm=3",
            "F=1,B=2,W=1,F[2]=1.5,BW[0..2]=5,comm=0.25,comm[0-1]=2,comm[1-2]=0.5",
        ] {
            let costs = pipe_schedule::timing::costs::StageCosts::parse(costs).ok();
            let with = |microbatches| Request {
                costs: costs.clone(),
                ..request(&[("devices", 4), ("microbatches", microbatches)])
            };
            let compiled = |request: &Request| {
                let report = compiled("test.pipe", &text, request).report;
                (report.figures.makespan, report.certificate.expect("a block"))
            };
            let (long, certificate) = compiled(&with(400));
            let (longer, _) = compiled(&with(820));
            let pace = certificate.steady_period.expect("a pace");
            let measured = (longer.expect("a step") - long.expect("a step")) / 420.0;
            assert!((pace - measured).abs() < 1e-6, "{name} {costs:?}: {pace}, measured {measured}");
        }
    }
}

#[test]
fn a_million_microbatches_cost_no_more_than_ten() {
    let text = stdlib::schedule("v_half").expect("it exists");
    let of = |microbatches| {
        let choice = request(&[("devices", 64), ("microbatches", microbatches)]).choice;
        let request = Request { choice, certificate: Certificates::Instead, ..Request::default() };
        compiled("std:v_half", text, &request)
    };
    for microbatches in [1_000_000, 4_000_000_000] {
        let found = of(microbatches);
        assert!(found.report.ok && found.diagnostics.is_empty(), "{:?}", found.diagnostics);
        assert!(found.analysis.is_none() && found.program.is_none());
        let certificate = found.report.certificate.expect("a block");
        assert_eq!((certificate.peak_activation, certificate.turn_microbatches), (33.0, 1));
        assert!(certificate.not_computed.contains(&"makespan".to_owned()));
    }
    assert!(of(10).report.certificate.is_some_and(|certificate| certificate.not_computed.is_empty()));
}

#[test]
fn devices_that_repeat_are_found_in_the_text() {
    let text = |device: &str| {
        format!("schedule x {{ stages 1 place s, m on {device} block every 9 {{ F[s] at 0 BW[s] at 7 }} }}")
    };
    for (device, repeats) in [
        ("m % 3", Some(3)),
        ("2 * m % 4 / 2", Some(2)),
        ("m / 2 % 2", Some(4)),
        ("if m % 2 == 0 then 0 else m % 3", Some(6)),
        ("min(m, m + 1) % 2", Some(2)),
        ("if m < 4 then 0 else 1", None),
        ("min(m, 3)", None),
        ("m * m % 2", None),
        ("abs(m) % 2", None),
    ] {
        let set = [("devices", 4), ("microbatches", 12)];
        let found = elaborate::elaborate(&loaded(&text(device)), &request(&set).choice).expect("a schedule");
        assert_eq!(found.schedule.placement.repeats(), repeats, "{device}");
        let turns = certified(&text(device), &set).map(|certified| certified.turn.microbatches);
        assert_eq!(turns, repeats.map(u64::from), "{device}");
    }
}

/// The number in `.. from 7 microbatches on`.
fn number_in(message: &str) -> Option<u64> {
    let (_, rest) = message.split_once("from ")?;
    rest.split_whitespace().next()?.parse().ok()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn blocks_are_refused_from_the_smallest_number_of_microbatches_that_breaks_them(seed: u64) {
        let dice = &mut Dice(seed);
        let mut schedule = random_block(dice);
        if dice.below(2) == 0 {
            schedule.activations = shares(schedule.n_stages(), dice).of(schedule.n_stages(), &schedule.parts).expect("few parts");
        }
        let block = schedule.block.as_ref().expect("a block");
        let whole = schedule.n_microbatches;
        let last = block.slots.iter().map(|task| block.end(task)).max().unwrap_or_default();
        let enough = u32::try_from((last / block.period + 2) * u64::from(block.microbatches)).expect("few") + 2 * whole;
        let breaks = (1..=enough).find(|number| collides(&schedule, *number)).map(u64::from);
        let found = collisions::check(&schedule).err().unwrap_or_default();
        prop_assert!(found.iter().all(|one| one.code == Code::SlotCollision));
        prop_assert_eq!(found.first().and_then(|one| number_in(&one.message)), breaks, "{:#?}", found);
        if breaks.is_some() {
            return Ok(());
        }
        let certificates = certificates(&schedule).expect("devices repeat");
        let peaks: Vec<Vec<u64>> = (1..=enough).map(|number| {
            let mut orders = vec![Vec::new(); schedule.n_devices()];
            for (device, _, _, task) in unrolled(&schedule, number) {
                orders[device.index()].push(ScheduledTask::new(task, 0));
            }
            counted(&orders, &schedule.activations)
        }).collect();
        for (device, held) in certificates.iter().enumerate() {
            let most = peaks.iter().map(|peaks| peaks[device]).max().unwrap_or_default();
            let first = (1..).zip(&peaks).find(|(_, peaks)| peaks[device] == most).map_or(0, |(number, _)| number);
            let first = if most == 0 { 0 } else { first };
            prop_assert_eq!((held.exact, held.from), (most, first), "d{}", device);
            prop_assert!(held.bound >= held.exact);
        }
    }
}
