//! What a request is about: a place in a document, with all that is known of it.

use super::analysis::Figure;
use super::documents::{Document, Project};
use lsp_server::ErrorCode;
use pipe_ide::NameKind;
use serde_json::Value;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Figures by kind and name.
pub(super) type Figures = BTreeMap<(NameKind, String), Figure>;

/// Why a request has no answer: a number of the protocol, and words.
pub(super) struct Refusal(pub(super) ErrorCode, pub(super) String);

impl Refusal {
    /// Something that the user can be told.
    pub(super) fn because(reason: impl Into<String>) -> Self {
        Self(ErrorCode::RequestFailed, reason.into())
    }
}

/// A place in a document, with all that is known of it.
pub(super) struct Here<'s> {
    pub(super) document: &'s Document,
    pub(super) project: Rc<Project>,
    pub(super) byte: usize,
    pub(super) figures: &'s Figures,
    /// Findings of the document.
    pub(super) findings: &'s [Value],
    /// Whether these are of the text as it is now.
    pub(super) is_fresh: bool,
}
