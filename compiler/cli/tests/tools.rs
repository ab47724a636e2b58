//! Completions, the manual and the version: what is made from the definition of the command line.

mod process;

use process::{folder, pipec};
use std::fs;
use std::process::Command;

const SHELLS: [&str; 5] = ["bash", "zsh", "fish", "powershell", "elvish"];

/// The names of all commands, as `--help` lists them.
fn commands() -> Vec<String> {
    let help = pipec(&folder("tools-commands", &[]), "--help", "").with(0).out;
    let list = help.split("Commands:\n").nth(1).and_then(|rest| rest.split("\n\n").next()).expect("a list");
    let names = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn every_shell_gets_a_script_that_knows_every_command() {
    let folder = folder("tools-scripts", &[]);
    for shell in SHELLS {
        let script = pipec(&folder, &format!("completions {shell}"), "").with(0).out;
        for name in commands() {
            assert!(script.contains(&name), "{shell}: {name}");
        }
    }
    assert!(pipec(&folder, "completions tcsh", "").with(2).error.contains("possible values: bash"));
}

/// What bash offers after these words.
fn completed(words: &[&str]) -> Vec<String> {
    let folder = folder(&format!("tools-bash-{}", words.join("-")), &[]);
    fs::write(folder.join("script"), pipec(&folder, "completions bash", "").with(0).out).expect("the folder exists");
    let last = words.len() - 1;
    let list: String = words.iter().map(|word| format!("'{word}' ")).collect();
    let ask = format!(
        "source ./script; COMP_WORDS=({list}); COMP_CWORD={last}; _pipec pipec '{}' '{}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words[last],
        words[last - 1],
    );
    let output = Command::new("bash").args(["-c", &ask]).current_dir(&folder).output().expect("there is a bash");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_options_and_their_values() {
    assert_eq!(completed(&["pipec", "pro"]), ["profile"]);
    assert_eq!(completed(&["pipec", "check", "--mem"]), ["--memory"]);
    assert_eq!(completed(&["pipec", "check", "--format", ""]), ["human", "json", "sarif"]);
    assert_eq!(completed(&["pipec", "run", "--format", ""]), ["human", "json"]);
    assert!(completed(&["pipec", "build", "--emit", ""]).contains(&"torch-csv-comms".to_owned()));
}

#[test]
fn the_manual_has_a_page_for_every_command() {
    let folder = folder("tools-manual", &[]);
    let told = pipec(&folder, "man -o pages/of/ours", "").with(0).out;
    let pages: Vec<_> = fs::read_dir(folder.join("pages/of/ours")).expect("it was made").flatten().collect();
    let expected = commands().iter().filter(|name| *name != "help").count() + 1;
    assert_eq!(pages.len(), expected);
    assert_eq!(told, format!("wrote {expected} pages to pages/of/ours\n"));
    for page in &pages {
        let text = fs::read_to_string(page.path()).expect("it was just written");
        assert!(text.contains(".TH ") && text.contains(".SH NAME") && text.contains(".SH SYNOPSIS"), "{text:.300}");
        let name = page.file_name().to_string_lossy().into_owned();
        let command = name.trim_start_matches("pipec").trim_start_matches('-').trim_end_matches(".1").to_owned();
        assert_eq!(pipec(&folder, &format!("man {command}"), "").with(0).out, text, "{name}");
        renders(&text);
    }
    assert!(pipec(&folder, "man chek", "").with(2).error.contains("did you mean `check`?"));
}

/// Where there is a groff, it has nothing to say about a page.
fn renders(page: &str) {
    use std::io::Write;
    use std::process::Stdio;
    let mut groff = Command::new("groff");
    let groff = groff.args(["-man", "-ww", "-Tascii"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut groff) = groff.stderr(Stdio::piped()).spawn() else { return };
    groff.stdin.take().expect("it is a pipe").write_all(page.as_bytes()).expect("it reads");
    let output = groff.wait_with_output().expect("it ends");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!output.stdout.is_empty());
}

#[test]
fn the_version_says_what_the_build_can_do() {
    let folder = folder("tools-version", &[]);
    let first = concat!("pipec ", env!("CARGO_PKG_VERSION"));
    assert_eq!(pipec(&folder, "-V", "").with(0).out.trim_end(), first);
    let long = pipec(&folder, "--version", "").with(0).out;
    let lines: Vec<_> = long.lines().collect();
    assert_eq!(lines[0], first);
    let mpi = if cfg!(feature = "mpi") { "mpi: yes" } else { "mpi: no" };
    assert!(lines[1].starts_with("backends: cpu (") && lines[1].ends_with("), cuda, null"), "{long}");
    assert!(lines[2].starts_with(mpi) && lines[3].starts_with("cuda: "), "{long}");
    for schema in ["check/1", "program/1", "profile/1", "run/1", "search/1", "tune/1", "checkpoint/2"] {
        assert!(lines[4].contains(&format!("pipec.{schema}")), "{long}");
    }
}
