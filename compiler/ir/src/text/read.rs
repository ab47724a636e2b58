//! Programs from text.

use super::cursor::{Cursor, ParseError, Scope};
use super::tables::{Tables, parse_exec, parse_training, parse_value};
use super::{DeviceLines, Lines, Parsed};
use crate::ids::DeviceId;
use crate::instruction::{Instruction, REFERENCE};
use crate::program::{Buffer, DeviceProgram, Extent, Program, Space};
use crate::units::Bytes;

/// Reads a whole text.
pub(super) fn program(text: &str) -> Result<Parsed, ParseError> {
    let mut cursor = Cursor::new(text);
    let cursor = &mut cursor;
    let header = cursor.line;
    cursor.expect("program")?;
    let name = cursor.name("the name of the program")?.into_owned();
    cursor.expect("stages")?;
    let n_stages = cursor.small("a number of stages")?;
    cursor.expect("microbatches")?;
    let n_microbatches = cursor.small("a number of microbatches")?;
    let (n_slices, slice_shares) = if cursor.take("slices") { slices(cursor)? } else { (1, Vec::new()) };
    let n_steps = if cursor.take("steps") { cursor.small("a number of steps")? } else { 1 };
    let members = if cursor.take("members") { cursor.small("a number of members")? } else { 1 };
    let mut lags = Vec::new();
    while cursor.take("lags") {
        let here = cursor.clone();
        if cursor.id('s', "a stage such as `s0`")? as usize != lags.len() {
            return Err(here.expected(format!("`s{}`", lags.len())));
        }
        lags.push(cursor.list(|cursor| cursor.small("a number of updates"))?);
    }
    let training = if cursor.take("training") { Some(parse_training(cursor)?) } else { None };
    let mut lines = Lines { header, ..Lines::default() };
    let mut tables = Tables::default();
    let lanes = lanes(cursor, &mut tables)?;
    let groups = groups(cursor, &mut lines)?;
    let (mut values, mut execs, mut devices) = (Vec::new(), Vec::new(), Vec::new());
    let mut line = cursor.line;
    while cursor.take("value") {
        lines.values.push(line);
        values.push(parse_value(cursor, &mut tables)?);
        line = cursor.line;
    }
    while cursor.take("exec") {
        lines.execs.push(line);
        execs.push(parse_exec(cursor, &mut tables)?);
        line = cursor.line;
    }
    while cursor.take("device") {
        let here = cursor.clone();
        let id = cursor.id('d', "a device such as `d0`")?;
        if id as usize != devices.len() {
            return Err(here.expected(format!("`d{}`", devices.len())));
        }
        let mut device_lines = DeviceLines { header: line, ..DeviceLines::default() };
        devices.push(device(cursor, &tables, &mut device_lines)?);
        lines.devices.push(device_lines);
        line = cursor.line;
    }
    if !cursor.at_end() {
        let expected = match (devices.is_empty(), execs.is_empty()) {
            (true, true) if groups.is_empty() => "`lane`, `group`, `value`, `exec`, `device` or the end of the text",
            (true, true) => "`group`, `value`, `exec`, `device` or the end of the text",
            (true, false) => "`exec`, `device` or the end of the text",
            (false, _) => "`device` or the end of the text",
        };
        return Err(cursor.expected(expected));
    }
    let program = Program {
        name,
        n_stages,
        n_microbatches,
        n_slices,
        slice_shares,
        n_steps,
        lags,
        lanes,
        members,
        groups,
        values,
        execs,
        devices,
        training,
    };
    Ok(Parsed { program, lines })
}

/// Reads a number of slices, or the share of each.
fn slices(cursor: &mut Cursor<'_>) -> Result<(u32, Vec<u32>), ParseError> {
    if !cursor.clone().take("[") {
        return Ok((cursor.small("a number of slices")?, Vec::new()));
    }
    let shares = cursor.list(|cursor| cursor.small("a share"))?;
    Ok((u32::try_from(shares.len()).unwrap_or(u32::MAX), shares))
}

/// Reads the names of lanes.
fn lanes(cursor: &mut Cursor<'_>, tables: &mut Tables<'_>) -> Result<Vec<String>, ParseError> {
    let mut lanes = Vec::new();
    while cursor.take("lane") {
        let here = cursor.clone();
        let name = cursor.name("the name of a lane")?.into_owned();
        if lanes.contains(&name) {
            return Err(here.expected("a name that no other lane has"));
        }
        tables.declare_lane(&name);
        lanes.push(name);
    }
    Ok(lanes)
}

/// Reads the table of groups.
fn groups(cursor: &mut Cursor<'_>, lines: &mut Lines) -> Result<Vec<Vec<DeviceId>>, ParseError> {
    let mut groups = Vec::new();
    let mut line = cursor.line;
    while cursor.take("group") {
        lines.groups.push(line);
        let here = cursor.clone();
        if cursor.id('g', "a group such as `g0`")? as usize != groups.len() {
            return Err(here.expected(format!("`g{}`", groups.len())));
        }
        let mut members = Vec::new();
        cursor.expect("(")?;
        while !cursor.take(")") {
            if !members.is_empty() {
                cursor.expect(",")?;
            }
            members.push(DeviceId(cursor.id('d', "a device such as `d0`")?));
        }
        groups.push(members);
        line = cursor.line;
    }
    Ok(groups)
}

fn device(cursor: &mut Cursor<'_>, tables: &Tables<'_>, lines: &mut DeviceLines) -> Result<DeviceProgram, ParseError> {
    let Extent { limit, arena, peak } = extent(cursor)?;
    let host = if cursor.take("host") { extent(cursor)? } else { Extent::default() };
    cursor.expect("tokens")?;
    let n_tokens = cursor.small("a number of tokens")?;
    cursor.expect("{")?;
    cursor.expect("buffers")?;
    let buffers = buffers(cursor, &mut lines.buffers)?;
    let mut operands = Vec::new();
    let mut scope = Scope { tables, operands: &mut operands };
    cursor.expect("setup")?;
    let setup = instructions(cursor, &mut scope, &mut lines.setup)?;
    cursor.expect("step")?;
    let step = instructions(cursor, &mut scope, &mut lines.step)?;
    cursor.expect("}")?;
    Ok(DeviceProgram { limit, arena, peak, host, buffers, operands, n_tokens, setup, step })
}

/// Reads what a device uses of a memory space.
fn extent(cursor: &mut Cursor<'_>) -> Result<Extent, ParseError> {
    let limit = if cursor.take("memory") { Some(cursor.bytes("a number of bytes such as `64MiB`")?) } else { None };
    cursor.expect("arena")?;
    let arena = cursor.bytes("a number of bytes")?;
    cursor.expect("peak")?;
    Ok(Extent { limit, arena, peak: cursor.bytes("a number of bytes")? })
}

fn buffers(cursor: &mut Cursor<'_>, lines: &mut Vec<u32>) -> Result<Vec<Buffer>, ParseError> {
    let mut buffers = Vec::new();
    cursor.expect("{")?;
    while !cursor.take("}") {
        let here = cursor.clone();
        lines.push(cursor.line);
        let id = cursor.id('%', "a buffer such as `%0` or `}`")?;
        if id as usize != buffers.len() {
            return Err(here.expected(format!("`%{}`", buffers.len())));
        }
        let bytes = Bytes(cursor.number("a number of bytes")?);
        cursor.expect("at")?;
        let offset = Bytes(cursor.number("an offset in bytes")?);
        let space = if cursor.take("host") { Space::Host } else { Space::Device };
        buffers.push(Buffer { bytes, offset, space });
    }
    Ok(buffers)
}

fn instructions(
    cursor: &mut Cursor<'_>,
    scope: &mut Scope<'_>,
    lines: &mut Vec<u32>,
) -> Result<Vec<Instruction>, ParseError> {
    let mut list = Vec::new();
    cursor.expect("{")?;
    while !cursor.take("}") {
        let here = cursor.clone();
        let word = cursor.word("an instruction or `}`")?;
        lines.push(here.line);
        match Instruction::parse(word, cursor, scope)? {
            Some(instruction) => list.push(instruction),
            None => {
                let words: Vec<String> = REFERENCE.iter().map(|row| format!("`{}`", row.word)).collect();
                return Err(here.expected(format!("an instruction ({})", words.join(", "))));
            }
        }
    }
    Ok(list)
}
