//! What a run opens: `check` opens it as well, so that nothing is accepted that cannot begin.

use crate::output::reason;
use pipe_compiler::Compilation;
use pipe_ir::program::Program;
use pipe_ir::training::{DataSource, Training};
use pipe_ir::verify::Verified;
use pipe_runtime::data::{self, DataError};
use pipe_runtime::weights::{self, WeightsError};
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::source::{Sources, Span};
use std::io;
use std::path::Path;

/// Adds what speaks against the files of an accepted target: its data and its initial weights, relative to the folder,
/// and, where it saves, the folder of its checkpoints.
pub(crate) fn check(compilation: &mut Compilation, sources: &Sources, folder: &Path, saves: bool) {
    let pipeline = compilation.analysis.as_ref().and_then(|analysis| analysis.pipeline.as_ref());
    let Some((pipeline, program)) = pipeline.zip(compilation.program.as_ref().map(Verified::program)) else { return };
    let Some(training) = pipeline.training.as_ref().filter(|_| pipeline.has_model()) else { return };
    let data =
        pipeline.files.data.and_then(|span| of_data(program, training, folder, (span, pipeline.files.tokenizer)));
    let held_out = pipeline.files.validation.filter(|_| data.is_none());
    let held_out = held_out.and_then(|span| of_held_out(program, folder, (span, pipeline.files.tokenizer)));
    let init = pipeline.files.init.and_then(|span| of_weights(program, training, folder, span));
    let checkpoints = pipeline.files.checkpoint.filter(|_| saves).and_then(|span| of_checkpoints(training, span));
    let found: Vec<Diagnostic> = data.into_iter().chain(held_out).chain(init).chain(checkpoints).collect();
    if !found.is_empty() {
        compilation.diagnostics.extend(found);
        compilation.conclude(sources);
    }
}

fn of_data(program: &Program, training: &Training, folder: &Path, spans: Spans) -> Option<Diagnostic> {
    if training.data == DataSource::Synthetic {
        return None;
    }
    Some(refused(&data::check(program, folder).err()?, folder, spans))
}

fn of_held_out(program: &Program, folder: &Path, spans: Spans) -> Option<Diagnostic> {
    Some(refused(&data::check_held_out(program, folder).err()?, folder, spans))
}

/// The line of the data, and that of the tokenizer.
type Spans = (Span, Option<Span>);

fn refused(error: &DataError, folder: &Path, (span, tokenizer): Spans) -> Diagnostic {
    let (label, help) = match error {
        DataError::Tokenizer { .. } => {
            let error =
                Diagnostic::error(Code::UnusableData, tokenizer.unwrap_or(span), "this tokenizer", error.to_string());
            return error.help(
                "take a `tokenizer.json` as it is published; its path starts from the folder of the `.pipe` file",
            );
        }
        DataError::NoText { .. } => ("this is no text", "a tokenizer reads text in UTF-8"),
        DataError::Read { path, source } => return unread(path, source, folder, span),
        DataError::TooShort { .. } => ("this is too short", "take a longer text, or a shorter sequence"),
        DataError::OutsideVocabulary { unit: "byte", .. } => {
            ("a byte has no row", "give the model a table of 256 rows")
        }
        DataError::NoToken { .. } => {
            ("a number is no token", "tokens count from 0: leave out what marks padding, such as -1 or -100")
        }
        DataError::NoEnd { .. } => ("no token ends a document", "name the token that ends each document of this file"),
        DataError::OutsideVocabulary { .. } => ("a token has no row", "give the model a table of more rows"),
        DataError::Unfit { help, .. } => {
            let error =
                Diagnostic::error(Code::UnusableData, span, "these do not fill this model's data", error.to_string());
            return error.help(help.clone());
        }
        DataError::Malformed { noun: "a file of tokens", .. } => (
            "not a file of tokens",
            "`.bin` files have numbers of 16 or 32 bits, `.npy` files one axis of whole numbers",
        ),
        DataError::Malformed { .. } => {
            ("not a file of examples", "`numpy.save` and `safetensors.numpy.save_file` write such files")
        }
        DataError::Unsupported { .. } => ("these do not fill this model's data", "`data synthetic` fills every tensor"),
    };
    Diagnostic::error(Code::UnusableData, span, label, error.to_string()).help(help)
}

fn of_weights(program: &Program, training: &Training, folder: &Path, span: Span) -> Option<Diagnostic> {
    let error = weights::check(program, &folder.join(training.init.as_ref()?)).err()?;
    let (message, help) = match &error {
        WeightsError::Io { path, source } => {
            let message = format!("cannot read `{}`: {}", path.display(), reason(source));
            (message, "the path is relative to the folder of the `.pipe` file")
        }
        WeightsError::Unfit { .. } => (error.to_string(), "take weights that were saved with this model"),
        _ => (error.to_string(), "take the files as they are published"),
    };
    Some(Diagnostic::error(Code::UnusableData, span, "these weights", message).help(help))
}

/// A file that cannot be read, with the folder that its path starts from.
fn unread(path: &Path, why: &io::Error, folder: &Path, span: Span) -> Diagnostic {
    let message = format!("cannot read the data file {}: {}", path.display(), reason(why));
    let error = Diagnostic::error(Code::UnusableData, span, "this cannot be read", message);
    // An empty path means the working directory.
    let from = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let from = from.canonicalize().unwrap_or_else(|_| from.to_owned());
    let note = format!("the path in `data` starts from the folder of the `.pipe` file: {}", from.display());
    let error = if path.is_absolute() { error } else { error.note(note) };
    error.help("write the path of a file that is there, or `data synthetic`, which needs no file")
}

fn of_checkpoints(training: &Training, span: Span) -> Option<Diagnostic> {
    let path = Path::new(&training.checkpoint.as_ref()?.path);
    // What is missing is made.
    let there = path.ancestors().find_map(|part| Some((part, part.metadata().ok()?)));
    there.filter(|(_, found)| !found.is_dir()).map(|(part, _)| {
        let message =
            format!("checkpoints go to the folder {}, and {} is not a folder", path.display(), part.display());
        Diagnostic::error(Code::UnusableData, span, "this is not a folder", message)
            .help("the path is relative to the working directory")
    })
}
