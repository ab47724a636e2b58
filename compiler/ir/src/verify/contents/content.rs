//! What a buffer holds at some moment, as far as the rules can tell.

use crate::ids::{MicrobatchId, ValueId};
use crate::program::{Extent, Program};

/// What a buffer holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::verify) enum Content {
    /// Nothing that anyone wrote since its lifespan began.
    Nothing,
    /// A value of no microbatch.
    Persistent(ValueId),
    /// Weights or the state of the optimizer after so many updates; those that the step begins with are version 0.
    Version(ValueId, i64),
    /// Weights on their way from a version to the next one: so many of their chunks are updated.
    Between(ValueId, i64, u32),
    /// Weights of which the device has updated its own share, on their way from a version to the next one.
    Share(ValueId, i64),
    /// A value of a microbatch.
    Of(ValueId, MicrobatchId),
    /// The same, once the members of the device have exchanged it.
    Exchanged(ValueId, MicrobatchId),
    /// Anything: an error was reported already.
    Unknown,
}

impl Content {
    /// How messages write it.
    pub(in crate::verify) fn describe(self, program: &Program) -> String {
        match self {
            Self::Nothing => "nothing".to_owned(),
            Self::Persistent(value) => format!("`{}`", program.value(value).name),
            Self::Version(value, _) if program.n_steps == 1 && program.lags.is_empty() && !copies(program) => {
                format!("`{}`", program.value(value).name)
            }
            Self::Version(value, version) => format!("version {version} of `{}`", program.value(value).name),
            Self::Between(value, version, chunks) => {
                let name = &program.value(value).name;
                format!("version {version} of `{name}` with {chunks} of its chunks updated")
            }
            Self::Share(value, _) => format!("`{}` with this device's share alone updated", program.value(value).name),
            Self::Of(value, microbatch) => format!("`{} {microbatch}`", program.value(value).name),
            Self::Exchanged(value, microbatch) => {
                format!("`{} {microbatch}`, exchanged", program.value(value).name)
            }
            Self::Unknown => "something unknown".to_owned(),
        }
    }
}

/// Whether there are copies of what changes, so that messages tell its versions apart.
fn copies(program: &Program) -> bool {
    let are_gathered = program.values.iter().any(|value| value.share.is_some());
    are_gathered || program.devices.iter().any(|device| device.host != Extent::default())
}
