//! V-Min, V-Half, V-ZB and ZB-V beside the schedulers that were published with them (arXiv
//! 2405.15362, 2401.10241), whose figures `data/published_v.json` has.

use pipe_compiler::Request;
use pipe_schedule::timing::costs::StageCosts;
use pipe_schedule::units::Ticks;
use pipe_syntax::stdlib;
use pipe_tests::blocks::request;
use pipe_tests::cases::compiled;
use pipe_tests::slice::slice;

/// Makespan and longest span in units of time, and the most activations of a device.
fn measured(name: &str, text: &str, (p, m): (i64, i64), costs: &str) -> (f64, f64, Vec<u64>) {
    let costs = StageCosts::parse(costs).ok();
    let request = Request { costs, ..request(&[("devices", p), ("microbatches", m)]) };
    let compilation = compiled(&format!("std:{name}"), text, &request);
    let analysis = compilation.analysis.unwrap_or_else(|| panic!("{name} {p} {m}: {:?}", compilation.diagnostics));
    let units = |ticks: Ticks| ticks.0 as f64 / Ticks::UNIT.0 as f64;
    let peaks = analysis.peaks.iter().map(|peak| peak.activations).collect();
    (units(analysis.timeline.makespan()), units(analysis.timeline.longest_stage()), peaks)
}

#[test]
fn no_published_schedule_is_shorter_in_as_much_memory() {
    let data: serde_json::Value = serde_json::from_str(include_str!("../data/published_v.json")).expect("JSON");
    let rows = ["rows", "latency"].map(|part| data[part].as_array().expect("rows").clone()).concat();
    assert_eq!(rows.len(), 42);
    for row in slice(3, rows) {
        let number = |name: &str| row[name].as_f64().unwrap_or_default();
        let names: &[&str] = match row["schedule"].as_str() {
            Some("ZBV" | "zb_v") => &["zb_v", "v_zb"],
            Some("V-Half" | "v_half") => &["v_half"],
            _ => &["v_min"],
        };
        let costs = format!("F={},B={},W={},comm={}", number("F"), number("B"), number("W"), number("comm"));
        let costs = costs.replace(",comm=0", "");
        let (p, m) = (number("p") as i64, number("m") as i64);
        for name in names {
            let text = stdlib::schedule(name).expect("it exists");
            let (makespan, longest_stage, peaks) = measured(name, text, (p, m), &costs);
            let published = number("makespan");
            assert!(makespan <= published, "{name} {p} {m} {costs}: {makespan}, published {published}");
            assert!(peaks.iter().all(|held| *held as f64 <= 2.0 * number("peak")), "{name} {p} {m} {costs}: {peaks:?}");
            if costs == "F=1,B=1,W=1" {
                assert_eq!((makespan, longest_stage), (number("makespan"), number("longest_stage")), "{name} {p} {m}");
            }
        }
    }
}

/// Also for other sizes, and never with more memory than the block on any device.
#[test]
fn without_latency_zb_v_has_no_bubble_between_first_and_last_task() {
    for p in [2, 3, 5, 7, 12] {
        for m in [2 * p, 2 * p + 1, 3 * p + 2, 40] {
            let text = stdlib::schedule("zb_v").expect("it exists");
            let (makespan, longest_stage, peaks) = measured("zb_v", text, (p, m), "F=1,B=1,W=1");
            assert_eq!((makespan, longest_stage), ((6 * m + p - 1) as f64, (6 * m) as f64), "{p} {m}");
            let (_, _, plain) = measured("zb_v", &text.replace("    reorder\n", ""), (p, m), "F=1,B=1,W=1");
            assert!(peaks.iter().zip(&plain).all(|(peak, plain)| peak <= plain), "{p} {m}: {peaks:?} {plain:?}");
        }
    }
}

#[test]
fn costs_of_all_kinds_lead_to_shorter_schedules_in_no_more_memory() {
    let costs = [
        "F=10,B=13,W=9",
        "F=10,B=13,W=9,comm=2",
        "F=3,B=5,W=2,comm=1",
        "F=7,B=4,W=11,F[2]=9,comm[0-1]=5",
        "F=1,B=1,W=0",
    ];
    let (mut shorter, mut all) = (0, 0);
    for (name, p, m) in
        [("v_min", 3, 10), ("v_half", 5, 12), ("v_half", 6, 31), ("zb_v", 7, 9), ("v_zb", 3, 50), ("v_min", 8, 3)]
    {
        for costs in costs {
            let text = stdlib::schedule(name).expect("it exists");
            let (makespan, _, peaks) = measured(name, text, (p, m), costs);
            let (before, _, plain) = measured(name, &text.replace("    reorder\n", ""), (p, m), costs);
            assert!(
                makespan <= before && peaks.iter().zip(&plain).all(|(peak, plain)| peak <= plain),
                "{name} {p} {m} {costs}"
            );
            shorter += u32::from(makespan < before);
            all += 1;
        }
    }
    assert!(shorter * 4 > all * 3, "{shorter} of {all}");
}
