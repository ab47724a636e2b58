//! Costs that differ by stage, latencies that differ by link and limits that differ by device,
//! against figures worked out by hand.

use pipe_compiler::Request;
use pipe_compiler::analyze::Analysis;
use pipe_schedule::memory_limit::MemoryLimit;
use pipe_schedule::timing::costs::StageCosts;
use pipe_schedule::units::Ticks;
use pipe_syntax::diagnostic::Code;
use pipe_syntax::stdlib;
use pipe_tests::blocks::request;
use pipe_tests::cases;

/// A standard schedule with sizes and costs, timed.
fn timed(name: &str, devices: u64, microbatches: u64, costs: &str, settings: &[(&str, i64)]) -> Analysis {
    let sizes = [("devices", devices as i64), ("microbatches", microbatches as i64)];
    let costs = Some(StageCosts::parse(costs).expect("costs"));
    let text = stdlib::schedule(name).expect("a standard schedule");
    let request = Request { costs, ..request(&[settings, &sizes].concat()) };
    let found = cases::compiled(&format!("std:{name}"), text, &request);
    assert!(found.report.ok, "{name} {devices} {microbatches}: {:#?}", found.diagnostics);
    found.analysis.expect("a step")
}

fn makespan(analysis: &Analysis) -> u64 {
    analysis.timeline.makespan().0 / Ticks::UNIT.0
}

/// Two devices that wait for each other exchange a microbatch both ways in a period, and a run of n
/// links is passed by n + 1 microbatches at once: the slowest run sets the pace. With links of 1, 4
/// and 2, the runs take 2 * 1 / 2, 2 * 4 / 2, 2 * 2 / 2, 2 * 5 / 3, 2 * 6 / 3 and 2 * 7 / 4 beyond
/// the work of a microbatch: at most 4.
#[test]
fn one_f_one_b_is_paced_by_its_slowest_run_of_links() {
    let cases: [&[u64]; 6] = [&[1, 4, 2], &[3, 3, 3, 3], &[0, 0, 5], &[6, 5, 0, 0, 1], &[4, 1, 4], &[7]];
    for links in cases {
        let p = links.len() as u64 + 1;
        let (f, b, w) = (2, 4, 2);
        let mut costs = format!("F={f},B={b},W={w},comm=9");
        for (first, link) in links.iter().enumerate() {
            costs.push_str(&format!(",comm[{first}-{}]={link}", first + 1));
        }
        // 60 is a multiple of n + 1 for all runs.
        let runs = (0..links.len()).flat_map(|from| (from + 1..=links.len()).map(move |to| &links[from..to]));
        let slowest = runs.map(|run| 60 * 2 * run.iter().sum::<u64>() / (run.len() as u64 + 1)).max();
        let [long, longer] = [300, 360].map(|m| timed("1f1b", p, m, &costs, &[]));
        assert_eq!(makespan(&longer) - makespan(&long), 60 * (f + b + w) + slowest.unwrap_or_default(), "{costs}");
        // One microbatch goes there and back.
        let way = p * (f + b + w) + 2 * links.iter().sum::<u64>();
        assert_eq!(makespan(&timed("1f1b", p, 1, &costs, &[])), way);
    }
}

/// Two replicas of 2 stages run 2 microbatches each: 9 slots of work, and a transfer there and
/// back. Then stage 0 adds up its gradients over devices 0 and 2; stage 1 did so over 1 and 3
/// before, 2 slots and a transfer earlier.
#[test]
fn reductions_take_the_latency_of_their_own_links() {
    for (links, end) in [("", 11 + 1), (",comm[0-2]=7", 11 + 7), (",comm[1-3]=9", 8 + 9), (",comm[0-1]=3", 9 + 6 + 1)] {
        let costs = format!("comm=1{links}");
        let analysis = timed("dp_1f1b", 4, 4, &costs, &[("replicas", 2)]);
        assert_eq!(makespan(&analysis), end, "{costs}");
        let path = &analysis.critical_path;
        let sum = path.work.iter().fold(path.transfers, |sum, work| sum + *work);
        assert_eq!(sum, analysis.timeline.makespan(), "{costs}");
    }
}

/// A slow last stage, such as one with a large vocabulary, never waits once it has begun: one
/// microbatch goes through all stages, and the others follow at the pace of the last one.
#[test]
fn one_f_one_b_follows_a_slow_last_stage() {
    let sizes = (2..=7).flat_map(|p| [2, p, 2 * p + 1, 4 * p].map(|m| (p, m)));
    let costs = [[1, 1, 1, 0], [2, 3, 1, 5], [5, 6, 4, 1]];
    for ((p, m), [f, b, w, longer]) in sizes.flat_map(|size| costs.map(|costs| (size, costs))) {
        let (last, stage) = (p - 1, f + b + w);
        let costs = format!("F={f},B={b},W={w},F[{last}]={},BW[{last}]={}", f + longer, b + w + longer);
        let analysis = timed("1f1b", p, m, &costs, &[]);
        assert_eq!(makespan(&analysis), p * stage + 2 * longer + (m - 1) * (stage + 2 * longer), "{p} {m} {costs}");
        assert_eq!(analysis.bound.makespan, analysis.timeline.makespan(), "{p} {m} {costs}");
    }
}

/// 1F1B on 4 devices, but device 2 holds a single microbatch: each takes 6 slots there, behind 2
/// forwards and before 2 backwards. If devices may hold no more than that, nothing is shorter; if
/// all may hold as much as device 0, 1F1B takes 33 slots. Limits that a schedule breaks say nothing
/// about it.
#[test]
fn lower_bounds_respect_the_limits_of_devices() {
    let text = "schedule narrow {
        stages D
        place s on s
        order d {
            let warmup = if d == 2 then 0 else min(D - 1 - d, M)
            repeat warmup { F[d] }
            repeat M - warmup { F[d] BW[d] }
            repeat warmup { BW[d] }
        }
    }";
    for (memory, bound) in
        [(None, 33), (Some("4,3,1,1"), 54), (Some("9,9,1,9"), 54), (Some("4"), 33), (Some("3,3,1,1"), 33)]
    {
        let memory = memory.map(|memory| MemoryLimit::parse(memory).expect("limits"));
        let request = Request { memory, ..request(&[("devices", 4), ("microbatches", 8)]) };
        let found = cases::compiled("x.pipe", text, &request);
        let analysis = found.analysis.expect("a step");
        assert_eq!(
            (makespan(&analysis), analysis.bound.makespan.0 / Ticks::UNIT.0),
            (54, bound),
            "{:?}",
            request.memory
        );
    }
}

/// Tied weights have a sum of gradients if their stages live on different devices, and none if they live on one.
#[test]
fn a_cost_of_sums_counts_for_tied_weights() {
    let text = cases::read(&cases::root().join("examples/tied.pipe"));
    let mut request = Request::default();
    for (schedule, makespan, unused) in [("1f1b", 65.0, 0), ("v_half", 25.0, 1)] {
        let halves = if unused == 1 { "F=1,B=1,W=1,reduce=50" } else { "F=1,BW=2,reduce=50" };
        request.costs = Some(StageCosts::parse(halves).expect("well-formed"));
        let text = text.replace("schedule v_half", &format!("schedule {schedule}"));
        let (compilation, _) = cases::compile_text("tied.pipe", &text, &cases::root().join("examples"), &request);
        assert_eq!(compilation.report.figures.makespan, Some(makespan), "{schedule}");
        let found = compilation.diagnostics.iter().filter(|one| one.code == Code::UnusedCost);
        assert_eq!(found.count(), unused, "{schedule}");
    }
}
