//! Documents that are open, as the editor has them, and what they make together with the files that they import.

use super::positions::Lines;
use super::uris;
use crate::input::load;
use crate::output::write;
use lsp_types::{Range, TextDocumentContentChangeEvent};
use pipe_ide::Names;
use pipe_syntax::files;
use pipe_syntax::source::{FileId, Source, Sources, Span};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// One of them.
pub(super) struct Document {
    /// As the client writes it.
    pub(super) uri: String,
    pub(super) text: String,
    pub(super) version: i32,
    project: Option<Rc<Project>>,
}

/// All of them, by their normal URI.
#[derive(Default)]
pub(super) struct Documents(BTreeMap<String, Document>);

/// What a document is beside its text: enough to compile it somewhere else.
#[derive(Clone)]
pub(super) struct Root {
    pub(super) uri: String,
    pub(super) source: Source,
    /// Where its imports are; none where it is not saved yet.
    pub(super) folder: Option<PathBuf>,
    /// Texts of other open documents.
    pub(super) open: BTreeMap<PathBuf, String>,
}

/// A document with everything that it imports, and its names.
pub(super) struct Project {
    pub(super) names: Names,
    pub(super) sources: Sources,
    lines: Vec<Lines>,
    places: Places,
}

/// Where the files of a compilation are.
#[derive(Clone)]
pub(super) struct Places {
    uri: String,
    folder: Option<PathBuf>,
}

impl Documents {
    pub(super) fn open(&mut self, uri: &str, text: String, version: i32) {
        let document = Document { uri: uri.to_owned(), text, version, project: None };
        self.0.insert(uris::normal(uri), document);
        self.forget();
    }

    /// Edits a document; one that is not open is left alone.
    pub(super) fn change(&mut self, uri: &str, version: i32, changes: Vec<TextDocumentContentChangeEvent>) {
        let Some(document) = self.0.get_mut(&uris::normal(uri)) else { return };
        document.version = version;
        for change in changes {
            match change.range {
                None => document.text = change.text,
                Some(range) => {
                    let lines = Lines::new(&document.text);
                    let start = lines.byte(&document.text, range.start);
                    let end = lines.byte(&document.text, range.end).max(start);
                    document.text.replace_range(start..end, &change.text);
                }
            }
        }
        self.forget();
    }

    pub(super) fn close(&mut self, uri: &str) {
        self.0.remove(&uris::normal(uri));
        self.forget();
    }

    /// What was made of documents may be out of date: they import each other.
    fn forget(&mut self) {
        self.0.values_mut().for_each(|document| document.project = None);
    }

    pub(super) fn get(&self, uri: &str) -> Option<&Document> {
        self.0.get(&uris::normal(uri))
    }

    pub(super) fn uris(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    /// As the client writes it, if it has it open.
    pub(super) fn spelled(&self, uri: &str) -> String {
        self.get(uri).map_or_else(|| uri.to_owned(), |document| document.uri.clone())
    }

    /// What is needed to compile a document.
    pub(super) fn root(&self, uri: &str) -> Option<Root> {
        let document = self.get(uri)?;
        let path = uris::to_path(&document.uri);
        let name = path.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        let source = Source { name: name.unwrap_or_else(|| "untitled.pipe".to_owned()), text: document.text.clone() };
        let others = self.0.values().filter(|other| other.uri != document.uri);
        let open = others.filter_map(|other| Some((uris::to_path(&other.uri)?, other.text.clone()))).collect();
        let folder = path.and_then(|path| path.parent().map(Path::to_owned));
        Some(Root { uri: document.uri.clone(), source, folder, open })
    }

    /// The names of a document and of what it imports.
    pub(super) fn project(&mut self, uri: &str) -> Option<Rc<Project>> {
        let key = uris::normal(uri);
        if let Some(project) = self.0.get(&key)?.project.clone() {
            return Some(project);
        }
        let project = Rc::new(Project::new(&self.root(&key)?));
        self.0.get_mut(&key)?.project = Some(project.clone());
        Some(project)
    }
}

impl Root {
    /// The text of an imported file: as the editor has it, or as it is saved.
    pub(super) fn load(&self, path: &str) -> Result<String, String> {
        let folder = self.folder.as_deref().ok_or("the document has no folder yet; save it first")?;
        self.open.get(&folder.join(path)).cloned().map_or_else(|| load(folder, path), Ok)
    }

    pub(super) fn places(&self) -> Places {
        Places { uri: self.uri.clone(), folder: self.folder.clone() }
    }
}

impl Places {
    /// The URI of a file of the compilation. Those of the standard library are written to a folder of copies first.
    pub(super) fn uri(&self, file: FileId, name: &str, text: &str) -> Option<String> {
        if file == FileId(0) {
            return Some(self.uri.clone());
        }
        if is_standard(name) {
            return standard_copy(name, text).map(|path| uris::from_path(&path));
        }
        Some(uris::from_path(&self.folder.as_ref()?.join(name)))
    }
}

/// Whether a source is part of the standard library.
pub(super) fn is_standard(name: &str) -> bool {
    name.starts_with("std:") || name.starts_with("std.")
}

/// Where copies of the standard library are, for editors to open.
pub(super) fn copies() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || variable("HOME").map(|home| home.join(".cache"));
    let cache = variable("XDG_CACHE_HOME").or_else(home).or_else(|| variable("LOCALAPPDATA"));
    cache.unwrap_or_else(std::env::temp_dir).join("pipec").join(env!("CARGO_PKG_VERSION"))
}

fn standard_copy(name: &str, text: &str) -> Option<PathBuf> {
    let path = copies().join(name.trim_start_matches("std").trim_start_matches([':', '.']).replace('.', "/"));
    let path = path.with_extension("pipe");
    if std::fs::read_to_string(&path).is_ok_and(|found| found == text) {
        return Some(path);
    }
    std::fs::create_dir_all(path.parent()?).ok()?;
    write(&path, text).ok()?;
    // To be read, not written: an edit would change nothing.
    let mut permissions = std::fs::metadata(&path).ok()?.permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(&path, permissions).ok()?;
    Some(path)
}

impl Project {
    fn new(root: &Root) -> Self {
        let mut sources = Sources::default();
        let (files, _) = files::read(&mut sources, root.source.clone(), &|path| root.load(path));
        let names = Names::of(&files);
        let lines = sources.files.iter().map(|source| Lines::new(&source.text)).collect();
        Self { names, sources, lines, places: root.places() }
    }

    pub(super) fn text(&self, file: FileId) -> &str {
        &self.sources.get(file).text
    }

    pub(super) fn is_standard(&self, file: FileId) -> bool {
        is_standard(&self.sources.get(file).name)
    }

    pub(super) fn uri(&self, file: FileId) -> Option<String> {
        let source = self.sources.get(file);
        self.places.uri(file, &source.name, &source.text)
    }

    pub(super) fn lines(&self, file: FileId) -> &Lines {
        &self.lines[file.0 as usize]
    }

    pub(super) fn range(&self, span: Span) -> Range {
        self.lines(span.file).range(self.text(span.file), span.start as usize, span.end as usize)
    }
}
