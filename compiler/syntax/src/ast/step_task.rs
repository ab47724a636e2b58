//! The words of what a device does with the weights of a stage beside its tasks, and of what takes turns on a lane.

pipe_ir::words! {
    /// What a device does with the gradients of a stage once a step, or with shares of its weights.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum StepTaskKind {
        /// Adds them up over the devices that have the stage.
        Reduce "reduce"
        /// Updates the weights with them.
        Update "update"
        /// Joins the next all-gather of the weights, where devices keep shares of them.
        Gather "gather"
    }
}

pipe_ir::words! {
    /// What takes turns on a lane beside parts of stages.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum Carried {
        /// What a device sends to others.
        Send "send"
        /// Sums of gradients.
        Reduce "reduce"
    }
}
