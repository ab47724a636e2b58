//! The tree-sitter grammar of `.pipe` files.

use tree_sitter_language::LanguageFn;

unsafe extern "C" {
    fn tree_sitter_pipe() -> *const ();
}

/// The language, as [`tree_sitter::Parser::set_language`] takes it.
///
/// [`tree_sitter::Parser::set_language`]: https://docs.rs/tree-sitter/latest/tree_sitter/struct.Parser.html
// SAFETY: the function of `parser.c` returns a language of this kind.
pub const LANGUAGE: LanguageFn = unsafe { LanguageFn::from_raw(tree_sitter_pipe) };

/// What colours words.
pub const HIGHLIGHTS: &str = include_str!("../../queries/highlights.scm");
/// What can be folded.
pub const FOLDS: &str = include_str!("../../queries/folds.scm");
/// How lines are indented.
pub const INDENTS: &str = include_str!("../../queries/indents.scm");
/// What every node is.
pub const NODE_TYPES: &str = include_str!("../../src/node-types.json");
