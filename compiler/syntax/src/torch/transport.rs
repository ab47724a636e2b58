//! How PyTorch moves what ranks send: which transfers of a rank share a communicator, and so wait for each other.
//!
//! Source: `ProcessGroupNCCL::pointToPoint`, and `torch.distributed.config.pipeline_per_edge_p2p` of PyTorch 2.15.

use std::str::FromStr;

pipe_ir::words! {
    /// What a communicator connects. The transfers of a communicator run one after the other.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub enum Transport {
        /// All ranks: NCCL that connects when the process group is made.
        #[default]
        Eager "eager"
        /// Two ranks, in both directions: NCCL that connects when ranks first need each other.
        Pair "pair"
        /// Two ranks, in one direction: gloo, or NCCL with a communicator for each direction.
        Edge "edge"
    }
}

/// Which of the queues of a rank a transfer stands in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Channel {
    /// The rank at the other end, where that matters.
    peer: Option<usize>,
    /// Whether the rank sends, where that matters.
    sends: Option<bool>,
}

impl Transport {
    /// The queue of a rank in which a transfer with `peer` stands.
    pub(super) fn channel(self, peer: usize, sends: bool) -> Channel {
        match self {
            Self::Eager => Channel { peer: None, sends: None },
            Self::Pair => Channel { peer: Some(peer), sends: None },
            Self::Edge => Channel { peer: Some(peer), sends: Some(sends) },
        }
    }

    /// What has a communicator of its own.
    pub(super) const fn owner(self) -> &'static str {
        match self {
            Self::Eager => "each rank has one communicator",
            Self::Pair => "each pair of ranks has a communicator",
            Self::Edge => "each direction between two ranks has a communicator",
        }
    }

    /// How PyTorch is told to move transfers so.
    pub(super) const fn backend(self) -> &'static str {
        match self {
            Self::Eager => "backend `nccl` in 2.15, or NCCL with `device_id`",
            Self::Pair => "backend `nccl-lazy` in 2.15, or NCCL without `device_id`",
            Self::Edge => "gloo, or NCCL with `TORCH_DISTRIBUTED_PIPELINE_PER_EDGE_P2P=1` in 2.15",
        }
    }
}

impl FromStr for Transport {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "expected `eager` (NCCL that connects at once), `pair` (NCCL that connects on first use) or `edge` \
                        (gloo)";
        Self::from_word(text).ok_or_else(|| expected.to_owned())
    }
}
