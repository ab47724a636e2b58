//! Layouts and tables of Megatron-LM: what is written is what the schedule and its model say, and what Megatron cannot run has none.

use pipe_compiler::diagnostic::Code;
use pipe_compiler::megatron::layout::Layout;
use pipe_compiler::megatron::table::Table;
use pipe_compiler::{Compilation, Request, elaborate, stdlib};
use pipe_tests::cases::{compile_text, root};

fn compiled(name: &str, text: &str, settings: &[(&str, i64)], layout: Option<&str>) -> Compilation {
    let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    let layout = layout.map(|text| text.parse().expect("a layout"));
    let choice = elaborate::Request { settings, layout, ..elaborate::Request::default() };
    compile_text(name, text, &root().join("examples"), &Request { choice, ..Request::default() }).0
}

#[test]
fn one_forward_one_backward_and_its_interleaved_form_have_tables() {
    for (devices, microbatches, chunks) in [(2, 4, 2), (4, 8, 2), (4, 8, 3), (8, 32, 4)] {
        let sizes = [("devices", devices), ("microbatches", microbatches), ("chunks", chunks)];
        let text = stdlib::schedule("interleaved_1f1b").expect("a standard schedule");
        let judged = compiled("std:interleaved_1f1b", text, &sizes, None).judged.expect("it is accepted");
        let table = Table::of(&judged).expect("Megatron runs it");
        assert_eq!((table.group, table.pairs.len() as i64), (devices as usize, microbatches * chunks));
    }
    let names: Vec<&str> = stdlib::SCHEDULES.iter().map(|(name, _)| *name).collect();
    let has_table = |name: &&str| {
        let text = stdlib::schedule(name).expect("a standard schedule");
        let judged = compiled(name, text, &[("devices", 4), ("microbatches", 8)], None).judged.expect("it is accepted");
        let found = Table::of(&judged);
        assert!(found.iter().all(|table| !table.pairs.is_empty()));
        assert!(found.as_ref().err().into_iter().flatten().all(|error| error.code == Code::CannotExport), "{name}");
        found.is_ok()
    };
    assert_eq!(names.into_iter().filter(has_table).collect::<Vec<_>>(), ["1f1b", "interleaved_1f1b"]);
}

const PIPELINE: &str = "pipeline p {\n    model \"llama3_70b.json\"(sequence = 4096, tensor = 8)\n    devices 8\n    microbatches 8\n    schedule 1f1b\n}\n";

#[test]
fn layouts_of_models_come_back() {
    let own = compiled("p.pipe", PIPELINE, &[], None);
    let layout = Layout::of(own.judged.as_ref().expect("it is judged")).expect("it has a layout");
    assert_eq!(layout.layers.iter().sum::<u64>(), 80);
    let text = "Et*9|(t*10|)*6,t*11,L";
    let given = compiled("p.pipe", PIPELINE, &[], Some(text));
    let again = Layout::of(given.judged.as_ref().expect("it is judged")).expect("it has a layout");
    assert_eq!(again.layers, [9, 10, 10, 10, 10, 10, 10, 11]);
    assert_eq!(again.to_string(), "Et*9|(t*10|)*6t*11L");
}

#[test]
fn layouts_that_do_not_fit_are_refused() {
    let codes = |compilation: &Compilation| compilation.diagnostics.iter().map(|found| found.code).collect::<Vec<_>>();
    assert_eq!(codes(&compiled("p.pipe", PIPELINE, &[], Some("Et*9|L"))), [Code::TooFewLayers]);
    let text = stdlib::schedule("1f1b").expect("a standard schedule");
    assert_eq!(codes(&compiled("std:1f1b", text, &[], Some("Ett|ttL"))), [Code::WrongArguments]);
}
