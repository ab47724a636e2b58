//! The role of every word, for semantic highlighting: the parser knows token kinds, and [`Names`] resolves names.

use crate::reference::{self, CONSTANTS};
use crate::{NameKind, Names};
use pipe_syntax::parse::tokens::{Token, TokenKind, tokens};
use pipe_syntax::source::{FileId, Sources};
use std::ops::Range;

/// Declares roles with the words that editors have for them.
macro_rules! roles {
    ($($(#[$doc:meta])* $variant:ident $word:literal)*) => {
        /// What a word is.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Role { $($(#[$doc])* $variant),* }

        impl Role {
            /// The standard words of the Language Server Protocol, in the order of the roles.
            pub const WORDS: &'static [&'static str] = &[$($word),*];
        }
    };
}

roles! {
    /// A pipeline, or the path of an import.
    Namespace "namespace"
    /// The type of numbers.
    Type "type"
    /// A layer.
    Class "class"
    /// A model.
    Struct "struct"
    /// A parameter or an argument.
    Parameter "parameter"
    /// A number with a name.
    Variable "variable"
    /// What a layer has, an input, data or a weight; or a lane, or a part of stages.
    Property "property"
    /// A kind of work, or one of several words.
    EnumMember "enumMember"
    /// A schedule, or a function.
    Function "function"
    /// A word of the language.
    Keyword "keyword"
    /// A comment.
    Comment "comment"
    /// A text in quotes.
    String "string"
    /// A number.
    Number "number"
    /// A mark between operands.
    Operator "operator"
}

/// What else is known of it, in the protocol's words.
pub const TRAITS: &[&str] = &["declaration", "readonly", "documentation", "defaultLibrary"];
const DECLARATION: u32 = 1;
const READONLY: u32 = 1 << 1;
const DOCUMENTATION: u32 = 1 << 2;
const STANDARD: u32 = 1 << 3;

/// A word with its role.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Coloured {
    /// Its bytes.
    pub place: Range<usize>,
    /// What it is.
    pub role: Role,
    /// One bit for each of [`TRAITS`], the first one lowest.
    pub traits: u32,
}

/// The words of the first file of a compilation; brackets and commas have no role.
pub fn roles(names: &Names, sources: &Sources) -> Vec<Coloured> {
    let text = &sources.get(FileId(0)).text;
    let is_standard = |file: FileId| sources.get(file).name.starts_with("std");
    let of = |token: Token| {
        let (role, traits) = match token.kind {
            TokenKind::Mark => return None,
            TokenKind::Comment => (Role::Comment, 0),
            TokenKind::Documentation => (Role::Comment, DOCUMENTATION),
            TokenKind::Keyword => (Role::Keyword, 0),
            TokenKind::Task => (Role::EnumMember, STANDARD),
            TokenKind::Type => (Role::Type, STANDARD),
            TokenKind::Constant => (Role::EnumMember, STANDARD),
            TokenKind::Number => (Role::Number, 0),
            TokenKind::String => (Role::String, 0),
            TokenKind::Path => (Role::Namespace, STANDARD),
            TokenKind::Operator => (Role::Operator, 0),
            TokenKind::Name | TokenKind::Called | TokenKind::Argument => {
                let start = u32::try_from(token.place.start).ok()?;
                let named = names.at(FileId(0), start).filter(|(span, _)| span.start == start);
                match named.and_then(|(_, index)| names.definitions.get(index)) {
                    Some(found) => {
                        let own =
                            if (found.span.file, found.span.start) == (FileId(0), start) { DECLARATION } else { 0 };
                        let standard = if is_standard(found.span.file) { STANDARD } else { 0 };
                        let (role, traits) = role(found.kind);
                        (role, traits | own | standard)
                    }
                    None => undeclared(token.kind, &text[token.place.clone()]),
                }
            }
            TokenKind::Word => word(&text[token.place.clone()])?,
        };
        Some(Coloured { place: token.place, role, traits })
    };
    tokens(text).into_iter().filter_map(of).collect()
}

const fn role(kind: NameKind) -> (Role, u32) {
    match kind {
        NameKind::Schedule | NameKind::Function => (Role::Function, 0),
        NameKind::Layer => (Role::Class, 0),
        NameKind::Model => (Role::Struct, 0),
        NameKind::Pipeline => (Role::Namespace, 0),
        NameKind::FileParameter | NameKind::Parameter => (Role::Parameter, 0),
        NameKind::Let => (Role::Variable, READONLY),
        NameKind::Variable => (Role::Variable, 0),
        NameKind::Input | NameKind::Data | NameKind::Weight | NameKind::Lane | NameKind::Part => (Role::Property, 0),
    }
}

/// A name without a declaration in the sources.
fn undeclared(kind: TokenKind, name: &str) -> (Role, u32) {
    match kind {
        TokenKind::Called => (Role::Function, STANDARD),
        TokenKind::Argument => (Role::Parameter, 0),
        _ if CONSTANTS.iter().any(|(constant, _)| *constant == name) => (Role::Variable, READONLY | STANDARD),
        _ => (Role::Variable, 0),
    }
}

/// A word of a declaration with syntax errors: only keywords are known there.
fn word(word: &str) -> Option<(Role, u32)> {
    let constant = CONSTANTS.iter().any(|(constant, _)| *constant == word);
    let task = reference::KINDS.iter().any(|(kind, _)| *kind == word);
    match word {
        _ if reference::keywords().any(|keyword| keyword == word) => Some((Role::Keyword, 0)),
        _ if constant => Some((Role::Variable, READONLY | STANDARD)),
        _ if task => Some((Role::EnumMember, STANDARD)),
        _ => None,
    }
}
