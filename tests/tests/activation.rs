//! What activations count in units: what is found keeps to limits that count so, and is judged like everything else.

use pipe_compiler::{Compilation, Request};
use pipe_ir::task::TaskKind;
use pipe_schedule::dispatch::Objective;
use pipe_schedule::memory_limit::MemoryLimit;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::timing::costs::StageCosts;
use pipe_search::Options;
use pipe_syntax::source::Sources;
use pipe_syntax::stdlib;
use pipe_tests::blocks;
use pipe_tests::cases::{self, no_files};
use pipe_tests::team::team;

fn request(sizes: [i64; 2], shares: &str, memory: &str) -> Request {
    let mut request = blocks::request(&[("devices", sizes[0]), ("microbatches", sizes[1])]);
    request.choice.activation = Some(shares.parse().expect("well-formed"));
    request.costs = Some(StageCosts::parse("F=3,B=4,W=2,comm=1").expect("well-formed"));
    request.memory = Some(MemoryLimit::parse(memory).expect("well-formed"));
    request
}

fn compiled(name: &str, request: &Request) -> Compilation {
    cases::compiled(name, stdlib::schedule(name).expect("a standard schedule"), request)
}

fn schedule(compilation: &Compilation) -> &Schedule {
    &compilation.analysis.as_ref().expect("it was judged").schedule
}

/// The most that a device holds, in `whole`ths of an activation, where `waiting` of them wait for `W`.
fn most(schedule: &Schedule, device: usize, (whole, waiting): (i64, i64)) -> i64 {
    let (mut held, mut most) = (0, 0);
    for one in &schedule.orders[device] {
        held += if one.task.kind == TaskKind::Forward { whole } else { 0 };
        most = most.max(held);
        held -= match one.task.kind {
            TaskKind::BackwardInput => whole - waiting,
            TaskKind::BackwardWeight => waiting,
            TaskKind::Backward => whole,
            _ => 0,
        };
    }
    most
}

#[test]
fn what_is_found_keeps_to_limits_that_count_what_waits_and_is_no_longer_than_standard_schedules() {
    let standard = ["gpipe", "1f1b", "eager_1f1b", "zb_h1", "zb_h2"];
    for (sizes, shares, parts, units) in [
        ([4, 8], "W=1/3", (3, 1), 4),
        ([4, 8], "W=1/3", (3, 1), 2),
        ([3, 12], "W=0", (1, 0), 2),
        ([4, 6], "W=0.75", (4, 3), 6),
    ] {
        let request = request(sizes, shares, &units.to_string());
        let text = stdlib::schedule("zb_h1").expect("a standard schedule");
        let prepared = cases::prepared("zb_h1", text, &request, Objective::Makespan);
        let options = Options { objective: Objective::Makespan, seed: 1, rounds: 1 };
        let found = prepared.search(options, &team(1, 30), &mut |_| ()).expect("it fits");
        let (source, compilation) = prepared.finish(&found, &mut Sources::default(), &no_files);
        assert!(compilation.report.ok, "{:?}\n{source}", compilation.diagnostics);
        assert!(source.contains(&format!(", counted with `--activation {}`.", shares)), "{source}");
        for device in 0..sizes[0] as usize {
            let held = most(schedule(&compilation), device, parts);
            assert!(held <= parts.0 * units, "{shares}, {units}: d{device} holds {held}\n{source}");
            let peak = compilation.report.per_device[device].peak_activation.unwrap_or_default();
            assert!((peak - held as f64 / parts.0 as f64).abs() < 1e-6, "{peak} {held}");
        }
        for name in standard {
            let other = compiled(name, &request).report;
            let other = other.figures.makespan.filter(|_| other.ok);
            assert!(other.is_none_or(|other| compilation.report.figures.makespan <= Some(other)), "{name} {shares}");
        }
    }
}

#[test]
fn a_limit_that_the_help_names_is_enough() {
    for (shares, limit) in [("W=11/30", "5"), ("W=1/7,F=1/3", "1"), ("W=0.999999", "6.999999")] {
        let of = |limit: &str| compiled("zb_h2", &request([4, 9], shares, limit));
        let rejected = of(limit);
        let help = rejected.diagnostics.first().and_then(|found| found.help.clone()).expect("it is too little");
        let (_, enough) = help.split_once("or allow ").expect("a number");
        let enough = enough.split(' ').next().unwrap_or_default();
        assert!(of(enough).report.per_device[0].limit_activation > Some(0.0), "{shares}");
        let first = |compilation: &Compilation| {
            compilation.diagnostics.iter().any(|found| found.message.starts_with("d0 holds"))
        };
        assert!(first(&rejected) && !first(&of(enough)), "{shares}: {enough}");
    }
}

#[test]
fn plots_and_certificates_count_alike() {
    let mut request = request([4, 20], "W=1/2", "20");
    request.memory = None;
    let report = compiled("zb_h2", &request).report;
    let certificate = report.certificate.expect("a block");
    for (device, held) in report.per_device.iter().zip(&certificate.per_device) {
        assert_eq!(device.peak_activation, Some(held.peak_activation));
        assert!(held.bound_activation >= held.peak_activation);
    }
    assert_eq!((report.activation.len(), report.activation[3].waiting), (4, 0.5));
}
