//! Workspace symbols: declarations in open documents, their imports, and the `.pipe` files of open folders.

use super::outline::kind;
use crate::commands::lsp::documents::Project;
use crate::commands::lsp::positions::Lines;
use crate::commands::lsp::uris;
use pipe_ide::NameKind;
use pipe_syntax::ast::{Declaration, Name};
use pipe_syntax::parse;
use pipe_syntax::source::FileId;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The most files and folders that are searched.
const MOST: usize = 2000;
/// The most declarations in an answer.
const TOLD: usize = 500;

/// Declarations whose names have the letters of a query, in its order. Those of the standard library come last.
pub(in crate::commands::lsp) fn symbols(projects: &[Rc<Project>], folders: &[PathBuf], query: &str) -> Value {
    let (mut own, mut standard, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
    for project in projects {
        let all = project.names.definitions.iter();
        for found in all.filter(|found| found.owner.is_none() && matches(&found.name, query)) {
            // Without a query, all of the library would hide the few that are meant.
            let is_standard = project.is_standard(found.span.file);
            let uri = Some(found.span.file).filter(|_| !is_standard || !query.is_empty());
            let Some(uri) = uri.and_then(|file| project.uri(file)) else { continue };
            if seen.insert((uri.clone(), found.span.start)) {
                let list = if is_standard { &mut standard } else { &mut own };
                list.push(symbol(&found.name, found.kind, &uri, project.range(found.span)));
            }
        }
    }
    let known: BTreeSet<String> = seen.into_iter().map(|(uri, _)| uri).collect();
    let open: BTreeSet<String> = projects.iter().filter_map(|project| project.uri(FileId(0))).collect();
    for path in sources(folders) {
        let uri = uris::from_path(&path);
        let is_known = known.contains(&uri) || open.iter().any(|open| uris::normal(open) == uri);
        let text = Some(&path).filter(|_| !is_known).and_then(|path| fs::read_to_string(path).ok());
        let Some(text) = text else { continue };
        let lines = Lines::new(&text);
        let (file, _) = parse::parse_parts(FileId(0), &text);
        for (kind, name) in file.declarations.iter().filter_map(declared).filter(|(_, name)| matches(&name.text, query))
        {
            let range = lines.range(&text, name.span.start as usize, name.span.end as usize);
            own.push(symbol(&name.text, kind, &uri, range));
        }
    }
    own.extend(standard);
    own.truncate(TOLD);
    Value::Array(own)
}

fn symbol(name: &str, what: NameKind, uri: &str, range: lsp_types::Range) -> Value {
    let location = json!({"uri": uri, "range": range});
    json!({"name": name, "kind": kind(what), "containerName": what.word(), "location": location})
}

/// Whether a name has all letters of a query in their order.
fn matches(name: &str, query: &str) -> bool {
    let mut letters = name.chars().flat_map(char::to_lowercase);
    query.chars().flat_map(char::to_lowercase).all(|wanted| letters.any(|letter| letter == wanted))
}

fn declared(declaration: &Declaration) -> Option<(NameKind, &Name)> {
    match declaration {
        Declaration::Import(_) => None,
        Declaration::Parameter(it) => Some((NameKind::FileParameter, &it.name)),
        Declaration::Let(it) => Some((NameKind::Let, &it.name)),
        Declaration::Function(it) => Some((NameKind::Function, &it.name)),
        Declaration::Schedule(it) => Some((NameKind::Schedule, &it.name)),
        Declaration::Layer(it) => Some((NameKind::Layer, &it.name)),
        Declaration::Model(it) => Some((NameKind::Model, &it.name)),
        Declaration::Pipeline(it) => Some((NameKind::Pipeline, &it.name)),
    }
}

/// Every `.pipe` file in some folders, but not in those that are hidden, built or installed.
fn sources(folders: &[PathBuf]) -> Vec<PathBuf> {
    let (mut waiting, mut found, mut visited) = (folders.to_vec(), Vec::new(), 0);
    while let Some(folder) = waiting.pop().filter(|_| visited < MOST && found.len() < MOST) {
        visited += 1;
        // Unreadable folders are skipped.
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        let mut entries: Vec<(PathBuf, bool)> = entries
            .filter_map(|entry| entry.ok().and_then(|entry| Some((entry.path(), entry.file_type().ok()?.is_dir()))))
            .collect();
        entries.sort_unstable();
        for (path, is_folder) in entries {
            if is_folder && !is_left_out(&path) {
                waiting.push(path);
            } else if !is_folder && path.extension().is_some_and(|extension| extension == "pipe") {
                found.push(path);
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found.truncate(MOST);
    found
}

fn is_left_out(folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with('.') || matches!(&*name, "target" | "node_modules")
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn names_have_the_letters_of_a_query_in_its_order() {
        for (name, query, wanted) in [
            ("one_f_one_b", "", true),
            ("one_f_one_b", "1", false),
            ("one_f_one_b", "FB", true),
            ("v_half", "vhalf", true),
            ("v_half", "hv", false),
        ] {
            assert_eq!(matches(name, query), wanted, "{name} {query}");
        }
    }
}
