//! ZeRO, stage 3: weights that devices keep in shares are gathered for the tasks that read them, in
//! time and in as little memory as was said.

use pipe_compiler::Request;
use pipe_compiler::report::Report;
use pipe_ir::units::Bytes;
use pipe_ir::verify::Verified;
use pipe_tests::cases::compile_text;
use pipe_tests::pipelines::{gpt, verified};
use pipe_tests::shared::{SIZES, STAGED, gatherings, learn};
use std::path::Path;

/// Three devices with all stages of a model, whatever `line` says of them.
fn staged(blocks: u32, devices: &str, line: &str) -> String {
    let sizes = format!("vocab = 17, hidden = 32, heads = 2, blocks = {blocks}, sequence = 4, rows = 1");
    let text = gpt(&sizes, 3, 3, &format!("staged {line}")).replace("devices 3 memory 4GiB", devices);
    text.replacen("pipeline", &format!("{STAGED} pipeline"), 1)
}

fn compiled(text: &str) -> (Report, Verified) {
    let (compilation, _) = compile_text("x.pipe", text, Path::new("."), &Request::default());
    let program = compilation.program.unwrap_or_else(|| panic!("{:#?}", compilation.diagnostics));
    (compilation.report, program)
}

/// What the fullest device takes, in KiB.
fn arena(program: &Verified) -> u64 {
    program.program().devices.iter().map(|code| code.arena.0).max().unwrap_or_default().div_ceil(1024)
}

/// Weights are there for the forward of their stage and for the backward: those of the stage with
/// the loss once for both, and those of the embedding once, because its backward reads none.
#[test]
fn weights_come_once_for_each_run_and_hide_behind_the_task_before() {
    let cost = "cost F = 1, BW = 2, comm = 0.5 zero";
    let [(two, _), (three, program)] = [2, 3].map(|zero| compiled(&staged(4, "devices 3", &format!("{cost} {zero}"))));
    let each = 6 + 4;
    assert_eq!(gatherings(program.program()), 3 * each);
    // One `comm` stands before the first task instead of behind the last; the other one is that of the last sum.
    assert_eq!([two, three].map(|report| report.figures.makespan), [Some(19.0); 2]);
    // Where memory lacks for that, every gathering is waited for.
    let less = arena(&program) - 1;
    let (tight, program) = compiled(&staged(4, &format!("devices 3 memory {less}KiB"), &format!("{cost} 3")));
    assert_eq!((gatherings(program.program()), tight.figures.makespan), (3 * each, Some(18.0 + 10.0 * 0.5 + 0.5)));
    assert!(arena(&program) <= less);
    let own = &tight.zero.expect("it divides").per_device[0];
    assert_eq!((own.gatherings, own.parameter_bytes < own.undivided_parameter_bytes / 2), (each, true));
}

#[test]
fn activations_leave_while_weights_are_gathered() {
    for (schedule, stress) in [("chimera", 4), ("dualpipe", 5)] {
        let text = |line: &str| gpt(SIZES, 4, 8, &format!("{schedule} {line}")).replace(" memory 4GiB", "");
        let [plain, divided, away] = ["", "zero 3", "zero 3 offload activations"].map(|line| verified(&text(line)));
        let (expected, found) = (learn(&plain, None, 3), learn(&away, Some(stress), 3));
        assert_eq!((expected.losses, expected.tensors), (found.losses, found.tensors), "{schedule}");
        assert!(away.program().devices.iter().any(|code| code.host.peak > Bytes::ZERO), "{schedule}");
        let fullest = |program: &Verified| program.program().devices.iter().map(|code| code.peak).max();
        assert!(fullest(&away) < fullest(&divided), "{schedule}");
    }
}

#[test]
fn the_error_names_zero_3_where_less_is_not_enough() {
    let [two, three] = ["zero 2", "zero 3"].map(|line| arena(&verified(&staged(10, "devices 3", line))));
    assert!(three < two, "{three} {two}");
    let source = staged(10, &format!("devices 3 memory {three}KiB"), "");
    let (compilation, _) = compile_text("x.pipe", &source, Path::new("."), &Request::default());
    let help: Vec<_> = compilation.diagnostics.iter().filter_map(|found| found.help.as_deref()).collect();
    assert!(help.iter().any(|help| help.contains("`zero 3` would fit: d0 then needs ")), "{help:?}");
}
