//! Enums whose variants have a word each: in the language, in the textual IR or in reports.

/// Declares an enum, each of whose variants has a word; all of them, their words and the way back follow from it:
/// `word` and `from_word`, unless other names are given.
#[macro_export]
macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident { $($row:tt)* }) => {
        $crate::words! { $(#[$meta])* pub enum $name by word from_word { $($row)* } }
    };
    ($(#[$meta:meta])* pub enum $name:ident by $word_of:ident $from_word:ident {
        $($(#[$doc:meta])* $variant:ident $word:literal)*
    }) => {
        $(#[$meta])*
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// Every one of them, in the order of the table.
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$variant),*];

            /// Its word.
            pub const fn $word_of(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// The one that a word stands for.
            pub fn $from_word(word: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|one| one.$word_of() == word)
            }
        }
    };
}
