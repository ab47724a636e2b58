//! `reads`: stage graphs without a model are those of a model with the same edges.

use pipe_compiler::{Compilation, Request};
use pipe_ir::ids::StageId;
use pipe_tests::cases::compiled;

fn of(text: &str) -> Compilation {
    let found = compiled("reads.pipe", text, &Request::default());
    assert!(found.report.ok, "{:#?} {:?}", found.diagnostics, found.our_mistakes);
    found
}

/// The edges between stages.
fn edges(found: &Compilation) -> Vec<(u32, u32)> {
    let graph = &found.analysis.as_ref().expect("accepted").schedule.graph;
    graph.edges().map(|(from, to)| (from.0, to.0)).collect()
}

const UNET: &str = "schedule unet {
    stages 2 * D place s on min(s, S - 1 - s)
    reads s from if s < D then s - 1 else s - 1, S - 1 - s
    order d { repeat M { F[d] } repeat M { F[S - 1 - d] } repeat M { BW[S - 1 - d] } repeat M { BW[d] } }
}
pipeline p { devices 3 microbatches 4 schedule unet }";

#[test]
fn a_unet_needs_no_model() {
    let found = of(UNET);
    assert_eq!(edges(&found), [(0, 1), (0, 5), (1, 2), (1, 4), (2, 3), (3, 4), (4, 5)]);
    // What d0 keeps for the last stage, and what crosses: the forward of s5 waits for both that it reads.
    let order = &found.analysis.as_ref().expect("accepted").order;
    let inputs = order.dependencies.input_kinds(pipe_ir::task::TaskKind::Forward, StageId(5));
    assert_eq!(inputs.map(|input| input.stage.0).collect::<Vec<_>>(), [0, 4]);
    assert!(found.program.is_some());
}

#[test]
fn tasks_that_come_before_what_they_read_are_refused() {
    let text =
        UNET.replace("repeat M { F[d] } repeat M { F[S - 1 - d] }", "repeat M { F[S - 1 - d] } repeat M { F[d] }");
    let found = compiled("reads.pipe", &text, &Request::default());
    assert!(found.diagnostics.iter().any(|one| one.code.name() == "deadlock"), "{:#?}", found.diagnostics);
}

#[test]
fn a_reference_model_runs_forward_only_beside_the_one_that_trains() {
    let found = of("schedule with_reference {
        stages 2 * D place s on s % D
        frozen s if s < D
        reads s from if s == D then none else if s == S - 1 then s - 1, D - 1 else s - 1
        let warm = min(D - 1 - d, M)
        order d {
            repeat warm { F[d] F[d + D] }
            repeat M - warm { F[d] F[d + D] BW[d + D] }
            repeat warm { BW[d + D] }
        }
    }
    pipeline p { devices 4 microbatches 8 schedule with_reference }");
    assert_eq!(edges(&found), [(0, 1), (1, 2), (2, 3), (3, 7), (4, 5), (5, 6), (6, 7)]);
    let schedule = &found.analysis.as_ref().expect("accepted").schedule;
    assert!((0..8).all(|stage| schedule.frozen.is_frozen(StageId(stage)) == (stage < 4)));
    assert!((0..4).all(|stage| !schedule.frozen.has_backward(StageId(stage))));
    // 1F1B of the stages that train: device d keeps D - d microbatches.
    let held: Vec<Option<f64>> = found.report.per_device.iter().map(|device| device.peak_activation).collect();
    let of_stages = |count: u32| Some(f64::from(count) / 2.0);
    assert_eq!(held, [4, 3, 2, 1].map(of_stages));
}

#[test]
fn a_frozen_stage_that_nothing_trained_flows_into_runs_forward_only() {
    // s2 reads s0 only, and only s1 trains before the last stage.
    let found = of("schedule forks {
        stages 4 place s on s
        reads s from if s == 2 then 0 else if s == 3 then 1, 2 else s - 1
        order d { repeat M { F[d] } repeat M { BW[d] } }
    }
    pipeline p { devices 4 microbatches 3 schedule forks frozen s if s != 1 }");
    let schedule = &found.analysis.as_ref().expect("accepted").schedule;
    let backward: Vec<bool> = (0..4).map(|stage| schedule.frozen.has_backward(StageId(stage))).collect();
    assert_eq!(backward, [false, true, false, true]);
}

#[test]
fn blocks_fill_in_behind_what_they_read() {
    let found = of("schedule filled {
        stages D place s on s
        reads s from s - 1, s - 2
        block every 3 { F[s] at s B[s] fill W[s] fill }
    }
    pipeline p { devices 4 microbatches 6 schedule filled }");
    assert!(found.report.certificate.is_some());
    assert_eq!(edges(&found), [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)]);
}
