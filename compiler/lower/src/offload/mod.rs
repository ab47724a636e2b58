//! Copies between devices and hosts: when state and activations that live with the hosts come, and go back.
//!
//! State is kept in chunks (PatrickStar, arXiv 2108.05818). The order in which a device uses them is known, so that
//! [`plan`](mod@plan) decides before the run when each comes and goes; lowering writes that as copies, which the
//! verifier checks like all else, and [`copied`] lets tasks wait for them. Activations leave in the gaps between
//! their uses, where nobody waits for them: [`activations`].

pub mod activations;
pub mod copied;
mod levels;
pub mod plan;
mod queue;
