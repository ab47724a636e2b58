//! The standard schedules against closed formulas and published figures, and their pictures in `golden/`.

use pipe_compiler::analyze::{Analysis, analyze};
use pipe_compiler::{Request, elaborate};
use pipe_ir::ids::DeviceId;
use pipe_ir::task::TaskKind;
use pipe_schedule::check;
use pipe_schedule::timing::costs::StageCosts;
use pipe_schedule::units::Ticks;
use pipe_syntax::stdlib;
use pipe_tests::blocks::{loaded, request};
use std::path::Path;

/// A standard schedule with sizes, costs and other parameters, timed.
fn timed(name: &str, devices: u64, microbatches: u64, costs: &str, settings: &[(&str, i64)]) -> Analysis {
    let sizes = [("devices", devices as i64), ("microbatches", microbatches as i64)];
    let costs = Some(StageCosts::parse(costs).expect("costs"));
    let request = Request { costs, ..request(&[settings, &sizes].concat()) };
    let files = loaded(stdlib::schedule(name).expect("a standard schedule"));
    let analysis = || {
        let elaborated = elaborate::elaborate(&files, &request.choice)?;
        let stages = pipe_model::stage_set(&files, &elaborated)?;
        let order = check::check(&elaborated.schedule)?;
        Ok(analyze(&files, elaborated, order, &stages, &request))
    };
    let analysis: Result<Analysis, pipe_syntax::diagnostic::Diagnostics> = analysis();
    analysis.unwrap_or_else(|found| panic!("{name} {devices} {microbatches}: {found:#?}"))
}

fn makespan(analysis: &Analysis) -> u64 {
    analysis.timeline.makespan().0 / Ticks::UNIT.0
}

/// The most activations of single stages on any device.
fn peak(analysis: &Analysis) -> u64 {
    analysis.peaks.iter().map(|peak| peak.activations).max().unwrap_or_default()
}

/// Sizes, and costs of `F`, `B`, `W` and a hop.
fn grid() -> impl Iterator<Item = (u64, u64, [u64; 4])> {
    let costs = [[1, 1, 1, 0], [2, 3, 1, 0], [5, 6, 4, 1], [3, 1, 2, 7]];
    (1..=7)
        .flat_map(move |p| [1, 2, p, 2 * p + 1, 4 * p].into_iter().flat_map(move |m| costs.map(|costs| (p, m, costs))))
}

fn text([f, b, w, c]: [u64; 4]) -> String {
    format!("F={f},B={b},W={w},comm={c}")
}

#[test]
fn gpipe_follows_its_formula() {
    for (p, m, costs) in grid() {
        let [f, b, w, c] = costs;
        let analysis = timed("gpipe", p, m, &text(costs), &[]);
        assert_eq!(makespan(&analysis), (m + p - 1) * (f + b + w) + 2 * c * (p - 1), "{p} {m} {costs:?}");
        assert!(analysis.peaks.iter().all(|peak| peak.activations == m));
    }
}

#[test]
fn one_f_one_b_follows_its_formula_with_latency() {
    for (p, m, costs) in grid().filter(|(p, m, _)| *p >= 2 && *m >= 2) {
        let [f, b, w, c] = costs;
        let analysis = timed("1f1b", p, m, &text(costs), &[]);
        let transfers = 2 * c * (p + m - 3 - (m - 2) / p);
        assert_eq!(makespan(&analysis), (m + p - 1) * (f + b + w) + transfers, "{p} {m} {costs:?}");
        for (s, peak) in analysis.peaks.iter().enumerate() {
            assert_eq!(peak.activations, m.min(p - s as u64));
        }
        assert!(analysis.is_valid_for_all_microbatches(None));
    }
}

#[test]
fn interleaving_divides_the_bubble_by_the_chunks() {
    for p in 1..=6 {
        for (chunks, groups) in [(1, 2), (2, 1), (2, 3), (3, 2), (4, 5)] {
            let m = groups * p;
            let analysis = timed("interleaved_1f1b", p, m, "F=2,B=3,W=1", &[("chunks", chunks as i64)]);
            assert_eq!(makespan(&analysis), 6 * (m * chunks + p - 1), "{p} {m} {chunks}");
            let expected = (2 * (p - 1) + (chunks - 1) * p + 1).min(m * chunks);
            assert_eq!(analysis.peaks[0].activations, expected, "{p} {m} {chunks}");
            assert!(!analysis.is_valid_for_all_microbatches(None));
        }
    }
}

/// The closed formula holds if and only if a hop and back take no longer than the work between two backwards.
#[test]
fn a_longer_warm_up_hides_transfers() {
    for (p, m, costs) in grid() {
        let [f, b, w, c] = costs;
        let analysis = timed("eager_1f1b", p, m, &text(costs), &[]);
        let hidden = (m + p - 1) * (f + b + w) + 2 * c * (p - 1);
        let hides = 2 * c <= f + b + w;
        assert!(makespan(&analysis) == hidden || (!hides && makespan(&analysis) > hidden), "{p} {m} {costs:?}");
        assert!(hides || p == 1 || m <= 2 * p || makespan(&analysis) > hidden, "{p} {m} {costs:?}");
        for (s, peak) in analysis.peaks.iter().enumerate() {
            assert_eq!(peak.activations, m.min(2 * (p - s as u64) - 1));
        }
        assert!(analysis.is_valid_for_all_microbatches(None));
    }
}

/// arXiv 2211.05953: the bubble of interleaving, the memory of GPipe.
#[test]
fn breadth_first_divides_the_bubble_by_the_chunks() {
    for (p, m, [f, b, w, _]) in grid().filter(|(p, m, _)| m >= p) {
        for chunks in 1..=3 {
            let analysis = timed("looped_bfs", p, m, &text([f, b, w, 0]), &[("chunks", chunks as i64)]);
            assert_eq!(makespan(&analysis), (m * chunks + p - 1) * (f + b + w), "{p} {m} {chunks}");
            assert!(analysis.peaks.iter().all(|peak| peak.activations == m * chunks));
        }
    }
}

/// arXiv 2503.01328: peak (g (v - 1) + p) / v units.
#[test]
fn smaller_groups_take_less_memory() {
    for (p, chunks, turns) in (1..=7_u64).flat_map(|p| [(p, 1_u64, 2), (p, 2, 3), (p, 3, 2), (p, 4, 4)]) {
        for group in p.div_ceil(2)..=p {
            for [f, b, w] in [[2, 1, 1], [1, 1, 1], [2, 3, 1]] {
                let (m, settings) = (turns * group, [("chunks", chunks as i64), ("group", group as i64)]);
                let analysis = timed("grouped_interleaved", p, m, &text([f, b, w, 0]), &settings);
                let expected = (group * (chunks - 1) + p).min(m * chunks);
                assert_eq!(peak(&analysis), expected, "{p} {group} {chunks}");
                if group * (f + b + w) >= p * f.max(b + w) {
                    let bubble = (p - 1 + (chunks - 1) * (p - group)) * (f + b + w);
                    assert_eq!(makespan(&analysis), m * chunks * (f + b + w) + bubble, "{p} {group} {chunks}");
                }
            }
        }
    }
}

/// arXiv 2405.15362: two thirds of the memory of 1F1B.
#[test]
fn a_v_without_split_takes_two_thirds() {
    for p in 1..=16 {
        let analysis = timed("1f1b_v", p, 4 * p, "", &[]);
        assert_eq!(peak(&analysis), 2 * (2 * p / 3 + 1), "{p}");
        assert!(analysis.is_valid_for_all_microbatches(None));
        assert!(makespan(&analysis) <= 6 * (4 * p) + 6 * p, "{p}: {}", makespan(&analysis));
    }
    assert_eq!(makespan(&timed("1f1b_v", 4, 8, "", &[])), 63);
}

/// arXiv 2308.15762: the bubble shrinks with the number of waves; the first group of microbatches could not be faster.
#[test]
fn waves_divide_the_bubble() {
    for (p, m, [f, b, w, _]) in grid().filter(|(p, m, _)| m % p == 0) {
        for waves in 1..=3 {
            let analysis = timed("hanayo", p, m, &text([f, b, w, 0]), &[("waves", waves as i64)]);
            let work = 2 * waves * m * (f + b + w);
            assert_eq!(makespan(&analysis), work + 2 * (p - 1) * f.max(b + w), "{p} {m} {waves}");
            assert_eq!(peak(&analysis), 2 * waves * p, "{p} {m} {waves}");
            assert!(analysis.is_valid_for_all_microbatches(None));
            if m == p && b + w == 2 * f {
                assert_eq!(analysis.bound.makespan, analysis.timeline.makespan(), "{p} {waves}");
            }
        }
    }
}

/// arXiv 2406.03488: with slices of equal cost, 1F1B over slices.
#[test]
fn slices_divide_the_bubble_and_the_peak() {
    for (p, m, costs) in grid().filter(|(p, m, costs)| m >= p && costs[3] == 0) {
        let [f, b, w, _] = costs;
        for slices in [1, 2, 3, 8] {
            let analysis = timed("seq_1f1b", p, m, &text(costs), &[("slices", slices as i64)]);
            assert_eq!(makespan(&analysis), (m * slices + p - 1) * (f + b + w), "{p} {m} {slices} {costs:?}");
            for (s, peak) in analysis.peaks.iter().enumerate() {
                assert_eq!(peak.activations, (m * slices).min(p - 1 - s as u64 + slices));
            }
        }
    }
    let analysis = timed("seq_1f1b", 4, 8, "", &[("slices", 4)]);
    assert_eq!(analysis.schedule.units(peak(&analysis)).words(), "1.75 units");
}

/// DeepSeek's table of bubbles, for D devices that hold two of 2 D stages: (D - 1) (F & B + B - 3
/// W) with B both halves, and 2 D + 1 activations. Exact at equal costs where a pair takes as long
/// as its tasks; an upper bound for the others tried here, in which W is shorter than B.
#[test]
fn dualpipe_v_hides_all_but_its_published_bubble() {
    for p in 1..=8 {
        for m in [2 * p, 2 * p + 1, 2 * p + 4, 5 * p] {
            for (f, b, w, pair) in [(1, 1, 1, 3), (1, 1, 1, 2), (2, 3, 1, 6), (2, 3, 1, 5), (3, 4, 2, 7)] {
                let analysis = timed("dualpipe_v", p, m, &format!("F={f},B={b},W={w},F&BW={pair}"), &[]);
                let busy = (0..p).map(|device| analysis.timeline.busy(DeviceId::from_index(device as usize)));
                let bubble = makespan(&analysis) - busy.max().unwrap_or_default().0 / Ticks::UNIT.0;
                let published = (p - 1) * (pair + b + w - 3 * w);
                assert!(bubble <= published, "{p} {m} {f} {b} {w} {pair}: {bubble}");
                assert!((f, b, w, pair) != (1, 1, 1, 3) || bubble == published, "{p} {m}: {bubble}");
                assert!(analysis.peaks.iter().all(|peak| peak.activations == 2 * p + 1), "{p} {m}");
                assert!(analysis.bound.makespan <= analysis.timeline.makespan());
            }
        }
    }
}

/// Each replica is a 1F1B of its own.
#[test]
fn replicas_share_the_microbatches() {
    for (replicas, p, m) in [(1, 3, 6), (2, 1, 4), (2, 3, 12), (3, 2, 7), (4, 4, 32)] {
        let analysis = timed("dp_1f1b", replicas * p, m, "F=2,B=3,W=1", &[("replicas", replicas as i64)]);
        let own = m.div_ceil(replicas);
        assert_eq!(makespan(&analysis), 6 * (own + p - 1), "{replicas} {p} {m}");
        assert_eq!(peak(&analysis), p.min(own), "{replicas} {p} {m}");
        assert!(analysis.is_valid_for_all_microbatches(None));
    }
}

/// arXiv 2107.06925: of the bubble of 1F1B, (p - 1) (F + BW), two pipelines in opposite directions leave (p - 2) BW.
#[test]
fn opposite_pipelines_fill_each_others_gaps() {
    for p in [2, 4, 6, 8] {
        for m in [p, 2 * p, 4 * p + 2] {
            for [f, b, w] in [[1, 1, 1], [2, 1, 1], [2, 3, 1], [3, 1, 0]] {
                let analysis = timed("chimera", p, m, &format!("F={f},B={b},W={w}"), &[]);
                assert_eq!(makespan(&analysis), m * (f + b + w) + (p - 2) * f.max(b + w), "{p} {m} {f} {b} {w}");
                assert!(analysis.peaks.iter().all(|peak| peak.activations <= p));
                assert_eq!(peak(&analysis), p, "{p} {m}");
                assert!(analysis.is_valid_for_all_microbatches(None));
            }
        }
    }
}

/// arXiv 2412.19437, Table 2: bubble (p / 2 - 1) (F & B + B - 3 W) with B both halves, and p + 1
/// activations. Exact at equal costs where a pair takes as long as its tasks; an upper bound for
/// the others tried here, in which W is shorter than B.
#[test]
fn dualpipe_hides_all_but_its_published_bubble() {
    for p in [2, 4, 6, 8] {
        for m in [2 * p, 2 * p + 2, 5 * p] {
            for (f, b, w, pair) in [(1, 1, 1, 3), (1, 1, 1, 2), (2, 3, 1, 6), (2, 3, 1, 5)] {
                let analysis = timed("dualpipe", p, m, &format!("F={f},B={b},W={w},F&BW={pair}"), &[]);
                let busy = (0..p).map(|device| analysis.timeline.busy(DeviceId::from_index(device as usize)));
                let bubble = makespan(&analysis) - busy.max().unwrap_or_default().0 / Ticks::UNIT.0;
                let published = (p / 2 - 1) * (pair + b + w - 3 * w);
                assert!(bubble <= published, "{p} {m} {f} {b} {w} {pair}: {bubble}");
                assert!((f, b, w, pair) != (1, 1, 1, 3) || bubble == published, "{p} {m}: {bubble}");
                assert!(analysis.peaks.iter().all(|peak| peak.activations == p + 1), "{p} {m}");
                assert!(analysis.bound.makespan <= analysis.timeline.makespan());
            }
        }
    }
}

/// arXiv 2401.10241, Section 2.
#[test]
fn splitting_the_backward_shrinks_the_bubble() {
    for (p, m, [f, b, w, _]) in grid().filter(|(p, m, costs)| m >= p && costs[3] == 0) {
        let analysis = timed("zb_h1", p, m, &text([f, b, w, 0]), &[]);
        assert_eq!(makespan(&analysis), m * (f + b + w) + (p - 1) * (f + b - w), "{p} {m}");
        assert_eq!(peak(&analysis), p);
        assert_eq!(peak(&timed("zb_h2", p, m, "", &[])), m.min(2 * p - 1));
    }
    for (p, m) in [(2, 4), (4, 8), (6, 12)] {
        // ZB-H2 has no bubble by its longest span; by its makespan it is as long as ZB-H1.
        let (one, two) = (timed("zb_h1", p, m, "", &[]), timed("zb_h2", p, m, "", &[]));
        assert_eq!(two.timeline.longest_stage(), Ticks(3 * m * Ticks::UNIT.0));
        assert_eq!(makespan(&one), makespan(&two));
    }
}

/// arXiv 2405.15362: V-Min, V-Half and V-ZB; with better warm-up and cool-down as published.
#[test]
fn controllable_memory_reaches_the_published_makespans() {
    for (p, m, v_min, v_half, v_zb) in
        [(4, 8, 59, 53, 51), (4, 16, 107, 101, 99), (8, 16, 123, 113, 103), (8, 32, 219, 209, 199)]
    {
        for (name, expected, units) in
            [("v_min", v_min, (p + 4) / 3), ("v_half", v_half, (p + 2) / 2), ("v_zb", v_zb, p), ("zb_v", v_zb, p)]
        {
            let analysis = timed(name, p, m, "", &[]);
            assert_eq!(makespan(&analysis), expected, "{name} {p} {m}");
            assert_eq!(peak(&analysis), 2 * units, "{name} {p} {m}");
            assert!(analysis.is_valid_for_all_microbatches(None), "{name}");
            assert!(analysis.bound.makespan <= analysis.timeline.makespan());
        }
    }
    for p in pipe_tests::slice::slice(5, 2..=24) {
        for (name, units) in [("v_min", (p + 4) / 3), ("v_half", (p + 2) / 2), ("v_zb", p)] {
            assert!(peak(&timed(name, p, 3 * p, "", &[])) <= 2 * units, "{name} {p}");
        }
    }
}

/// From about a third of a V-ZB's memory on nothing is shorter than V-Flex, and below it is sound.
#[test]
fn v_flex_is_as_short_as_its_memory_allows() {
    for (p, hop) in (1..=8).map(|p| (p, 0)).chain([(11, 0), (16, 0), (24, 0), (2, 3), (3, 1), (4, 2), (6, 1), (7, 1)]) {
        let half = p + (p - 1) * hop;
        let least = (half + 4) / 3 * 2;
        let all = (2..=2 * half + 1).filter(|held| p <= 8 || [least, least + 3, 3 * p / 2, 2 * p - 1].contains(held));
        for (held, m) in all.flat_map(|held| [1, half, 2 * half, 3 * p + 1].map(|m| (held, m))) {
            let settings = [("held", held as i64), ("hop", hop as i64)];
            let analysis = timed("v_flex", p, m, &text([1, 1, 1, hop]), &settings);
            assert!(peak(&analysis) <= held, "{p} {m} {held} {hop}");
            if (least..=2 * half).contains(&held) && m >= half {
                let idle = (6 * half).saturating_sub(3 * held).max(3 * half - held) - 1;
                assert_eq!((makespan(&analysis), peak(&analysis)), (6 * m + idle, held), "{p} {m} {held} {hop}");
                assert_eq!(analysis.bound.makespan, analysis.timeline.makespan(), "{p} {m} {held} {hop}");
            }
        }
    }
}

/// Decimal costs of one of `chunks` parts.
fn part(cost: u64, chunks: u64) -> String {
    let millionths = cost * 1_000_000 / chunks;
    format!("{}.{:06}", millionths / 1_000_000, millionths % 1_000_000)
}

/// PyTorch's `ScheduleInterleavedZeroBubble`: the bubble of ZB-H1, divided by the chunks, in the memory of 1F1B.
#[test]
fn interleaving_divides_the_bubble_of_split_backwards() {
    for (p, chunks) in (1..=6_u64).flat_map(|p| [(p, 1_u64), (p, 2), (p, 4)]) {
        for [f, b, w] in [[1, 1, 1], [2, 1, 1], [2, 3, 1], [1, 2, 1], [1, 1, 2]] {
            for m in [p, 2 * p, 3 * p] {
                let settings = [("chunks", chunks as i64)];
                let analysis = timed("interleaved_zb", p, m, &text([f, b, w, 0]), &settings);
                let bubble = (p - 1) * f.max(f + b - w);
                assert_eq!(makespan(&analysis), m * chunks * (f + b + w) + bubble, "{p} {m} {chunks}");
                assert_eq!(peak(&analysis), p * chunks, "{p} {m} {chunks}");
            }
        }
    }
}

/// arXiv 2401.10241, Table 5. Its interleaved column has 3, 4 and 2 chunks; see the note in the data.
#[test]
fn table_5_is_reproduced_to_four_decimals() {
    let data = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("data/zb_table5.json"));
    let data: serde_json::Value = serde_json::from_str(&data.expect("the table")).expect("JSON");
    for (index, row) in data["rows"].as_array().expect("rows").iter().enumerate() {
        let number = |name: &str| row[name].as_u64().expect("a number");
        for (name, rate) in row["bubble_longest_stage"].as_object().expect("rates") {
            let chunks = if name == "interleaved_1f1b" { [3, 4, 2][index / 3] } else { 1 };
            let [f, b, w] = ["F", "B", "W"].map(|kind| part(number(kind), chunks));
            let costs = format!("F={f},B={b},W={w},comm={}", number("comm"));
            let settings: &[(&str, i64)] = if chunks > 1 { &[("chunks", chunks as i64)] } else { &[] };
            let analysis = timed(name, number("devices"), number("microbatches"), &costs, settings);
            let longest = analysis.timeline.longest_stage().0 as f64;
            let busy = analysis.timeline.busy(pipe_ir::ids::DeviceId(0)).0 as f64;
            let bubble = 1.0 - busy / longest;
            let expected = rate.as_f64().expect("a rate");
            assert!((bubble - expected).abs() <= 0.00005 + 1e-9, "row {index}, {name}: {bubble} and {expected}");
        }
    }
}

/// The sum of gradients travels through the workers, so each is one backward behind the one before it, and all of them
/// stay as busy as that lets them.
#[test]
fn workers_of_a_cycle_are_one_backward_apart() {
    for n in 1..=6_u64 {
        for [f, b] in [[1, 1], [1, 2], [2, 3], [3, 1]] {
            let analysis = timed("cyclic_dp", n, n, &format!("F={f},BW={b}"), &[]);
            let steps = u64::from(analysis.schedule.n_steps());
            assert_eq!(makespan(&analysis), steps * n * (f + b) + (n - 1) * b, "{n} {f} {b}");
            let backward = |device: u64| {
                let order = &analysis.schedule.orders[device as usize];
                let first = order.iter().position(|one| one.task.kind == TaskKind::Backward).expect("a backward");
                analysis.timeline.starts[device as usize][first].0 / Ticks::UNIT.0
            };
            assert!((0..n).all(|device| backward(device) == n * f + device * b), "{n} {f} {b}");
        }
    }
}

/// A hop of the sum takes as long as any other transfer, and so does the total on its way to the other workers.
#[test]
fn a_travelling_sum_takes_its_time() {
    for n in 2..=5_u64 {
        for [f, b, c] in [[1, 1, 1], [1, 2, 1], [2, 3, 7]] {
            let analysis = timed("cyclic_dp", n, n, &format!("F={f},BW={b},comm={c}"), &[("steps", 2)]);
            // In the first step all workers go forward at once. Then the last stage's sum travels, and its total back.
            let (end, slot) = analysis.timeline.reduced.expect("a total travels");
            assert_eq!((end, slot.device.index() as u64), (analysis.timeline.makespan(), n - 1));
            assert!(makespan(&analysis) >= 2 * n * (f + b) + (n - 1) * (b + c) + c, "{n} {f} {b} {c}");
            let last = analysis.timeline.starts[n as usize - 1][n as usize];
            assert_eq!(last.0 / Ticks::UNIT.0, n * f + (n - 1) * (b + c), "{n} {f} {b} {c}");
        }
    }
}

#[test]
fn pictures_match() {
    for (name, _) in stdlib::SCHEDULES {
        let (devices, microbatches) = match *name {
            "1f1b" => (3, 4),
            "dualpipe_v" => (4, 10),
            "dualpipe" => (8, 20),
            "cyclic_dp" => (3, 3),
            _ => (4, 8),
        };
        let picture = pipec::drawing::golden::draw(&timed(name, devices, microbatches, "", &[])).expect("a picture");
        let found = format!("std:{name}, {devices} devices, {microbatches} microbatches, F = B = W = 1\n{picture}");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("golden/{name}.txt"));
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, &found).expect("the picture is written");
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(found, expected, "golden/{name}.txt: `cargo bless` accepts the new picture");
    }
}
