//! What can be written next, as the protocol says it.

use crate::commands::lsp::here::Here;
use pipe_ide::completion::{self, OfferKind};
use pipe_syntax::source::FileId;
use serde_json::{Value, json};

pub(in crate::commands::lsp) fn complete(here: &Here<'_>) -> Value {
    let completion = completion::complete(&here.place());
    let begun = completion.begun;
    let range = here.project.lines(FileId(0)).range(&here.document.text, begun.start, begun.end);
    let item = |offer: &completion::Offer| {
        let edit = json!({"range": range, "newText": offer.text()});
        json!({"label": offer.label, "kind": number(offer.kind), "detail": offer.detail, "textEdit": edit})
    };
    completion.offers.iter().map(item).collect()
}

/// Kinds of completions, as the protocol counts them.
const fn number(kind: OfferKind) -> u8 {
    match kind {
        OfferKind::Function => 3,
        OfferKind::Variable => 6,
        OfferKind::Declaration => 7,
        OfferKind::Import => 9,
        OfferKind::Argument | OfferKind::Part => 10,
        OfferKind::Keyword => 14,
        OfferKind::Constant => 21,
    }
}
