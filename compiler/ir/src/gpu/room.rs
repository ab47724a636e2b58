//! Room: the memory of a GPU that is not an arena's. `docs/assumptions.md` has the sources of NCCL's sizes.

use super::lines::{Line, lines, most_blocks};
use crate::ids::DeviceId;
use crate::program::Program;
use crate::units::Bytes;
use std::collections::BTreeMap;

const MIB: u64 = 1 << 20;

/// Bytes of workspace of each queue of a device that may call cuBLASLt.
pub const WORKSPACE: Bytes = Bytes(32 * MIB);

/// Bytes of a GPU that are left to the driver: for nodes of a graph, and for the kernels that cuBLASLt loads when it
/// first needs them.
pub const SPARE: Bytes = Bytes(64 * MIB);

/// Bytes of a CUDA context, with the code of all libraries. A guess: it differs between cards and drivers.
pub const CONTEXT: Bytes = Bytes(512 * MIB);

/// Bytes of a channel of a connection between GPUs of one host, at the end that receives: 0.5 MiB of LL, 4.7 of LL128
/// and 4 of the simple protocol, in pieces of 2 MiB.
const RECEIVING: u64 = 10 * MIB;

/// The same at the end that sends.
const SENDING: u64 = 2 * MIB;

/// Bytes of a channel of all connections of a communicator to other hosts, in each direction.
const BETWEEN_HOSTS: u64 = 2 * MIB;

/// What a device needs of its GPU beside its arena, at most, where each device has a process and a GPU of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Beside {
    /// Of the context, and what is left to the driver.
    pub driver: Bytes,
    /// Of cuBLASLt.
    pub products: Bytes,
    /// Of NCCL's connections.
    pub nccl: Bytes,
}

impl Beside {
    /// That of every device of a program; `host_of` says which devices are on one host.
    pub fn all(program: &Program, host_of: impl Fn(DeviceId) -> u32) -> Vec<Self> {
        let lines = lines(program, |device| device);
        let channels = u64::from(most_blocks(&lines));
        let mut nccl = BTreeMap::<DeviceId, u64>::new();
        for (line, members) in &lines {
            for own in members {
                let others = members.iter().filter(|other| *other != own);
                let (near, far): (Vec<DeviceId>, Vec<DeviceId>) =
                    others.partition(|other| host_of(**other) == host_of(*own));
                let [receives, sends] = match line {
                    Line::Transfer(from, to, _) => [to == own, from == own],
                    Line::Group(_) => [true, true],
                };
                let directions = u64::from(receives) + u64::from(sends);
                let each = RECEIVING * u64::from(receives) + SENDING * u64::from(sends);
                let shared = if far.is_empty() { 0 } else { BETWEEN_HOSTS * directions };
                *nccl.entry(*own).or_default() += channels * (each * near.len() as u64 + shared);
            }
        }
        let n_queues = 1 + program.lanes.len() as u64;
        let of = |device| Self {
            driver: CONTEXT + SPARE,
            products: Bytes(WORKSPACE.0 * n_queues),
            nccl: Bytes(nccl.get(&device).copied().unwrap_or(0)),
        };
        (0..program.devices.len()).map(DeviceId::from_index).map(of).collect()
    }

    /// All of it.
    pub fn sum(self) -> Bytes {
        self.driver + self.products + self.nccl
    }
}

#[cfg(test)]
mod tests {
    use super::{Beside, MIB};
    use crate::text;

    /// Three devices that send to the next one, and the last one back to the first, which sum with each other.
    const RING: &str = "program ring stages 1 microbatches 1\n\
        group g0 (d0, d1, d2)\n\
        device d0 arena 64 peak 64 tokens 1 { buffers { %0 64 at 0 } setup { } step { send.start %0 to d1 activation -> !0 } }\n\
        device d1 arena 64 peak 64 tokens 1 { buffers { %0 64 at 0 } setup { } step { send.start %0 to d2 activation -> !0 } }\n\
        device d2 arena 64 peak 64 tokens 1 { buffers { %0 64 at 0 } setup { } step { send.start %0 to d0 gradient -> !0 } }\n";

    #[test]
    fn connections_take_what_their_hosts_make_of_them() {
        let program = text::parse(RING).expect("a program").program;
        let nccl = |hosts: [u32; 3]| {
            let all = Beside::all(&program, |device| hosts[device.index()]);
            all.into_iter().map(|own| own.nccl.0 / MIB).collect::<Vec<_>>()
        };
        // Three lines each: 8 channels. One receives, one sends, and of the group both ways to two others.
        assert_eq!(nccl([0, 0, 0]), [8 * (10 + 2 + 2 * 12); 3]);
        // d2 reaches the others by the network.
        assert_eq!(nccl([0, 0, 1]), [8 * (2 + 2 + 12 + 4), 8 * (10 + 2 + 12 + 4), 8 * (2 + 2 + 4)]);
    }
}
