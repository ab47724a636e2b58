//! Files of examples: `.npy` and safetensors feed the same run alike, under every layout, and what does not fit is
//! refused with numbers.

use pipe_compiler::Request;
use pipe_ir::instruction::Instruction;
use pipe_ir::program::Program;
use pipe_runtime::data::Data;
use pipe_runtime::numbers::decode;
use pipe_runtime::windows::Steps;
use pipe_runtime::{Backend, Options, Run};
use pipe_tests::cases::compile_text;
use pipe_tests::data_files::{losses_from, npy};
use pipe_tests::layouts::{LAYOUTS, compare, learn, verified};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Examples of a file, with three features each.
const EXAMPLES: usize = 40;

fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("example_files").join(name);
    drop(fs::remove_dir_all(&folder));
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// A safetensors file of tensors: name, type, shape and bytes.
fn safetensors(tensors: &[(&str, &str, &str, &[u8])]) -> Vec<u8> {
    let (mut header, mut data) = (Vec::new(), Vec::new());
    for (name, dtype, shape, bytes) in tensors {
        let (start, end) = (data.len(), data.len() + bytes.len());
        header.push(format!("\"{name}\":{{\"dtype\":\"{dtype}\",\"shape\":{shape},\"data_offsets\":[{start},{end}]}}"));
        data.extend_from_slice(bytes);
    }
    let header = format!("{{{}}}", header.join(","));
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat()
}

/// Feature `f` of an example, which every type of a file has exactly.
fn feature(example: usize, f: usize) -> f32 {
    ((example * 5 + f * 3) % 16) as f32
}

fn label(example: usize) -> u8 {
    (example * example % 7) as u8
}

fn features<const N: usize>(bytes: impl Fn(f32) -> [u8; N]) -> Vec<u8> {
    (0..EXAMPLES).flat_map(|example| (0..3).map(move |f| feature(example, f))).flat_map(bytes).collect()
}

fn labels(width: usize) -> Vec<u8> {
    (0..EXAMPLES).flat_map(|example| u64::from(label(example)).to_le_bytes()[..width].to_vec()).collect()
}

/// A classifier of four layers with residual tanhs, and lines of its pipeline.
fn text(rows: u32, lines: &str, data: &str) -> String {
    format!(
        "layer read(rows) {{
            data x: f32[rows, 3]
            weight matrix: [3, 8] = normal(0.5)
            output matmul(x, matrix)
        }}
        layer dense() {{
            input x
            weight matrix: [8, 8] = normal(0.3)
            output x + tanh(matmul(x, matrix))
        }}
        layer guess(rows) {{
            input x
            data y: i32[rows]
            weight matrix: [8, 7] = normal(0.3)
            loss cross_entropy(matmul(x, matrix), y)
        }}
        model classifier(rows = {rows}) {{ read(rows) repeat 6 {{ dense() }} guess(rows) }}
        pipeline p {{
            model classifier
            {lines}
            train {{ data {data} steps 6 seed 5 optimizer sgd(learning_rate = 0.1) }}
        }}"
    )
}

/// The losses of three steps, or why the files are refused.
fn learned(folder: &Path, text: &str) -> Result<Vec<Vec<u64>>, String> {
    let (compilation, _) = compile_text("x.pipe", text, Path::new("."), &Request::default());
    let messages = || compilation.diagnostics.iter().map(|found| found.message.clone()).collect::<Vec<_>>().join("; ");
    let program = Arc::new(compilation.program.clone().ok_or_else(messages)?);
    losses_from(program, folder, 0..3)
}

const LINES: &str = "devices 2 microbatches 4 schedule 1f1b";

#[test]
fn every_form_of_the_same_examples_learns_the_same() {
    let folder = folder("forms");
    let single = features(f32::to_le_bytes);
    let double = features(|x| f64::from(x).to_le_bytes());
    let byte = features(|x| [x as u8]);
    // Halves of numbers that have few bits: the upper half of single precision is bfloat16.
    let bf16 = features(|x| [x.to_le_bytes()[2], x.to_le_bytes()[3]]);
    let shape = format!("({EXAMPLES}, 3)");
    let write = |name: &str, bytes: &[u8]| fs::write(folder.join(name), bytes).expect("a file");
    write("f4.npy", &npy("<f4", &shape, &single));
    write("f8.npy", &npy("<f8", &shape, &double));
    write("u1.npy", &npy("|u1", &shape, &byte));
    for (name, descr, width) in [("y1", "|u1", 1), ("y2", "<i2", 2), ("y4", "<i4", 4), ("y8", "<i8", 8)] {
        write(&format!("{name}.npy"), &npy(descr, &format!("({EXAMPLES},)"), &labels(width)));
    }
    let (wide, flat) = (format!("[{EXAMPLES},3]"), format!("[{EXAMPLES}]"));
    let file = |dtype, numbers: &[u8]| {
        safetensors(&[("other", "F32", "[1]", &[0; 4]), ("y", "I64", &flat, &labels(8)), ("x", dtype, &wide, numbers)])
    };
    write("single.safetensors", &file("F32", &single));
    write("upper.safetensors", &file("BF16", &bf16));
    let all = [
        "x = \"f4.npy\", y = \"y8.npy\"",
        "y = \"y1.npy\", x = \"f8.npy\"",
        "x = \"u1.npy\", y = \"y2.npy\"",
        "x = \"f4.npy\", y = \"y4.npy\"",
        "\"single.safetensors\"",
        "\"upper.safetensors\"",
        "x = \"single.safetensors\", y = \"y8.npy\"",
    ];
    for order in ["", " shuffled"] {
        let found = all.map(|data| learned(&folder, &text(2, LINES, &format!("{data}{order}"))).expect(data));
        assert!(found.iter().all(|losses| *losses == found[0]), "{found:?}");
    }
}

/// Features and labels by example, as devices load them in a step, in the order of microbatches.
fn step(program: &Program, data: &Data, step: u64) -> Vec<(Vec<f64>, f64)> {
    let mut rows: BTreeMap<(u32, &str), Vec<f64>> = BTreeMap::new();
    for instruction in program.devices.iter().flat_map(|device| &device.step) {
        let Instruction::Load { value, microbatch, .. } = instruction else { continue };
        let mut bytes = vec![0; program.value(*value).bytes.to_usize()];
        data.load(step, *value, *microbatch, &mut bytes).expect("data");
        for slot in &program.value(*value).tensors {
            let own = &bytes[slot.offset.to_usize()..][..slot.ty.bytes().to_usize()];
            rows.insert((microbatch.0, &slot.name), decode(slot.ty.dtype, own));
        }
    }
    let of = |name: &str| {
        rows.iter().filter(|((_, own), _)| *own == name).flat_map(|(_, row)| row.clone()).collect::<Vec<f64>>()
    };
    of("x").chunks(3).map(<[f64]>::to_vec).zip(of("y")).collect()
}

#[test]
fn every_example_comes_once_in_an_epoch_with_its_own_label_under_every_layout() {
    let folder = folder("shuffled");
    let (wide, flat) = (format!("[{EXAMPLES},3]"), format!("[{EXAMPLES}]"));
    // The first feature is the number of the example.
    let own = (0..EXAMPLES).flat_map(|example| [example as f32, 0.5, -1.0]).flat_map(f32::to_le_bytes);
    let own: Vec<u8> = own.collect();
    let file = safetensors(&[("x", "F32", &wide, &own), ("y", "U8", &flat, &labels(1))]);
    fs::write(folder.join("d.safetensors"), file).expect("a file");
    let layouts = [
        (1, "devices 1 microbatches 8 schedule gpipe"),
        (8, "devices 1 microbatches 1 schedule gpipe"),
        (2, "devices 2 microbatches 4 schedule zb_h1"),
        (4, "devices 2 microbatches 2 schedule interleaved_1f1b(chunks = 2)"),
        (1, "devices 4 microbatches 8 schedule chimera"),
        (2, "devices 4 microbatches 4 schedule dp_1f1b(replicas = 2)"),
        (2, "devices 2 data 2 microbatches 2 schedule 1f1b"),
    ];
    let order = |(rows, lines): (u32, &str), data: &str| {
        let program = verified(&text(rows, lines, data));
        let data = Data::open(program.program(), &folder).expect("data");
        (0..10).flat_map(|number| step(program.program(), &data, number)).collect::<Vec<_>>()
    };
    let read = order(layouts[0], "\"d.safetensors\" shuffled");
    for epoch in read.chunks_exact(EXAMPLES) {
        let mut numbers: Vec<usize> = epoch.iter().map(|(x, _)| x[0] as usize).collect();
        assert_ne!(numbers, (0..EXAMPLES).collect::<Vec<_>>());
        numbers.sort_unstable();
        assert_eq!(numbers, (0..EXAMPLES).collect::<Vec<_>>());
    }
    assert!(read.iter().all(|(x, y)| *y == f64::from(label(x[0] as usize)) && x[1..] == [0.5, -1.0]));
    assert_ne!(read[..EXAMPLES], read[EXAMPLES..]);
    for layout in layouts {
        assert!(order(layout, "\"d.safetensors\" shuffled") == read, "{layout:?}");
    }
    // By chance, examples depend on the step and the microbatch alone.
    let by_chance = order((2, "devices 1 microbatches 4 schedule gpipe"), "\"d.safetensors\"");
    assert!(order(layouts[2], "\"d.safetensors\"") == by_chance);
    assert!(by_chance.iter().all(|(x, y)| *y == f64::from(label(x[0] as usize))));
    // What is held out is never trained on, and read in order.
    let held = order(layouts[2], "\"d.safetensors\" shuffled validation 0.25 every 1");
    assert!(held.iter().all(|(x, _)| x[0] < 30.0));
    let program = verified(&text(2, layouts[2].1, "\"d.safetensors\" validation 0.25 every 1"));
    let data = Data::held_out(program.program(), &folder, Steps::All).expect("data").expect("held out");
    let known = data.order().expect("in order");
    assert_eq!((known.windows, known.read(), known.counted(), known.steps), (10, 10, 5, 2));
    let numbers: Vec<f64> =
        (0..2).flat_map(|number| step(program.program(), &data, number)).map(|(x, _)| x[0]).collect();
    assert_eq!(numbers[..10], (30..40).map(f64::from).collect::<Vec<_>>());
}

/// Rows of tokens, which schedules with slices cut, and of which tensor-parallel groups have parts.
#[test]
fn every_layout_learns_the_same_from_rows_of_tokens() {
    let folder = folder("layouts");
    let token = |place: usize, on: usize| u8::try_from((place + on) * (place + on) % 23).expect("small");
    let rows = |on: usize| (0..EXAMPLES * 8).map(|place| token(place, on)).collect::<Vec<u8>>();
    let shape = format!("[{EXAMPLES},8]");
    let file = safetensors(&[("tokens", "U8", &shape, &rows(0)), ("targets", "U8", &shape, &rows(1))]);
    fs::write(folder.join("rows.safetensors"), file).expect("a file");
    let learned = |(model, lines): (&str, &str), microbatches: u32| {
        let text = format!(
            "import std.models.gpt
            pipeline p {{
                model gpt(vocab = 24, hidden = 16, heads = 4, blocks = 4, sequence = 8, rows = 2{model})
                precision f64 microbatches {microbatches} {lines}
                train {{ data \"rows.safetensors\" shuffled steps 3 seed 5 optimizer adamw(learning_rate = 0.01) }}
            }}"
        );
        learn(&verified(&text), Some(&folder))
    };
    let alone = learned(("", "devices 1 schedule gpipe"), 4);
    for (model, lines) in LAYOUTS {
        let microbatches = if lines.contains("data 2") { 2 } else { 4 };
        compare(lines, &alone, &learned((model, lines), microbatches));
    }
}

#[test]
fn what_does_not_feed_the_model_is_refused_with_numbers() {
    let folder = folder("refused");
    let write = |name: &str, bytes: &[u8]| fs::write(folder.join(name), bytes).expect("a file");
    let single = features(f32::to_le_bytes);
    write("x.npy", &npy("<f4", &format!("({EXAMPLES}, 3)"), &single));
    write("y.npy", &npy("<i8", &format!("({EXAMPLES},)"), &labels(8)));
    write("few.npy", &npy("<i8", &format!("({},)", EXAMPLES - 1), &labels(8)));
    write("wide.npy", &npy("<f4", &format!("({}, 4)", EXAMPLES * 3 / 4), &single));
    write("flat.npy", &npy("<f4", &format!("({},)", EXAMPLES * 3), &single));
    write("column.npy", &npy("<i8", &format!("({EXAMPLES}, 1)"), &labels(8)));
    write("floats.npy", &npy("<f4", &format!("({EXAMPLES},)"), &single));
    write("whole.npy", &npy("<i8", &format!("({}, 3)", EXAMPLES / 3), &labels(8)));
    write("complex.npy", &npy("<c8", "(4, 3)", &[0; 96]));
    write("big.npy", &npy(">f4", &format!("({EXAMPLES}, 3)"), &single));
    write("cut.npy", &npy("<f4", &format!("({}, 3)", EXAMPLES + 1), &single));
    write("none.npy", &npy("<f4", "(0, 3)", &[]));
    write("text.npy", b"not an array at all");
    let header = "{'descr': '<f4', 'fortran_order': True, 'shape': (40, 3), }\n";
    let mut columns = b"\x93NUMPY\x01\x00".to_vec();
    columns.extend(u16::try_from(header.len()).expect("short").to_le_bytes());
    write("columns.npy", &[columns, header.as_bytes().to_vec(), single.clone()].concat());
    let mut beyond = labels(8);
    beyond[17 * 8] = 7;
    write("beyond.npy", &npy("<i8", &format!("({EXAMPLES},)"), &beyond));
    beyond[17 * 8..18 * 8].fill(255);
    write("below.npy", &npy("<i8", &format!("({EXAMPLES},)"), &beyond));
    let whole = safetensors(&[("x", "F32", &format!("[{EXAMPLES},3]"), &single), ("labels", "I64", "[0]", &[])]);
    write("names.safetensors", &whole);
    write("cut.safetensors", &whole[..whole.len() - 1]);
    write("text.safetensors", b"not such a file");
    let cases = [
        ("x = \"x.npy\", y = \"few.npy\"", "few.npy does not feed the model: `y` has 39 examples, and `x` has 40"),
        ("x = \"wide.npy\", y = \"y.npy\"", "`x` has the shape [30, 4], and the model reads [examples, 3] of it"),
        ("x = \"flat.npy\", y = \"y.npy\"", "`x` has the shape [120], and the model reads [examples, 3] of it"),
        ("x = \"x.npy\", y = \"column.npy\"", "`y` has the shape [40, 1], and the model reads [examples] of it"),
        ("x = \"x.npy\", y = \"floats.npy\"", "`y` is of type f32, and the model reads i32"),
        ("x = \"whole.npy\", y = \"y.npy\"", "`x` is of type i64, and the model reads f32"),
        ("x = \"complex.npy\", y = \"y.npy\"", "is not a file of examples: its numbers are of type `<c8`"),
        ("x = \"big.npy\", y = \"y.npy\"", "its numbers are of type `>f4`, which is not read"),
        ("x = \"columns.npy\", y = \"y.npy\"", "it lies column by column, and rows are read"),
        ("x = \"cut.npy\", y = \"y.npy\"", "too few for 41 x 3 numbers: it is cut off"),
        ("x = \"none.npy\", y = \"y.npy\"", "`x` has no examples"),
        ("x = \"text.npy\", y = \"y.npy\"", "is not a file of examples: it is not in NumPy's format"),
        (
            "x = \"x.npy\", y = \"beyond.npy\"",
            "`y` is 7 in example 17, and the model has 7 classes or rows for it, from 0 to 6",
        ),
        ("x = \"x.npy\", y = \"below.npy\"", "`y` is -1 in example 17, and the model has 7 classes"),
        ("\"names.safetensors\"", "it has no tensor `y`, which the model reads"),
        ("\"cut.safetensors\"", "is not a file of examples: `x` ends at byte"),
        ("\"text.safetensors\"", "is not a file of examples: its header would have"),
        ("\"nowhere.safetensors\"", "cannot read the data file"),
        ("x = \"x.npy\"", "`y: i32[2]` of the model has no file"),
        ("x = \"x.npy\", y = \"y.npy\", z = \"y.npy\"", "`z` has a file, and the model `classifier` has no data `z`"),
        ("x = \"x.csv\", y = \"y.npy\"", "`x.csv` for `x` is neither a `.npy` nor a `.safetensors` file"),
        ("x = \"x.npy\", y = \"y.npy\", x = \"x.npy\"", "`x` has two files"),
        ("\"x.npy\"", "`x: f32[2,3]` of the model cannot come from a file of tokens"),
        ("\"d.safetensors\"(document = 0)", "`document = 0` is for files of tokens along one axis"),
        ("x = \"x.npy\", y = \"y.npy\" validation 0.001 every 1", "no example is left for the validation"),
        ("x = \"x.npy\", y = \"y.npy\" validation x = \"x.npy\" every 1", "`y: i32[2]` of the model has no file"),
    ];
    for (data, reason) in cases {
        let refusal = match data.contains("validation") {
            true => held_out_refusal(&folder, &text(2, LINES, data)),
            false => learned(&folder, &text(2, LINES, data)).err(),
        };
        let refusal = refusal.unwrap_or_else(|| panic!("{data} is taken"));
        assert!(refusal.contains(reason), "{data}: {refusal}");
    }
    // A label in a slice of nothing.
    let sliced = learned(&folder, &text(2, "devices 2 microbatches 4 schedule seq_1f1b", "synthetic"));
    let refusal = sliced.expect_err("labels have no sequence");
    assert!(refusal.contains("`y`") || refusal.contains("sequence"), "{refusal}");
}

fn held_out_refusal(folder: &Path, text: &str) -> Option<String> {
    let (compilation, _) = compile_text("x.pipe", text, Path::new("."), &Request::default());
    match &compilation.program {
        Some(program) => Data::held_out(program.program(), folder, Steps::All).err().map(|error| error.to_string()),
        None => compilation.diagnostics.first().map(|found| found.message.clone()),
    }
}

/// A file that is cut while it is read ends the run, and no step learns from numbers that are not there.
#[test]
fn a_file_that_is_cut_meanwhile_ends_the_run() {
    let folder = folder("cut");
    let single = features(f32::to_le_bytes);
    fs::write(folder.join("x.npy"), npy("<f4", &format!("({EXAMPLES}, 3)"), &single)).expect("a file");
    fs::write(folder.join("y.npy"), npy("<i8", &format!("({EXAMPLES},)"), &labels(8))).expect("a file");
    let program = verified(&text(8, "devices 2 microbatches 4 schedule 1f1b", "x = \"x.npy\", y = \"y.npy\" shuffled"));
    let data = Arc::new(Data::open(program.program(), &folder).expect("data"));
    let mut run = Run::start(program, &Options::new(Backend::Cpu, 5), data).expect("it starts");
    run.step(0).expect("a step");
    fs::File::options().write(true).open(folder.join("x.npy")).expect("a file").set_len(100).expect("shorter");
    let error = (1..3).find_map(|step| run.step(step).err()).expect("it ends").to_string();
    assert!(error.contains("can no longer be read"), "{error}");
}
