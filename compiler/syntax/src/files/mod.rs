//! Files: a root file with everything it imports, and the standard library's schedules, as one table of declarations.
//!
//! A declaration is visible in every file of the compilation. Names are unique within their kind; only the standard
//! library's schedules may be hidden, by a schedule of the same name.

mod configs;
mod numbers;
mod phases;

use crate::diagnostic::{Code, Diagnostic, Diagnostics};
use crate::expr::scope::Form;
use crate::source::{FileId, Source, Sources, Span};
use crate::torch::table::Table;
use crate::{ast, parse, stdlib, torch};
use ast::Declaration;
use std::collections::BTreeMap;

/// The most files that a compilation reads.
pub const MAX_FILES: usize = 256;

/// The most errors that are reported of the form of files; nobody reads more.
const MAX_ERRORS: usize = 100;

/// Reads an imported file: takes its path relative to the folder of the root file, with `/` between folders, and
/// returns its text, or says in a few words why it cannot.
pub type Loader<'a> = dyn Fn(&str) -> Result<String, String> + 'a;

/// Every declaration of a compilation.
#[derive(Clone, Debug, Default)]
pub struct Files {
    files: Vec<ast::File>,
    root: Option<FileId>,
    /// Positions in `files` and in its declarations.
    table: BTreeMap<(Kind, String), (usize, usize)>,
    configs: configs::Configs,
    /// The phases of the pipelines of the root file that have some, by the name of the pipeline.
    phases: BTreeMap<String, Vec<ast::Pipeline>>,
    tables: Tables,
    warnings: Diagnostics,
}

/// What was read as schedules of PyTorch.
type Tables = BTreeMap<FileId, Table>;

/// What names are unique within.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    /// Of parameters, `let`s and functions.
    Value,
    Schedule,
    Layer,
    Model,
    Pipeline,
}

impl Kind {
    const fn word(self) -> &'static str {
        match self {
            Self::Value => "definition",
            Self::Schedule => "schedule",
            Self::Layer => "layer",
            Self::Model => "model",
            Self::Pipeline => "pipeline",
        }
    }
}

/// Parses a root file and everything that it imports, and adds their texts to `sources`.
///
/// # Errors
/// If any of them cannot be read, does not parse, or declares a name again.
pub fn load(sources: &mut Sources, root: Source, loader: &Loader<'_>) -> Result<Files, Diagnostics> {
    let (files, errors) = read(sources, root, loader);
    if errors.is_empty() { Ok(files) } else { Err(errors) }
}

/// As [`load`], with the declarations that parse also where others do not.
pub fn read(sources: &mut Sources, root: Source, loader: &Loader<'_>) -> (Files, Diagnostics) {
    let (folder, name) = root.name.rsplit_once('/').map_or(("", root.name.as_str()), |(folder, name)| (folder, name));
    let (folder, path) = (folder.to_owned(), Path::Relative(name.to_owned()));
    let mut reader = Reader {
        sources,
        folder,
        loader,
        files: Vec::new(),
        seen: BTreeMap::new(),
        tables: Tables::new(),
        warnings: Vec::new(),
        errors: Vec::new(),
    };
    reader.read(path.clone(), root);
    let configs = reader.configs(&path);
    let Reader { files, tables, warnings, mut errors, .. } = reader;
    let mut files = Files {
        root: files.last().map(|file| file.id),
        files,
        table: BTreeMap::new(),
        configs,
        phases: BTreeMap::new(),
        tables,
        warnings,
    };
    files.divide(&mut errors);
    files.declare(0, &mut errors);
    files.add_standard_schedules(sources, &mut errors);
    errors.truncate(MAX_ERRORS);
    (files, errors)
}

/// Which file: what imports of the same file have in common.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Path {
    /// Of the standard library.
    Standard(String),
    /// Relative to the root file's folder.
    Relative(String),
}

/// Reads files, the imported ones before those that import them.
struct Reader<'l> {
    sources: &'l mut Sources,
    /// The root file's folder, as the user wrote it.
    folder: String,
    loader: &'l Loader<'l>,
    files: Vec<ast::File>,
    /// Whether a file is finished; an unfinished one is being read, further up.
    seen: BTreeMap<Path, bool>,
    tables: Tables,
    warnings: Diagnostics,
    errors: Diagnostics,
}

impl Reader<'_> {
    fn read(&mut self, path: Path, source: Source) {
        let text = source.text.clone();
        let id = self.sources.add(source);
        self.seen.insert(path.clone(), false);
        let (mut file, errors) = self.parse(id, &text);
        if errors.is_empty() && matches!(path, Path::Relative(_)) {
            self.warnings.extend(parse::divisions(id, &text));
        }
        self.errors.extend(errors);
        self.numbers(&path, &mut file);
        for declaration in &file.declarations {
            if let Declaration::Import(import) = declaration {
                self.import(&path, import);
            }
        }
        self.files.push(file);
        self.seen.insert(path, true);
    }

    fn parse(&mut self, id: FileId, text: &str) -> (ast::File, Diagnostics) {
        let Some(stem) = self.sources.get(id).name.strip_suffix(".csv") else { return parse::parse_parts(id, text) };
        let name = stem.rsplit('/').next().unwrap_or(stem);
        let name = name.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        match torch::read::read(id, text) {
            Ok(table) => {
                let file = table.syntax(id, &name);
                self.tables.insert(id, table);
                (file, Vec::new())
            }
            Err(errors) => (ast::File { id, declarations: Vec::new() }, errors),
        }
    }

    fn import(&mut self, importer: &Path, import: &ast::Import) {
        let path = match resolve(importer, &import.path) {
            Ok(path) => path,
            Err(reason) => {
                let error = Diagnostic::error(Code::ImportFailed, import.span, "this path", reason);
                return self.errors.push(with_reach(error));
            }
        };
        match self.seen.get(&path) {
            Some(true) => return,
            Some(false) => {
                let message = format!("`{}` imports itself, directly or through others", shown(&path));
                return self.fail(Code::ImportCycle, import.span, "closes the cycle", message);
            }
            None => {}
        }
        if self.seen.len() >= MAX_FILES {
            let message = format!("the file imports more than {MAX_FILES} files");
            return self.fail(Code::TooLarge, import.span, "one too many", message);
        }
        match self.fetch(&path) {
            Ok(source) => self.read(path, source),
            Err(reason) => {
                let message = format!("`{}` cannot be read: {reason}", shown(&path));
                let error = Diagnostic::error(Code::ImportFailed, import.span, "imported here", message);
                let known: Vec<String> = stdlib::paths().map(|path| format!("std.{path}")).collect();
                self.errors.push(match &path {
                    Path::Standard(_) => error.suggest(import.span, &shown(&path), known.iter().map(String::as_str)),
                    Path::Relative(_) => error.help("paths are relative to the folder of the importing file"),
                });
            }
        }
    }

    fn fetch(&self, path: &Path) -> Result<Source, String> {
        match path {
            Path::Standard(name) => {
                let text = stdlib::file(name).ok_or("the standard library has no such file")?;
                Ok(Source { name: shown(path), text: text.to_owned() })
            }
            Path::Relative(relative) => {
                let text = (self.loader)(relative)?;
                let folder = if self.folder.is_empty() { String::new() } else { format!("{}/", self.folder) };
                Ok(Source { name: format!("{folder}{relative}"), text })
            }
        }
    }

    fn fail(&mut self, code: Code, span: Span, label: &str, message: String) {
        self.errors.push(Diagnostic::error(code, span, label, message));
    }
}

fn shown(path: &Path) -> String {
    match path {
        Path::Standard(name) => format!("std.{name}"),
        Path::Relative(path) => path.clone(),
    }
}

/// Follows an import from the file that holds it; `..` stays within the root file's folder.
fn resolve(importer: &Path, import: &ast::ImportPath) -> Result<Path, String> {
    let written = match (import, importer) {
        (ast::ImportPath::Standard(name), _) => return Ok(Path::Standard(name.clone())),
        (ast::ImportPath::Relative(path), Path::Standard(_)) => {
            return Err(format!("a file of the standard library cannot import `{path}`"));
        }
        (ast::ImportPath::Relative(path), Path::Relative(_)) => path,
    };
    if written.starts_with('/') || written.contains(['\\', ':']) {
        return Err(format!("`{written}` is not a relative path with `/` between folders"));
    }
    let Path::Relative(importer) = importer else { return Err("the standard library has no folders".to_owned()) };
    let mut folders: Vec<&str> = importer.split('/').collect();
    folders.pop();
    for part in written.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                folders
                    .pop()
                    .ok_or_else(|| format!("`{written}` leaves the folder of the file that was named first"))?;
            }
            folder => folders.push(folder),
        }
    }
    if folders.is_empty() {
        return Err(format!("`{written}` names no file"));
    }
    Ok(Path::Relative(folders.join("/")))
}

/// What helps a path that [`resolve`] refuses because it leads out.
fn with_reach(error: Diagnostic) -> Diagnostic {
    if !error.message.contains(" leaves the folder ") {
        return error;
    }
    error.help("put what it names, or a link to it, into that folder or one below; then write the path from there")
}

impl Files {
    /// Enters the declarations of `files[first..]` into the table.
    fn declare(&mut self, first: usize, errors: &mut Diagnostics) {
        for (file, parsed) in self.files.iter().enumerate().skip(first) {
            for (position, declaration) in parsed.declarations.iter().enumerate() {
                let Some((kind, name)) = name_of(declaration) else { continue };
                duplicate_parameters(declaration, errors);
                let Some(other) = self.table.insert((kind, name.text.clone()), (file, position)) else { continue };
                let earlier = self.files.get(other.0).and_then(|file| file.declarations.get(other.1)).and_then(name_of);
                let message = format!("there are two {}s with the name `{}`", kind.word(), name.text);
                let error = Diagnostic::error(Code::DuplicateName, name.span, "declared again", message);
                errors
                    .push(earlier.into_iter().fold(error, |error, (_, name)| error.label(name.span, "declared here")));
            }
        }
    }

    /// Finds the phases of the root file's pipelines.
    fn divide(&mut self, errors: &mut Diagnostics) {
        let mut phases = BTreeMap::new();
        for declaration in self.declarations(self.root) {
            let Declaration::Pipeline(pipeline) = declaration else { continue };
            phases::check(pipeline, errors);
            let own = phases::of(pipeline);
            if !own.is_empty() {
                phases.insert(pipeline.name.text.clone(), own);
            }
        }
        self.phases = phases;
    }

    fn add_standard_schedules(&mut self, sources: &mut Sources, errors: &mut Diagnostics) {
        let first = self.files.len();
        for (name, text) in stdlib::SCHEDULES {
            if self.schedule(name).is_none() {
                let id = sources.add(Source { name: format!("std:{name}"), text: (*text).to_owned() });
                match parse::parse(id, text) {
                    Ok(file) => self.files.push(file),
                    Err(found) => errors.extend(found),
                }
            }
        }
        self.declare(first, errors);
    }

    fn find(&self, kind: Kind, name: &str) -> Option<&Declaration> {
        let (file, position) = *self.table.get(&(kind, name.to_owned()))?;
        self.files.get(file)?.declarations.get(position)
    }

    fn names(&self, kind: Kind) -> impl Iterator<Item = &str> {
        self.table.keys().filter(move |(other, _)| *other == kind).map(|(_, name)| name.as_str())
    }

    /// What was read as a schedule of PyTorch, if the root file is one.
    pub fn root_table(&self) -> Option<&Table> {
        self.table(self.root?)
    }

    /// What was read as a schedule of PyTorch, if a file is one.
    pub fn table(&self, file: FileId) -> Option<&Table> {
        self.tables.get(&file)
    }

    /// The schedule of this name.
    pub fn schedule(&self, name: &str) -> Option<&ast::Schedule> {
        self.find(Kind::Schedule, name)
            .and_then(|found| if let Declaration::Schedule(it) = found { Some(it) } else { None })
    }

    /// The layer of this name.
    pub fn layer(&self, name: &str) -> Option<&ast::Layer> {
        self.find(Kind::Layer, name).and_then(|found| if let Declaration::Layer(it) = found { Some(it) } else { None })
    }

    /// The model of this name.
    pub fn model(&self, name: &str) -> Option<&ast::Model> {
        self.find(Kind::Model, name).and_then(|found| if let Declaration::Model(it) = found { Some(it) } else { None })
    }

    /// The `config.json` that a pipeline of the root file names so, and its text.
    pub fn config(&self, path: &str) -> Option<(FileId, &str)> {
        self.configs.get(path).map(|(file, text)| (*file, text.as_str()))
    }

    /// The names of all schedules, the standard library's among them.
    pub fn schedule_names(&self) -> impl Iterator<Item = &str> {
        self.names(Kind::Schedule)
    }

    /// The names of all layers.
    pub fn layer_names(&self) -> impl Iterator<Item = &str> {
        self.names(Kind::Layer)
    }

    /// The names of all models.
    pub fn model_names(&self) -> impl Iterator<Item = &str> {
        self.names(Kind::Model)
    }

    /// The parameters of all files.
    pub fn parameters(&self) -> impl Iterator<Item = &ast::Parameter> {
        self.declarations(None).filter_map(|found| if let Declaration::Parameter(it) = found { Some(it) } else { None })
    }

    /// What files define with `let`, outside of their other declarations.
    pub fn definitions(&self) -> impl Iterator<Item = (&ast::Name, Form<'_>)> {
        self.declarations(None).filter_map(|found| match found {
            Declaration::Let(it) => Some((&it.name, Form::Let(&it.value))),
            Declaration::Function(it) => Some((&it.name, Form::Function(it))),
            _ => None,
        })
    }

    /// The pipelines of the root file, in the order of the text. Phases of a pipeline stand in its place.
    pub fn root_pipelines(&self) -> impl Iterator<Item = &ast::Pipeline> {
        let all = self.declarations(self.root);
        let all = all.filter_map(|found| if let Declaration::Pipeline(it) = found { Some(it) } else { None });
        all.flat_map(|pipeline| match self.phases.get(&pipeline.name.text) {
            Some(phases) => phases.as_slice(),
            None => std::slice::from_ref(pipeline),
        })
    }

    /// The names of the phases of a pipeline of the root file; without a name, of its only pipeline. Empty if it has
    /// none.
    pub fn phases(&self, pipeline: Option<&str>) -> Vec<String> {
        let own = match pipeline {
            Some(name) => self.phases.get(name),
            None => self.phases.values().next().filter(|own| self.root_pipelines().count() == own.len()),
        };
        own.into_iter().flatten().map(|phase| phase.name.text.clone()).collect()
    }

    /// The schedules of the root file, in the order of the text.
    pub fn root_schedules(&self) -> impl Iterator<Item = &ast::Schedule> {
        self.declarations(self.root)
            .filter_map(|found| if let Declaration::Schedule(it) = found { Some(it) } else { None })
    }

    /// All files, the imported ones before those that import them, then the standard library's schedules.
    pub fn all(&self) -> impl Iterator<Item = &ast::File> {
        self.files.iter()
    }

    /// What looks wrong in the form of the files, and is accepted.
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.warnings
    }

    /// The beginning of the root file.
    pub fn root_span(&self) -> Span {
        Span { file: self.root.unwrap_or(FileId(0)), start: 0, end: 0 }
    }

    /// Those of one file, or of all.
    fn declarations(&self, file: Option<FileId>) -> impl Iterator<Item = &Declaration> {
        self.files.iter().filter(move |found| file.is_none_or(|id| id == found.id)).flat_map(|file| &file.declarations)
    }
}

fn name_of(declaration: &Declaration) -> Option<(Kind, &ast::Name)> {
    Some(match declaration {
        Declaration::Import(_) => return None,
        Declaration::Parameter(it) => (Kind::Value, &it.name),
        Declaration::Let(it) => (Kind::Value, &it.name),
        Declaration::Function(it) => (Kind::Value, &it.name),
        Declaration::Schedule(it) => (Kind::Schedule, &it.name),
        Declaration::Layer(it) => (Kind::Layer, &it.name),
        Declaration::Model(it) => (Kind::Model, &it.name),
        Declaration::Pipeline(it) => (Kind::Pipeline, &it.name),
    })
}

/// Two parameters of one declaration with the same name.
fn duplicate_parameters(declaration: &Declaration, errors: &mut Diagnostics) {
    let parameters = match declaration {
        Declaration::Schedule(it) => &it.parameters,
        Declaration::Layer(it) => &it.parameters,
        Declaration::Model(it) => &it.parameters,
        // A function says so itself, wherever it stands.
        Declaration::Import(_)
        | Declaration::Parameter(_)
        | Declaration::Let(_)
        | Declaration::Function(_)
        | Declaration::Pipeline(_) => return,
    };
    let mut seen: BTreeMap<&str, Span> = BTreeMap::new();
    for parameter in parameters {
        if let Some(first) = seen.insert(&parameter.name.text, parameter.name.span) {
            let message = format!("there are two parameters with the name `{}`", parameter.name.text);
            let error = Diagnostic::error(Code::DuplicateName, parameter.name.span, "declared again", message);
            errors.push(error.label(first, "declared here"));
        }
    }
}

#[cfg(test)]
mod tests;
