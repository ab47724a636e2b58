//! Frozen stages: tasks that are not there drop out of every schedule, and what is left learns what the same weights
//! learn on one device.

use pipe_compiler::{Compilation, Request};
use pipe_ir::ids::{MicrobatchId, StageId};
use pipe_ir::task::TaskKind;
use pipe_ir::value::ValueKind;
use pipe_ir::verify::Verified;
use pipe_tests::cases::compiled;
use pipe_tests::pipelines::verified;
use pipe_tests::training::{assert_peaks, bits, learn, losses, start, steps};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A model of eight layers, of which those before `frozen` stay as they are.
fn text(frozen: usize, devices: u32, lines: &str) -> String {
    let layers: Vec<String> =
        (0..6).map(|layer| format!("dense(12){}", if layer + 1 < frozen { " frozen" } else { "" })).collect();
    let first = if frozen > 0 { " frozen" } else { "" };
    format!(
        "layer words(vocab, n) {{
            data tokens: i32[4, 6]
            weight table: [vocab, n] = normal(1)
            output gather(table, tokens)
        }}
        layer dense(n) {{
            input x
            weight matrix: [n, n] = normal(0.3)
            output x + gelu(matmul(x, matrix))
        }}
        layer guess(n, vocab) {{
            input x
            data targets: i32[4, 6]
            weight matrix: [n, vocab] = normal(0.3)
            loss cross_entropy(matmul(x, matrix), targets)
        }}
        model net {{ words(17, 12){first} {} guess(12, 17) }}
        pipeline test {{
            model net
            precision f64
            devices {devices}
            microbatches 6
            {lines}
            train {{ data synthetic steps 4 optimizer adamw(learning_rate = 0.01, weight_decay = 0.1) }}
        }}",
        layers.join(" ")
    )
}

/// Every kind of task of each stage that a program runs.
fn kinds(found: &Compilation) -> Vec<BTreeSet<&'static str>> {
    let schedule = &found.analysis.as_ref().expect("accepted").schedule;
    let mut all = vec![BTreeSet::new(); schedule.n_stages()];
    for task in schedule.orders.iter().flatten().map(|one| one.task) {
        all[task.stage.index()].insert(task.kind.letters());
    }
    all
}

#[test]
fn stages_frozen_by_a_line_are_as_their_layers_frozen_in_the_model() {
    for (devices, cut, schedule, frozen_stages, frozen) in [
        (4, "cut [2, 2, 2, 2]", "schedule 1f1b", "s if s < 2", 4),
        (4, "cut [2, 2, 2, 2]", "schedule zb_h1", "s if s == 0", 2),
        (4, "cut [3, 1, 2, 2]", "schedule gpipe recompute all", "s if s <= 1", 4),
        (2, "cut [2, 2, 2, 2]", "schedule v_half", "s if s < D", 4),
        (2, "cut [2, 2, 2, 2]", "schedule interleaved_1f1b(chunks = 2)", "s if s < S / 4 + 1", 4),
        (4, "cut [4, 4]", "schedule dp_1f1b(replicas = 2) zero 1", "s if s == 0", 4),
    ] {
        let alone = learn(&verified(&text(frozen, 1, "schedule gpipe")), None);
        let by_line = verified(&text(0, devices, &format!("{cut} {schedule} frozen {frozen_stages}")));
        let by_line = learn(&by_line, Some(5));
        assert!(by_line == learn(&verified(&text(frozen, devices, &format!("{cut} {schedule}"))), None), "{schedule}");
        // Replicas add up gradients in another order.
        assert!(by_line == alone || schedule.contains("replicas"), "{schedule}");
    }
}

#[test]
fn frozen_stages_keep_their_bits_and_take_neither_gradients_nor_state() {
    let program = verified(&text(0, 4, "cut [2, 2, 2, 2] schedule zb_h1 frozen s if s % 2 == 1"));
    let mut run = start(&program, Some(3));
    let before = bits(&run, ValueKind::Parameters);
    let reports = steps(&mut run, 0..3);
    assert_peaks(program.program(), &reports);
    let after = bits(&run, ValueKind::Parameters);
    let changed: Vec<bool> = before.iter().zip(&after).map(|(one, other)| one != other).collect();
    assert_eq!(changed.iter().filter(|changed| **changed).count(), 4);
    let with = |kind| {
        let values = program.program().values.iter().filter(move |value| value.kind == kind);
        values.map(|value| value.stage).collect::<BTreeSet<_>>()
    };
    let trained: BTreeSet<StageId> = [0, 2].map(StageId).into();
    for kind in [ValueKind::ParameterGradients, ValueKind::OptimizerState] {
        assert_eq!(with(kind), trained);
    }
    assert_eq!(with(ValueKind::Parameters).len(), 4);
}

#[test]
fn every_standard_schedule_serves_frozen_stages_and_forwards_alone() {
    for (name, devices) in [
        ("gpipe", 4),
        ("1f1b", 4),
        ("interleaved_1f1b(chunks = 2)", 4),
        ("zb_h1", 4),
        ("zb_v", 4),
        ("v_half", 4),
        ("v_min", 4),
        ("dualpipe", 4),
        ("dualpipe_v", 4),
        ("dp_1f1b(replicas = 2)", 4),
    ] {
        for line in [
            "frozen s if s == 0",
            "frozen s if s % 2 == 1",
            "frozen s if s > 0",
            "frozen all",
            "frozen s if s < S / 2 recompute all",
        ] {
            let text = format!("pipeline p {{ devices {devices} microbatches 8 schedule {name} {line} }}");
            let found = compiled("frozen.pipe", &text, &Request::default());
            assert!(found.report.ok, "{name} {line}: {:#?} {:?}", found.diagnostics, found.our_mistakes);
            let figures = &found.report.figures;
            assert!(figures.lower_bound.is_some() && figures.lower_bound <= figures.makespan, "{name} {line}");
            for (stage, kinds) in kinds(&found).into_iter().enumerate() {
                let schedule = &found.analysis.as_ref().expect("accepted").schedule;
                let frozen = &schedule.frozen;
                let stage = StageId::from_index(stage);
                for kind in TaskKind::ALL.into_iter().filter(|kind| kinds.contains(kind.letters())) {
                    assert!(frozen.needs(kind, stage), "{name} {line}: {} {stage}", kind.letters());
                }
                assert!(kinds.contains("F"));
            }
            if line == "frozen all" {
                assert!(kinds(&found).iter().all(|kinds| kinds.len() == 1));
                assert!(found.report.per_device.iter().all(|device| device.peak_activation == Some(0.0)), "{name}");
            }
        }
    }
}

/// The losses of three steps.
fn losses_of(program: &Arc<Verified>) -> Vec<Vec<(MicrobatchId, u64)>> {
    losses(&steps(&mut start(program, Some(2)), 0..3))
}

/// A schedule that freezes one of its own stages.
fn own(frozen: u32, backward: &str, last: &str) -> String {
    format!(
        "schedule own {{
            stages D
            place s on s
            frozen s if s == {frozen}
            order d {{ repeat M {{ F[d] }} if d == {frozen} {{ {backward} }} else {{ repeat M {{ BW[d] }} }} }}
        }}
        {last}"
    )
}

#[test]
fn a_schedule_freezes_its_own_stages_without_reads_and_beside_a_model() {
    let small = "pipeline t { devices 4 microbatches 4 schedule own }";
    let model = text(0, 4, "schedule own");
    for (frozen, backward) in [(0, ""), (1, "repeat M { B[d] }"), (2, "repeat M { B[d] }"), (3, "repeat M { B[d] }")] {
        for last in [small, &model] {
            let found = compiled("own.pipe", &own(frozen, backward, last), &Request::default());
            let own = if frozen == 0 { BTreeSet::from(["F"]) } else { BTreeSet::from(["F", "B"]) };
            assert_eq!(kinds(&found)[frozen as usize], own, "s{frozen}");
        }
    }
    // What a stage before it needs may not be left out.
    let missing = compiled("own.pipe", &own(2, "", small), &Request::default());
    let found = missing.diagnostics.first().expect("an error");
    assert_eq!(found.code.name(), "missing-task");
    assert_eq!(found.help.as_deref(), Some("add `B` of s2: it is frozen, but a stage before it trains"));
}

#[test]
fn forwards_alone_evaluate() {
    let trained = losses_of(&verified(&text(0, 1, "schedule gpipe")));
    for (devices, line) in [(4, "schedule v_half"), (4, "schedule 1f1b recompute all"), (2, "schedule gpipe")] {
        let program = verified(&text(0, devices, &format!("{line} frozen all")));
        let evaluated = losses_of(&program);
        assert_eq!(evaluated[0], trained[0], "{line}");
        assert!(evaluated[1] != trained[1], "{line}");
        let kept =
            [ValueKind::SavedForInput, ValueKind::SavedForWeight, ValueKind::Gradient, ValueKind::OptimizerState];
        assert!(program.program().values.iter().all(|value| !kept.contains(&value.kind)), "{line}");
    }
}
