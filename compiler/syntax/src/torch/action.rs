//! Actions: what a rank does, as PyTorch writes it: `2F0` is the forward of stage 2 on microbatch 0.

use pipe_ir::task::TaskKind;
use std::fmt;

pipe_ir::words! {
    /// What is done, with PyTorch's word for it.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum ActionKind {
        /// The forward of a microbatch.
        Forward "F"
        /// Its backward up to the gradient of the input.
        BackwardInput "I"
        /// The rest of it: the gradients of weights.
        BackwardWeight "W"
        /// Both at once.
        FullBackward "B"
        /// The output leaves for the rank of the next stage.
        SendForward "SEND_F"
        /// The input arrives from the rank of the stage before.
        ReceiveForward "RECV_F"
        /// The gradient of the input leaves for the rank of the stage before.
        SendBackward "SEND_B"
        /// The gradient of the output arrives from the rank of the next stage.
        ReceiveBackward "RECV_B"
        /// The output has left.
        WaitSendForward "WAIT_SEND_F"
        /// The gradient has left.
        WaitSendBackward "WAIT_SEND_B"
        /// Weights that ranks divide are gathered (fully sharded data parallelism).
        Unshard "UNSHARD"
        /// They are given up again.
        Reshard "RESHARD"
        /// Gradients are divided by the number of microbatches, and added up over data-parallel ranks.
        ReduceGradient "REDUCE_GRAD"
        /// That has ended.
        WaitReduceGradient "WAIT_REDUCE_GRAD"
    }
}

impl ActionKind {
    /// Whether it is about a stage as a whole, not about a microbatch.
    pub const fn is_of_stage(self) -> bool {
        matches!(self, Self::Unshard | Self::Reshard | Self::ReduceGradient | Self::WaitReduceGradient)
    }

    /// The task, if it is one.
    pub const fn task(self) -> Option<TaskKind> {
        match self {
            Self::Forward => Some(TaskKind::Forward),
            Self::BackwardInput => Some(TaskKind::BackwardInput),
            Self::BackwardWeight => Some(TaskKind::BackwardWeight),
            Self::FullBackward => Some(TaskKind::Backward),
            _ => None,
        }
    }

    /// The action for a task, if PyTorch has one.
    pub const fn of_task(kind: TaskKind) -> Option<Self> {
        match kind {
            TaskKind::Forward => Some(Self::Forward),
            TaskKind::BackwardInput => Some(Self::BackwardInput),
            TaskKind::BackwardWeight => Some(Self::BackwardWeight),
            TaskKind::Backward => Some(Self::FullBackward),
            TaskKind::Recompute | TaskKind::Update => None,
        }
    }

    /// Whether gradients of inputs come of it.
    pub const fn is_backward(self) -> bool {
        matches!(self, Self::BackwardInput | Self::FullBackward)
    }

    /// Whether gradients of weights come of it.
    pub const fn has_weight_gradients(self) -> bool {
        matches!(self, Self::BackwardWeight | Self::FullBackward)
    }
}

/// What is done, of which stage, on which microbatch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Action {
    /// Of which stage.
    pub stage: u32,
    /// What.
    pub kind: ActionKind,
    /// On which microbatch; none where it is about the stage.
    pub microbatch: Option<u32>,
}

impl Action {
    /// The other end of a transfer: of a send what is received, and of a receive what is sent.
    #[must_use]
    pub fn other_end(self) -> Option<Self> {
        let (kind, stage) = match self.kind {
            ActionKind::SendForward => (ActionKind::ReceiveForward, self.stage.checked_add(1)?),
            ActionKind::ReceiveForward => (ActionKind::SendForward, self.stage.checked_sub(1)?),
            ActionKind::SendBackward => (ActionKind::ReceiveBackward, self.stage.checked_sub(1)?),
            ActionKind::ReceiveBackward => (ActionKind::SendBackward, self.stage.checked_add(1)?),
            _ => return None,
        };
        Some(Self { stage, kind, ..self })
    }

    /// The send that a wait is for.
    #[must_use]
    pub const fn awaited(self) -> Option<Self> {
        let kind = match self.kind {
            ActionKind::WaitSendForward => ActionKind::SendForward,
            ActionKind::WaitSendBackward => ActionKind::SendBackward,
            _ => return None,
        };
        Some(Self { kind, ..self })
    }

    /// The receive that a task needs where the other stage lives on another rank.
    #[must_use]
    pub const fn receive(self) -> Option<Self> {
        self.transfer([ActionKind::ReceiveForward, ActionKind::ReceiveBackward])
    }

    /// The send of what a task computes, where the other stage lives on another rank.
    #[must_use]
    pub const fn send(self) -> Option<Self> {
        self.transfer([ActionKind::SendForward, ActionKind::SendBackward])
    }

    const fn transfer(self, [forward, backward]: [ActionKind; 2]) -> Option<Self> {
        match self.kind {
            ActionKind::Forward => Some(Self { kind: forward, ..self }),
            ActionKind::BackwardInput | ActionKind::FullBackward => Some(Self { kind: backward, ..self }),
            _ => None,
        }
    }

    /// Whether it is an end of a transfer.
    pub fn is_transfer(self) -> bool {
        self.is_send() || self.is_receive()
    }

    /// Whether something leaves.
    pub const fn is_send(self) -> bool {
        matches!(self.kind, ActionKind::SendForward | ActionKind::SendBackward)
    }

    /// Whether something arrives.
    pub const fn is_receive(self) -> bool {
        matches!(self.kind, ActionKind::ReceiveForward | ActionKind::ReceiveBackward)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.stage, self.kind.word())?;
        self.microbatch.map_or(Ok(()), |microbatch| write!(f, "{microbatch}"))
    }
}
