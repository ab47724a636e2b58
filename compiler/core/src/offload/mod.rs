//! Offload: what of the state of stages lives in the memory of hosts, and is on the devices only around its uses.
//!
//! State is kept in chunks (PatrickStar, arXiv 2108.05818). The order in which a device uses them is known, so that [`plan`] decides before
//! the run when each comes and goes; lowering writes that as copies, which the verifier checks like all else, and [`copied`] lets tasks wait for them.

pub(crate) mod copied;
pub mod plan;
pub mod timing;
mod wanted;

pub use wanted::Wanted;

use std::fmt;
use std::str::FromStr;

/// What lives in the memory of hosts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Offload {
    /// The state of the optimizer: it comes for the update, chunk by chunk.
    pub optimizer: bool,
    /// The weights: those of a stage come for each of its tasks that finds them gone.
    pub parameters: bool,
}

impl Offload {
    /// Everything that can be asked for, what costs least first.
    pub const ALL: [Self; 3] = [
        Self { optimizer: true, parameters: false },
        Self { optimizer: false, parameters: true },
        Self { optimizer: true, parameters: true },
    ];

    /// Whether anything does.
    #[must_use]
    pub const fn any(self) -> bool {
        self.optimizer || self.parameters
    }

    /// Both together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self { optimizer: self.optimizer || other.optimizer, parameters: self.parameters || other.parameters }
    }

    /// What a word of the language stands for.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        match word {
            "optimizer" => Some(Self { optimizer: true, parameters: false }),
            "parameters" => Some(Self { optimizer: false, parameters: true }),
            _ => None,
        }
    }
}

impl fmt::Display for Offload {
    /// As a pipeline says it, after `offload`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.optimizer, self.parameters) {
            (true, true) => "optimizer, parameters",
            (true, false) => "optimizer",
            (false, true) => "parameters",
            (false, false) => "none",
        })
    }
}

impl FromStr for Offload {
    type Err = String;

    /// Reads `none`, or `optimizer` and `parameters` between commas.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim() == "none" {
            return Ok(Self::default());
        }
        let each = text.split(',').map(|word| Self::from_word(word.trim()));
        let all = each.reduce(|all, one| Some(all?.and(one?))).flatten();
        all.ok_or_else(|| "expected `optimizer`, `parameters`, both between commas, or `none`".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::{Offload, Wanted};

    #[test]
    fn words_are_read_as_they_are_written() {
        for offload in Offload::ALL.into_iter().chain([Offload::default()]) {
            assert_eq!(offload.to_string().parse(), Ok(offload));
            assert_eq!(offload.to_string().parse(), Ok(Wanted::This(offload)));
        }
        assert_eq!(Wanted::Auto.to_string().parse(), Ok(Wanted::Auto));
        for text in ["", "optimizer,", "state", "optimizer none", "none,optimizer", "auto,optimizer"] {
            assert!(text.parse::<Offload>().is_err() && text.parse::<Wanted>().is_err(), "{text}");
        }
    }
}
