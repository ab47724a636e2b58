//! One compilation, with the files that it read.

use crate::input::{TimedArguments, load};
use crate::output::Failure;
use crate::output::diagnostics::{Look, draw};
use crate::output::findings::check_names;
use pipe_compiler::Compilation;
use pipe_plot::Picture;
use pipe_syntax::source::Sources;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Columns of errors in the page.
const WIDTH: usize = 110;

/// What came of it.
pub(crate) struct Compiled {
    pub(crate) compilation: Compilation,
    pub(crate) sources: Sources,
    /// Whose changes matter.
    pub(crate) files: BTreeSet<PathBuf>,
}

/// Compiles the target. Fails if a file that the command names cannot be read, or it names something that is not there.
pub(crate) fn compile(timed: &TimedArguments) -> Result<Compiled, Failure> {
    let files = RefCell::new(timed.files().map(Path::to_owned).collect::<BTreeSet<_>>());
    let (root, folder) = timed.target.read()?;
    let loader = |path: &str| {
        files.borrow_mut().insert(folder.join(path));
        load(&folder, path)
    };
    let (compilation, sources) = match timed.request()? {
        Ok(request) => {
            let mut sources = Sources::default();
            let compilation = pipe_compiler::compile(&mut sources, root, &loader, &request);
            (compilation, sources)
        }
        Err(rejected) => *rejected,
    };
    check_names(&compilation.diagnostics)?;
    Ok(Compiled { compilation, sources, files: files.into_inner() })
}

impl Compiled {
    /// What speaks against the target, as it is drawn in a terminal without colours.
    pub(crate) fn findings(&self) -> String {
        let drawn = draw(&self.compilation.diagnostics, &self.sources, Look { width: WIDTH, colours: false });
        self.compilation.mistakes().fold(drawn, |drawn, mistake| drawn + &mistake + "\n")
    }

    /// Its picture as JSON, if it runs to its end.
    pub(crate) fn picture(&self) -> Option<String> {
        let picture = Picture::with_sources(&self.compilation, &self.sources)?;
        Some(serde_json::to_string(&picture).expect("a picture is plain data"))
    }
}
