//! Launches of what a group does together: sums in the order of its members, the same bits as on the CPU.

use super::{Sources, real, some_blocks};
use crate::launch::{Argument, Launch};
use pipe_distributed::collective::own_bytes;
use pipe_ir::graph::DType;
use pipe_ir::instruction::Collective;
use pipe_ir::units::Bytes;
use std::fmt::Write as _;
use std::ops::Range;

impl Sources {
    /// Adds the functions that sums of this number of members need, unless they are there, and says
    /// what to launch for a collective on buffers of this size. Nothing for an all-gather or an
    /// all-to-all: these are copies.
    pub(crate) fn together(
        &mut self,
        collective: Collective,
        dtype: DType,
        bytes: Bytes,
        members: usize,
    ) -> Vec<Launch> {
        let bytes = bytes.to_usize();
        match collective {
            Collective::AllReduce => vec![self.added(dtype, members, None, 0..bytes)],
            Collective::ReduceScatter => (0..members)
                .map(|own| (own, own_bytes(bytes, members, own)))
                .filter(|(_, range)| !range.is_empty())
                .map(|(own, range)| self.added(dtype, members, Some(own), range))
                .collect(),
            Collective::AllGather | Collective::AllToAll => Vec::new(),
        }
    }

    /// The sum of some bytes of all members, to one of them or to all.
    fn added(&mut self, dtype: DType, members: usize, to: Option<usize>, bytes: Range<usize>) -> Launch {
        let real = real(dtype);
        let name = format!("add_{members}_{}_{real}", if to.is_some() { "to_one" } else { "to_all" });
        self.add_text(name.clone(), || sum_text(&name, real, members, to.is_some()));
        let count = (bytes.len() / dtype.bytes().to_usize()) as u64;
        let part = |member: usize| {
            let member = u32::try_from(member).expect("a group has few members");
            Argument::Part { member, offset: Bytes(bytes.start as u64) }
        };
        let arguments = (0..members).chain(to).map(part).chain([Argument::U64(count)]).collect();
        let grid = [some_blocks(count.div_ceil(256), 65535), 1, 1];
        Launch { function: self.exported(name), grid, block: [256, 1, 1], shared: 0, arguments }
    }
}

/// A kernel with a parameter for each member, so that nothing has to bring their addresses to the device.
fn sum_text(name: &str, real: &str, members: usize, to_one: bool) -> String {
    let mut parameters: Vec<String> = (0..members).map(|member| format!("{real}* of{member}")).collect();
    if to_one {
        parameters.push(format!("{real}* to"));
    }
    let mut text = format!(
        "// The sum of {members} members' numbers, in their order.\n\
         extern \"C\" __global__ void __launch_bounds__(256) {name}({}, u64 count) {{\n",
        parameters.join(", ")
    );
    text += "    u64 step = (u64)gridDim.x * 256;\n    for (u64 at = (u64)blockIdx.x * 256 + threadIdx.x; at < count; at += step) {\n";
    let _ = writeln!(text, "        {real} sum = of0[at];");
    for member in 1..members {
        let _ = writeln!(text, "        sum = add_{real}(sum, of{member}[at]);");
    }
    if to_one {
        text += "        to[at] = sum;\n";
    } else {
        for member in 0..members {
            let _ = writeln!(text, "        of{member}[at] = sum;");
        }
    }
    text + "    }\n}\n"
}
