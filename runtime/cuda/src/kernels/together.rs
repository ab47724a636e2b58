//! Sums of what the members of a group have, in their order: the same bits as on the CPU.

use super::{Sources, real, some_blocks};
use crate::launch::{Argument, Launch};
use pipe_ir::graph::DType;
use std::fmt::Write as _;

/// A sum of bytes of several members, as many of each. Where they lie is said by [`Argument::Part`]s: those that are
/// added up, in this order, and then the place of the sum if one alone gets it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct MemberSum {
    pub(crate) dtype: DType,
    /// How many are added up.
    pub(crate) members: usize,
    /// Whether one place gets the sum, instead of all that were added up.
    pub(crate) to_one: bool,
    /// Of each.
    pub(crate) bytes: usize,
}

impl Sources {
    /// Adds the function that a sum needs, unless it is there, and says what to launch.
    pub(crate) fn member_sum(&mut self, sum: MemberSum) -> Launch {
        let MemberSum { dtype, members, to_one, bytes } = sum;
        let real = real(dtype);
        let name = format!("add_{members}_{}_{real}", if to_one { "to_one" } else { "to_all" });
        self.add_text(name.clone(), || sum_text(&name, real, members, to_one));
        let count = (bytes / dtype.bytes().to_usize()) as u64;
        let part = |part: usize| Argument::Part(u32::try_from(part).expect("a group has few members"));
        let arguments = (0..members + usize::from(to_one)).map(part).chain([Argument::U64(count)]).collect();
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
