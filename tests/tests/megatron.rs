//! Layouts and tables of Megatron-LM: what is written is what the schedule and its model say, and
//! what Megatron cannot run has none.

use pipe_compiler::Compilation;
use pipe_compiler::megatron::layout::Layout;
use pipe_compiler::megatron::table::Table;
use pipe_syntax::diagnostic::Code;
use pipe_syntax::stdlib;
use pipe_tests::blocks::request;
use pipe_tests::cases::{compile_text, root};

fn compiled(name: &str, text: &str, settings: &[(&str, i64)], layout: Option<&str>) -> Compilation {
    let mut request = request(settings);
    request.choice.layout = layout.map(|text| text.parse().expect("a layout"));
    compile_text(name, text, &root().join("examples"), &request).0
}

#[test]
fn one_forward_one_backward_and_its_interleaved_form_have_tables() {
    for (devices, microbatches, chunks) in [(2, 4, 2), (4, 8, 2), (4, 8, 3), (8, 32, 4)] {
        let sizes = [("devices", devices), ("microbatches", microbatches), ("chunks", chunks)];
        let text = stdlib::schedule("interleaved_1f1b").expect("a standard schedule");
        let analysis = compiled("std:interleaved_1f1b", text, &sizes, None).analysis.expect("it is accepted");
        let table = Table::of(&analysis).expect("Megatron runs it");
        assert_eq!((table.group, table.pairs.len() as i64), (devices as usize, microbatches * chunks));
    }
    let names: Vec<&str> = stdlib::SCHEDULES.iter().map(|(name, _)| *name).collect();
    let has_table = |name: &&str| {
        let text = stdlib::schedule(name).expect("a standard schedule");
        let analysis =
            compiled(name, text, &[("devices", 4), ("microbatches", 8)], None).analysis.expect("it is accepted");
        let found = Table::of(&analysis);
        assert!(found.iter().all(|table| !table.pairs.is_empty()));
        assert!(found.as_ref().err().into_iter().flatten().all(|error| error.code == Code::CannotExport), "{name}");
        found.is_ok()
    };
    assert_eq!(names.into_iter().filter(has_table).collect::<Vec<_>>(), ["1f1b", "interleaved_1f1b"]);
}

/// A schedule of 2 chunks in which groups of microbatches pass a chunk, with the warm-up that
/// Megatron has for them and some more.
fn grouped(group: i64, more: i64, steady: &str) -> String {
    format!(
        "schedule grouped {{\n    stages 2 * D\n    place s on s % D\n    order d {{\n        let warmup = min(2 * (D - 1 - d) + {group} + {more}, 2 * M)\n\
         for k in 0..warmup {{ F[k % {turn} / min({group}, M - k / {turn} * {group}) * D + d] }}\n\
         for k in warmup..2 * M {{ {steady} }}\n\
         for k in 2 * M - warmup..2 * M {{ BW[(1 - k % {turn} / min({group}, M - k / {turn} * {group})) * D + d] }}\n    }}\n}}\n",
        turn = 2 * group,
        steady = steady
            .replace("FORWARD", &format!("F[k % {0} / min({group}, M - k / {0} * {group}) * D + d]", 2 * group))
            .replace(
                "BACKWARD",
                &format!(
                    "BW[(1 - (k - warmup) % {0} / min({group}, M - (k - warmup) / {0} * {group})) * D + d]",
                    2 * group
                )
            ),
    )
}

/// `forward_backward_pipelining_with_interleaving` of Megatron-LM (d98e8a6, August 2026) takes
/// groups from PP to M, and a last group that is whole or has PP microbatches or more.
#[test]
fn groups_that_megatron_refuses_have_no_table() {
    let devices = 4;
    let mut n_tables = 0;
    for microbatches in 4..=20 {
        for group in 1..=microbatches {
            let text = grouped(group, 0, "FORWARD BACKWARD");
            let sizes = [("devices", devices), ("microbatches", microbatches)];
            let compilation = compiled("grouped.pipe", &text, &sizes, None);
            // Small groups wait for each other.
            let Some(analysis) = compilation.analysis.filter(|_| compilation.report.ok) else { continue };
            let table = Table::of(&analysis);
            let rest = microbatches % group;
            let takes = (devices..=microbatches).contains(&group) && (rest == 0 || rest >= devices);
            assert_eq!(table.is_ok(), takes, "{microbatches} microbatches in groups of {group}: {table:?}");
            if let Ok(table) = table {
                assert_eq!((table.group as i64, table.overlaps_experts), (group, false));
                n_tables += 1;
            }
        }
    }
    assert!(n_tables > 60, "{n_tables}");
}

#[test]
fn interleaved_1f1b_takes_the_groups_that_megatron_takes() {
    for (microbatches, group) in [(8, 4), (12, 6), (14, 5), (9, 9)] {
        let sizes = [("devices", 4), ("microbatches", microbatches), ("group", group)];
        let text = stdlib::schedule("interleaved_1f1b").expect("a standard schedule");
        let analysis = compiled("std:interleaved_1f1b", text, &sizes, None).analysis.expect("it is accepted");
        let table = Table::of(&analysis).expect("Megatron runs it");
        assert_eq!(table.options(), format!("--microbatch-group-size-per-virtual-pipeline-stage {group}"));
        let sizes = [("devices", 4), ("microbatches", microbatches)];
        let by_hand = compiled("grouped.pipe", &grouped(group, 0, "FORWARD BACKWARD"), &sizes, None);
        assert_eq!(Table::of(by_hand.analysis.as_ref().expect("it is accepted")), Ok(table));
    }
    for (microbatches, group) in [(8, 3), (8, 9)] {
        let sizes = [("devices", 4), ("microbatches", microbatches), ("group", group)];
        let text = stdlib::schedule("interleaved_1f1b").expect("a standard schedule");
        let codes: Vec<Code> =
            compiled("std:interleaved_1f1b", text, &sizes, None).diagnostics.iter().map(|found| found.code).collect();
        let is_refused = !codes.is_empty() && codes.iter().all(|code| *code == Code::ConditionFailed);
        assert!(is_refused, "{microbatches} in groups of {group}: {codes:?}");
    }
    // A last group of two microbatches is a schedule, but not one that Megatron runs on four ranks.
    let text = stdlib::schedule("interleaved_1f1b").expect("a standard schedule");
    let sizes = [("devices", 4), ("microbatches", 14), ("group", 6)];
    let analysis = compiled("std:interleaved_1f1b", text, &sizes, None).analysis.expect("it is accepted");
    assert!(Table::of(&analysis).is_err());
}

/// `get_pp_rank_microbatches`: the overlap of experts' all-to-all has one forward more in the warm-up.
#[test]
fn the_overlap_of_experts_has_a_longer_warm_up() {
    let table = |more: i64, steady: &str| {
        let sizes = [("devices", 4), ("microbatches", 8)];
        let compilation = compiled("grouped.pipe", &grouped(4, more, steady), &sizes, None);
        Table::of(&compilation.analysis.unwrap_or_else(|| panic!("{:?}", compilation.diagnostics)))
    };
    for steady in ["FORWARD BACKWARD", "FORWARD & BACKWARD"] {
        let table = table(1, steady).expect("Megatron runs it");
        assert_eq!(
            table.options(),
            "--microbatch-group-size-per-virtual-pipeline-stage 4 --overlap-moe-expert-parallel-comm"
        );
    }
    let refusal =
        |more: i64, steady: &str| table(more, steady).expect_err("Megatron does not run it")[0].message.clone();
    let pairs = "if d < D - 1 { FORWARD & BACKWARD } else { FORWARD BACKWARD }";
    assert!(refusal(0, pairs).contains("at once with a backward, and Megatron one after the other"));
    assert!(refusal(2, "FORWARD BACKWARD").contains("with groups of 4"));
}

const PIPELINE: &str = "pipeline p {\n    model \"llama3_70b.json\"(sequence = 4096, tensor = 8)\n    devices 8\n    microbatches 8\n    schedule 1f1b\n}\n";

#[test]
fn layouts_of_models_come_back() {
    let own = compiled("p.pipe", PIPELINE, &[], None);
    let layout = Layout::of(own.analysis.as_ref().expect("it is judged")).expect("it has a layout");
    assert_eq!(layout.layers.iter().sum::<u64>(), 80);
    let text = "Et*9|(t*10|)*6,t*11,L";
    let given = compiled("p.pipe", PIPELINE, &[], Some(text));
    let again = Layout::of(given.analysis.as_ref().expect("it is judged")).expect("it has a layout");
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
