//! Sessions: commands, and what they print, write and exit with. Each file of `sessions/` is one, in the form that
//! the README there describes.

mod process;

use process::{Ended, folder, pipec};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// A line at the margin, and the indented lines below it.
struct Item<'t> {
    number: usize,
    head: &'t str,
    body: String,
    ends_paragraph: bool,
}

fn items(text: &str) -> Vec<Item<'_>> {
    let lines: Vec<&str> = text.lines().collect();
    let is_top = |line: &&str| !line.is_empty() && !line.starts_with("    ");
    let tops: Vec<usize> = (0..lines.len()).filter(|index| is_top(&lines[*index])).collect();
    let ends = tops.iter().skip(1).copied().chain([lines.len()]);
    let item = |(top, end): (&usize, usize)| {
        let below = &lines[top + 1..end];
        let n_lines = below.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
        let body = below[..n_lines].iter().map(|line| format!("{}\n", line.get(4..).unwrap_or_default())).collect();
        let ends_paragraph = n_lines < below.len() || end == lines.len();
        Item { number: top + 1, head: lines[*top], body, ends_paragraph }
    };
    tops.iter().zip(ends).map(item).collect()
}

/// What a line says after its first word or mark: as it stands, or in quotes as in JSON.
fn unquoted(text: &str) -> String {
    if text.starts_with('"') { serde_json::from_str(text).expect("a text in quotes") } else { text.to_owned() }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What is at a path of a report: `*` stands for all of a list, `last` for one, `length` for their number.
fn at(report: &Value, path: &str) -> Vec<Option<Value>> {
    path.split('/').skip(1).filter(|part| !part.is_empty()).fold(vec![Some(report.clone())], |found, part| {
        let next = |value: Option<Value>| match (part, value) {
            ("*", Some(Value::Array(all))) => all.into_iter().map(Some).collect(),
            ("length", Some(Value::Array(all))) => vec![Some(all.len().into())],
            ("last", Some(Value::Array(all))) => vec![all.last().cloned()],
            (_, value) => vec![value.and_then(|value| value.pointer(&format!("/{part}")).cloned())],
        };
        found.into_iter().flat_map(next).collect()
    })
}

fn is_of(value: &Value, kind: &str) -> bool {
    match kind {
        "text" => value.is_string(),
        "truth" => value.is_boolean(),
        "count" => value.is_u64(),
        "number" => value.is_f64(),
        "list" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        _ => panic!("`{kind}` is no kind of value"),
    }
}

/// Whether a value of a report is as a line demands.
fn holds(value: Option<&Value>, relation: &str, wanted: &Value) -> bool {
    let Some(value) = value else { return relation == "absent" };
    let numbers = value.as_f64().zip(wanted.as_f64());
    let word = wanted.as_str().unwrap_or_default();
    match relation {
        "absent" => false,
        "=" => numbers.map_or(value == wanted, |(one, other)| one == other),
        "!=" => value != wanted,
        "~" => numbers.is_some_and(|(one, other)| (one - other).abs() < 1e-9),
        "<" => numbers.is_some_and(|(one, other)| one < other),
        "<=" => numbers.is_some_and(|(one, other)| one <= other),
        ">" => numbers.is_some_and(|(one, other)| one > other),
        ">=" => numbers.is_some_and(|(one, other)| one >= other),
        "has" => value
            .as_str()
            .map_or_else(|| value.as_array().is_some_and(|all| all.contains(wanted)), |text| text.contains(word)),
        "starts" => value.as_str().is_some_and(|text| text.starts_with(word)),
        "keys" => wanted.as_object().is_some_and(|all| all.keys().all(|key| value.get(key).is_some())),
        "is" => word.split(" or ").any(|kind| is_of(value, kind)),
        _ => panic!("`{relation}` is no relation"),
    }
}

/// Whether a line is as expected, where `..` stands for anything.
fn is_like(line: &str, expected: &str) -> bool {
    let Some((start, rest)) = expected.split_once("..") else { return line == expected };
    let ends =
        |left: &str| left.char_indices().map(|(at, _)| at).chain([left.len()]).any(|at| is_like(&left[at..], rest));
    line.strip_prefix(start).is_some_and(ends)
}

/// Whether a text is as a line demands.
fn reads(text: &str, relation: &str, wanted: &str) -> bool {
    match relation {
        "" => text.contains(wanted),
        "lacks" => !text.contains(wanted),
        "starts" => text.starts_with(wanted),
        "ends" => text.ends_with(wanted),
        "is" => text == wanted,
        "line" => text.lines().any(|line| is_like(line, wanted)),
        "each line" => text.lines().all(|line| is_like(line, wanted)),
        "at most lines" => text.lines().count() <= wanted.parse::<usize>().expect("a number"),
        _ => {
            let times = relation.strip_suffix(" times").and_then(|times| times.parse::<usize>().ok());
            text.matches(wanted).count() == times.unwrap_or_else(|| panic!("`{relation}` is no relation"))
        }
    }
}

/// What happened so far.
struct Session {
    folder: PathBuf,
    /// Standard output of the commands that have a name.
    named: BTreeMap<String, String>,
}

impl Session {
    /// The output of a name, or a file of the folder.
    fn text(&self, name: &str) -> String {
        let read = || fs::read(self.folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        // Not all files are texts.
        self.named.get(name).cloned().unwrap_or_else(|| String::from_utf8_lossy(&read()).into_owned())
    }

    /// A value in JSON, or the place of one: `/place` in this report, `name/place` in an earlier one.
    fn value(&self, text: &str, report: &Value) -> Value {
        let (name, _) = text.split_once('/').unwrap_or_default();
        let place = |report: &Value| {
            at(report, text).into_iter().next().flatten().unwrap_or_else(|| panic!("there is no {text}"))
        };
        match self.named.get(name) {
            Some(out) => place(&serde_json::from_str(out).expect("JSON")),
            None if text.starts_with('/') => place(report),
            None => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
        }
    }

    /// Writes a file, if the line is about one.
    fn write(&self, item: &Item<'_>) -> bool {
        let words: Vec<&str> = item.head.split(' ').collect();
        let (name, text) = match words[..] {
            ["file", name] => (name, item.body.clone()),
            ["save", name, place] => {
                let value = self.value(place, &Value::Null);
                (name, value.as_str().map_or_else(|| value.to_string(), str::to_owned))
            }
            ["copy", name, from] => {
                let own = self.folder.join(from);
                let from = if own.exists() { own } else { root().join(from) };
                let text = fs::read_to_string(&from).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
                let replaced = item.body.lines().fold(text, |text, line| {
                    let (old, new) = line.split_once(" => ").expect("what is replaced, and by what");
                    let (old, new) = (unquoted(old), unquoted(new));
                    assert!(text.contains(&old), "there is no {old}");
                    text.replace(&old, &new)
                });
                (name, replaced)
            }
            _ => return false,
        };
        let path = self.folder.join(name);
        fs::create_dir_all(path.parent().expect("it is in the folder")).expect("the folder can be written");
        fs::write(path, text).expect("the folder can be written");
        true
    }

    /// The arguments, with what stands in braces: a value of an earlier report, or the root of the repository.
    fn arguments(&self, line: &str) -> String {
        let mut parts = line.split('{');
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |line, part| {
            let (place, rest) = part.split_once('}').expect("a brace ends");
            let value =
                if place == "root" { root().display().to_string().into() } else { self.value(place, &Value::Null) };
            line + &value.as_str().map_or_else(|| value.to_string(), str::to_owned) + rest
        })
    }

    /// Demands what a line says of a command that has ended.
    fn demand(&self, item: &Item<'_>, ended: &Ended) {
        let Ended { out, error, .. } = ended;
        if item.head.starts_with('/') {
            let mut words = item.head.splitn(3, ' ');
            let [path, relation, wanted] = std::array::from_fn(|_| words.next().unwrap_or_default());
            let report = serde_json::from_str(out).unwrap_or_else(|why| panic!("{why}\n{out}\n{error}"));
            let wanted = if wanted.is_empty() { Value::Null } else { self.value(wanted, &report) };
            let found = at(&report, path);
            let fits = !found.is_empty() && found.iter().all(|value| holds(value.as_ref(), relation, &wanted));
            assert!(fits, "found {found:?}, wanted {wanted}");
            return;
        }
        if let Some((exists, name)) = item.head.split_once(' ').filter(|(word, _)| ["exists", "missing"].contains(word))
        {
            return assert_eq!(self.folder.join(name).exists(), exists == "exists");
        }
        let (about, wanted) = item.head.split_once(':').expect("a colon stands before a text");
        let (subject, relation) = about.split_once(' ').unwrap_or((about, ""));
        let wanted = match wanted.trim_start() {
            _ if !item.body.is_empty() => item.body.clone(),
            text => text.strip_prefix('@').map_or_else(|| unquoted(text), |name| self.text(name)),
        };
        let text = match subject {
            "out" => out.clone(),
            "error" => error.clone(),
            file => self.text(file),
        };
        assert!(
            reads(&text, relation, &wanted),
            "{about} {wanted}\n--- standard output\n{out:.3000}\n--- standard error\n{error:.3000}"
        );
    }

    /// Runs the commands of a paragraph, and demands all of each.
    fn paragraph(&mut self, items: &[Item<'_>]) {
        let rest: Vec<_> = items.iter().filter(|item| !item.head.starts_with('#') && !self.write(item)).collect();
        let (commands, rest): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|item| item.head.split(' ').take(2).any(|word| word == "$"));
        let (settings, demands): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|item| item.head.starts_with("exit ") || item.head.starts_with("input "));
        let word = |name: &str| settings.iter().find_map(|item| item.head.strip_prefix(name));
        let code = word("exit ").map_or(0, |code| code.parse().expect("a number"));
        let input = word("input ").map(|name| self.text(name)).unwrap_or_default();
        for command in commands {
            let (name, line) = command.head.split_once('$').expect("it is a command");
            let ended = pipec(&self.folder, &self.arguments(line), &input).with(code);
            for item in &demands {
                let demanded = catch_unwind(AssertUnwindSafe(|| self.demand(item, &ended)));
                assert!(demanded.is_ok(), "line {}: `{}` after `{}`", item.number, item.head, command.head);
            }
            if !name.is_empty() {
                self.named.insert(name.trim().to_owned(), ended.out);
            }
        }
    }
}

fn run(name: &str, text: &str) {
    let mut session = Session { folder: folder(&format!("sessions/{name}"), &[]), named: BTreeMap::new() };
    items(text).split_inclusive(|item| item.ends_paragraph).for_each(|items| session.paragraph(items));
}

/// All files with their names below the folder, without endings.
fn sessions(folder: &Path, above: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder is there").flatten() {
        let path = entry.path();
        let name = format!("{above}{}", path.file_stem().unwrap_or_default().to_string_lossy());
        if path.is_dir() {
            found.extend(sessions(&path, &format!("{name}/")));
        } else if path.extension().is_some_and(|ending| ending == "txt") {
            found.push((name, fs::read_to_string(&path).expect("readable")));
        }
    }
    found
}

#[test]
fn sessions_go_as_their_files_say() {
    let part = std::env::var("PIPEC_SESSIONS").unwrap_or_default();
    let mut all = sessions(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sessions"), "");
    let takes_all = std::env::var("PIPEC_ALL").is_ok_and(|all| all != "0");
    all.retain(|(name, _)| name.contains(&part) && (takes_all || !name.ends_with(".long.txt")));
    assert!(!all.is_empty(), "no session has `{part}` in its name");
    all.sort();
    if !takes_all && part.is_empty() {
        // A slice, as of other long tests: `.ci/full` takes all.
        all = all.into_iter().step_by(3).collect();
    }
    let (left, failed) = (Mutex::new(all), Mutex::new(Vec::new()));
    let work = || {
        let next = || left.lock().expect("nobody panics with it").pop();
        while let Some((name, text)) = next() {
            if catch_unwind(|| run(&name, &text)).is_err() {
                failed.lock().expect("nobody panics with it").push(name);
            }
        }
    };
    let n_threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..n_threads).for_each(|_| drop(scope.spawn(work))));
    let failed = failed.into_inner().expect("nobody panics with it");
    assert!(failed.is_empty(), "{} failed: {failed:?}", failed.len());
}
