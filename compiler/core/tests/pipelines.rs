//! Whole files with a model: what is wrong is found at the marked lines, and what is right becomes a sound program.

use pipe_compiler::analyze::analyze;
use pipe_compiler::elaborate;
use pipe_ir::program::Program;
use pipe_ir::verify::verify;
use pipe_lower::{Options, lower};
use pipe_model::stage_set;
use pipe_schedule::check;
use pipe_syntax::diagnostic::{Code, Diagnostics};
use pipe_syntax::files;
use pipe_syntax::source::{Source, Sources};

/// The program of a file's pipeline, or everything that is wrong, each with its line.
fn program(text: &str) -> Result<Program, Vec<(Code, u32)>> {
    let mut sources = Sources::default();
    let root = Source { name: "test.pipe".into(), text: text.into() };
    compile(&mut sources, root).map_err(|found| {
        let place = |span: pipe_syntax::source::Span| sources.line_column(span.file, span.start).0;
        found.iter().map(|diagnostic| (diagnostic.code, place(diagnostic.labels[0].span))).collect()
    })
}

fn compile(sources: &mut Sources, root: Source) -> Result<Program, Diagnostics> {
    let files = files::load(sources, root, &|path| Err(format!("no {path} here")))?;
    let mut elaborated = elaborate::elaborate(&files, &elaborate::Request::default())?;
    let set = stage_set(&files, &elaborated)?;
    elaborated.schedule.graph = set.graph.clone();
    let order = check::check(&elaborated.schedule)?;
    let analysis = analyze(&files, elaborated, order, &set, &pipe_compiler::Request::default());
    let training = analysis.pipeline.as_ref().and_then(|pipeline| pipeline.training.clone());
    let options = Options { training, ..Options::default() };
    Ok(lower(&analysis.schedule, &analysis.timeline, &set, &options))
}

/// The lines that a case marks.
fn marked(text: &str) -> Vec<(Code, u32)> {
    let lines = text.lines().zip(1..).filter_map(|(line, number)| Some((line.split_once("//~ ")?.1.trim(), number)));
    let code = |name: &str| Code::ALL.iter().copied().find(|code| code.name() == name).expect("a code");
    lines.map(|(name, number)| (code(name), number)).collect()
}

#[test]
fn every_mistake_is_found_at_its_line() {
    for text in [
        include_str!("../../../tests/ui/shape-mismatch/product_the_wrong_way_round.pipe"),
        include_str!("../../../tests/ui/shape-mismatch/every_kind_at_once.pipe"),
        include_str!("../../../tests/ui/shape-mismatch/two_shapes_of_one_data_tensor.pipe"),
        include_str!("../../../tests/ui/unused-tensor/bias_is_forgotten.pipe"),
        include_str!("../../../tests/ui/unused-tensor/input_is_ignored.pipe"),
        include_str!("../../../tests/ui/broken-chain/first_layer_wants_an_input.pipe"),
        include_str!("../../../tests/ui/broken-chain/no_loss.pipe"),
        include_str!("../../../tests/ui/broken-chain/after_the_loss.pipe"),
        include_str!("../../../tests/ui/too-few-layers/four_stages_of_two_layers.pipe"),
    ] {
        assert_eq!(program(text).expect_err("a mistake"), marked(text), "{text}");
    }
}

#[test]
fn pages_show_what_they_say() {
    for code in [Code::ShapeMismatch, Code::UnusedTensor, Code::BrokenChain, Code::TooFewLayers] {
        let mut blocks = code.page().split("```pipe\n").skip(1).map(|rest| rest.split("```").next().expect("text"));
        let found = program(blocks.next().expect("an example")).expect_err("the example is wrong");
        assert!(found.iter().all(|(other, _)| *other == code), "{code}: {found:?}");
        let fixed = program(blocks.next().expect("a fix"));
        assert!(fixed.is_ok(), "{code}: {:?}", fixed.err());
    }
}

#[test]
fn a_gpt_becomes_a_sound_program_under_every_standard_schedule() {
    for (schedule, _) in pipe_syntax::stdlib::SCHEDULES {
        for optimizer in ["sgd(learning_rate = 0.1)", "adamw(learning_rate = 0.1)"] {
            let text = format!(
                "import std.models.gpt
                 pipeline p {{
                     model gpt(vocab = 16, hidden = 8, heads = 2, blocks = 6, sequence = 4, rows = 2)
                     devices 4
                     microbatches 8
                     schedule {schedule}
                     train {{ data synthetic  steps 4  optimizer {optimizer} }}
                 }}"
            );
            let program = program(&text).unwrap_or_else(|found| panic!("{schedule}: {found:?}"));
            assert!(program.values.iter().all(|value| value.bytes.0 > 0));
            verify(program).unwrap_or_else(|errors| panic!("{schedule}: {errors:?}"));
        }
    }
}
