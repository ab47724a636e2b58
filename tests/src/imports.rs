//! Which files of a crate import which, read from `use` lines and from paths in the code.

use crate::cases::{files, read};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// By file, relative to the folder of sources: the files that it imports. Tests are left out, and so are parents and
/// children, because a module and its parts belong together.
#[must_use]
pub fn imports(sources: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let name = |path: &Path| path.strip_prefix(sources).unwrap_or(path).display().to_string();
    let all: Vec<String> = files(sources, "rs").iter().map(|path| name(path)).collect();
    let modules: BTreeMap<Vec<String>, &String> = all.iter().map(|file| (module(file), file)).collect();
    let is_test = |file: &str| file.ends_with("tests.rs") || file.split('/').any(|part| part == "tests");
    let tested = all.iter().filter(|file| !is_test(file));
    let imports = tested.map(|file| {
        let here = module(file);
        let paths = paths(&without_tests(&read(&sources.join(file))));
        let targets = paths.iter().filter_map(|path| {
            let mut full = absolute(path, &here, &modules)?;
            while !full.is_empty() && !modules.contains_key(&full) {
                full.pop();
            }
            let is_kin = here.starts_with(&full) || full.starts_with(&here);
            (!is_kin).then(|| (*modules[&full]).clone())
        });
        (file.clone(), targets.collect())
    });
    imports.collect()
}

/// The module of a file, from the root of its crate.
fn module(file: &str) -> Vec<String> {
    let parts = file.trim_end_matches(".rs").split('/').map(str::to_owned);
    let mut parts: Vec<String> = parts.collect();
    if parts.last().is_some_and(|last| last == "mod") || parts == ["lib"] || parts == ["main"] {
        parts.pop();
    }
    parts
}

/// A file without its comments and its tests.
fn without_tests(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    code.lines().map(|line| line.split("//").next().unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

/// The paths that a file names.
fn paths(code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for statement in code.split(';') {
        let start = statement
            .match_indices("use ")
            .find(|(at, _)| statement[..*at].trim_end().ends_with(['}', ')', ']']) || is_start(&statement[..*at]));
        if let Some((at, _)) = start {
            expand(statement[at + 4..].trim(), &mut found);
        }
    }
    for root in ["crate::", "super::"] {
        for (at, _) in code.match_indices(root) {
            let end =
                code[at..].find(|c: char| !c.is_alphanumeric() && !"_:".contains(c)).map_or(code.len(), |end| at + end);
            expand(&code[at..end], &mut found);
        }
    }
    found
}

/// Whether a statement begins behind a text: at a line's start, behind a visibility at most.
fn is_start(before: &str) -> bool {
    let line = before.rsplit('\n').next().unwrap_or(before).trim();
    line.is_empty() || line.starts_with("pub")
}

/// Writes the braces of an import out: `a::{b, c::{d}}` is `a::b` and `a::c::d`.
fn expand(tree: &str, found: &mut Vec<Vec<String>>) {
    let Some((before, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or(tree);
        found.push(path.split("::").map(|part| part.trim().to_owned()).collect());
        return;
    };
    let body = rest.rsplit_once('}').map_or(rest, |(body, _)| body);
    let (mut depth, mut start) = (0_i32, 0);
    for (at, mark) in body.char_indices().chain([(body.len(), ',')]) {
        match mark {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let part = body[start..at].trim();
                if !part.is_empty() {
                    expand(&format!("{before}{part}"), found);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// A path from the root of the crate; none if it leads into another crate.
fn absolute(path: &[String], here: &[String], modules: &BTreeMap<Vec<String>, &String>) -> Option<Vec<String>> {
    let is_up = |part: &String| part == "super";
    let child = |name: &String| here.iter().cloned().chain([name.clone()]).collect::<Vec<_>>();
    let (base, rest) = match path.first()?.as_str() {
        "crate" => (Vec::new(), &path[1..]),
        "self" => (here.to_vec(), &path[1..]),
        "super" => {
            let levels = path.iter().take_while(|part| is_up(part)).count();
            (here[..here.len().saturating_sub(levels)].to_vec(), &path[levels..])
        }
        _ if modules.contains_key(&child(&path[0])) => (here.to_vec(), path),
        _ => return None,
    };
    Some(base.into_iter().chain(rest.iter().cloned()).collect())
}

/// Groups of files that import each other, directly or through others; the largest first.
#[must_use]
pub fn cycles(imports: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        imports.keys().map(|file| (file, reached(file, imports))).collect();
    let mut groups: BTreeSet<Vec<String>> = BTreeSet::new();
    for (file, others) in &reached {
        let back = others.iter().filter(|other| reached.get(*other).is_some_and(|theirs| theirs.contains(file)));
        let group: Vec<String> = back.map(|file| (*file).clone()).collect();
        if group.len() > 1 {
            groups.insert(group);
        }
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
    groups
}

/// Everything that a file imports, directly or through others.
fn reached<'a>(file: &'a String, imports: &'a BTreeMap<String, BTreeSet<String>>) -> BTreeSet<&'a String> {
    let (mut found, mut open) = (BTreeSet::new(), vec![file]);
    while let Some(file) = open.pop() {
        let next = imports.get(file).into_iter().flatten();
        open.extend(next.filter(|next| found.insert(*next)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_are_written_out() {
        let mut found = Vec::new();
        expand("crate::{a, b::{c, d as e}, self}", &mut found);
        let found: Vec<String> = found.iter().map(|path| path.join("::")).collect();
        assert_eq!(found, ["crate::a", "crate::b::c", "crate::b::d", "crate::self"]);
    }

    #[test]
    fn files_that_import_each_other_are_one_group() {
        let import =
            |file: &str, others: &[&str]| (file.to_owned(), others.iter().map(|other| (*other).to_owned()).collect());
        let imports =
            BTreeMap::from([import("a", &["b"]), import("b", &["c"]), import("c", &["b"]), import("d", &["a"])]);
        assert_eq!(cycles(&imports), [["b", "c"]]);
    }
}
