//! ZeRO: what the devices that hold the same weights divide among them, instead of each keeping all
//! of it (Rajbhandari et al., arXiv 1910.02054, section 5). Lowering infers the collectives, which
//! the verifier checks like all else.

use crate::policy::offload::Offload;
use std::fmt;
use std::str::FromStr;

/// What is divided: each stage of ZeRO divides what the one before divides, and more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Zero(u32);

impl Zero {
    /// The last stage that there is.
    pub const LAST: u32 = 3;

    /// The stages that programs can have, what moves less first.
    pub const ALL: [Self; 3] = [Self(1), Self(2), Self(3)];

    /// A stage by its number; none where there is no such stage.
    pub fn new(number: i64) -> Option<Self> {
        u32::try_from(number).ok().filter(|number| *number <= Self::LAST).map(Self)
    }

    /// Whether anything is divided.
    pub const fn any(self) -> bool {
        self.0 > 0
    }

    /// Whether gradients leave when their sum is made.
    pub const fn gradients(self) -> bool {
        self.0 > 1
    }

    /// Whether weights are divided between their uses.
    pub const fn parameters(self) -> bool {
        self.0 > 2
    }

    /// Whether programs can do both: the state that a device has of its share comes from the host
    /// for the update at the end of the step.
    pub const fn goes_with(self, offload: Offload) -> bool {
        self.0 == 0 || !offload.state() || self.0 == 1 && !offload.parameters
    }

    /// Its number.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// What is divided, in words.
    pub const fn words(self) -> &'static str {
        match self.0 {
            0 => "nothing",
            1 => "optimizer",
            2 => "optimizer, gradients",
            _ => "optimizer, gradients, parameters",
        }
    }
}

impl fmt::Display for Zero {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Zero {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.trim().parse().ok().and_then(Self::new);
        number.ok_or_else(|| "expected 0, 1, 2 or 3: a stage of ZeRO".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::Zero;

    #[test]
    fn stages_are_read_as_they_are_written() {
        for number in 0..=3 {
            let zero = Zero::new(number).expect("a stage");
            assert_eq!(zero.to_string().parse(), Ok(zero));
        }
        for text in ["", "4", "-1", "one", "1.0"] {
            assert!(text.parse::<Zero>().is_err(), "{text}");
        }
    }
}
