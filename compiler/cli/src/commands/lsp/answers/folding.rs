//! Folding ranges.

use crate::commands::lsp::here::Here;
use lsp_types::FoldingRangeKind;
use pipe_ide::folds::{Fold, FoldKind, folds};
use serde_json::{Value, json};

pub(in crate::commands::lsp) fn folding(here: &Here<'_>) -> Value {
    let range = |fold: &Fold| {
        let kind = match fold.kind {
            FoldKind::Comment => FoldingRangeKind::Comment,
            FoldKind::Imports => FoldingRangeKind::Imports,
            FoldKind::Region => FoldingRangeKind::Region,
        };
        json!({"startLine": fold.first, "endLine": fold.last, "kind": kind})
    };
    folds(&here.document.text).iter().map(range).collect()
}
