//! Programs as text.

use super::{graph, tables as rows};
use crate::ids::{BufferId, DeviceId};
use crate::instruction::Instruction;
use crate::lanes::queues;
use crate::program::{Extent, Program, Space};
use crate::units::Bytes;

/// What the ids of an instruction refer to.
pub(crate) struct Names<'a> {
    pub(crate) program: &'a Program,
    pub(crate) operands: &'a [BufferId],
}

/// Appends a number; programs have tens of millions of them.
pub(crate) fn push_number(out: &mut String, number: u64) {
    out.push_str(itoa::Buffer::new().format(number));
}

/// Appends `[a,b,..]`.
pub(crate) fn push_list(out: &mut String, items: &[u32]) {
    out.push('[');
    for (position, item) in items.iter().enumerate() {
        out.push_str(if position == 0 { "" } else { "," });
        push_number(out, u64::from(*item));
    }
    out.push(']');
}

/// Appends an id.
pub(crate) fn push_id(out: &mut String, prefix: &str, number: u32) {
    out.push_str(prefix);
    push_number(out, u64::from(number));
}

/// Appends a name, quoted unless it is a plain word.
pub(crate) fn push_name(out: &mut String, name: &str) {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.';
    if name.bytes().all(plain) && name.bytes().next().is_some_and(|first| !first.is_ascii_digit()) {
        out.push_str(name);
        return;
    }
    out.push('"');
    for character in name.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            '\n' => out.push_str("\\n"),
            other => out.push(other),
        }
    }
    out.push('"');
}

/// Appends a number of bytes, exactly: in the largest unit that divides it.
pub(crate) fn push_bytes(out: &mut String, bytes: Bytes) {
    let unit = Bytes::UNITS.into_iter().find(|(_, unit)| bytes.0 >= *unit && bytes.0.is_multiple_of(*unit));
    let (name, unit) = unit.unwrap_or(("", 1));
    push_number(out, bytes.0 / unit);
    out.push_str(name);
}

/// The text before the first device: the tables of the program.
pub(super) fn tables(program: &Program) -> String {
    let mut out = String::from("program ");
    push_name(&mut out, &program.name);
    out.push_str(&format!(" stages {} microbatches {}", program.n_stages, program.n_microbatches));
    if !program.slice_shares.is_empty() {
        out.push_str(" slices ");
        push_list(&mut out, &program.slice_shares);
    } else if program.n_slices != 1 {
        out.push_str(&format!(" slices {}", program.n_slices));
    }
    if program.n_steps != 1 {
        out.push_str(&format!(" steps {}", program.n_steps));
    }
    if program.members != 1 {
        out.push_str(&format!(" members {}", program.members));
    }
    out.push('\n');
    for (stage, lags) in program.lags.iter().enumerate() {
        push_id(&mut out, "lags s", u32::try_from(stage).unwrap_or(u32::MAX));
        out.push(' ');
        push_list(&mut out, lags);
        out.push('\n');
    }
    if let Some(training) = &program.training {
        rows::print_training(training, &mut out);
    }
    for lane in &program.lanes {
        out.push_str("lane ");
        push_name(&mut out, lane);
        out.push('\n');
    }
    for (index, members) in program.groups.iter().enumerate() {
        out.push_str(&format!("group g{index} ("));
        for (position, device) in members.iter().enumerate() {
            out.push_str(if position == 0 { "" } else { ", " });
            push_id(&mut out, DeviceId::PREFIX, device.0);
        }
        out.push_str(")\n");
    }
    out.push('\n');
    for value in &program.values {
        rows::print_value(value, program, &mut out);
    }
    out.push('\n');
    for exec in &program.execs {
        rows::print_exec(exec, program, &mut out);
        graph::print_body(&exec.body, &mut out);
        out.push('\n');
    }
    out
}

/// The text of one device.
pub(super) fn device(program: &Program, index: usize) -> String {
    let device = &program.devices[index];
    let mut text = String::with_capacity(4096 + 24 * device.buffers.len() + 40 * device.step.len());
    let out = &mut text;
    out.push_str(&format!("\ndevice {}", DeviceId::from_index(index)));
    if let Some(limit) = device.limit {
        out.push_str(" memory ");
        push_bytes(out, limit);
    }
    let (arena, peak) = (device.arena.0, device.peak.0);
    out.push_str(&format!(" arena {arena} peak {peak}"));
    if device.host != Extent::default() {
        out.push_str(" host");
        if let Some(limit) = device.host.limit {
            out.push_str(" memory ");
            push_bytes(out, limit);
        }
        out.push_str(&format!(" arena {} peak {}", device.host.arena.0, device.host.peak.0));
    }
    out.push_str(&format!(" tokens {} {{\n  buffers {{\n", device.n_tokens));
    for (index, buffer) in device.buffers.iter().enumerate() {
        out.push_str("    %");
        push_number(out, index as u64);
        out.push(' ');
        push_number(out, buffer.bytes.0);
        out.push_str(" at ");
        push_number(out, buffer.offset.0);
        out.push_str(if buffer.space == Space::Host { " host\n" } else { "\n" });
    }
    out.push_str("  }\n");
    let names = Names { program, operands: &device.operands };
    for (word, list) in [("setup", &device.setup), ("step", &device.step)] {
        out.push_str("  ");
        out.push_str(word);
        out.push_str(" {\n");
        print_list(list, &names, out);
        out.push_str("  }\n");
    }
    out.push_str("}\n");
    text
}

/// What runs on a lane is set in below its `lane.start`.
fn print_list(list: &[Instruction], names: &Names<'_>, out: &mut String) {
    for (instruction, lane) in list.iter().zip(queues(list)) {
        out.push_str(if lane.is_some() { "      " } else { "    " });
        instruction.write(names, out);
        out.push('\n');
    }
}
