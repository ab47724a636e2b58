//! The `config.json` files that the pipelines of the root file name.

use super::{Path, Reader, resolve, shown, with_reach};
use crate::ast::{Call, Declaration, PipelineItem};
use crate::diagnostic::{Code, Diagnostic};
use crate::source::FileId;
use std::collections::BTreeMap;

/// The longest text that is read; those that models are published with have a few kilobytes.
const MAX_BYTES: usize = 1 << 20;

/// Texts by the path that a pipeline writes.
pub(super) type Configs = BTreeMap<String, (FileId, String)>;

impl Reader<'_> {
    /// Reads what the pipelines of the file that was read last name.
    pub(super) fn configs(&mut self, root: &Path) -> Configs {
        let mut calls: Vec<Call> = Vec::new();
        // Those that are trained, and not only known by their sizes.
        let mut trained: Vec<String> = Vec::new();
        for declaration in self.files.last().iter().flat_map(|file| &file.declarations) {
            let Declaration::Pipeline(pipeline) = declaration else { continue };
            let of_phases = pipeline.items.iter().filter_map(|item| match item {
                PipelineItem::Phase(phase) => Some(&phase.items),
                _ => None,
            });
            let items = pipeline.items.iter().chain(of_phases.flatten());
            let own: Vec<&Call> = items
                .clone()
                .filter_map(|item| match item {
                    PipelineItem::Config(call) => Some(call),
                    _ => None,
                })
                .collect();
            if items.clone().any(|item| matches!(item, PipelineItem::Train { .. })) {
                trained.extend(own.iter().map(|call| call.name.text.clone()));
            }
            calls.extend(own.into_iter().cloned());
        }
        let mut configs = Configs::new();
        for call in calls {
            let path = call.name.text.clone();
            if configs.contains_key(&path) {
                continue;
            }
            match self.config(root, &call) {
                Ok(found) => drop(configs.insert(path, found)),
                Err(error) => self.errors.push(*error),
            }
        }
        let families: Vec<&str> = trained.iter().filter_map(|path| Some(library(&configs.get(path)?.1))).collect();
        families.into_iter().for_each(|name| self.standard_model(name));
        configs
    }

    /// Makes a model of the standard library visible that a `config.json` is built from.
    fn standard_model(&mut self, name: &str) {
        let path = Path::Standard(format!("models.{name}"));
        if self.seen.contains_key(&path) {
            return;
        }
        if let Ok(source) = self.fetch(&path) {
            self.read(path, source);
            // The root file stays the last one.
            self.files.rotate_right(1);
        }
    }

    fn config(&mut self, root: &Path, call: &Call) -> Result<(FileId, String), Box<Diagnostic>> {
        let path = crate::ast::ImportPath::Relative(call.name.text.clone());
        let fail = |message: String| Diagnostic::error(Code::ImportFailed, call.name.span, "named here", message);
        let path = resolve(root, &path).map_err(|reason| Box::new(with_reach(fail(reason))))?;
        let source = self.fetch(&path).map_err(|reason| {
            let error = fail(format!("`{}` cannot be read: {reason}", shown(&path)));
            Box::new(error.help("paths are relative to the folder of the file that names them"))
        })?;
        if source.text.len() > MAX_BYTES {
            let (name, bytes) = (shown(&path), source.text.len());
            let message = format!("`{name}` has {bytes} bytes; at most {MAX_BYTES} are read");
            return Err(Box::new(Diagnostic::error(Code::TooLarge, call.name.span, "this file", message)));
        }
        let text = source.text.clone();
        Ok((self.sources.add(source), text))
    }
}

/// The file of the standard library that has the layers of a `config.json`.
fn library(config: &str) -> &'static str {
    let read: Option<serde_json::Value> = serde_json::from_str(config).ok();
    let family = read.as_ref().and_then(|object| object.get("model_type")?.as_str());
    if family == Some("gpt2") { "gpt" } else { "llama" }
}
