//! Models from a `config.json` against published figures (`tests/data/models/published.json`, each
//! with its source), equal to the last digit, through `check` as users have it.

use pipe_compiler::Request;
use pipe_compiler::report::Report;
use pipe_compiler::report::costs::stage_costs::StageReport;
use pipe_syntax::stdlib;
use pipe_tests::blocks::request;
use pipe_tests::cases::{compile_text, files, read, root};
use pipe_tests::slice::{drawn, slice};
use serde_json::Value;

const GIB: f64 = (1_u64 << 30) as f64;

fn published(section: &str) -> Value {
    let all: Value = serde_json::from_str(&read(&root().join("tests/data/models/published.json"))).expect("JSON");
    all[section].clone()
}

fn rows(section: &Value) -> Vec<Value> {
    section["rows"].as_array().expect("rows").clone()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is a whole number"))
}

fn words(list: &Value) -> String {
    let words = list.as_array().expect("settings").iter().map(|word| word.as_str().expect("a word").to_owned());
    words.collect::<Vec<_>>().join(", ")
}

/// A pipeline with a model, in the folder of the configs.
struct Pipeline<'a> {
    config: &'a str,
    settings: String,
    devices: u64,
    microbatches: u64,
    schedule: &'a str,
    /// Bytes of a device.
    memory: Option<&'a str>,
}

impl Pipeline<'_> {
    fn text(&self) -> String {
        let Self { config, settings, devices, microbatches, schedule, .. } = self;
        let memory = self.memory.map(|memory| format!(" memory {memory}")).unwrap_or_default();
        format!(
            "pipeline p {{ model \"{config}.json\"({settings}) devices {devices}{memory} microbatches {microbatches} \
             schedule {schedule} }}"
        )
    }

    fn check(&self, text: Option<&str>) -> Report {
        self.check_with(text, &[])
    }

    /// The report with these parameters; the config is a file, or this text.
    fn check_with(&self, config: Option<&str>, settings: &[(&str, i64)]) -> Report {
        let request = request(settings);
        let folder = root().join("tests/data/configs");
        match config {
            None => compile_text("p.pipe", &self.text(), &folder, &request).0.report,
            Some(config) => {
                let mut sources = pipe_syntax::source::Sources::default();
                let source = pipe_syntax::source::Source { name: "p.pipe".to_owned(), text: self.text() };
                pipe_compiler::compile(&mut sources, source, &|_| Ok(config.to_owned()), &request).report
            }
        }
    }
}

/// The model's total.
fn parameters(report: &Report) -> u64 {
    assert!(report.ok, "{:#?}", report.diagnostics);
    report.account.model.as_ref().expect("a model").parameters
}

fn alone(config: &str) -> Pipeline<'_> {
    let settings = "sequence = 1024".to_owned();
    Pipeline { config, settings, devices: 1, microbatches: 1, schedule: "1f1b", memory: None }
}

/// A block of GPT with these sizes, as transformers would write it.
fn gpt(layers: u64, hidden: u64, heads: u64) -> String {
    format!(
        r#"{{"model_type": "gpt2", "n_layer": {layers}, "n_embd": {hidden}, "n_head": {heads}, "n_positions": 2048, "vocab_size": 51200}}"#
    )
}

/// Bytes of one microbatch that the layers of a stage keep.
fn layer_bytes(stage: &StageReport) -> u64 {
    stage.activations.iter().filter(|tensor| tensor.part == "layers").map(|tensor| tensor.bytes).sum()
}

/// Whether a figure is one that was written with four digits after the decimal point.
fn is(value: f64, published: &Value) -> bool {
    (value - published.as_f64().expect("a figure")).abs() <= 0.000_05 + f64::EPSILON * value
}

#[test]
fn parameters_are_those_of_the_published_models() {
    let section = published("parameters");
    for row in rows(&section) {
        let name = row["config"].as_str().expect("a name");
        assert_eq!(parameters(&alone(name).check(None)), number(&row["parameters"]), "{name}");
    }
    let n_configs = files(&root().join("tests/data/configs"), "json").len();
    assert_eq!(n_configs, rows(&section).len() + 1, "every config but that of ZeRO's example is published");
}

#[test]
fn parameters_are_those_of_megatrons_ten_sizes() {
    for row in rows(&published("megatron")) {
        let (layers, hidden) = (number(&row["layers"]), number(&row["hidden"]));
        let config = gpt(layers, hidden, number(&row["heads"]));
        let total = parameters(&alone("gpt").check(Some(&config)));
        assert_eq!(total, number(&row["parameters"]) + 2 * hidden, "{}", row["name"]);
    }
}

#[test]
fn activations_are_those_of_korthikanti_and_others() {
    let section = published("activations");
    for row in rows(&section) {
        let of = |name: &str| number(&row[name]);
        let (hidden, layers, tensor, pipeline) = (of("hidden"), of("layers"), of("tensor"), of("pipeline"));
        let config = gpt(layers, hidden, of("heads"));
        let chunks = of("chunks");
        let schedule = if chunks == 1 { "1f1b".to_owned() } else { format!("interleaved_1f1b(chunks = {chunks})") };
        for (mode, settings) in section["modes"].as_object().expect("modes") {
            let what = format!("{} {mode}", row["name"]);
            let settings =
                format!("sequence = 2048, flash = 0, rows = {}, tensor = {tensor}, {}", of("rows"), words(settings));
            let microbatches = 2 * pipeline;
            let own = Pipeline {
                config: "gpt",
                settings,
                devices: pipeline,
                microbatches,
                schedule: &schedule,
                memory: None,
            };
            let report = own.check(Some(&config));
            assert!(report.ok, "{what}: {:#?}", report.diagnostics);
            let stages = &report.account.per_stage;
            let of_layer = |stage: &StageReport| layer_bytes(stage) / (stage.layers[1] - stage.layers[0]);
            let expected = number(&row["layer_bytes"][mode]);
            assert!(stages.iter().all(|stage| of_layer(stage) == expected), "{what}: not {expected} a layer");
            let first: Vec<&StageReport> = stages.iter().filter(|stage| stage.device == 0).collect();
            let alive: u64 = first.iter().map(|stage| layer_bytes(stage) * stage.live_microbatches as u64).sum();
            let expected = row["first_device_gib"][mode].as_f64().expect("a figure");
            assert_eq!(alive as f64 / GIB, expected, "{what}");
            // Of weights only matrices count here: biases and norms of a layer are 13 widths.
            let table = if first.iter().any(|stage| stage.embedding) { (51_200 + 2_048) * hidden } else { 0 };
            let norm = if first.iter().any(|stage| stage.head) { 2 * hidden } else { 0 };
            let of_layers: u64 = first.iter().map(|stage| stage.parameters).sum::<u64>() - table - norm;
            let n_layers: u64 = first.iter().map(|stage| stage.layers[1] - stage.layers[0]).sum();
            let matrices = of_layers - n_layers * 13 * hidden;
            let expected = row["matrix_state_gib"].as_f64().expect("a figure");
            assert_eq!((matrices * 18 / tensor) as f64 / GIB, expected, "{what}");
        }
    }
}

#[test]
fn state_is_divided_as_by_zero() {
    let section = published("zero");
    let config = section["config"].as_str().expect("a name");
    for (zero, bytes) in section["bytes"].as_array().expect("stages").iter().enumerate() {
        let settings = format!("sequence = 1024, data = {}, gradient_bytes = 2, zero = {zero}", section["data"]);
        let report = Pipeline { settings, ..alone(config) }.check(None);
        assert_eq!(report.account.per_stage[0].state_bytes, number(bytes), "stage {zero}");
    }
}

#[test]
fn stages_of_gpt3_take_what_the_formulas_say() {
    let section = published("stages");
    for (mode, rows) in section["rows"].as_object().expect("modes") {
        let settings = words(&section["modes"][mode]);
        let settings = format!("sequence = 2048, flash = 0, tensor = 8, {settings}");
        let own = Pipeline { config: "gpt", settings, devices: 8, microbatches: 16, schedule: "1f1b", memory: None };
        let report = own.check(Some(&gpt(96, 12_288, 96)));
        assert!(report.ok, "{mode}: {:#?}", report.diagnostics);
        for (stage, row) in report.account.per_stage.iter().zip(rows.as_array().expect("stages")) {
            let what = format!("{mode} s{}", stage.stage);
            let norm = if stage.head { 2 * 12_288 } else { 0 };
            assert_eq!(stage.parameters - norm, number(&row["parameters"]), "{what}");
            assert_eq!(stage.live_microbatches as u64, number(&row["in_flight"]), "{what}");
            let state = (stage.parameters - norm) as f64 * 18.0 / 8.0 / GIB;
            assert!(is(state, &row["state_gib"]), "{what}: {state}");
            // On the device, norms and the biases behind the second matrices are copies: 6 widths
            // of each layer; so are positions.
            let copies = 6 * 12_288 * (stage.layers[1] - stage.layers[0])
                + norm
                + if stage.embedding { 2_048 * 12_288 } else { 0 };
            let own = (stage.parameters - copies) / 8 + copies;
            assert_eq!((stage.device_parameters, stage.state_bytes), (own, 18 * own), "{what}");
            let kept = (layer_bytes(stage) * stage.live_microbatches as u64) as f64 / GIB;
            assert!(is(kept, &row["activations_gib"]), "{what}: {kept}");
        }
    }
}

#[test]
fn what_a_device_holds_is_its_peak_and_no_less_than_its_stages() {
    let models = ["gpt2", "mixtral_8x7b", "qwen2_0_5b"];
    let schedules = || stdlib::SCHEDULES.iter().map(|(name, _)| *name).filter(|name| *name != "seq_1f1b");
    let all = models.iter().flat_map(|config| schedules().map(move |schedule| (config, schedule)));
    for (config, schedule) in slice(7, all) {
        for recompute in ["none", "selective", "full"] {
            for zero in [0, 3] {
                let settings = format!("sequence = 1024, data = 2, zero = {zero}, flash = 0, recompute = {recompute}");
                let own = Pipeline { config, settings, devices: 4, microbatches: 8, schedule, memory: None };
                let report = own.check(None);
                let what = format!("{config} {schedule} {recompute} {zero}");
                assert!(report.ok, "{what}: {:#?}", report.diagnostics);
                for device in &report.per_device {
                    let peak = device.peak_bytes.expect("bytes");
                    let held: u64 = device.holds.iter().map(|hold| hold.bytes).sum();
                    assert_eq!(held, peak, "{what} d{}", device.device);
                    let stages = report.account.per_stage.iter().filter(|stage| stage.device == device.device);
                    let sum: u64 = stages.map(|stage| stage.sum_bytes).sum();
                    assert!(sum <= peak + 64 * 16, "{what} d{}: {sum} of {peak}", device.device);
                }
            }
        }
    }
}

/// A change as the report words it, as values for `--set`.
fn settings(change: &str) -> Vec<(&str, i64)> {
    let value = |word: &str| match word {
        "none" => 0,
        "selective" => 1,
        "full" => 2,
        number => number.parse().expect("a number"),
    };
    let one = |word| str::split_once(word, ' ').map(|(name, rest)| (name, value(rest.trim_start_matches("= "))));
    change.split(", ").map(|word| one(word).expect("a name and a value")).collect()
}

#[test]
fn a_change_does_what_it_says() {
    let tight = [("llama3_8b", "24GiB"), ("gpt2_xl", "6GiB"), ("mixtral_8x7b", "150GiB"), ("qwen2_7b", "30GiB")];
    for (config, memory) in tight {
        let memory = Some(memory);
        let settings_of = "sequence = 1024, rows = 2, data = 4, flash = 0".to_owned();
        let own = Pipeline { config, settings: settings_of, devices: 4, microbatches: 8, schedule: "1f1b", memory };
        let report = own.check(None);
        assert!(!report.ok && !report.account.changes.is_empty(), "{config}: {:#?}", report.diagnostics);
        for change in &report.account.changes {
            let changed = own.check_with(None, &settings(&change.change));
            let what = format!("{config} {}: {:#?}", change.change, changed.diagnostics);
            assert_eq!(changed.ok, change.fits, "{what}");
            let most = changed.per_device.iter().filter_map(|device| device.peak_bytes).max();
            assert_eq!(most, Some(change.peak_bytes), "{what}");
        }
        let first = &report.account.changes[0];
        let help = report.diagnostics[0].help.as_deref().unwrap_or_default();
        assert_eq!(first.fits, help.starts_with("the cheapest change that fits is"), "{config}: {help}");
    }
}

#[test]
fn layers_are_listed_or_cut_evenly() {
    let of = |settings: &str| {
        let settings = format!("sequence = 1024{settings}");
        let own =
            Pipeline { config: "llama2_7b", settings, devices: 4, microbatches: 4, schedule: "gpipe", memory: None };
        own.check(None)
    };
    let layers = |report: &Report| -> Vec<u64> {
        report.account.per_stage.iter().map(|stage| stage.layers[1] - stage.layers[0]).collect()
    };
    assert_eq!(layers(&of("")), [8, 8, 8, 8]);
    assert_eq!(layers(&of(", layers = 8")), [8, 8, 8, 8]);
    assert_eq!(layers(&of(", layers = [0, 11, 11, 10]")), [0, 11, 11, 10]);
    for wrong in [", layers = 7", ", layers = [8, 8, 8]", ", layers = [16, 0, 8, 8]", ", layers = [8, 8, 8, 9]"] {
        let report = of(wrong);
        assert_eq!(report.diagnostics[0].code, "too-few-layers", "{wrong}");
    }
}

/// Against every cut of a small model, by the operations of the device that has most.
#[test]
fn no_cut_of_the_layers_leaves_the_busiest_device_less() {
    let most = |schedule: &str, settings: &str| {
        let settings = format!("sequence = 64{settings}");
        let report = Pipeline { config: "", settings, devices: 2, microbatches: 4, schedule, memory: None };
        let report = report.check(Some(&gpt(9, 64, 4)));
        let mut devices = [0_u64; 2];
        for stage in &report.account.per_stage {
            devices[stage.device as usize] += stage.flops.iter().sum::<u64>();
        }
        *devices.iter().max().expect("two devices")
    };
    for schedule in ["interleaved_1f1b", "zb_v", "1f1b", "chimera"] {
        let n_stages = if ["1f1b", "chimera"].contains(&schedule) { 2 } else { 4 };
        let cuts = (0..10_u64.pow(n_stages)).map(|code| (0..n_stages).map(|at| code / 10_u64.pow(at) % 10).collect());
        let cuts = cuts.filter(|cut: &Vec<u64>| cut.iter().sum::<u64>() == 9 && !cut.contains(&0));
        let best = cuts.map(|cut| most(schedule, &format!(", layers = {cut:?}"))).min();
        assert_eq!(Some(most(schedule, "")), best, "{schedule}");
    }
}

/// Figures by hand for one layer of Llama 2 7B with 1,024 tokens: 4 products of 4096 x 4096, 3 of
/// 4096 x 11008, and scores.
#[test]
fn operations_are_those_of_the_products() {
    let tokens = 1_024_u64;
    let layer = 2 * tokens * (4 * 4_096 * 4_096 + 3 * 4_096 * 11_008);
    let head = 2 * tokens * 4_096 * 32_000;
    let flops = |settings: &str| {
        let settings = format!("sequence = 1024, {settings}");
        let own = Pipeline { settings, ..alone("llama2_7b") };
        own.check(None).account.per_stage[0].flops
    };
    let whole = 4 * tokens * tokens * 4_096;
    let products = 32 * layer + head;
    assert_eq!(flops("flash = 0"), [products + 32 * whole, products + 64 * whole, products]);
    let causal = 4 * (tokens * (tokens + 1) / 2) * 4_096;
    assert_eq!(flops("flash = 1"), [products + 32 * causal, products + 32 * causal / 2 * 5, products]);
    let again = 32 * (layer + causal);
    let full = flops("recompute = full");
    assert_eq!(full, [products + 32 * causal, products + 32 * causal / 2 * 5 + again, products]);
}

#[test]
fn the_search_counts_both_halves_of_the_backward() {
    use pipe_ir::ids::StageId;
    use pipe_ir::task::TaskKind;
    use pipe_schedule::dispatch::Objective;
    use pipe_search::driver::run::prepare;
    use pipe_syntax::source::{Source, Sources};
    let settings = "sequence = 1024".to_owned();
    let own = Pipeline {
        config: "llama3_8b",
        settings,
        devices: 4,
        microbatches: 8,
        schedule: "1f1b",
        memory: Some("80GiB"),
    };
    let config = read(&root().join("tests/data/configs/llama3_8b.json"));
    let source = Source { name: "p.pipe".to_owned(), text: own.text() };
    let loader = |_: &str| Ok(config.clone());
    let prepared = prepare(&mut Sources::default(), source, &loader, &Request::default(), Objective::Makespan);
    let problem = prepared.map_err(|found| found.diagnostics).expect("it can be searched").problem;
    for stage in (0..4).map(StageId) {
        let [whole, input, weight] = [TaskKind::Backward, TaskKind::BackwardInput, TaskKind::BackwardWeight]
            .map(|kind| problem.costs.of(kind, stage).0);
        assert!(input > 0 && weight > 0 && whole.abs_diff(input + weight) <= 1, "{whole} {input} {weight}");
    }
}

/// A text with one of its bytes changed, or cut off there, or with a number made huge.
fn damaged(text: &str, seed: u64) -> String {
    // Multiplicative hashing (Knuth): the high bits are the random ones.
    let random =
        |round: u64| (seed.wrapping_mul(8).wrapping_add(round).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) as usize;
    let mut bytes = text.as_bytes().to_vec();
    let at = random(0) % bytes.len();
    match random(1) % 4 {
        0 => bytes[at] = b"\"{}[],:-0e.~ntf"[random(2) % 16],
        1 => bytes.truncate(at),
        2 => drop(bytes.remove(at)),
        _ => {
            let digits = (at..bytes.len()).find(|at| bytes[*at].is_ascii_digit()).unwrap_or(at);
            bytes.splice(digits..digits, b"99999".iter().copied());
        }
    }
    String::from_utf8(bytes).expect("the text is ASCII")
}

#[test]
fn no_config_makes_the_compiler_panic() {
    let all = files(&root().join("tests/data/configs"), "json");
    let mut refused = 0;
    let cases = drawn(250, 1_500);
    for (seed, path) in (0..cases as u64).zip(all.iter().cycle()) {
        let config = damaged(&read(path), seed);
        let settings = "sequence = 1024, tensor = 2, data = 2, expert = 2, zero = 3, flash = 0".to_owned();
        let own =
            Pipeline { config: "x", settings, devices: 2, microbatches: 2, schedule: "zb_h1", memory: Some("1GiB") };
        refused += usize::from(!own.check(Some(&config)).diagnostics.is_empty());
    }
    assert!(refused > cases / 3, "{refused}");
}

#[test]
fn the_largest_numbers_are_refused_and_not_counted_wrongly() {
    let config = r#"{"model_type": "mixtral", "hidden_size": 1048576, "num_hidden_layers": 4096, "num_attention_heads": 1048576,
        "num_key_value_heads": 1048576, "head_dim": 1048576, "intermediate_size": 16777216, "vocab_size": 16777216,
        "num_local_experts": 65536, "num_experts_per_tok": 65536}"#;
    let settings = "sequence = 16777216, rows = 65536, flash = 0".to_owned();
    let own = Pipeline { config: "x", settings, devices: 64, microbatches: 512, schedule: "1f1b", memory: None };
    let report = own.check(Some(config));
    assert_eq!(report.diagnostics[0].code, "too-large", "{:#?}", report.diagnostics);
}
