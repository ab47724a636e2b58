//! The same programs as JSON, schema `pipec.program/1`: an object with `schema` and `program`,
//! whose fields are those of [`Program`] in snake case.

use crate::program::Program;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};

/// Names this form; another shape gets another number.
pub const SCHEMA: &str = "pipec.program/1";

#[derive(Serialize)]
struct Out<'a> {
    schema: &'a str,
    program: &'a Program,
}

#[derive(Deserialize)]
struct In {
    schema: String,
    program: Program,
}

/// A text that is not a program in JSON.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// The form is wrong.
    #[error("not a program in JSON: {0}")]
    Form(#[from] serde_json::Error),
    /// Another version.
    #[error("the schema is `{0}`, expected `{SCHEMA}`")]
    Schema(String),
}

/// Writes a program.
///
/// # Errors
/// On numbers that JSON cannot hold, and where `out` fails.
pub fn write(program: &Program, out: impl Write) -> io::Result<()> {
    Ok(serde_json::to_writer(out, &Out { schema: SCHEMA, program })?)
}

/// Reads a program; nothing is checked but its form.
///
/// # Errors
/// On text that has not the form of a program, and on another schema.
pub fn parse(text: &str) -> Result<Program, JsonError> {
    let parsed: In = serde_json::from_str(text)?;
    if parsed.schema == SCHEMA { Ok(parsed.program) } else { Err(JsonError::Schema(parsed.schema)) }
}
