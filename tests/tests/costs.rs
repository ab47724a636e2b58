//! Costs that differ by stage and latencies that differ by link, against figures worked out by hand.

use pipe_compiler::judge::Judged;
use pipe_compiler::pipeline::StageCosts;
use pipe_compiler::source::{Source, Sources};
use pipe_compiler::units::Ticks;
use pipe_compiler::{Request, compile, elaborate, stdlib};

/// A standard schedule with sizes and costs, timed.
fn timed(name: &str, devices: u64, microbatches: u64, costs: &str, settings: &[(&str, i64)]) -> Judged {
    let sizes = [("devices", devices as i64), ("microbatches", microbatches as i64)];
    let settings = settings.iter().chain(&sizes).map(|(name, value)| ((*name).to_owned(), *value)).collect();
    let choice = elaborate::Request { settings, ..elaborate::Request::default() };
    let costs = Some(StageCosts::parse(costs).expect("costs"));
    let text = stdlib::schedule(name).expect("a standard schedule").to_owned();
    let root = Source { name: format!("std:{name}"), text };
    let request = Request { choice, costs, ..Request::default() };
    let found = compile(&mut Sources::default(), root, &|path| Err(path.to_owned()), &request);
    assert!(found.report.ok, "{name} {devices} {microbatches}: {:#?}", found.diagnostics);
    found.judged.expect("a step")
}

fn makespan(judged: &Judged) -> u64 {
    judged.timeline.makespan().0 / Ticks::UNIT.0
}

/// Two replicas of 2 stages run 2 microbatches each: 9 slots of work, and a transfer there and back. Then stage 0 adds up its
/// gradients over devices 0 and 2; stage 1 did so over 1 and 3 before, 2 slots and a transfer earlier.
#[test]
fn reductions_take_the_latency_of_their_own_links() {
    for (links, end) in [("", 11 + 1), (",comm[0-2]=7", 11 + 7), (",comm[1-3]=9", 8 + 9), (",comm[0-1]=3", 9 + 6 + 1)] {
        let costs = format!("comm=1{links}");
        let judged = timed("dp_1f1b", 4, 4, &costs, &[("replicas", 2)]);
        assert_eq!(makespan(&judged), end, "{costs}");
        let path = &judged.critical_path;
        let sum = path.work.iter().fold(path.transfers, |sum, work| sum + *work);
        assert_eq!(sum, judged.timeline.makespan(), "{costs}");
    }
}

/// A slow last stage, such as one with a large vocabulary, never waits once it has begun: one microbatch goes through all
/// stages, and the others follow at the pace of the last one.
#[test]
fn one_f_one_b_follows_a_slow_last_stage() {
    let sizes = (2..=7).flat_map(|p| [2, p, 2 * p + 1, 4 * p].map(|m| (p, m)));
    let costs = [[1, 1, 1, 0], [2, 3, 1, 5], [5, 6, 4, 1]];
    for ((p, m), [f, b, w, longer]) in sizes.flat_map(|size| costs.map(|costs| (size, costs))) {
        let (last, stage) = (p - 1, f + b + w);
        let costs = format!("F={f},B={b},W={w},F[{last}]={},BW[{last}]={}", f + longer, b + w + longer);
        let judged = timed("1f1b", p, m, &costs, &[]);
        assert_eq!(makespan(&judged), p * stage + 2 * longer + (m - 1) * (stage + 2 * longer), "{p} {m} {costs}");
        assert_eq!(judged.bound.makespan, judged.timeline.makespan(), "{p} {m} {costs}");
    }
}
