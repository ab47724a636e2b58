//! The words of `weights`: which version of the weights tasks read.

/// Which version of the weights tasks read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weights {
    /// That of the step's beginning: a step starts when the one before has ended.
    Flush,
    /// The one before that of the step's beginning.
    Previous,
    /// The newest one that is there when the forward starts.
    Newest,
}

impl Weights {
    /// Every way.
    pub const ALL: [Self; 3] = [Self::Flush, Self::Previous, Self::Newest];

    /// The way that a word stands for.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|weights| weights.word() == word)
    }

    /// Its word in the language.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Flush => "flush",
            Self::Previous => "previous",
            Self::Newest => "newest",
        }
    }
}
