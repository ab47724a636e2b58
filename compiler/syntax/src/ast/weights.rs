//! The words of `weights`: which version of the weights tasks read.

pipe_ir::words! {
    /// Which version of the weights tasks read.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Weights {
        /// That of the step's beginning: a step starts when the one before has ended.
        Flush "flush"
        /// The one before that of the step's beginning.
        Previous "previous"
        /// The newest one that is there when the forward starts.
        Newest "newest"
    }
}
