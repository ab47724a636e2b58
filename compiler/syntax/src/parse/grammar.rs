//! The parser that pest makes from the grammar.

/// It parses any rule of the language.
#[derive(pest_derive::Parser)]
#[grammar = "../../../grammar/pipe.pest"]
pub(crate) struct Grammar;
