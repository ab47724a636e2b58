//! Pages and pictures as files: self-contained, with data that parses back, whatever names say.

mod process;

use process::{folder, pipec};
use serde_json::Value;
use std::fs;

const OPEN: &str = "<script id=\"picture\" type=\"application/json\">";

/// The picture inside a page.
fn data(page: &str) -> Value {
    let data = page.split(OPEN).nth(1).and_then(|rest| rest.split("</script>").next()).expect("data");
    serde_json::from_str(data).expect("JSON")
}

#[test]
fn a_page_is_one_file_that_loads_nothing_and_holds_the_picture() {
    let folder = folder("pages-plain", &[]);
    let target = "std:zb_v --set devices=4 --set microbatches=6";
    assert_eq!(pipec(&folder, &format!("plot {target} -o x.html"), "").with(0).out, "wrote x.html\n");
    let page = fs::read_to_string(folder.join("x.html")).expect("it was written");
    for mark in ["http://", "https://", "src=", "@import", "url(", "fetch(", "{{"] {
        assert!(!page.contains(mark), "the page has `{mark}`");
    }
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("<title>zb_v</title>"), "{}", &page[..300]);
    assert!(page.len() < 260_000, "{} bytes", page.len());
    let picture: Value = pipec(&folder, &format!("build {target} --emit picture"), "").with(0).into();
    assert_eq!(data(&page), picture);
    assert_eq!((&picture["schema"], &picture["title"]), (&"pipec.picture/1".into(), &"zb_v".into()));
}

#[test]
fn no_name_ends_the_script_that_the_data_stands_in() {
    let folder = folder("pages-names", &[]);
    fs::create_dir_all(folder.join("<")).expect("a folder");
    let text = "schedule s {\n    stages D\n    place s on s\n    block every 3 {\n        F[s] at s\n        BW[s] at D + 2 * (D - 1 - s)\n    }\n}\n";
    fs::write(folder.join("</script><b>&.pipe"), text).expect("a file");
    pipec(&folder, "plot </script><b>&.pipe -o x.html", "").with(0);
    let page = fs::read_to_string(folder.join("x.html")).expect("it was written");
    assert_eq!(page.matches("</script>").count(), 3, "one for the data, one for the picture and one for the script");
    assert_eq!(data(&page)["report"]["target"], "</script><b>&.pipe");
}
