//! What requests are answered, a file for each kind.

pub(super) mod actions;
pub(super) mod completion;
pub(super) mod folding;
pub(super) mod hover;
pub(super) mod outline;
pub(super) mod places;
pub(super) mod rename;
pub(super) mod signature;
pub(super) mod tokens;
pub(super) mod workspace;
