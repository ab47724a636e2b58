//! Pages and pictures as files: self-contained, with data that parses back, whatever names say.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder that goes away with its test.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("pipec-pages-{}-{test}", std::process::id()));
        fs::create_dir_all(&folder).expect("a temporary folder");
        Self(folder)
    }

    /// Runs the binary, which must exit with this code; what it printed, and complained of.
    fn run(&self, arguments: &[&str], code: i32) -> (String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pipec"));
        let output = command.args(arguments).current_dir(&self.0).env("NO_COLOR", "1").output().expect("it starts");
        let [out, error] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{out}{error}");
        (out, error)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).expect(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Nothing is lost if it stays.
        let _ = fs::remove_dir_all(&self.0);
    }
}

const OPEN: &str = "<script id=\"picture\" type=\"application/json\">";

/// The picture inside a page.
fn data(page: &str) -> Value {
    let data = page.split(OPEN).nth(1).and_then(|rest| rest.split("</script>").next()).expect("data");
    serde_json::from_str(data).expect("JSON")
}

#[test]
fn a_page_is_one_file_that_loads_nothing_and_holds_the_picture() {
    let folder = Folder::new("plain");
    let sizes = ["--set", "devices=4", "--set", "microbatches=6"];
    let (out, _) = folder.run(&[&["plot", "std:zb_v", "-o", "x.html"], &sizes[..]].concat(), 0);
    assert_eq!(out, "wrote x.html\n");
    let page = folder.read("x.html");
    for mark in ["http://", "https://", "src=", "@import", "url(", "fetch(", "{{"] {
        assert!(!page.contains(mark), "the page has `{mark}`");
    }
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("<title>zb_v</title>"), "{}", &page[..300]);
    assert!(page.len() < 200_000, "{} bytes", page.len());
    let (picture, _) = folder.run(&[&["build", "std:zb_v", "--emit", "picture"], &sizes[..]].concat(), 0);
    let picture: Value = serde_json::from_str(&picture).expect("JSON");
    assert_eq!(data(&page), picture);
    assert_eq!((&picture["schema"], &picture["title"]), (&"pipec.picture/1".into(), &"zb_v".into()));
}

#[test]
fn no_name_ends_the_script_that_the_data_stands_in() {
    let folder = Folder::new("names");
    fs::create_dir_all(folder.0.join("<")).expect("a folder");
    let text = "schedule s {\n    stages D\n    place s on s\n    block every 3 {\n        F[s] at s\n        BW[s] at D + 2 * (D - 1 - s)\n    }\n}\n";
    fs::write(folder.0.join("</script><b>&.pipe"), text).expect("a file");
    folder.run(&["plot", "</script><b>&.pipe", "-o", "x.html"], 0);
    let page = folder.read("x.html");
    assert_eq!(page.matches("</script>").count(), 2, "one for the data and one for the script");
    assert_eq!(data(&page)["report"]["target"], "</script><b>&.pipe");
}

#[test]
fn pictures_of_what_is_rejected_are_drawn_if_there_is_a_timeline() {
    let folder = Folder::new("rejected");
    let (_, error) = folder.run(&["plot", "std:1f1b", "--memory", "1", "-o", "x.html"], 1);
    assert!(error.contains("memory-exceeded") && folder.read("x.html").contains("memory-exceeded"), "{error}");
    fs::write(folder.0.join("broken.pipe"), "schedule x {").expect("a file");
    folder.run(&["plot", "broken.pipe", "-o", "y.html"], 1);
    let (out, _) = folder.run(&["build", "broken.pipe", "--emit", "picture"], 1);
    assert!(out.is_empty() && !Path::new(&folder.0.join("y.html")).exists(), "{out}");
}

#[test]
fn other_endings_and_folders_that_are_missing_are_told() {
    let folder = Folder::new("endings");
    let (_, error) = folder.run(&["plot", "std:1f1b", "-o", "x.png"], 2);
    assert_eq!(error, "error: x.png: plot writes .svg pictures and .html pages\n");
    let (_, error) = folder.run(&["plot", "std:1f1b", "-o", "missing/x.html"], 2);
    assert!(error.starts_with("error: missing/x.html: "), "{error}");
}
