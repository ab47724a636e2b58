//! Tensor-parallel groups: devices that divide a stage learn what one device learns, under every
//! schedule and beside all that pipelines can do.

use pipe_compiler::Request;
use pipe_ir::instruction::{Collective, Instruction};
use pipe_ir::program::{Body, Program};
use pipe_ir::text;
use pipe_ir::value::ValueKind;
use pipe_ir::verify::{Verified, verify};
use pipe_runtime::checkpoint::{resume, save, state, to_bytes};
use pipe_tests::cases::{compile_text, read, root};
use pipe_tests::layouts::verified as compiled;
use pipe_tests::learned::{apart, learned, verified, verified_beside};
use pipe_tests::ranks::{join, on_ranks};
use pipe_tests::slice::takes_all;
use pipe_tests::training::{assert_peaks, losses, start, steps};
use std::path::Path;
use std::sync::Arc;

const GPT: &str = "gpt(vocab = 24, hidden = 16, heads = 4, blocks = 2, sequence = 8, rows = 2)";
const LLAMA: &str = "llama(vocab = 24, hidden = 16, heads = 4, blocks = 2, sequence = 8, rows = 2)";
const EXPERTS: &str = "llama(vocab = 24, hidden = 16, heads = 4, blocks = 2, sequence = 8, rows = 2, experts = 4, shared = 8, balance = 0.1)";

#[test]
fn groups_learn_what_single_devices_learn() {
    let cases = [
        (GPT, "devices 2 tensor 2 schedule 1f1b"),
        (GPT, "devices 1 tensor 4 schedule gpipe"),
        (LLAMA, "devices 2 tensor 2 schedule zb_h1"),
        (LLAMA, "devices 2 tensor 4 schedule v_half"),
        (EXPERTS, "devices 2 tensor 2 schedule 1f1b"),
        (EXPERTS, "devices 2 tensor 4 schedule zb_h1"),
        ("gpt(vocab = 24, hidden = 16, heads = 2, blocks = 2, sequence = 8)", "devices 2 tensor 4 schedule 1f1b"),
    ];
    for (model, lines) in cases {
        let one = verified(model, "precision f64 devices 1 schedule gpipe");
        let group = verified(model, &format!("precision f64 {lines}"));
        let apart = apart(&one, &group);
        assert!(apart < 1e-9, "{model}, {lines}: {apart:e}");
    }
}

/// Words that devices cannot divide evenly: the last ones of a device are none.
#[test]
fn tables_of_words_have_any_size() {
    let gpt2 = "gpt2(vocab = 23, hidden = 16, heads = 4, blocks = 1, sequence = 8, rows = 2)";
    let llama = "llama(vocab = 21, hidden = 16, heads = 4, blocks = 1, sequence = 8, rows = 2, z_loss = 0.1)";
    let few = "llama(vocab = 5, hidden = 16, heads = 4, blocks = 1, sequence = 8, rows = 2, tied = 1)";
    let cases = [
        (gpt2, "devices 2 tensor 2 schedule zb_h1"),
        (gpt2, "devices 2 tensor 2 zero 2 schedule chimera"),
        (llama, "devices 2 tensor 4 recompute all schedule 1f1b"),
        (llama, "devices 1 tensor 2 schedule seq_1f1b(slices = 2)"),
        (few, "devices 2 tensor 4 schedule v_half"),
    ];
    for (model, lines) in cases {
        let one = verified(model, "precision f64 devices 1 schedule gpipe");
        let group = verified(model, &format!("precision f64 {lines}"));
        let apart = apart(&one, &group);
        assert!(apart < 1e-9, "{model}, {lines}: {apart:e}");
        let written = text::print(group.program());
        assert!(written.contains(" padding "), "{lines}");
        let read = text::check(&written).unwrap_or_else(|errors| panic!("{errors:?}"));
        assert_eq!(read.program(), group.program());
    }
    // No token behind the last one of the table.
    let folder = std::env::temp_dir().join(format!("pipec-padding-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    for (token, is_there) in [(22_u16, true), (23, false)] {
        let bytes: Vec<u8> = std::iter::repeat_n(token.to_le_bytes(), 400).flatten().collect();
        std::fs::write(folder.join("x.bin"), bytes).expect("written");
        let program = compiled(&format!(
            "import std.models.gpt
            pipeline p {{
                model {gpt2}
                devices 2
                tensor 2
                microbatches 4
                schedule 1f1b
                train {{ data \"x.bin\" steps 1 optimizer sgd(learning_rate = 0.01) }}
            }}"
        ));
        let data = pipe_runtime::data::Data::open(program.program(), &folder);
        assert_eq!(data.is_ok(), is_there, "{token}");
    }
    let _ = std::fs::remove_dir_all(&folder);
}

/// What lies between the matrices is divided along the sequence, with less of it on each device.
#[test]
fn sequences_are_divided() {
    for model in [GPT, LLAMA, EXPERTS] {
        let divided = model.replace(')', ", sequence_parallel = 1)");
        let one = verified(model, "precision f64 devices 1 schedule gpipe");
        let whole = verified(model, "precision f64 devices 2 tensor 2 schedule zb_h1");
        let group = verified(&divided, "precision f64 devices 2 tensor 2 schedule zb_h1");
        let apart = apart(&one, &group);
        assert!(apart < 1e-9, "{model}: {apart:e}");
        let of = |program: &Verified, kinds: &[ValueKind]| {
            let values = program.program().values.iter().filter(|value| kinds.contains(&value.kind));
            values.map(|value| value.bytes.0).sum::<u64>()
        };
        let (flows, saved) = ([ValueKind::Activation], [ValueKind::SavedForInput, ValueKind::SavedForWeight]);
        assert!(of(&group, &flows) * 3 < of(&whole, &flows) * 2, "{model}");
        // Experts work on all rows, whoever has them.
        assert!(model == EXPERTS || of(&group, &saved) < of(&whole, &saved), "{model}");
        let alone = verified(&divided, "precision f64 devices 1 schedule gpipe");
        assert!(learned(&alone, None) == learned(&one, None), "without a group nothing is divided");
    }
}

/// The example's layers: heads are made of parts of the sequence, and tokens go to their experts, by all-to-all.
#[test]
fn what_is_split_otherwise_goes_from_each_to_all() {
    let text = read(&root().join("examples/expert_parallel.pipe"));
    let layers = text.split("\npipeline").next().expect("layers");
    let model = "mixture(hidden = 16, heads = 4, experts = 4, blocks = 2, sequence = 16, rows = 2)";
    let verified = |lines: &str| verified_beside(layers, model, lines);
    let one = verified("precision f64 devices 1 schedule gpipe");
    let count = |program: &Program| {
        let step = &program.devices[0].step;
        let is_one =
            |one: &&Instruction| matches!(one, Instruction::CollStart { collective: Collective::AllToAll, .. });
        step.iter().filter(is_one).count()
    };
    let all = [
        "devices 2 tensor 2 schedule 1f1b",
        "devices 2 tensor 4 schedule zb_h1",
        "devices 1 tensor 2 recompute all schedule gpipe",
        "devices 2 tensor 2 data 2 microbatches 2 zero 2 schedule 1f1b",
    ];
    for lines in all {
        let group = verified(&format!("precision f64 {lines}"));
        let apart = apart(&one, &group);
        assert!(apart < 1e-9, "{lines}: {apart:e}");
    }
    // Queries, keys, values and what comes of them; to the experts and back; and as many backwards.
    let group = verified("devices 1 tensor 2 schedule gpipe");
    assert_eq!(count(group.program()), 4 * 2 * 2 * (4 + 2));
    let first = learned(&group, None);
    let ranks = on_ranks(2, |job| {
        let mut run = join(&group, Some(3), &job);
        let reports = steps(&mut run, 0..3);
        let all = losses(&reports).into_iter().flatten().map(|(_, loss)| f64::from_bits(loss));
        if run.is_first() { all.collect() } else { Vec::new() }
    });
    assert_eq!(ranks.concat(), first.losses, "on two ranks");
}

#[test]
fn twenty_steps_in_single_precision_stay_close() {
    let (one, group) = (verified(GPT, "devices 1 schedule gpipe"), verified(GPT, "devices 2 tensor 2 schedule 1f1b"));
    let mean = |program| {
        let reports = steps(&mut start(program, None), 0..20);
        let all = losses(&reports).into_iter();
        all.map(|step| step.iter().map(|(_, loss)| f64::from_bits(*loss)).sum::<f64>() / step.len() as f64)
            .collect::<Vec<f64>>()
    };
    for (step, (a, b)) in mean(&one).iter().zip(mean(&group)).enumerate() {
        assert!((a - b).abs() <= 1e-5 * a.abs(), "step {step}: {a} and {b}");
    }
}

/// With everything else that a pipeline can say. Measured peaks are the compiled ones.
#[test]
fn groups_go_with_all_else() {
    let all = [
        "devices 4 schedule chimera",
        "devices 4 zero 1 schedule chimera",
        "devices 4 zero 2 schedule chimera",
        "devices 4 zero 3 schedule chimera",
        "devices 2 recompute all schedule 1f1b",
        "devices 2 recompute F[s, m] if m == 1 schedule 1f1b",
        "devices 2 offload optimizer schedule 1f1b",
        "devices 2 offload parameters schedule 1f1b",
        "devices 2 offload activations schedule 1f1b",
        "devices 2 schedule seq_1f1b",
        "devices 1 schedule seq_1f1b(slices = 4)",
        "devices 2 schedule interleaved_1f1b(chunks = 2)",
        "devices 2 frozen s if s == 0 schedule 1f1b",
    ];
    let all = if takes_all() { &all[..] } else { &all[3..] };
    for lines in all {
        let one = verified(GPT, &format!("precision f64 {lines}"));
        let group = verified(GPT, &format!("precision f64 tensor 2 {lines}"));
        let apart = apart(&one, &group);
        assert!(apart < 1e-9, "{lines}: {apart:e}");
    }
}

#[test]
fn a_run_repeats_bit_for_bit() {
    let program = verified(EXPERTS, "devices 2 tensor 2 schedule zb_h1");
    let first = learned(&program, None);
    assert!(first == learned(&program, Some(7)), "with other delays");
    let ranks = on_ranks(4, |job| {
        let mut run = join(&program, Some(3), &job);
        let reports = steps(&mut run, 0..3);
        let all = losses(&reports).into_iter().flatten().map(|(_, loss)| f64::from_bits(loss));
        if run.is_first() { all.collect() } else { Vec::new() }
    });
    assert_eq!(ranks.concat(), first.losses, "on four ranks");
}

/// Two all-reduces forward and two backward for each block, and as many of the first and last layer as they need.
#[test]
fn no_more_is_exchanged_than_megatron_does() {
    let counts = |model: &str, blocks: u32| {
        let model = model.replace("blocks = 2", &format!("blocks = {blocks}"));
        let program = verified(&model, "devices 1 tensor 2 schedule gpipe");
        let of = |which: Collective| {
            let step = &program.program().devices[0].step;
            let is_one =
                |one: &&Instruction| matches!(one, Instruction::CollStart { collective, .. } if *collective == which);
            step.iter().filter(is_one).count() / 4
        };
        [Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather].map(of)
    };
    let more = |model: &str| {
        let (few, many) = (counts(model, 2), counts(model, 3));
        [0, 1, 2].map(|kind| many[kind] - few[kind])
    };
    assert_eq!((more(GPT), more(LLAMA)), ([4, 0, 0], [4, 0, 0]));
    // The embedding, the target's logit, the sums of exponentials; backwards the head's input.
    assert_eq!(counts(GPT, 2), [2 * 4 + 3, 0, 1]);
}

/// A checkpoint of a group fits one device, and the other way round, and is the same file however many ranks save it.
#[test]
fn checkpoints_fit_every_division() {
    let folder = std::env::temp_dir().join(format!("pipec-tensor-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let layouts =
        ["devices 1 schedule gpipe", "devices 2 tensor 2 schedule 1f1b", "devices 2 tensor 4 zero 2 schedule chimera"];
    for model in [GPT, "gpt2(vocab = 23, hidden = 16, heads = 4, blocks = 2, sequence = 8, rows = 2)"] {
        fit_every_division(model, &layouts, &folder);
    }
}

fn fit_every_division(model: &str, layouts: &[&str], folder: &Path) {
    let programs: Vec<_> = layouts.iter().map(|lines| verified(model, &format!("precision f64 {lines}"))).collect();
    let file = |program: &Arc<Verified>, folder: &Path| {
        let mut run = start(program, None);
        steps(&mut run, 0..2);
        save(folder, &state(&run, 2).expect("read")).expect("saved")
    };
    for (index, from) in programs.iter().enumerate() {
        let folder = folder.join(index.to_string());
        let path = file(from, &folder);
        for to in &programs {
            let mut run = start(to, None);
            assert_eq!(resume(&mut run, &path).expect("fits"), 2);
            let (again, saved) = (state(&run, 2).expect("read"), pipe_runtime::checkpoint::load(&path).expect("sound"));
            assert_eq!(again.tensors.len(), saved.tensors.len());
            for tensor in &saved.tensors {
                let found = again.tensors.iter().find(|other| other.name == tensor.name).expect("a tensor");
                assert!(found == tensor, "{} of layout {index}", tensor.name);
            }
        }
    }
    // By four ranks: parts of tensors in several files.
    let one = start(&programs[1], None);
    let expected = to_bytes(&state(&one, 0).expect("read")).expect("a file");
    let shards = folder.join("shards");
    let paths = on_ranks(4, |job| {
        let run = join(&programs[1], None, &job);
        let home =
            pipe_runtime::checkpoint::Home::take(&shards, Some(&job), &pipe_runtime::checkpoint::Terms::default());
        pipe_runtime::checkpoint::write(&run, 0, &home.expect("a folder")).expect("saved")
    });
    let loaded = pipe_runtime::checkpoint::load(&paths[0]).expect("sound");
    let own = pipe_runtime::checkpoint::from_bytes(&expected).expect("sound");
    let by_name = |state: &pipe_runtime::checkpoint::State| {
        let mut all = state.tensors.clone();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    };
    assert!(by_name(&loaded) == by_name(&own));
    let _ = std::fs::remove_dir_all(folder);
}

#[test]
fn groups_that_a_schedule_places_are_the_same() {
    let schedule = "schedule in_groups {
        stages D / 2
        place s on 2 * s..2 * s + 2
        block every 3 { F[s] at s  BW[s] at S + 2 * (S - 1 - s) }
    }";
    let text = format!(
        "import std.models.gpt {schedule}
        pipeline p {{
            model {GPT} devices 4 microbatches 4 schedule in_groups
            train {{ data synthetic steps 3 optimizer adamw(learning_rate = 0.01) }}
        }}"
    );
    let (compilation, _) = compile_text("x.pipe", &text, Path::new("."), &Request::default());
    let placed = Arc::new(compilation.program.unwrap_or_else(|| panic!("{:#?}", compilation.diagnostics)));
    let line = verified(GPT, "devices 2 tensor 2 schedule 1f1b");
    assert_eq!((placed.program().devices.len(), placed.of_members().program().devices.len()), (2, 4));
    assert!(learned(&placed, None) == learned(&line, None));
}

/// The text says all of it, and every device of a group holds the same bytes.
#[test]
fn programs_of_groups_are_written_and_read() {
    for lines in ["devices 2 tensor 2 schedule zb_h1", "devices 4 tensor 2 zero 3 schedule chimera"] {
        let program = verified(GPT, lines);
        let written = text::print(program.program());
        let read = text::check(&written).unwrap_or_else(|errors| panic!("{errors:?}"));
        assert!(read.program() == program.program());
        let all = read.of_members();
        let devices: Vec<_> = all.program().devices.iter().map(|code| (code.peak, code.arena)).collect();
        assert!(devices.chunks(2).all(|pair| pair[0] == pair[1]), "{devices:?}");
        let mut run = start(&program, None);
        assert_peaks(all.program(), &steps(&mut run, 0..1));
    }
}

/// A program in which an exchange is missing, twice, or of another group is none.
#[test]
fn exchanges_cannot_be_left_out() {
    let program = verified(GPT, "devices 2 tensor 2 schedule 1f1b").program().clone();
    let first = |program: &Program| {
        let is_own = |one: &Instruction| matches!(one, Instruction::CollStart { .. });
        program.devices[0].step.iter().position(is_own).expect("an exchange")
    };
    let refused = |change: &dyn Fn(&mut Program)| {
        let mut damaged = program.clone();
        change(&mut damaged);
        let errors = pipe_ir::verify::verify(damaged).expect_err("refused");
        errors[0].message.clone()
    };
    let without = refused(&|program| {
        let at = first(program);
        let wait = program.devices[0].step.iter().skip(at).position(|one| matches!(one, Instruction::Wait { .. }));
        program.devices[0].step.remove(at + wait.expect("its end"));
        program.devices[0].step.remove(at);
    });
    assert!(without.contains("token") || without.contains("exchanged"), "{without}");
    let elsewhere = refused(&|program| {
        let at = first(program);
        if let Instruction::CollStart { group, .. } = &mut program.devices[0].step[at] {
            group.0 += 1;
        }
    });
    assert!(elsewhere.contains("member"), "{elsewhere}");
    let piece = refused(&|program| {
        let runs = program.devices[0].step.iter().enumerate().filter(|(_, one)| matches!(one, Instruction::Run { .. }));
        let places: Vec<usize> = runs.map(|(index, _)| index).take(2).collect();
        program.devices[0].step.swap(places[0], places[1]);
    });
    assert!(!piece.is_empty());
}

/// Pieces of a task are judged together only where each of them is sound: values and nodes that are not there are told.
#[test]
fn pieces_without_their_values_and_nodes_are_refused() {
    let group = verified(GPT, "devices 2 tensor 2 schedule 1f1b");
    let n_values = group.program().values.len();
    for value in 0..n_values {
        let mut damaged = group.program().clone();
        damaged.values.truncate(value);
        assert!(verify(damaged).is_err(), "{value} of {n_values} values are enough");
    }
    let graphs = group.program().execs.iter().enumerate();
    for (exec, _) in graphs.filter(|(_, exec)| matches!(&exec.body, Body::Graph(graph) if !graph.stores.is_empty())) {
        let mut damaged = group.program().clone();
        if let Body::Graph(graph) = &mut damaged.execs[exec].body {
            graph.nodes.truncate(graph.stores[0].node.index());
        }
        assert!(verify(damaged).is_err(), "@{} stores what is not there", group.program().execs[exec].name());
    }
}

/// A member has some of the experts, and counts as many of their operations.
#[test]
fn experts_are_divided_in_predictions() {
    let flops = |lines: &str| {
        let program = verified(EXPERTS, lines);
        program.program().execs.iter().map(|exec| exec.flops).sum::<u64>()
    };
    for schedule in ["1f1b", "zb_h1"] {
        let one = flops(&format!("devices 2 schedule {schedule}"));
        let two = flops(&format!("devices 2 tensor 2 schedule {schedule}"));
        assert!(two * 10 < one * 7, "{schedule}: {two} of {one}");
    }
}
