//! Headlines say what they are: bubbles of which devices, and where sizes of buffers come from.

mod process;

use process::{folder, pipec};
use serde_json::Value;

fn number(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or_else(|| panic!("{name} is no number: {value}"))
}

/// The last stage takes three times as long as the others: its device is busy, the others idle.
const UNEQUAL: &str = "--set devices=4 --set microbatches=16 --cost F=1,BW=2,F[3]=3,BW[3]=6";

#[test]
fn the_bubble_is_the_mean_over_devices_and_that_of_the_busiest_one_has_its_name() {
    let folder = folder("headlines_bubble", &[]);
    let report: Value = pipec(&folder, &format!("check std:1f1b {UNEQUAL} --format json"), "").with(0).into();
    let makespan = number(&report, "makespan");
    let idle: Vec<f64> = report["per_device"]
        .as_array()
        .expect("devices")
        .iter()
        .map(|row| 1.0 - number(row, "busy") / makespan)
        .collect();
    let (mean, least) = (idle.iter().sum::<f64>() / 4.0, idle.iter().copied().fold(1.0, f64::min));
    assert!((number(&report, "bubble_mean") - mean).abs() < 1e-9, "{report}");
    assert!((number(&report, "bubble_makespan") - least).abs() < 1e-9, "{report}");
    assert!(mean > 0.5 && least < 0.1, "three of four devices idle most of the time: {idle:?}");
    let percent = |share: f64| format!("{:.1}%", 100.0 * share);
    let table = pipec(&folder, &format!("check std:1f1b {UNEQUAL}"), "").with(0).out;
    let line = table.lines().find(|line| line.starts_with("  makespan")).expect("a line");
    assert!(
        line.ends_with(&format!("mean bubble {}, of the busiest device {}", percent(mean), percent(least))),
        "{line}"
    );
    let plot = pipec(&folder, &format!("plot std:1f1b {UNEQUAL}"), "").with(0).out;
    assert!(plot.contains(&format!("mean bubble {}", percent(mean))), "{plot}");
    pipec(&folder, &format!("plot std:1f1b {UNEQUAL} -o x.svg"), "").with(0);
    let svg = std::fs::read_to_string(folder.join("x.svg")).expect("written");
    assert!(svg.contains(&format!("mean bubble {} (busiest device {}", percent(mean), percent(least))), "{svg:.2000}");
}

/// Where backwards of another form may be shorter, the bound says which forms it is about, wherever it is printed.
#[test]
fn a_bound_says_of_which_forms_it_is_wherever_it_is_printed() {
    let folder = folder("headlines_bound", &[]);
    let sizes = "--set devices=4 --set microbatches=6";
    for (schedule, costs, form, words) in [
        ("1f1b", "", Some("fused"), " with BW"),
        ("zb_h1", "--cost F=1,B=1,W=1,BW=1.5", Some("split"), " with B and W"),
        ("zb_h1", "", None, ""),
    ] {
        let target = format!("std:{schedule} {sizes} {costs}");
        let report: Value = pipec(&folder, &format!("check {target} --format json"), "").with(0).into();
        assert_eq!(report["lower_bound_form"].as_str(), form, "{target}");
        let bound = number(&report, "lower_bound");
        let table = pipec(&folder, &format!("check {target}"), "").with(0).out;
        let line = table.lines().find(|line| line.trim_start().starts_with("lower bound")).expect("a line");
        assert!(line.contains(&format!("{words}: ")) && line.contains(" with") == form.is_some(), "{line}");
        pipec(&folder, &format!("plot {target} -o x.svg"), "").with(0);
        let svg = std::fs::read_to_string(folder.join("x.svg")).expect("written");
        assert!(svg.contains(&format!("lower bound {bound}{words} · peak")), "{svg:.2000}");
        let picture: Value = pipec(&folder, &format!("build {target} --emit picture"), "").with(0).into();
        assert_eq!(picture["form_of_bound"].as_str().unwrap_or_default(), words, "{target}");
    }
}

#[test]
fn the_certificate_has_the_mean_over_devices_too() {
    let folder = folder("headlines_certificate", &[]);
    let certificate =
        "check std:1f1b --certificate --set devices=4 --set microbatches=16 --cost F=1,BW=2,F[3]=3,BW[3]=6";
    let report: Value = pipec(&folder, &format!("{certificate} --format json"), "").with(0).into();
    let own = &report["certificate"];
    // In the limit d3 is always busy, and the others a third of the time.
    assert!(number(own, "steady_bubble").abs() < 1e-9, "{own}");
    assert!((number(own, "steady_bubble_mean") - 0.5).abs() < 1e-9, "{own}");
    let table = pipec(&folder, certificate, "").with(0).out;
    assert!(table.contains("mean bubble 50.0% in the limit, of the busiest device 0.0%"), "{table}");
    // What `reorder` makes of this block takes 8 a microbatch.
    let reordered = "check std:v_min --set devices=3 --cost F=1,B=2,W=1";
    let table = pipec(&folder, &format!("{reordered} --certificate"), "").with(0).out;
    assert!(table.contains("steady state   at most 12  per microbatch, mean bubble"), "{table}");
    let makespan = |microbatches: u64| {
        let line = format!("{reordered} --set microbatches={microbatches} --format json");
        number(&pipec(&folder, &line, "").with(0).into(), "makespan")
    };
    assert!((makespan(120) - makespan(60)) / 60.0 <= 12.0);
}

const TRAINED: &str = "import std.models.gpt

pipeline small {
    model gpt(vocab = 32, hidden = 16, heads = 2, blocks = 2, sequence = 8, rows = 1)
    devices 2
    microbatches 2
    schedule 1f1b
    train {
        data synthetic
        steps 2
        optimizer sgd(learning_rate = 0.1)
    }
}
";

/// The example of the README, and the same under 1F1B: run, and compared in bytes.
#[test]
fn the_example_holds_fewer_bytes_than_1f1b_as_its_comment_says() {
    let examples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let text = std::fs::read_to_string(examples.join("shakespeare.pipe")).expect("the example");
    let data = examples.join("data/shakespeare.txt");
    let text = text.replace("data/shakespeare.txt", &data.display().to_string());
    assert!(text.contains("V-Min holds fewer bytes of activations than 1F1B") && text.contains("schedule v_min"));
    let usual: String = text.replace("schedule v_min", "schedule 1f1b").replace("require peak <= 0.8 * 1f1b", "");
    let folder = folder("headlines_example", &[("own.pipe", &text), ("usual.pipe", &usual)]);
    let figures = |name: &str| {
        let line = format!("run {name} --backend cpu --steps 1 --no-checkpoint --format json");
        let run: Value = pipec(&folder, &line, "").with(0).into();
        let devices = run["per_device"].as_array().expect("devices").clone();
        let measured = devices.iter().map(|device| number(device, "measured_peak_bytes")).fold(0.0, f64::max);
        let check: Value = pipec(&folder, &format!("check {name} --format json"), "").with(0).into();
        (run["losses"].clone(), measured, number(&check, "peak_activation_bytes"), number(&check, "makespan"))
    };
    let (own, usual) = (figures("own.pipe"), figures("usual.pipe"));
    assert_eq!(own.0, usual.0, "the same loss");
    assert!(own.1 < 0.85 * usual.1, "measured: {} and {} bytes on the fullest device", own.1, usual.1);
    assert!(own.2 <= 0.8 * usual.2, "activations: {} and {} bytes", own.2, usual.2);
    assert!(own.3 < usual.3, "a step: {} and {}", own.3, usual.3);
    // What it says of other schedules is counted in bytes, too: V-Half holds 3 units, and more bytes.
    let half = text.replace("schedule v_min", "schedule v_half");
    std::fs::write(folder.join("half.pipe"), half).expect("writable");
    let refused = pipec(&folder, "check half.pipe", "").with(1);
    assert!(refused.error.contains("of `v_half` holds "), "{}", refused.error);
}

#[test]
fn a_run_says_where_its_sizes_come_from() {
    let folder = folder("headlines_sizes", &[("small.pipe", TRAINED)]);
    let peaks = "measured peaks equal the predicted ones, to the byte";
    let alone = pipec(&folder, "run std:1f1b", "").with(0).out;
    assert!(
        !alone.contains(peaks) && alone.contains("no model: sizes are placeholders, 1MiB saved by each"),
        "{alone}"
    );
    pipec(&folder, "build std:1f1b --emit ir -o x.ir", "").with(0);
    for command in ["run x.ir", "check x.ir"] {
        let program = pipec(&folder, command, "").with(0).out;
        assert!(!program.contains(peaks) && program.contains("sizes are those that the program states"), "{program}");
    }
    let trained = pipec(&folder, "run small.pipe --backend cpu --no-checkpoint", "").with(0).out;
    assert!(trained.contains(peaks) && trained.contains("bubble   mean over devices: "), "{trained}");
    let counted = pipec(&folder, "run small.pipe --backend null", "").with(0).out;
    assert!(!counted.contains(peaks) && counted.contains("counted peaks equal the predicted ones"), "{counted}");
    for (command, sizes) in [("std:1f1b", "placeholders"), ("x.ir", "program"), ("small.pipe --backend null", "model")]
    {
        let report: Value = pipec(&folder, &format!("run {command} --format json"), "").with(0).into();
        assert_eq!(report["sizes"], sizes, "{command}");
    }
}
