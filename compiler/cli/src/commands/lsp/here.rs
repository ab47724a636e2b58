//! The position that a request is about, with all that is known of its document.

use super::analysis::Figure;
use super::documents::{Document, Project};
use lsp_server::ErrorCode;
use pipe_ide::NameKind;
use serde_json::Value;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Figures by kind and name.
pub(super) type Figures = BTreeMap<(NameKind, String), Figure>;

/// Why a request fails: an error code of the protocol and a message.
pub(super) struct Refusal(pub(super) ErrorCode, pub(super) String);

impl Refusal {
    /// A message for the user.
    pub(super) fn because(reason: impl Into<String>) -> Self {
        Self(ErrorCode::RequestFailed, reason.into())
    }
}

/// A position in a document, with all that is known of the document.
pub(super) struct Here<'s> {
    pub(super) document: &'s Document,
    pub(super) project: Rc<Project>,
    pub(super) byte: usize,
    pub(super) figures: &'s Figures,
    /// Findings of the document.
    pub(super) findings: &'s [Value],
    /// Whether the findings belong to the current version of the text.
    pub(super) is_fresh: bool,
}
