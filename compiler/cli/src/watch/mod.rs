//! Watching: compiling whenever a file changes, and handing what came of it to whoever looks at the page.

pub(crate) mod board;
pub(crate) mod compile;
pub(crate) mod files;
pub(crate) mod server;
