//! The tables of a program as text: training settings, values and executables.

use super::cursor::{Cursor, ParseError};
use super::print::{push_id, push_name};
use crate::graph::{DType, TensorType};
use crate::ids::{ExecId, GroupId, LaneId, StageId, ValueId};
use crate::program::{Access, Body, Chunk, Edge, Exec, Operand, Piece, Program, SQUARES};
use crate::task::TaskKind;
use crate::training::{
    Checkpoint, DataSource, Decay, DecayShape, DecayedWeights, HeldOut, LearningRate, Optimizer, Training, Validation,
};
use crate::units::Bytes;
use crate::value::{Init, Part, Share, Split, TensorSlot, Value, ValueKind};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Names that were declared so far.
#[derive(Debug, Default)]
pub(crate) struct Tables<'a> {
    values: BTreeMap<Cow<'a, str>, ValueId>,
    execs: BTreeMap<ExecName, ExecId>,
    lanes: Vec<String>,
}

const ACCESSES: [(&str, Access); 3] = [("read", Access::Read), ("write", Access::Write), ("update", Access::Update)];

impl Tables<'_> {
    /// A value that was declared.
    pub(crate) fn value(&self, cursor: &mut Cursor<'_>) -> Result<ValueId, ParseError> {
        let here = cursor.clone();
        let name = cursor.name("the name of a value")?;
        self.values.get(&name).copied().ok_or_else(|| here.expected("the name of a declared value"))
    }

    /// Declares a lane.
    pub(super) fn declare_lane(&mut self, name: &str) {
        self.lanes.push(name.to_owned());
    }

    /// A lane that was declared.
    pub(crate) fn lane(&self, cursor: &mut Cursor<'_>) -> Result<LaneId, ParseError> {
        let here = cursor.clone();
        let name = cursor.name("the name of a lane")?;
        let place = self.lanes.iter().position(|lane| **lane == *name);
        place.map(LaneId::from_index).ok_or_else(|| here.expected("the name of a declared lane"))
    }

    /// An executable that was declared.
    pub(crate) fn exec(&self, cursor: &mut Cursor<'_>) -> Result<ExecId, ParseError> {
        let here = cursor.clone();
        let name = exec_name(cursor)?;
        self.execs.get(&name).copied().ok_or_else(|| here.expected("the name of a declared executable"))
    }
}

/// Kind (none where it adds squares to a norm), stage, number of the slice, edge, number of the chunk, piece, and
/// whether `R` repeats it.
type ExecName = (Option<TaskKind>, StageId, Option<u32>, Option<Edge>, Option<u32>, Option<Piece>, bool);

fn exec_name(cursor: &mut Cursor<'_>) -> Result<ExecName, ParseError> {
    const EXPECTED: &str = "an executable such as `@F.s0`";
    let here = cursor.clone();
    cursor.expect("@").map_err(|_| here.expected(EXPECTED))?;
    let word = cursor.word(EXPECTED)?;
    let number =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u32>().ok()).flatten();
    let (word, is_repeated) = word.strip_suffix(".r").map_or((word, false), |word| (word, true));
    let piece = word.rsplit_once(".p").and_then(|(word, piece)| {
        let (own, count) = piece.split_once("of")?;
        Some((word, Piece { number: number(own)?, count: number(count)? }))
    });
    let (word, piece) = piece.map_or((word, None), |(word, piece)| (word, Some(piece)));
    let parts = word.split_once(".s").and_then(|(letters, rest)| {
        let kind = if letters == SQUARES { None } else { Some(TaskKind::from_letters(letters)?) };
        let stage = |text| number(text).map(StageId);
        if let Some((own, slice)) = rest.split_once(".q") {
            return Some((kind, stage(own)?, Some(number(slice)?), None, None, piece, is_repeated));
        }
        if let Some((own, edge)) = rest.split_once(".e") {
            let (before, after) = edge.split_once('_')?;
            let edge = Edge { before: number(before)?, after: number(after)? };
            return Some((kind, stage(own)?, None, Some(edge), None, piece, is_repeated));
        }
        match rest.split_once(".c") {
            Some((own, chunk)) => Some((kind, stage(own)?, None, None, Some(number(chunk)?), piece, is_repeated)),
            None => Some((kind, stage(rest)?, None, None, None, piece, is_repeated)),
        }
    });
    parts.ok_or_else(|| here.expected(EXPECTED))
}

fn stage(cursor: &mut Cursor<'_>) -> Result<StageId, ParseError> {
    cursor.id('s', "a stage such as `s0`").map(StageId)
}

/// Prints the training settings.
pub(super) fn print_training(training: &Training, out: &mut String) {
    out.push_str(&format!("training steps {} seed {} {{\n  optimizer ", training.steps, training.seed));
    let name = training.optimizer.name();
    out.push_str(name);
    let settings = Optimizer::settings(name).unwrap_or_default();
    for (setting, value) in settings.iter().zip(training.optimizer.values()) {
        out.push_str(&format!(" {} {value:?}", setting.name));
    }
    out.push('\n');
    if training.decayed == DecayedWeights::Matrices {
        out.push_str("  weight_decay matrices\n");
    }
    let rate = &training.learning_rate;
    out.push_str(&format!("  learning_rate peak {:?} warmup {}", rate.peak, rate.warmup));
    if let Some(minimum) = rate.minimum {
        out.push_str(&format!(" minimum {minimum:?}"));
    }
    if !rate.decay.is_default() {
        out.push_str(&format!(" decay {}", rate.decay.shape.word()));
        if let Some(over) = rate.decay.over {
            out.push_str(&format!(" over {over}"));
        }
    }
    if let Some(most) = training.clip_norm {
        out.push_str(&format!("\n  clip_norm {most:?}"));
    }
    out.push_str("\n  data ");
    print_source(&training.data, out);
    out.push_str(if training.shuffled { " shuffled" } else { "" });
    if let Some(document) = training.document {
        out.push_str(&format!(" document {document}"));
    }
    out.push('\n');
    if let Some(Validation { data, every }) = &training.validation {
        out.push_str("  validation ");
        match data {
            HeldOut::Share(share) => out.push_str(&format!("share {share:?}")),
            HeldOut::File(source) => print_source(source, out),
        }
        out.push_str(&format!(" every {every}\n"));
    }
    for (word, text) in [("tokenizer", &training.tokenizer), ("init", &training.init), ("config", &training.config)] {
        if let Some(text) = text {
            out.push_str(&format!("  {word} "));
            push_name(out, text);
            out.push('\n');
        }
    }
    if let Some(checkpoint) = &training.checkpoint {
        out.push_str("  checkpoint ");
        push_name(out, &checkpoint.path);
        out.push_str(&format!(" every {}\n", checkpoint.every));
    }
    if let Some(model) = &training.model {
        out.push_str("  model ");
        push_name(out, &model.to_string());
        out.push('\n');
    }
    out.push_str("}\n");
}

fn named_float(cursor: &mut Cursor<'_>, name: &str) -> Result<f64, ParseError> {
    cursor.expect(name)?;
    cursor.float("a number")
}

/// Reads the training settings, after their keyword.
pub(super) fn parse_training(cursor: &mut Cursor<'_>) -> Result<Training, ParseError> {
    cursor.expect("steps")?;
    let steps = cursor.small("a number of steps")?;
    cursor.expect("seed")?;
    let seed = cursor.number("a seed below 2^64")?;
    cursor.expect("{")?;
    cursor.expect("optimizer")?;
    let names: Vec<(&str, &str)> = Optimizer::NAMES.iter().map(|name| (*name, *name)).collect();
    let name = cursor.choice(&names)?;
    let settings = Optimizer::settings(name).unwrap_or_default().iter();
    let values = settings.map(|setting| named_float(cursor, setting.name)).collect::<Result<Vec<f64>, _>>()?;
    let optimizer = Optimizer::new(name, &values).expect("as many values as settings");
    let decayed = if cursor.take("weight_decay") {
        cursor.expect("matrices")?;
        DecayedWeights::Matrices
    } else {
        DecayedWeights::All
    };
    cursor.expect("learning_rate")?;
    let peak = named_float(cursor, "peak")?;
    cursor.expect("warmup")?;
    let warmup = cursor.small("a number of steps")?;
    let minimum = if cursor.take("minimum") { Some(cursor.float("a number")?) } else { None };
    let decay = if cursor.take("decay") {
        let shape = cursor.one_of(DecayShape::ALL, DecayShape::word)?;
        Decay { shape, over: if cursor.take("over") { Some(cursor.small("a number of steps")?) } else { None } }
    } else {
        Decay::default()
    };
    let clip_norm = if cursor.take("clip_norm") { Some(cursor.float("a number")?) } else { None };
    cursor.expect("data")?;
    let data = parse_source(cursor)?;
    let shuffled = cursor.take("shuffled");
    let document = if cursor.take("document") { Some(cursor.small("a token")?) } else { None };
    let validation = if cursor.take("validation") { Some(parse_validation(cursor)?) } else { None };
    let mut named = |word: &str, what: &str| -> Result<Option<String>, ParseError> {
        if cursor.take(word) { Ok(Some(cursor.name(what)?.into_owned())) } else { Ok(None) }
    };
    let tokenizer = named("tokenizer", "a path")?;
    let (init, config) = (named("init", "a path")?, named("config", "the text of a `config.json`")?);
    let checkpoint = if cursor.take("checkpoint") {
        let path = cursor.name("a path")?.into_owned();
        cursor.expect("every")?;
        Some(Checkpoint { path, every: cursor.small("a number of steps")? })
    } else {
        None
    };
    let model = if cursor.take("model") {
        let here = cursor.clone();
        let digest = cursor.name("a digest")?.parse();
        Some(digest.map_err(|()| here.expected("a digest of 16 hexadecimal digits"))?)
    } else {
        None
    };
    cursor.expect("}")?;
    let learning_rate = LearningRate { peak, warmup, minimum, decay };
    Ok(Training {
        steps,
        seed,
        optimizer,
        decayed,
        learning_rate,
        clip_norm,
        data,
        shuffled,
        document,
        tokenizer,
        validation,
        init,
        config,
        checkpoint,
        model,
    })
}

fn print_source(source: &DataSource, out: &mut String) {
    let (word, path) = match source {
        DataSource::Synthetic => return out.push_str("synthetic"),
        DataSource::Bytes(path) => ("bytes", path),
        DataSource::Tokens(path) => ("tokens", path),
        DataSource::Examples(path) => ("examples", path),
        DataSource::ExamplesOf(files) => {
            out.push_str("examples_of");
            for (position, (tensor, path)) in files.iter().enumerate() {
                out.push_str(if position == 0 { " " } else { ", " });
                push_name(out, tensor);
                out.push(' ');
                push_name(out, path);
            }
            return;
        }
    };
    out.push_str(&format!("{word} "));
    push_name(out, path);
}

fn parse_source(cursor: &mut Cursor<'_>) -> Result<DataSource, ParseError> {
    let words = ["synthetic", "bytes", "tokens", "examples", "examples_of"].map(|word| (word, word));
    let word = cursor.choice(&words)?;
    Ok(match word {
        "bytes" => DataSource::Bytes(cursor.name("a path")?.into_owned()),
        "tokens" => DataSource::Tokens(cursor.name("a path")?.into_owned()),
        "examples" => DataSource::Examples(cursor.name("a path")?.into_owned()),
        "examples_of" => {
            let mut files = Vec::new();
            loop {
                let tensor = cursor.name("a data tensor")?.into_owned();
                files.push((tensor, cursor.name("a path")?.into_owned()));
                if !cursor.take(",") {
                    break DataSource::ExamplesOf(files);
                }
            }
        }
        _ => DataSource::Synthetic,
    })
}

fn parse_validation(cursor: &mut Cursor<'_>) -> Result<Validation, ParseError> {
    let share = if cursor.take("share") { Some(cursor.float("a share")?) } else { None };
    let data = match share {
        Some(share) => HeldOut::Share(share),
        None => HeldOut::File(parse_source(cursor)?),
    };
    cursor.expect("every")?;
    Ok(Validation { data, every: cursor.small("a number of steps")? })
}

/// Prints a row of the table of values.
pub(super) fn print_value(value: &Value, program: &Program, out: &mut String) {
    out.push_str("value ");
    push_name(out, &value.name);
    out.push_str(&format!(": {} of {}, {} bytes", value.kind.word(), value.stage, value.bytes.0));
    if let Some(Share { whole, group, member }) = value.share {
        push_id(out, ", share ", member);
        out.push_str(" of ");
        push_value(program, whole, out);
        push_id(out, " in g", group.0);
    }
    if !value.tensors.is_empty() {
        out.push_str(" {\n");
        for slot in &value.tensors {
            out.push_str("  ");
            push_name(out, &slot.name);
            out.push_str(&format!(": {} at {}", slot.ty, slot.offset.0));
            match slot.init {
                None => {}
                Some(Init::Zeros) => out.push_str(" init zeros"),
                Some(Init::Ones) => out.push_str(" init ones"),
                Some(Init::Normal(deviation)) => out.push_str(&format!(" init normal {deviation:?}")),
            }
            if let Some(Part { whole, from }) = &slot.part {
                out.push_str(&format!(" from {from} of {whole}"));
            }
            if let Some(Split { axis, blocks, members, padding }) = slot.split {
                out.push_str(&format!(" split {axis} blocks {blocks} members {members}"));
                if padding > 0 {
                    out.push_str(&format!(" padding {padding}"));
                }
            }
            out.push('\n');
        }
        out.push('}');
    }
    out.push('\n');
}

/// Appends the name of a value, or its number where there is no such value.
fn push_value(program: &Program, value: ValueId, out: &mut String) {
    match program.values.get(value.index()) {
        Some(value) => push_name(out, &value.name),
        None => push_id(out, ValueId::PREFIX, value.0),
    }
}

/// Reads a row of the table of values, after its keyword.
pub(super) fn parse_value<'a>(cursor: &mut Cursor<'a>, tables: &mut Tables<'a>) -> Result<Value, ParseError> {
    let here = cursor.clone();
    let name = cursor.name("the name of a value")?;
    let id = ValueId::from_index(tables.values.len());
    if tables.values.insert(name.clone(), id).is_some() {
        return Err(here.expected("a name that no earlier value has"));
    }
    cursor.expect(":")?;
    let kind = cursor.one_of(ValueKind::ALL, ValueKind::word)?;
    cursor.expect("of")?;
    let stage = stage(cursor)?;
    cursor.expect(",")?;
    let bytes = cursor.bytes("a number of bytes")?;
    cursor.expect("bytes")?;
    let share = if cursor.take(",") { Some(parse_share(cursor, tables)?) } else { None };
    let mut tensors = Vec::new();
    if cursor.take("{") {
        while !cursor.take("}") {
            tensors.push(parse_slot(cursor)?);
        }
    }
    Ok(Value { name: name.into_owned(), kind, stage, bytes, tensors, share })
}

/// Reads of what a value is a share: `share 1 of parameters.s0 in g0`.
fn parse_share(cursor: &mut Cursor<'_>, tables: &Tables<'_>) -> Result<Share, ParseError> {
    cursor.expect("share")?;
    let member = cursor.small("which share it is")?;
    cursor.expect("of")?;
    let whole = tables.value(cursor)?;
    cursor.expect("in")?;
    Ok(Share { whole, group: GroupId(cursor.id('g', "a group such as `g0`")?), member })
}

fn parse_slot(cursor: &mut Cursor<'_>) -> Result<TensorSlot, ParseError> {
    let name = cursor.name("the name of a tensor or `}`")?.into_owned();
    cursor.expect(":")?;
    let ty = parse_type(cursor)?;
    cursor.expect("at")?;
    let offset = Bytes(cursor.number("an offset in bytes")?);
    let init = if cursor.take("init") {
        Some(match cursor.choice(&[("zeros", 0), ("ones", 1), ("normal", 2)])? {
            0 => Init::Zeros,
            1 => Init::Ones,
            _ => Init::Normal(cursor.float("a standard deviation")?),
        })
    } else {
        None
    };
    let part = if cursor.take("from") {
        let from = cursor.number("a number of elements")?;
        cursor.expect("of")?;
        Some(Part { whole: parse_type(cursor)?, from })
    } else {
        None
    };
    let split = if cursor.take("split") { Some(parse_split(cursor)?) } else { None };
    Ok(TensorSlot { name, ty, offset, init, part, split })
}

/// Reads how members divide a tensor: `1 blocks 1 members 2`, or `0 blocks 1 members 2 padding 1`.
fn parse_split(cursor: &mut Cursor<'_>) -> Result<Split, ParseError> {
    let axis = cursor.small("a dimension")?;
    cursor.expect("blocks")?;
    let blocks = cursor.number("a number of blocks")?;
    cursor.expect("members")?;
    let members = cursor.number("a number of members")?;
    let padding = if cursor.take("padding") { cursor.number("a number of rows")? } else { 0 };
    Ok(Split { axis, blocks, members, padding })
}

/// Reads a tensor type: `f32[4,128]`.
pub(super) fn parse_type(cursor: &mut Cursor<'_>) -> Result<TensorType, ParseError> {
    let dtype = cursor.one_of(DType::ALL, DType::word)?;
    let shape = cursor.list(|cursor| cursor.number("a size"))?;
    Ok(TensorType { dtype, shape })
}

/// Prints the head of a row of the table of executables.
pub(super) fn print_exec(exec: &Exec, program: &Program, out: &mut String) {
    out.push_str(&format!("exec @{}", exec.name()));
    if let Some(Chunk { from, to, group, .. }) = exec.chunk {
        out.push_str(&format!(" from {} to {}", from.0, to.0));
        group.into_iter().for_each(|group| push_id(out, " of g", group.0));
    }
    out.push_str(&format!(" flops {} (", exec.flops));
    for (position, operand) in exec.operands.iter().enumerate() {
        out.push_str(if position == 0 { "" } else { ", " });
        out.push_str(ACCESSES.iter().find(|(_, access)| *access == operand.access).map_or("?", |(word, _)| word));
        out.push(' ');
        push_value(program, operand.value, out);
        let words = if operand.ahead < 0 { " behind " } else { " ahead " };
        if operand.ahead != 0 {
            push_id(out, words, operand.ahead.unsigned_abs());
        }
    }
    out.push(')');
}

/// Reads a row of the table of executables, after its keyword.
pub(super) fn parse_exec(cursor: &mut Cursor<'_>, tables: &mut Tables<'_>) -> Result<Exec, ParseError> {
    let here = cursor.clone();
    let name = exec_name(cursor)?;
    let (kind, stage, slice, edge, number, piece, is_repeated) = name;
    let id = ExecId::from_index(tables.execs.len());
    if tables.execs.insert(name, id).is_some() {
        return Err(here.expected("a kind, stage, slice, edge and chunk that no earlier executable has"));
    }
    let chunk = match number {
        Some(number) => {
            cursor.expect("from")?;
            let from = Bytes(cursor.number("an offset in bytes")?);
            cursor.expect("to")?;
            let to = Bytes(cursor.number("an offset in bytes")?);
            let group = if cursor.take("of") { Some(GroupId(cursor.id('g', "a group such as `g0`")?)) } else { None };
            Some(Chunk { number, from, to, group })
        }
        None => None,
    };
    cursor.expect("flops")?;
    let flops = cursor.number("a number of operations")?;
    cursor.expect("(")?;
    let mut operands = Vec::new();
    while !cursor.take(")") {
        if !operands.is_empty() {
            cursor.expect(",")?;
        }
        let access = cursor.choice(&ACCESSES)?;
        let value = tables.value(cursor)?;
        operands.push(Operand { value, access, ahead: ahead(cursor)? });
    }
    let here = cursor.clone();
    let body = super::graph::parse_body(cursor)?;
    if kind.is_none() != (body == Body::Squares) {
        return Err(here.expected("`squares` behind a name that begins with `N`, and there alone"));
    }
    let kind = kind.unwrap_or(TaskKind::Update);
    Ok(Exec { kind, stage, slice, edge, is_repeated, chunk, piece, operands, body, flops })
}

/// Reads which microbatch's value an operand is: `ahead 1`, `behind 2`, or nothing for the run's own.
fn ahead(cursor: &mut Cursor<'_>) -> Result<i32, ParseError> {
    let sign = match (cursor.take("ahead"), cursor.take("behind")) {
        (true, _) => 1,
        (false, true) => -1,
        (false, false) => return Ok(0),
    };
    let here = cursor.clone();
    let number = cursor.small("a number of microbatches")?;
    i32::try_from(number).map(|number| sign * number).map_err(|_| here.expected("fewer than 2^31 microbatches"))
}
