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
