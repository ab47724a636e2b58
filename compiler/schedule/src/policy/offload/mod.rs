//! Offload as a policy: what of stages and their microbatches lives in the memory of hosts, and is
//! on the devices only around its uses.

mod wanted;

pub use wanted::Wanted;

use std::fmt;
use std::str::FromStr;

/// What lives in the memory of hosts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Offload {
    /// Values of microbatches, between uses that are far apart.
    pub activations: bool,
    /// The state of the optimizer: it comes for the update, chunk by chunk.
    pub optimizer: bool,
    /// The weights: those of a stage come for each of its tasks that finds them gone.
    pub parameters: bool,
}

impl Offload {
    /// Nothing.
    const NONE: Self = Self { activations: false, optimizer: false, parameters: false };

    /// What can be asked for, each with its word.
    const WORDS: [(&'static str, Self); 3] = [
        ("activations", Self { activations: true, ..Self::NONE }),
        ("optimizer", Self { optimizer: true, ..Self::NONE }),
        ("parameters", Self { parameters: true, ..Self::NONE }),
    ];

    /// Everything that can be asked for, what costs least first: no task waits for activations.
    pub const ALL: [Self; 7] = {
        let [(_, activations), (_, optimizer), (_, parameters)] = Self::WORDS;
        let state = optimizer.and(parameters);
        [
            activations,
            optimizer,
            activations.and(optimizer),
            parameters,
            activations.and(parameters),
            state,
            activations.and(state),
        ]
    };

    /// What of state can be asked for, what costs least first.
    pub const STATE: [Self; 3] = [Self::ALL[1], Self::ALL[3], Self::ALL[5]];

    /// Whether anything does.
    pub const fn any(self) -> bool {
        self.activations || self.state()
    }

    /// Whether state does.
    pub const fn state(self) -> bool {
        self.optimizer || self.parameters
    }

    /// What of it is state.
    #[must_use]
    pub const fn of_state(self) -> Self {
        Self { activations: false, ..self }
    }

    /// Both together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            activations: self.activations || other.activations,
            optimizer: self.optimizer || other.optimizer,
            parameters: self.parameters || other.parameters,
        }
    }

    /// What a word of the language stands for.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(own, _)| *own == word).map(|(_, offload)| *offload)
    }
}

impl fmt::Display for Offload {
    /// As a pipeline says it, after `offload`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = Self::WORDS.iter().filter(|(_, one)| self.and(*one) == *self);
        let words: Vec<&str> = own.map(|(word, _)| *word).collect();
        if words.is_empty() { f.write_str("none") } else { f.write_str(&words.join(", ")) }
    }
}

impl FromStr for Offload {
    type Err = String;

    /// Reads `none`, or some of `activations`, `optimizer` and `parameters` between commas.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim() == "none" {
            return Ok(Self::default());
        }
        let each = text.split(',').map(|word| Self::from_word(word.trim()));
        let all = each.reduce(|all, one| Some(all?.and(one?))).flatten();
        all.ok_or_else(|| {
            "expected some of `activations`, `optimizer` and `parameters` between commas, or `none`".to_owned()
        })
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
