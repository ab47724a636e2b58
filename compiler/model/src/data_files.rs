//! Rule: the files of a training feed the data of its model.

use crate::pipeline::Pipeline;
use crate::{DataTensor, Model};
use pipe_ir::graph::DType;
use pipe_ir::training::{DataSource, HeldOut};
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::source::Span;
use std::collections::BTreeSet;

/// Data that the files of a pipeline do not fill.
pub(crate) fn unfilled(model: &Model, pipeline: &Pipeline) -> Option<Diagnostic> {
    let training = pipeline.training.as_ref()?;
    let held_out = match training.validation.as_ref().map(|validation| &validation.data) {
        Some(HeldOut::File(source)) => Some(source),
        Some(HeldOut::Share(_)) | None => None,
    };
    let validation = pipeline.files.validation.zip(held_out).filter(|(_, source)| source.has_examples());
    let of_validation = || validation.and_then(|(span, source)| unfilled_by_examples(model, source, span));
    let span = pipeline.files.data;
    let found = match (training.document, training.data.has_examples()) {
        (Some(token), true) => Some(no_documents(token, &training.data, span?)),
        (None, true) => unfilled_by_examples(model, &training.data, span?),
        (document, false) => span.and_then(|span| unfilled_by_tokens(model, document, (&training.data, span))),
    };
    found.or_else(of_validation)
}

/// What a file of examples cannot have.
fn no_documents(token: u32, source: &DataSource, span: Span) -> Diagnostic {
    let path = source.paths().concat();
    let message =
        format!("`document = {token}` is for files of tokens along one axis, and each row of `{path}` is an example");
    let error = Diagnostic::error(Code::UnusableData, span, "a file of examples", message);
    error.help("leave `document` out; examples stay apart by themselves")
}

/// Rule: where rows are examples, each data tensor has rows, and where its files are named by tensor, one of them.
fn unfilled_by_examples(model: &Model, source: &DataSource, span: Span) -> Option<Diagnostic> {
    let tensors: Vec<&DataTensor> = model.data.iter().filter(|tensor| !tensor.is_key()).collect();
    let error = |label: &str, message| {
        let error = Diagnostic::error(Code::UnusableData, span, label, message);
        error.label(model.span, "this model")
    };
    if let Some(DataTensor { name, ty }) = tensors.iter().find(|tensor| tensor.ty.shape.is_empty()) {
        let message = format!("`{name}: {ty}` of the model has no rows, and each row of a file is an example");
        return Some(error("a row for each example", message).help("give the tensor an axis of rows: `[rows]`"));
    }
    let DataSource::ExamplesOf(files) = source else { return None };
    let names: Vec<String> = tensors.iter().map(|tensor| format!("`{}`", tensor.name)).collect();
    let names: BTreeSet<String> = names.into_iter().collect();
    let names = names.into_iter().collect::<Vec<_>>().join(" and ");
    if let Some((name, _)) = files.iter().find(|(name, _)| !tensors.iter().any(|tensor| tensor.name == *name)) {
        let message = format!("`{name}` has a file, and the model `{}` has no data `{name}`", model.name);
        return Some(error("no data of this name", message).help(format!("it has {names}")));
    }
    if let Some((name, path)) =
        files.iter().find(|(_, path)| ![".npy", ".safetensors"].iter().any(|end| path.ends_with(end)))
    {
        let message = format!("`{path}` for `{name}` is neither a `.npy` nor a `.safetensors` file");
        let help = format!("`numpy.save(\"{name}.npy\", array)` writes one");
        return Some(error("what is read has a row for each example", message).help(help));
    }
    let DataTensor { name, ty } = tensors.iter().find(|tensor| !files.iter().any(|(name, _)| *name == tensor.name))?;
    let message = format!("`{name}: {ty}` of the model has no file");
    Some(error("one is missing", message).help(format!("name it: `{name} = \"{name}.npy\"`")))
}

/// Data that a file of bytes or tokens does not fill: it has tokens, and targets one on; and where documents end, what
/// tells them apart.
fn unfilled_by_tokens(model: &Model, document: Option<u32>, (source, span): (&DataSource, Span)) -> Option<Diagnostic> {
    let of_documents = |tensor: &DataTensor| {
        let is_known = match tensor.name.as_str() {
            "starts" | "positions" => tensor.ty.dtype == DType::I32,
            "counted" => tensor.ty.dtype.is_float(),
            _ => false,
        };
        is_known && tensor.ty.shape.len() == 2
    };
    match (document, model.data.iter().find(|tensor| of_documents(tensor))) {
        (Some(token), None) => {
            let message = format!(
                "documents end with the token {token}, but the model `{}` does not keep them apart: it has no data \
                 `starts`",
                model.name
            );
            let error = Diagnostic::error(Code::UnusableData, span, "a file of documents", message);
            return Some(error.label(model.span, "this model").help(
                "`documents = 1` in the brackets of `gpt` and `llama` does; or leave `document` out, and a position \
                 sees all before it",
            ));
        }
        (None, Some(tensor)) => {
            let message = format!(
                "`{}: {}` of the model tells documents apart, and nothing says where documents of the file end",
                tensor.name, tensor.ty
            );
            let error = Diagnostic::error(Code::UnusableData, span, "a file without documents", message);
            return Some(error.label(model.span, "this model").help(
                "name the token at the end of each: `data \"tokens.bin\"(document = 50256)`; or leave `documents` out \
                 of the model",
            ));
        }
        _ => {}
    }
    let is_filled = |tensor: &&DataTensor| {
        ["tokens", "targets"].contains(&tensor.name.as_str())
            && tensor.ty.dtype == DType::I32
            && tensor.ty.shape.len() == 2
            || of_documents(tensor)
            || tensor.is_key()
    };
    let DataTensor { name, ty } = model.data.iter().find(|tensor| !is_filled(tensor))?;
    let label = if matches!(source, DataSource::Tokens(_)) { "a file of tokens" } else { "a file of bytes" };
    let message = format!(
        "`{name}: {ty}` of the model cannot come from {label}: those fill `tokens` and `targets`, i32[rows, sequence]"
    );
    let error = Diagnostic::error(Code::UnusableData, span, label, message);
    Some(error.label(model.span, "this model").help(
        "name a file with a row for each example for each of them, as `data images = \"x.npy\", labels = \"y.npy\"`; \
         or `data synthetic`, which fills every tensor",
    ))
}
