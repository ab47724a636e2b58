//! The kinds of damage: one row each, with what a program that the verifier accepts all the same must still do.

/// What must hold of a damaged program that the verifier accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Promise {
    /// It computes what it computed before: losses, gradients, weights and optimizer state.
    SameResults,
    /// It is a sound program of another computation, because the damage changed what an executable
    /// computes. It must run to its end with the stated peak.
    Sound,
}

macro_rules! kinds {
    ($($(#[doc = $doc:literal])* $name:ident $promise:ident)*) => {
        /// A kind of damage.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Kind {$($(#[doc = $doc])* $name,)*}

        impl Kind {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// What must hold afterwards.
            #[must_use]
            pub const fn promise(self) -> Promise {
                match self { $(Self::$name => Promise::$promise,)* }
            }
        }
    };
}

kinds! {
    /// Two instructions of a device change places.
    SwapAny SameResults
    /// An instruction and the next one change places.
    SwapNext SameResults
    /// An instruction is missing.
    Drop SameResults
    /// All instructions from one on are missing.
    CutTail SameResults
    /// An instruction stands twice.
    Duplicate SameResults
    /// An instruction stands somewhere else.
    MoveAny SameResults
    /// An `alloc` stands somewhere else.
    MoveAlloc SameResults
    /// A `free` stands somewhere else.
    MoveFree SameResults
    /// A `wait` stands somewhere else.
    MoveWait SameResults
    /// The start of a transfer or collective stands somewhere else.
    MoveStart SameResults
    /// A `run` stands somewhere else.
    MoveRun SameResults
    /// A `run` that adds up squares of gradients stands somewhere else, twice or nowhere.
    Squares SameResults
    /// A `fill`, `load` or `emit` stands somewhere else.
    MoveData SameResults
    /// An instruction stands on another device.
    ToDevice SameResults
    /// An instruction of the step stands in the set-up, or the other way round.
    ToList SameResults
    /// An instruction is replaced by a copy of another.
    Become SameResults
    /// The buffer of an instruction.
    FieldBuffer SameResults
    /// The value of an instruction.
    FieldValue SameResults
    /// The microbatch of an instruction.
    FieldMicrobatch SameResults
    /// What a `fill` writes.
    FieldFill SameResults
    /// The executable of a `run`.
    FieldExec SameResults
    /// The range of operands of a `run`, or how many instructions a lane is given.
    FieldOperands SameResults
    /// The device at the other end of a transfer.
    FieldPeer SameResults
    /// The class of a transfer.
    FieldClass SameResults
    /// The token of a transfer, a collective or a `wait`.
    FieldToken SameResults
    /// The group of a collective.
    FieldGroup SameResults
    /// What a group does together.
    FieldCollective SameResults
    /// The direction of a copy.
    FieldDirection SameResults
    /// An entry of a device's table of operands.
    OperandEntry SameResults
    /// Two entries of a device's table of operands change places.
    OperandSwap SameResults
    /// The size of a buffer.
    BufferBytes SameResults
    /// The offset of a buffer.
    BufferOffset SameResults
    /// The space in which a buffer lies.
    BufferSpace SameResults
    /// Two buffers change places.
    BufferSwap SameResults
    /// The last buffer is missing.
    BufferDrop SameResults
    /// The stated number of tokens.
    Tokens SameResults
    /// The stated arena.
    Arena SameResults
    /// The stated peak.
    Peak SameResults
    /// What a device states of its host's memory.
    Host SameResults
    /// The memory that a device has.
    Limit SameResults
    /// Two devices change places.
    DeviceSwap SameResults
    /// The last device is missing.
    DeviceDrop SameResults
    /// How many devices stand behind each.
    Members Sound
    /// The stated number of stages.
    Stages SameResults
    /// The stated number of microbatches.
    Microbatches SameResults
    /// The stated number of slices.
    Slices SameResults
    /// A program without training settings, or with another optimizer.
    Training Sound
    /// A member of a group is missing, another, or there twice.
    GroupMembers SameResults
    /// The last group is missing.
    GroupDrop SameResults
    /// The size of a value.
    ValueBytes SameResults
    /// The role of a value.
    ValueKind SameResults
    /// The stage of a value.
    ValueStage SameResults
    /// Of which weights a value is a share, and whose.
    ValueShare SameResults
    /// A value has the name of another.
    ValueName SameResults
    /// The last value is missing.
    ValueDrop SameResults
    /// The offset of a tensor in its value.
    TensorOffset Sound
    /// The type of a tensor of a value.
    TensorType Sound
    /// How a tensor starts.
    TensorInit Sound
    /// How members divide a tensor of a value.
    TensorSplit Sound
    /// A tensor of a value is missing.
    TensorDrop Sound
    /// The kind of an executable.
    ExecKind SameResults
    /// The stage of an executable.
    ExecStage SameResults
    /// The slice of an executable.
    ExecSlice SameResults
    /// What an executable lacks at the edges of a step.
    ExecEdge SameResults
    /// Whether a forward is repeated.
    ExecRepeated SameResults
    /// The chunk of an update.
    ExecChunk SameResults
    /// Which piece of a task an executable is.
    ExecPiece Sound
    /// The value of an operand of an executable.
    ExecValue Sound
    /// How an executable touches an operand.
    ExecAccess Sound
    /// The microbatch of an operand of an executable, counted from that of the run.
    OperandAhead SameResults
    /// An operand of an executable is missing, or two change places.
    ExecOperands Sound
    /// Another body.
    ExecBody Sound
    /// The stated work of an executable.
    ExecFlops SameResults
    /// The last executable is missing.
    ExecDrop SameResults
    /// The operation of a node.
    NodeOp Sound
    /// An input of a node.
    NodeInput Sound
    /// The type of a node.
    NodeType Sound
    /// A node is missing.
    NodeDrop Sound
    /// What a store writes, where, and whether it adds.
    Store Sound
    /// A store is missing, or stands twice.
    StoreDrop Sound
}
