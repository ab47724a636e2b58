//! Training settings of a pipeline.

use super::arguments::Values;
use super::exact::decimal;
use super::limits::Report;
use super::number::{outside, whole};
use super::scope::Fault;
use crate::diagnostic::{Code, Diagnostic};
use crate::pipeline::TrainingFiles;
use crate::source::Span;
use crate::suggest;
use crate::syntax::ast::{Call, Expr, Name, Setting, SettingValue};
use pipe_ir::training::{Checkpoint, DataSource, LearningRate, Optimizer, Training};
use std::collections::BTreeMap;

/// Steps between two checkpoints where the text does not say.
const CHECKPOINT_EVERY: u32 = 1_000;

/// Reads the settings; none where something is wrong with them.
pub(super) fn training(
    (declared, span): (&Name, Span),
    settings: &[Setting],
    values: &Values,
    report: &mut Report,
) -> Option<Training> {
    let mut said: BTreeMap<&str, Span> = BTreeMap::new();
    let (mut data, mut steps, mut seed, mut optimizer) = (None, None, 0, None);
    let (mut warmup, mut minimum, mut checkpoint) = ((0, span), None, None);
    for setting in settings {
        let (word, place) = (word(&setting.value), setting.span);
        if let Some(first) = said.insert(word, place) {
            let message = format!("`train` says `{word}` twice");
            let error = Diagnostic::error(Code::RepeatedItem, place, "said again", message);
            report.add(error.label(first, "said here"));
        }
        match &setting.value {
            SettingValue::Data(path) => {
                data = Some(path.as_ref().map_or(DataSource::Synthetic, |path| DataSource::Bytes(path.clone())));
            }
            SettingValue::Steps(expr) => steps = report.take(whole(expr, values, 1, "`steps`")),
            SettingValue::Seed(expr) => seed = report.take(whole(expr, values, 0, "`seed`")).unwrap_or(0),
            SettingValue::Optimizer(call) => optimizer = report.take(optimizer_of(call, values)),
            SettingValue::Warmup(expr) => {
                warmup = (report.take(whole(expr, values, 0, "`warmup`")).unwrap_or(0), expr.span);
            }
            SettingValue::Minimum(expr) => minimum = report.take(number(expr, values)).map(|value| (value, expr.span)),
            SettingValue::Checkpoint { path, every } => {
                let every = every.as_ref().map(|every| whole(every, values, 1, "`every`"));
                let every = report.take(every.unwrap_or(Ok(CHECKPOINT_EVERY)))?;
                checkpoint = Some(Checkpoint { path: path.clone(), every });
            }
        }
    }
    let absent: Vec<String> = ["data", "steps", "optimizer"]
        .iter()
        .filter(|word| !said.contains_key(**word))
        .map(|word| format!("no `{word}`"))
        .collect();
    if !absent.is_empty() {
        let message = format!("`train` of `{}` has {}", declared.text, absent.join(" and "));
        report.add(Diagnostic::error(Code::MissingItem, span, "in these settings", message));
    }
    let (steps, (optimizer, peak)) = (steps?, optimizer?);
    if warmup.0 > steps {
        report.add(*outside(warmup.1, format!("the warm-up has {} steps, and the whole run {steps}", warmup.0)));
    }
    if let Some((minimum, place)) = minimum.filter(|(minimum, _)| !(0.0..=peak).contains(minimum)) {
        report.add(*outside(
            place,
            format!("`minimum` is {minimum}; it must lie between 0 and the learning rate, {peak}"),
        ));
    }
    let learning_rate = LearningRate { peak, warmup: warmup.0, minimum: minimum.map(|(minimum, _)| minimum) };
    Some(Training { steps, seed, optimizer, learning_rate, data: data?, checkpoint, model: None })
}

const fn word(value: &SettingValue) -> &'static str {
    match value {
        SettingValue::Data(_) => "data",
        SettingValue::Steps(_) => "steps",
        SettingValue::Seed(_) => "seed",
        SettingValue::Optimizer(_) => "optimizer",
        SettingValue::Warmup(_) => "warmup",
        SettingValue::Minimum(_) => "minimum",
        SettingValue::Checkpoint { .. } => "checkpoint",
    }
}

/// Where the settings name files.
pub(super) fn files(settings: &[Setting]) -> TrainingFiles {
    let mut files = TrainingFiles::default();
    for setting in settings {
        match setting.value {
            SettingValue::Data(Some(_)) => files.data = Some(setting.span),
            SettingValue::Checkpoint { .. } => files.checkpoint = Some(setting.span),
            _ => {}
        }
    }
    files
}

fn number(expr: &Expr, values: &Values) -> Result<f64, Fault> {
    decimal(expr, values).map_err(Box::new)
}

/// A parameter of an optimizer: its name, its default, and whether a value is allowed.
type Field = (&'static str, Option<f64>, fn(f64) -> bool);

const POSITIVE: fn(f64) -> bool = |value| value > 0.0;
const NOT_NEGATIVE: fn(f64) -> bool = |value| value >= 0.0;
const DECAY: fn(f64) -> bool = |value| (0.0..1.0).contains(&value);

const ADAMW: [Field; 5] = [
    ("learning_rate", None, POSITIVE),
    ("beta1", Some(0.9), DECAY),
    ("beta2", Some(0.999), DECAY),
    ("weight_decay", Some(0.01), NOT_NEGATIVE),
    ("epsilon", Some(1e-8), POSITIVE),
];
const SGD: [Field; 3] =
    [("learning_rate", None, POSITIVE), ("momentum", Some(0.0), DECAY), ("weight_decay", Some(0.0), NOT_NEGATIVE)];

/// The update rule, and the learning rate after the warm-up.
fn optimizer_of(call: &Call, values: &Values) -> Result<(Optimizer, f64), Fault> {
    match call.name.text.as_str() {
        "adamw" => {
            let [peak, beta1, beta2, weight_decay, epsilon] = fields(call, ADAMW, values)?;
            Ok((Optimizer::AdamW { beta1, beta2, epsilon, weight_decay }, peak))
        }
        "sgd" => {
            let [peak, momentum, weight_decay] = fields(call, SGD, values)?;
            Ok((Optimizer::Sgd { momentum, weight_decay }, peak))
        }
        name => {
            let message = format!("unknown optimizer `{name}`");
            let error = Diagnostic::error(Code::UnknownName, call.name.span, "not known", message);
            Err(Box::new(Diagnostic { help: suggest::help(name, ["adamw", "sgd"]), ..error }))
        }
    }
}

fn fields<const N: usize>(call: &Call, fields: [Field; N], values: &Values) -> Result<[f64; N], Fault> {
    let optimizer = &call.name.text;
    let wrong = |span, label: &str, message| Box::new(Diagnostic::error(Code::WrongArguments, span, label, message));
    let mut found: [Option<f64>; N] = [None; N];
    for (position, argument) in call.arguments.iter().enumerate() {
        let index = match &argument.name {
            None => Some(position).filter(|position| *position < N),
            Some(name) => fields.iter().position(|(field, _, _)| *field == name.text),
        };
        let Some(index) = index else {
            let span = argument.name.as_ref().map_or(argument.value.span, |name| name.span);
            let known = fields.map(|(field, _, _)| field);
            let error = wrong(span, "no such setting", format!("`{optimizer}` has no such setting"));
            let help = argument.name.as_ref().and_then(|name| suggest::help(&name.text, known));
            return Err(Box::new(Diagnostic { help, ..*error }));
        };
        let (field, _, allowed) = fields[index];
        let value = number(&argument.value, values)?;
        if !allowed(value) {
            return Err(outside(argument.value.span, format!("`{field}` cannot be {value}")));
        }
        if found[index].replace(value).is_some() {
            return Err(wrong(argument.value.span, "given again", format!("`{field}` is given twice")));
        }
    }
    let mut complete = [0.0; N];
    for (index, (field, default, _)) in fields.into_iter().enumerate() {
        complete[index] = found[index]
            .or(default)
            .ok_or_else(|| wrong(call.span, "in this call", format!("`{optimizer}` needs a value for `{field}`")))?;
    }
    Ok(complete)
}
