//! Programs from the text of a pipeline: the whole way from source to what devices run.

use crate::cases::compiled;
use pipe_compiler::Request;
use pipe_ir::verify::Verified;
use std::sync::Arc;

/// The verified program of the only pipeline in a text, or what speaks against it.
///
/// # Errors
/// Everything that was found, in plain words.
pub fn program(text: &str) -> Result<Verified, String> {
    let compilation = compiled("test.pipe", text, &Request::default());
    compilation.program.ok_or_else(|| format!("{:#?} {:#?}", compilation.diagnostics, compilation.our_mistakes))
}

/// The same where it must be accepted.
///
/// # Panics
/// If it is not.
#[must_use]
pub fn verified(text: &str) -> Arc<Verified> {
    Arc::new(program(text).unwrap_or_else(|why| panic!("{text}: {why}")))
}

/// A pipeline whose model has numbers of this type.
#[must_use]
pub fn in_precision(precision: &str, text: &str) -> String {
    text.replacen("devices", &format!("precision {precision} devices"), 1)
}

/// A pipeline that trains the standard GPT for some steps on random tokens.
#[must_use]
pub fn gpt(sizes: &str, devices: u32, microbatches: u32, schedule: &str) -> String {
    format!(
        "import std.models.gpt
        pipeline test {{
            model gpt({sizes})
            devices {devices} memory 4GiB
            microbatches {microbatches}
            schedule {schedule}
            train {{
                data synthetic
                steps 10
                seed 7
                optimizer adamw(learning_rate = 0.001, beta1 = 0.9, beta2 = 0.95, weight_decay = 0.1)
            }}
        }}"
    )
}
