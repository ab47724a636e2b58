//! What a place lies in.

/// What a brace may belong to; none is a whole file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::parse::mistakes) enum Within {
    File,
    Schedule,
    Layer,
    Model,
    Pipeline,
    Train,
    Block,
    Order,
}

impl Within {
    pub(in crate::parse::mistakes) const ALL: [Self; 8] =
        [Self::File, Self::Schedule, Self::Layer, Self::Model, Self::Pipeline, Self::Train, Self::Block, Self::Order];

    /// A text that ends inside of it.
    pub(in crate::parse::mistakes) const fn beginning(self) -> &'static str {
        match self {
            Self::File => "",
            Self::Schedule => "schedule x {",
            Self::Layer => "layer x {",
            Self::Model => "model x {",
            Self::Pipeline => "pipeline x {",
            Self::Train => "pipeline x { train {",
            Self::Block => "schedule x { block every 1 {",
            Self::Order => "schedule x { order d {",
        }
    }

    /// What it is called.
    pub(in crate::parse::mistakes) const fn phrase(self) -> &'static str {
        match self {
            Self::File => "a file",
            Self::Schedule => "a schedule",
            Self::Layer => "a layer",
            Self::Model => "a model",
            Self::Pipeline => "a pipeline",
            Self::Train => "`train`",
            Self::Block => "a block",
            Self::Order => "an order",
        }
    }
}
