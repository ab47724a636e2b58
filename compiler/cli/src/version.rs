//! What `pipec --version` says: what this build can do, and which formats it writes and reads.
use pipe_compiler::{profile, report};
use std::sync::LazyLock;

/// The version, the backends and the schemas; the first line is the version alone.
pub(crate) static LONG: LazyLock<String> = LazyLock::new(|| {
    let mpi = if cfg!(feature = "mpi") { "yes" } else { "no (built without the feature `mpi`)" };
    // Every command writes this text, and looking for libraries takes longer than most of them.
    let asked = std::env::args_os().any(|argument| argument == "--version");
    let cuda = if asked { pipe_cuda::libraries() } else { "looked for when it is needed".to_owned() };
    let schemas = [
        report::SCHEMA,
        pipe_ir::forms::json::SCHEMA,
        pipe_plot::SCHEMA,
        crate::trace::SCHEMA,
        profile::SCHEMA,
        crate::commands::run::summary::SCHEMA,
        crate::commands::eval::SCHEMA,
        crate::commands::sample::SCHEMA,
        crate::commands::diff::report::SCHEMA,
        crate::commands::search::SCHEMA,
        pipe_search::tune::report::SCHEMA,
        pipe_runtime::checkpoint::SCHEMA,
        crate::output::usage::SCHEMA,
    ];
    format!(
        "{}\nbackends: cpu ({}), cuda, null\nmpi: {mpi}\ncuda: {cuda}\nschemas: {}",
        env!("CARGO_PKG_VERSION"),
        pipe_runtime::instruction_set(),
        schemas.join(", "),
    )
});
