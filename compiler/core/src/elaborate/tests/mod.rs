//! Elaboration, from text to tasks.

mod definitions;
mod robust;
mod rules;

use super::*;
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use pipe_ir::task::TaskKind;
use pipe_ir::training::{DataSource, Optimizer};
use pipe_ir::units::Bytes;
use pipe_schedule::ratio::Ratio;
use pipe_schedule::requirement::Limit;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::units::Ticks;
use pipe_syntax::expr::number::Number;
use pipe_syntax::source::{Source, Sources};
use pipe_syntax::{files, stdlib};
use std::collections::BTreeMap;

fn load(text: &str) -> Result<Files, Diagnostics> {
    let root = Source { name: "test.pipe".to_owned(), text: text.to_owned() };
    files::load(&mut Sources::default(), root, &|path| Err(format!("no file {path}")))
}

fn elaborated(text: &str, settings: &[(&str, i64)]) -> Result<Elaborated, Diagnostics> {
    let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    elaborate(&load(text)?, &Request { settings, ..Request::default() })
}

fn schedule(text: &str, settings: &[(&str, i64)]) -> Schedule {
    elaborated(text, settings).unwrap_or_else(|errors| panic!("{errors:#?}")).schedule
}

/// Codes with the text that their first label covers.
fn errors(text: &str, settings: &[(&str, i64)]) -> Vec<(String, String)> {
    let found = elaborated(text, settings).map(|_| text).expect_err("it is wrong");
    assert!(!found.is_empty(), "a failure says why");
    let shown = found.into_iter().map(|error| {
        let span = error.labels[0].span;
        let place = text.get(span.start as usize..span.end as usize).unwrap_or("");
        (error.message, place.to_owned())
    });
    shown.collect()
}

fn shown(schedule: &Schedule) -> Vec<String> {
    let line = |order: &Vec<pipe_schedule::schedule::ScheduledTask>| {
        let tasks =
            order.iter().map(|it| format!("{}{}.{}", it.task.kind.letters(), it.task.stage.0, it.task.microbatch.0));
        tasks.collect::<Vec<_>>().join(" ")
    };
    schedule.orders.iter().map(line).collect()
}

const STANDARD: &str = "pipeline p { devices 4 microbatches 8 schedule NAME }";

#[test]
fn the_standard_schedules_are_complete_for_many_sizes() {
    for (name, text) in stdlib::SCHEDULES {
        for (devices, microbatches) in [(1, 1), (1, 3), (2, 4), (3, 6), (4, 8), (5, 5), (8, 16), (16, 16), (7, 70)] {
            let is_meant = match *name {
                "dualpipe_v" => microbatches >= 2 * devices,
                "dualpipe" => devices % 2 == 0 && microbatches % 2 == 0 && microbatches >= 2 * devices,
                "chimera" | "dp_1f1b" => devices % 2 == 0,
                _ => true,
            };
            if !is_meant {
                let found = errors(text, &[("devices", devices), ("microbatches", microbatches)]);
                assert!(found[0].0.contains("does not allow these numbers"), "{found:?}");
                continue;
            }
            let found = schedule(text, &[("devices", devices), ("microbatches", microbatches)]);
            let tasks: std::collections::BTreeSet<_> = found.orders.iter().flatten().map(|it| it.task).collect();
            let kinds: std::collections::BTreeSet<_> = tasks.iter().map(|task| task.kind).collect();
            // A stage that runs both `BW` and its halves has each of the three for a part of its microbatches.
            let count = |kind| tasks.iter().filter(|task| task.kind == kind).count();
            if kinds.len() == 4 {
                let n_each = found.n_stages() * found.n_microbatches as usize;
                let n_backwards = count(TaskKind::Backward) + count(TaskKind::BackwardInput);
                assert_eq!(
                    (count(TaskKind::Forward), n_backwards),
                    (n_each, n_each),
                    "{name} {devices} {microbatches}"
                );
                assert_eq!(count(TaskKind::BackwardWeight), count(TaskKind::BackwardInput));
                continue;
            }
            let n_wanted = kinds.len() * found.n_stages() * found.n_microbatches as usize;
            assert_eq!((found.n_tasks(), tasks.len()), (n_wanted, n_wanted), "{name} {devices} {microbatches}");
            assert_eq!(found.reorder.is_some(), ["1f1b_v", "v_half", "v_min", "v_zb", "zb_v"].contains(name));
        }
        let in_a_pipeline = schedule(&STANDARD.replace("NAME", name), &[]);
        assert_eq!(in_a_pipeline.orders, schedule(text, &[]).orders);
    }
}

#[test]
fn blocks_are_repeated_and_sorted_by_slot() {
    let found = schedule(stdlib::schedule("1f1b").expect("it exists"), &[("devices", 2), ("microbatches", 3)]);
    assert_eq!(shown(&found), ["F0.0 F0.1 BW0.0 F0.2 BW0.1 BW0.2", "F1.0 BW1.0 F1.1 BW1.1 F1.2 BW1.2"]);
    assert_eq!(found.block.expect("a block").durations, [1, 1, 1, 2, 1, 0]);
}

const PAIRS: &str = "
schedule pairs(size = 2) {
    stages D
    place s on s
    block of size every 3 * size {
        F[s, m]  at size * s + m
        BW[s, m] at size * D + 2 * m + 2 * size * (D - 1 - s)
    }
}";

#[test]
fn a_block_of_several_microbatches_is_cut_off_with_the_step() {
    let settings = |size, microbatches| [("devices", 2), ("microbatches", microbatches), ("size", size)];
    let pairs = schedule(PAIRS, &settings(2, 5));
    let expected = [
        "F0.0 F0.1 F0.2 F0.3 BW0.0 BW0.1 F0.4 BW0.2 BW0.3 BW0.4",
        "F1.0 F1.1 BW1.0 BW1.1 F1.2 F1.3 BW1.2 BW1.3 F1.4 BW1.4",
    ];
    assert_eq!(shown(&pairs), expected);
    let one = schedule(PAIRS, &settings(1, 5));
    assert_eq!(shown(&one), shown(&schedule(stdlib::schedule("1f1b").expect("it exists"), &settings(1, 5)[..2])));
    for microbatches in 1..9 {
        let triples = schedule(PAIRS, &settings(3, microbatches));
        assert!(pipe_schedule::check::check(&triples).is_ok(), "{microbatches}");
    }
}

#[test]
fn fill_sees_all_microbatches_of_a_block() {
    let text = "schedule x { stages D place s on s block of 2 every 6 { F[s, m] at 2 * s + m BW[s] fill } }";
    for devices in 1..6 {
        let found = schedule(text, &[("devices", devices)]);
        assert_eq!(pipe_schedule::check::check(&found).map(|_| ()), Ok(()), "{devices}");
        assert_eq!(found.n_tasks(), 16 * usize::try_from(devices).expect("few"));
    }
}

#[test]
fn fill_takes_the_published_slots() {
    let found = schedule(stdlib::schedule("v_min").expect("it exists"), &[("devices", 4)]);
    let slots = found.block.expect("a block").slots;
    let of = |kind| slots.iter().filter(|it| it.kind == kind).map(|it| (it.stage.0, it.slot)).collect::<Vec<_>>();
    assert_eq!(of(TaskKind::BackwardInput)[..2], [(0, 15), (1, 14)]);
    let weights = of(TaskKind::BackwardWeight);
    assert_eq!(weights.len(), 8);
    for device in 0..4 {
        let mut residues: Vec<u64> =
            slots.iter().filter(|it| it.stage.0 == device || it.stage.0 == 7 - device).map(|it| it.slot % 6).collect();
        residues.sort_unstable();
        assert_eq!(residues, [0, 1, 2, 3, 4, 5]);
    }
}

const BY_HAND: &str = "
schedule by_hand(extra = 0) {
    stages D
    place s on s
    order d {
        let warmup = min(D - 1 - d + extra, M)
        let steady = M > warmup
        repeat warmup { F[d] }
        if steady { for k in warmup..M { F[d, k] BW[d] } } else { }
        for k in M - warmup..M { BW[d, k] }
    }
}";

#[test]
fn slices_live_with_their_microbatch_however_its_devices_repeat() {
    // After the first three microbatches the devices repeat; d0, d1, d0, d0 has a shorter period that goes wrong later.
    let order = "if d == 0 { for k in 0..M { if k % 3 != 1 { repeat 2 { F[0, k] } repeat 2 { BW[0, k] } } } }
        else { for k in 0..M { if k % 3 == 1 { repeat 2 { F[0, k] } repeat 2 { BW[0, k] } } } }";
    let place = "stages 1 slices 2 place s, m on if m % 3 == 1 then 1 else 0";
    let text = format!("schedule x {{ {place} order d {{ {order} }} }}");
    for microbatches in 2..=8 {
        let found = schedule(&text, &[("devices", 2), ("microbatches", microbatches)]);
        pipe_schedule::check::placement::check(&found).unwrap_or_else(|wrong| panic!("M = {microbatches}: {wrong:#?}"));
        for own in (0..found.n_microbatches).map(MicrobatchId) {
            let device = u32::from(own.0 / 2 % 3 == 1);
            assert_eq!(found.placement.device(StageId(0), own), DeviceId(device), "M = {microbatches}, {own}");
        }
    }
}

#[test]
fn orders_written_by_hand_equal_the_block() {
    let block = schedule(stdlib::schedule("1f1b").expect("it exists"), &[]);
    assert_eq!(shown(&schedule(BY_HAND, &[])), shown(&block));
    assert_ne!(shown(&schedule(BY_HAND, &[("extra", 1)])), shown(&block));
}

#[test]
fn a_pipeline_says_everything() {
    let text = "
        import std.schedules.gpipe
        param width = 2 * half
        param half = 3
        layer l(n) { input x output x }
        model net(hidden, depth = hidden * 2) { l(hidden) }
        pipeline p {
            model net(width)
            devices 4 memory 1.5MiB
            microbatches 8
            schedule interleaved_1f1b(chunks = half)
            cost F = 1, B = 1.5, comm = 0.1
            require peak <= 0.6 * 1f1b
            require peak <= 2.5
            require memory <= 1MiB
            require bubble <= 0.3
            train { data synthetic steps 10 * half optimizer adamw(0.1 / 2, beta2 = 0.95) warmup 3 minimum 1e-3 }
        }";
    let found = elaborated(text, &[("depth", 9)]).unwrap_or_else(|errors| panic!("{errors:#?}"));
    let pipeline = found.pipeline.expect("a pipeline");
    assert_eq!(found.schedule.n_stages(), 12);
    let model = pipeline.model.expect("a model");
    assert_eq!(
        model.arguments,
        BTreeMap::from([("depth", 9), ("hidden", 6)].map(|(name, value)| (name.to_owned(), Number::whole(value))))
    );
    assert_eq!(pipeline.memory.expect("a memory").0, Bytes(3 << 19).into());
    let costs = pipeline.costs.expect("costs");
    assert_eq!(costs.tasks.map(|ticks| ticks.0 / 100_000), [10, 15, 10, 25, 10, 0]);
    assert_eq!(costs.latency, Some(Ticks(100_000)));
    let ratio = |above, below| Ratio::new(above, below).expect("a ratio");
    let limits: Vec<_> = pipeline.requirements.iter().map(|it| &it.limit).collect();
    assert!(
        matches!(limits[0], Limit::PartOf { factor, schedule: Some(schedule) } if *factor == ratio(3, 5) && schedule.name == "1f1b")
    );
    assert_eq!(
        limits[1..],
        [ratio(5, 2), Ratio::whole(1 << 20), ratio(3, 10)].map(Limit::Number).iter().collect::<Vec<_>>()
    );
    let training = pipeline.training.expect("training");
    assert_eq!((training.steps, training.data), (30, DataSource::Synthetic));
    assert_eq!(training.learning_rate.peak, 0.05);
    let adamw = Optimizer::AdamW { beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.01 };
    assert_eq!(training.optimizer, adamw);
}

fn one_line(items: &str) -> String {
    format!("schedule x {{ stages D place s on s {items} }}")
}

#[test]
fn mistakes_in_expressions_are_shown_with_their_numbers() {
    for (items, message, place) in [
        ("order d { repeat M / (D - 4) { F[d] } }", "division by zero: 8 / 0", "M / (D - 4)"),
        (
            "order d { repeat 9223372036854775807 * M { F[d] } }",
            "9223372036854775807 * 8 does not fit in 64 bits",
            "9223372036854775807 * M",
        ),
        ("order d { repeat N { F[d] } }", "unknown name `N`", "N"),
        ("order d { repeat s { F[d] } }", "`s` has no value here", "s"),
        ("let a = b let b = a + 1 order d { repeat a { F[d] } }", "uses itself", "a"),
        ("order d { repeat M > 1 { F[d] } }", "expected a number, found a condition", "M > 1"),
        ("order d { if M { F[d] } }", "expected a condition, found a number", "M"),
        ("order d { repeat minn(M, 1) { F[d] } }", "unknown function `minn`", "minn"),
        ("order d { F[d + 1] }", "`F` names stage 4, but stages are s0 to s3", "d + 1"),
        ("order d { repeat M + 1 { F[d] } }", "`F` of s0 names microbatch 8, but microbatches are m0 to m7", "F[d]"),
        ("order d { F[d, 0 - 1] }", "`F` of s0 names microbatch -1", "0 - 1"),
        ("order d { for k in 0..90000000 { } }", "the loop has 90000000 turns", "90000000"),
        ("order d { for i in 0..2000000 { for j in 0..2000000 { } } }", "operations to write out", "2000000"),
        ("order d { repeat 2000000 { repeat 9 { F[d, 0] } } }", "tasks or more; at most 10000000", "F[d, 0]"),
        ("block every 0 { F[s] at s BW[s] at 9 }", "a block repeats every 0 slots", "0"),
        ("block every 3 { F[s] at s - 1 BW[s] at 9 }", "F of s0 starts at slot -1", "s - 1"),
        ("slots F = 0 block every 3 { F[s] at s BW[s] at 9 }", "a task takes 0 slots", "0"),
        ("block every 2 { F[s] at s B[s] at 2 * D + 1 - s W[s] fill }", "no free slot for `W` of s3", "W[s] fill"),
        ("let d = 1 order d { F[d] }", "`d` has two meanings", "d"),
        ("order M { F[M] }", "`M` has a fixed meaning", "M"),
        ("stages 3 order d { F[d] }", "sets `stages` twice", "stages 3"),
        ("", "has no `block` or `order`", "x"),
        ("require D == 3 order d { F[d] }", "4 == 3 does not hold", "require D == 3"),
    ] {
        let text = one_line(items);
        let found = errors(&text, &[]);
        let (said, at) = &found[0];
        assert!(said.contains(message) && at == place, "{items}: {found:?}");
    }
}

/// A pipeline with this line, beside whatever it needs.
fn with_line(param: &str, line: &str, microbatches: &str, train: &str) -> String {
    format!(
        "param odd = 7 {param}
        layer l(n) {{ data x: f32[n] weight w: [n] = ones loss reshape(mean(x * w, 0), []) }}
        model net(width = 6 / 2, depth = 1) {{ l(width * depth) }}
        pipeline p {{
            model net{line}
            devices 2
            microbatches {microbatches}
            schedule gpipe
            train {{ data synthetic optimizer sgd(0.1) {train} }}
        }}"
    )
}

#[test]
fn division_is_exact_outside_of_schedules() {
    for (text, place, value) in [
        (with_line("param half = odd / 2", "", "4", "steps 2"), "odd / 2", "7/2"),
        (with_line("", " ", "odd / 2", "steps 2"), "odd / 2", "7/2"),
        (with_line("", " ", "4", "steps odd / 2"), "odd / 2", "7/2"),
        (with_line("", " ", "4", "steps 2 seed max(1, 3 / 2)"), "max(1, 3 / 2)", "3/2"),
        (with_line("", " ", "4", "steps 2 warmup if odd > 1 then 1 / 3 else 0"), "if odd > 1 then 1 / 3 else 0", "1/3"),
    ] {
        let found = errors(&text, &[]);
        let [(message, at)] = &found[..] else { panic!("{text}: {found:?}") };
        assert_eq!((&message[..], &at[..]), (&format!("expected a whole number, found {value}")[..], place));
    }
    let text = with_line("param half = odd / 2 * 2", "(depth = half / 7)", "odd / 2 - odd / 2 % 1", "steps half");
    let found = elaborated(&text, &[]).unwrap_or_else(|errors| panic!("{errors:#?}"));
    assert_eq!(found.schedule.n_microbatches, 3);
    assert_eq!(found.pipeline.and_then(|pipeline| pipeline.training).map(|training| training.steps), Some(7));
    // A schedule, its parameters and the stages that recompute round down.
    let text = "
        schedule halves(n = 7 / 2) { stages n place s on s % D order d { repeat 9 * M / 9 { F[d] BW[d] } } }
        pipeline p { devices 3 microbatches 2 schedule halves(n = 10 / 3) recompute 0..S / 2 }";
    assert_eq!(elaborated(text, &[]).unwrap_or_else(|errors| panic!("{errors:#?}")).schedule.n_stages(), 3);
}

#[test]
fn training_settings_are_exact_in_every_expression() {
    let rate = |text: &str| {
        let text = with_line("", " ", "4", "steps 2").replace("sgd(0.1)", &format!("sgd({text})"));
        let found = elaborated(&text, &[]).map_err(|errors| errors[0].message.clone())?;
        Ok(found.pipeline.and_then(|pipeline| pipeline.training).expect("training").learning_rate.peak)
    };
    for (text, expected) in [
        ("1 / 4", 0.25),
        ("min(1 / 2, 3)", 0.5),
        ("abs(-1 / 8)", 0.125),
        ("if odd / 2 > 3 then 0.5 else 1", 0.5),
        ("max(0.25, 1 / 8) / 2", 0.125),
        ("7 / 2 % 1", 0.5),
    ] {
        assert_eq!(rate(text), Ok(expected), "{text}");
    }
    assert_eq!(rate("1 / (odd - 7)"), Err("division by zero: 1 / 0".to_owned()));
    assert_eq!(rate("0.1 / (1 / 2 - 0.5)"), Err("division by zero: 0.1 / 0".to_owned()));
}

#[test]
fn several_mistakes_are_reported_together() {
    let text = one_line("let u = unknown order d { F[d + 1] BW[d + 9] F[d, M] }");
    assert_eq!(errors(&text, &[]).len(), 1, "names come first");
    let text = one_line("order d { F[d + 1] BW[d + 9] F[d, M] }");
    assert_eq!(errors(&text, &[]).len(), 3);
    let text = "pipeline p { devices 0 microbatches -1 schedule nothing cost F = 0.1234567 train { steps 0 } }";
    assert_eq!(errors(text, &[]).len(), 6);
}

#[test]
fn absurd_sizes_are_refused_before_anything_is_allocated() {
    let gpipe = stdlib::schedule("gpipe").expect("it exists");
    for settings in [
        [("devices", 1 << 40), ("microbatches", 8)],
        [("devices", 4), ("microbatches", 1 << 40)],
        [("devices", 60_000), ("microbatches", 1_000_000)],
        [("devices", 0), ("microbatches", 1)],
        [("devices", 1), ("microbatches", i64::MIN)],
    ] {
        elaborated(gpipe, &settings).expect_err("too much");
    }
    let deep: String = (1..5_000).map(|n| format!("let a{n} = a{} + a{} ", n - 1, n - 1)).collect();
    errors(&one_line(&format!("let a0 = 1 {deep} order d {{ repeat a4999 {{ F[d] }} }}")), &[]);
    let doubling: String = (1..62).map(|n| format!("let a{n} = a{} + a{} ", n - 1, n - 1)).collect();
    let text =
        one_line(&format!("let a0 = d - d {doubling} order d {{ repeat a61 + M {{ F[d] }} repeat M {{ BW[d] }} }}"));
    assert_eq!(schedule(&text, &[]).n_tasks(), 64, "a definition is evaluated once");
}

#[test]
fn settings_and_arguments_must_fit_their_parameters() {
    let text = STANDARD.replace("NAME", "interleaved_1f1b(chunk = 3)");
    assert_eq!(errors(&text, &[])[0].0, "`interleaved_1f1b` has no parameter `chunk`");
    let text = STANDARD.replace("NAME", "interleaved_1f1b(2, 4, 3)");
    assert!(errors(&text, &[])[0].0.contains("takes 2 arguments, found 3"));
    let text = STANDARD.replace("NAME", "interleaved_1f1b(2, 4, 3, 5, 6)");
    assert_eq!(errors(&text, &[]).len(), 1);
    let text = STANDARD.replace("NAME", "interleaved_1f1b");
    assert!(errors(&text, &[("chnks", 3)])[0].0.contains("no parameter `chnks`"));
    assert!(errors(&text, &[("group", 3)])[0].0.contains("does not allow these numbers"));
    assert_eq!(schedule(&text, &[("chunks", 3)]).n_stages(), 12);
}

#[test]
fn targets_must_be_clear() {
    assert!(errors("param a = 1", &[])[0].0.contains("no pipeline and no schedule"));
    let two = format!("{}{}", one_line("order d { }"), one_line("order d { }").replace(" x ", " y "));
    assert!(errors(&two, &[])[0].0.contains("one must be picked: `x`, `y`"));
    let files = load(&two).expect("it parses");
    let pick = |schedule: &str| {
        let request = Request { schedule: Some(schedule.to_owned()), ..Request::default() };
        elaborate(&files, &request).map(|found| found.schedule.name)
    };
    assert_eq!(pick("y"), Ok("y".to_owned()));
    assert_eq!(pick("1f1b"), Ok("1f1b".to_owned()));
    assert_eq!(pick("1f1").expect_err("unknown")[0].help.as_deref(), Some("did you mean `1f1b`?"));
}
