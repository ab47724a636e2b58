//! Ids: dense indices with a type each, printed the way the glossary writes them (`d0`, `s1`, `m2`, `%3`, `!4`).

mod index_vec;

pub use index_vec::IndexVec;

/// What counts the rows of a table.
pub trait Id: Copy {
    /// The id of the row at this position.
    fn from_position(position: usize) -> Self;

    /// The position of its row.
    fn position(self) -> usize;
}

/// Declares types of ids, each with what it looks like in text before its number.
#[macro_export]
macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident $prefix:literal)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// What the id looks like in text, before its number.
            pub const PREFIX: &'static str = $prefix;

            /// The id at this position of a table. Tables hold fewer than 2^32 entries: the task limit sees to it.
            #[inline]
            pub fn from_index(index: usize) -> Self {
                Self(u32::try_from(index).expect("tables are far smaller than 2^32 entries"))
            }

            /// The position in the table that this id counts.
            #[inline]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl $crate::ids::Id for $name {
            #[inline]
            fn from_position(position: usize) -> Self {
                Self::from_index(position)
            }

            #[inline]
            fn position(self) -> usize {
                self.index()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    )*};
}

ids! {
    /// One executor of instructions.
    DeviceId "d"
    /// A slice of the model's layers.
    StageId "s"
    /// A slice of the batch.
    MicrobatchId "m"
    /// Bytes on one device, at a fixed offset of its arena. Counted per device.
    BufferId "%"
    /// A transfer that was started and is to be waited for. Counted per device.
    TokenId "!"
    /// A row of the program's table of values: what a buffer may hold.
    ValueId "v"
    /// A row of the program's table of executables.
    ExecId "@"
    /// A row of the program's table of groups: devices that do something together.
    GroupId "g"
    /// A row of the program's table of lanes: a queue of each device beside its list.
    LaneId "l"
    /// A node of a tensor graph.
    NodeId "n"
}
