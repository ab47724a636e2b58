//! `pipec check --format sarif`: what tools for code review need of it, as the schema of SARIF 2.1.0 demands.

mod process;

use process::{folder, pipec};
use serde_json::Value;

/// A name that stands twice.
const WRONG: &str = "\
schedule twice {
    stages D
    place s on s
    order d { repeat M { F[d] F[d] BW[d] } }
}
schedule twice { stages D place s on s order d { F[d] BW[d] } }
";

fn keys(object: &Value) -> Vec<&str> {
    object.as_object().expect("an object").keys().map(String::as_str).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("{value} is no list"))
}

/// A location with at least a file, and a region that does not end before it starts.
fn fits_location(location: &Value) {
    let place = &location["physicalLocation"];
    let uri = text(&place["artifactLocation"]["uri"]);
    assert!(!uri.is_empty() && !uri.contains([' ', '<', '>', '\\']), "{uri}");
    if let Some(region) = place.get("region") {
        assert_eq!(keys(region), ["endColumn", "endLine", "startColumn", "startLine"]);
        let number = |name: &str| region[name].as_u64().unwrap_or_else(|| panic!("{name} of {region}"));
        assert!(number("startLine") >= 1 && number("startColumn") >= 1, "{region}");
        assert!(
            (number("endLine"), number("endColumn")) >= (number("startLine"), number("startColumn")),
            "{region} ends before it starts"
        );
    }
}

/// A log of one run whose parts are complete and refer to each other rightly: the run.
fn fits(output: &str, exit_code: u64) -> Value {
    let log: Value = serde_json::from_str(output).unwrap_or_else(|error| panic!("{error}\n{output}"));
    assert_eq!(keys(&log), ["$schema", "runs", "version"]);
    assert_eq!(log["version"], "2.1.0");
    let run = log["runs"][0].clone();
    assert_eq!(run["columnKind"], "utf16CodeUnits");
    assert_eq!(run["invocations"][0]["exitCode"], exit_code);
    assert_eq!(run["invocations"][0]["executionSuccessful"], true);
    let driver = &run["tool"]["driver"];
    assert_eq!((&driver["name"], &driver["version"]), (&"pipec".into(), &env!("CARGO_PKG_VERSION").into()));
    let rules = list(&driver["rules"]);
    for rule in rules {
        assert!(!text(&rule["id"]).is_empty() && !text(&rule["shortDescription"]["text"]).is_empty(), "{rule:#}");
    }
    for result in list(&run["results"]) {
        assert!(["error", "warning"].contains(&text(&result["level"])), "{result:#}");
        assert!(!text(&result["message"]["text"]).is_empty(), "{result:#}");
        let index = result["ruleIndex"].as_u64().expect("a position") as usize;
        assert_eq!(rules[index]["id"], result["ruleId"], "{result:#}");
        assert_eq!(list(&result["locations"]).len(), 1);
        fits_location(&result["locations"][0]);
        for (related, id) in result.get("relatedLocations").map(list).unwrap_or_default().iter().zip(1..) {
            assert_eq!(related["id"], id);
            fits_location(related);
        }
    }
    run
}

fn region(location: &Value) -> [u64; 4] {
    let region = &location["physicalLocation"]["region"];
    ["startLine", "startColumn", "endLine", "endColumn"].map(|name| region[name].as_u64().expect("a number"))
}

#[test]
fn findings_have_rules_places_and_the_places_that_explain_them() {
    let folder = folder("sarif-places", &[]);
    let run = fits(&pipec(&folder, "check - --schedule twice --format sarif", WRONG).with(1).out, 1);
    let result = &run["results"][0];
    assert_eq!((&result["ruleId"], &result["level"]), (&"duplicate-name".into(), &"error".into()));
    assert_eq!(region(&result["locations"][0]), [6, 10, 6, 15]);
    assert_eq!(result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"], "stdin:");
    assert_eq!(region(&result["relatedLocations"][0]), [1, 10, 1, 15]);
    let rule = &run["tool"]["driver"]["rules"][0];
    assert!(text(&rule["help"]["markdown"]).contains("## Fix"), "{rule:#}");
}

#[test]
fn columns_are_those_of_utf16() {
    let line = "    train { data \"é🦀\" steps 2 seed 1 optimiser sgd(learning_rate = 0.1) }";
    let source = format!("pipeline odd {{\n    schedule 1f1b\n    devices 2\n{line}\n}}\n");
    let folder = folder("sarif-columns", &[("odd.pipe", &source)]);
    let run = fits(&pipec(&folder, "check ./odd.pipe --format sarif", "").with(1).out, 1);
    let [row, column, ..] = region(&run["results"][0]["locations"][0]);
    // Two characters before the misspelt word take three units of UTF-16, and six bytes.
    let before = line.split_once("optimiser").expect("it is there").0;
    assert_eq!((row, column), (4, before.encode_utf16().count() as u64 + 1), "{run:#}");
    assert_eq!(run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"], "odd.pipe");
}

#[test]
fn every_target_of_check_has_the_form() {
    let program = "format 1\nprogram \"x\" {";
    let table = "0F0,0B0\n0F0\n";
    let folder = folder("sarif-targets", &[("x.ir", program), ("x.csv", table)]);
    let accepted = fits(&pipec(&folder, "check std:1f1b --format sarif", "").with(0).out, 0);
    assert!(list(&accepted["results"]).is_empty(), "{accepted:#}");
    for (target, rule) in [
        ("x.ir", "ir-form"),
        ("x.csv", ""),
        ("std:1f1b --memory 1", "memory-exceeded"),
        ("std:1f1b --cost F[9]=1", ""),
        ("std:zb_h1 --certificate --memory 1", "memory-exceeded"),
    ] {
        let run = fits(&pipec(&folder, &format!("check {target} --format sarif"), "").with(1).out, 1);
        assert!(!list(&run["results"]).is_empty(), "{target}");
        assert!(rule.is_empty() || run["results"][0]["ruleId"] == rule, "{target}: {run:#}");
    }
}

#[test]
fn warnings_are_results_of_an_accepted_target() {
    let source =
        "schedule w {\n    stages 2\n    place s on s\n    block every 3 { F[s] at s BW[s] at 4 - 2 * s }\n}\n";
    let folder = folder("sarif-warnings", &[("w.pipe", source)]);
    let run = fits(&pipec(&folder, "check w.pipe --set devices=3 --format sarif", "").with(0).out, 0);
    let [result] = list(&run["results"]) else { panic!("{run:#}") };
    assert_eq!((&result["ruleId"], &result["level"]), (&"unused-device".into(), &"warning".into()));
}
