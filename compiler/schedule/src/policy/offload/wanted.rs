//! What is asked for of offload: something, or whatever makes it fit.

use super::Offload;
use std::fmt;
use std::str::FromStr;

/// What is to live in the memory of hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// This.
    This(Offload),
    /// Nothing where all fits on the devices, else what fits with the shortest step.
    Auto,
}

impl Wanted {
    /// Whether anything may.
    pub const fn any(self) -> bool {
        match self {
            Self::This(offload) => offload.any(),
            Self::Auto => true,
        }
    }

    /// What is named.
    pub fn named(self) -> Offload {
        match self {
            Self::This(offload) => offload,
            Self::Auto => Offload::default(),
        }
    }
}

impl fmt::Display for Wanted {
    /// As a pipeline says it, after `offload`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::This(offload) => offload.fmt(f),
            Self::Auto => f.write_str("auto"),
        }
    }
}

impl FromStr for Wanted {
    type Err = String;

    /// Reads `auto`, or what [`Offload`] reads.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "auto" => Ok(Self::Auto),
            text => text
                .parse()
                .map(Self::This)
                .map_err(|error: String| format!("{error}; or `auto` for what makes it fit")),
        }
    }
}
