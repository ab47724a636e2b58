//! The words of swaps: which way an activation goes.

pipe_ir::words! {
    /// Which way an activation goes that waits elsewhere.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum SwapKind {
        /// Out, to where it waits.
        Evict "evict"
        /// Back, for its backward.
        Fetch "fetch"
    }
}
