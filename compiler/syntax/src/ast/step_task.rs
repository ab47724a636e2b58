//! The words of what a device does once a step, and of what takes turns on a lane.

pipe_ir::words! {
    /// What a device does once a step with the gradients of a stage.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum StepTaskKind {
        /// Adds them up over the devices that have the stage.
        Reduce "reduce"
        /// Updates the weights with them.
        Update "update"
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
