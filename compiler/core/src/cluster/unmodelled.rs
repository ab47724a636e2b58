//! What the durations of a cluster leave out of a model, where that is much of its step.

use pipe_model::transformer::Transformer;
use pipe_syntax::diagnostic::{Code, Diagnostic};

/// Of a model with experts: what its tasks take beside what is counted, in words.
pub const OF_EXPERTS: [&str; 4] = [
    "launches of small kernels by the host",
    "uneven routing",
    "the lower rate of small products",
    "exchanges of tokens that overlap other work",
];

/// Warns that the times of a model with experts on some cluster are rough.
pub fn warning(transformer: &Transformer, cluster: &str) -> Option<Diagnostic> {
    transformer.config.experts.as_ref()?;
    let path = &transformer.config.path;
    let [others @ .., last] = OF_EXPERTS;
    let message = format!("the times of `{path}` on `{cluster}` leave out {}, and {last}", others.join(", "));
    let warning = Diagnostic::warning(Code::ExpertsNotModelled, transformer.span, "this has experts", message);
    let help = "predicted steps of Qwen3-235B on 256 H100 GPUs were 44% too short to 37% too long: measure the layouts that matter";
    Some(warning.help(help))
}
