//! Profiles of GPUs that are not there: what `pipec profile` measures and writes on fakes, and what
//! is said where it cannot.

mod fakes;
mod process;

use fakes::{fakes, pipec_with};
use process::{folder, pipec};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

const TINY: &str = include_str!("data/tiny_profile.pipe");

/// The libraries of a machine with fake GPUs, and a folder with a small pipeline.
struct Machine {
    libraries: &'static Path,
    folder: PathBuf,
}

impl Machine {
    fn new(name: &str) -> Option<Self> {
        let text = TINY.replace("vocab = 64, ", "vocab = 17, ").replace("sequence = 8", "sequence = 4");
        Some(Self { libraries: fakes()?, folder: folder(&format!("gpu-{name}"), &[("tiny.pipe", &text)]) })
    }
}

/// What is said, and the profile that is written.
fn profile(machine: &Machine, arguments: &str, variables: &[(&str, &str)]) -> (String, String, Value) {
    let line = format!("profile tiny.pipe -o x.profile.json {arguments}");
    let ended = pipec_with(machine.libraries, &machine.folder, &line, variables).with(0);
    let text = fs::read_to_string(machine.folder.join("x.profile.json")).expect("it was written");
    (ended.out, ended.error, serde_json::from_str(&text).expect("JSON"))
}

#[test]
fn a_gpu_is_measured_by_its_own_clock_and_named() {
    let Some(machine) = Machine::new("profile") else { return };
    let folder = machine.libraries.display();
    for (path, by_library) in [(format!("{folder}"), false), (format!("{folder}:{folder}/products"), true)] {
        let variables = [("LD_LIBRARY_PATH", path.as_str())];
        let (out, _, file) = profile(&machine, "--backend cuda --products tf32 --steps 4", &variables);
        for part in
            ["d0", "d1", "makespan", "unfitted", "step", "1 other step,", "; 2 devices on Fake GPU 0\n", "wrote "]
        {
            assert!(out.contains(part), "{part}\n{out}");
        }
        assert_eq!((&file["schema"], &file["backend"]), (&"pipec.profile/1".into(), &"cuda".into()));
        let by = file["gpus"][0]["products"].as_str().unwrap_or_default();
        assert_eq!(by.starts_with("cuBLASLt"), by_library, "{by}");
        assert_eq!(file["gpus"], json!([{"name": "Fake GPU 0", "devices": [0, 1], "products": by}]));
        assert_eq!(file["products"], "tf32");
        let tasks = file["tasks"].as_array().expect("tasks");
        assert!(tasks.len() == 6 && tasks.iter().all(|task| task["ns"].as_u64() > Some(0)), "{tasks:?}");
        for key in ["transfer_ns", "makespan_ns", "plain_makespan_ns", "copy_bytes_per_second"] {
            assert!(file[key].as_u64() > Some(0), "{key}: {}", file[key]);
        }
        // One size, between two devices on one GPU.
        let links = file["links"].as_array().expect("links");
        assert!(links.len() == 1 && links[0]["ns"].as_u64() > Some(0), "{links:?}");
        let gemms = file["gemms"].as_array().expect("products");
        let is_measured = |gemm: &&Value| gemm["ns"].as_u64() > Some(0) && gemm["flops"].as_u64() > Some(0);
        assert!(gemms.len() > 5 && gemms.iter().all(|gemm| is_measured(&gemm)), "{gemms:?}");
        // Of 8 rows of hidden size 16, the logits of 17 words.
        let logits = json!({"batch": 1, "rows": 8, "columns": 17, "inner": 16, "flops": 4352});
        let logits = logits.as_object().expect("an object");
        let is_logits = |gemm: &Value| logits.iter().all(|(key, value)| gemm[key] == *value);
        assert!(gemms.iter().any(is_logits), "{gemms:?}");
        assert_eq!(gemms.iter().any(|gemm| gemm["by_library"] == true), by_library, "{gemms:?}");
        let line = "check tiny.pipe --profile x.profile.json --format json";
        let report: Value = pipec(&machine.folder, line, "").with(0).into();
        let predicted = file["comparison"]["makespan"]["predicted_ns"].as_u64();
        assert_eq!(report["makespan"].as_f64().map(|ms| (ms * 1e6).round() as u64), predicted);
    }
}

/// Both devices of one GPU would each seem to take almost twice as long, were they timed beside each other.
#[test]
fn tasks_of_devices_on_one_gpu_are_timed_one_by_one_and_predicted_to_share_it() {
    let Some(machine) = Machine::new("profile-shared") else { return };
    // Other work of the machine makes a step longer, or a task.
    let off =
        |file: &Value| file["comparison"]["unfitted_makespan"]["difference_percent"].as_f64().expect("a number").abs();
    let mut tries = (0..3).map(|_| profile(&machine, "--steps 9", &[]).2);
    let file = tries.find(|file| off(file) < 50.0).expect("one of three profiles predicts the step");
    assert_eq!(file["steps"], 3);
    // All that both do, of four microbatches: no less than that, and little more, since one of them
    // can nearly always go on.
    let tasks = file["tasks"].as_array().expect("tasks").iter().filter(|task| task["kind"] != "U");
    let work: u64 = tasks.filter_map(|task| task["ns"].as_u64()).sum::<u64>() * 4;
    let makespan = file["comparison"]["makespan"]["predicted_ns"].as_u64().expect("a number");
    assert!(makespan + 1000 > work && makespan < work + work / 10, "{makespan} {work}");
    // Two devices, each with a GPU, wait for each other.
    let text = fs::read_to_string(machine.folder.join("x.profile.json")).expect("it was written");
    let text = text.replace("\"gpus\"", "\"others\"");
    fs::write(machine.folder.join("apart.json"), text).expect("a file of ours");
    let line = "check tiny.pipe --profile apart.json --format json";
    let report: Value = pipec(&machine.folder, line, "").with(0).into();
    assert!(report["makespan"].as_f64().is_some_and(|ms| ms * 1e6 < 0.9 * makespan as f64), "{report}");
}

#[test]
fn several_gpus_have_links_between_them() {
    let Some(machine) = Machine::new("profile-two") else { return };
    for peers in ["1", "0"] {
        let variables = [("PIPEC_FAKE_DEVICES", "2"), ("PIPEC_FAKE_PEERS", peers)];
        let (out, _, file) = profile(&machine, "--steps 2", &variables);
        assert!(out.contains("; 2 devices on 2 GPUs (Fake GPU 0, Fake GPU 1)\n"), "{out}");
        assert_eq!(
            file["gpus"],
            json!([
                {"name": "Fake GPU 0", "devices": [0], "products": "pipec"},
                {"name": "Fake GPU 1", "devices": [1], "products": "pipec"},
            ])
        );
        let links = file["gpu_links"].as_array().expect("links");
        let ends: Vec<&Value> = links.iter().map(|link| &link["gpus"]).collect();
        assert_eq!(ends, [&json!([0, 1]), &json!([1, 0])]);
        assert!(links.iter().all(|link| link["ns"].as_u64() > Some(0)) && file["links"] == json!([]), "{links:?}");
    }
}

#[test]
fn the_processor_is_measured_where_no_gpu_can_be() {
    let Some(machine) = Machine::new("profile-none") else { return };
    let (out, error, file) = profile(&machine, "--steps 2", &[("PIPEC_FAKE_MEMORY", "50000")]);
    assert!(error.contains("not on the GPU: ") && error.contains("; the processor runs it instead"), "{error}");
    assert!(out.contains("; 2 devices on ") && out.contains(" core") && file["backend"] == "cpu", "{out}");
    assert!(file.get("gpus").is_none() && file.get("products").is_none() && file.get("gemms").is_none(), "{file}");
    let (_, error, _) = profile(&machine, "--steps 2 --backend cpu --products bf16", &[]);
    assert!(error.contains("warning: `--products` is for GPUs"), "{error}");
    let refused = |arguments: &str, variables: &[(&str, &str)], code: i32| {
        let line = format!("profile tiny.pipe {arguments}");
        pipec_with(machine.libraries, &machine.folder, &line, variables).with(code).error
    };
    let error = refused("--backend cuda", &[("PIPEC_FAKE_DEVICES", "0")], 1);
    assert_eq!(error, "error: the CUDA driver finds no GPU here: `--backend cpu` runs on the processor\n");
    let error = refused("--backend null", &[], 2);
    assert!(error.contains("[possible values: auto, cpu, cuda]"), "{error}");
}

/// Groups are measured as the devices of the schedule where each device has a GPU, and nowhere else. A task of a trace
/// is one event, whatever is exchanged inside it.
#[test]
fn groups_have_a_gpu_for_each_device() {
    let Some(machine) = Machine::new("groups") else { return };
    let text = fs::read_to_string(machine.folder.join("tiny.pipe")).expect("written");
    let text = text.replace("vocab = 17", "vocab = 18").replace("devices 2", "devices 2 tensor 2");
    fs::write(machine.folder.join("tiny.pipe"), text).expect("the folder can be written");
    let four = [("PIPEC_FAKE_DEVICES", "4")];
    let (out, _, file) = profile(&machine, "--backend cuda --steps 4", &four);
    assert!(out.contains("2 groups of 2 devices"), "{out}");
    assert_eq!([&file["devices"], &file["tensor"]], [&json!(4), &json!(2)]);
    pipec(&machine.folder, "check tiny.pipe --profile x.profile.json", "").with(0);
    let one = pipec_with(machine.libraries, &machine.folder, "profile tiny.pipe --backend cuda --steps 4", &[]).with(1);
    for part in ["cannot profile `tensor 2` on shared GPUs", "use 4 GPUs"] {
        assert!(one.error.contains(part), "{part}\n{}", one.error);
    }
    let run = "run tiny.pipe --backend cuda --trace run.json";
    pipec_with(machine.libraries, &machine.folder, run, &four).with(0);
    pipec(&machine.folder, "diff tiny.pipe run.json --search 0", "").with(0);
}
