//! Training settings of a pipeline.

use super::number::{outside, whole};
use pipe_ir::training::{Checkpoint, DataSource, LearningRate, Optimizer, Range, Training};
use pipe_model::pipeline::TrainingFiles;
use pipe_syntax::ast::{Call, Expr, Name, Setting, SettingValue};
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::expr::arguments::Values;
use pipe_syntax::expr::exact::decimal;
use pipe_syntax::expr::scope::Fault;
use pipe_syntax::limits::Report;
use pipe_syntax::source::Span;
use pipe_syntax::suggest;
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

/// The update rule, and the learning rate after the warm-up, which every optimizer takes first.
fn optimizer_of(call: &Call, values: &Values) -> Result<(Optimizer, f64), Fault> {
    let name = call.name.text.as_str();
    let Some(settings) = Optimizer::settings(name) else {
        let message = format!("unknown optimizer `{name}`");
        let error = Diagnostic::error(Code::UnknownName, call.name.span, "not known", message);
        return Err(Box::new(Diagnostic { help: suggest::help(name, Optimizer::NAMES.iter().copied()), ..error }));
    };
    let mut fields = vec![("learning_rate", None, Range::Positive); settings.len() + 1];
    for setting in settings {
        fields[setting.position + 1] = (setting.name, Some(setting.default), setting.range);
    }
    let numbers = bind(call, &fields, values)?;
    let of_setting: Vec<f64> = settings.iter().map(|setting| numbers[setting.position + 1]).collect();
    let optimizer = Optimizer::new(name, &of_setting).expect("as many values as settings");
    Ok((optimizer, numbers[0]))
}

/// A parameter of an optimizer: its name, its default, and the values that it may have.
type Field = (&'static str, Option<f64>, Range);

/// A value for each field, in their order.
fn bind(call: &Call, fields: &[Field], values: &Values) -> Result<Vec<f64>, Fault> {
    let optimizer = &call.name.text;
    let wrong = |span, label: &str, message| Box::new(Diagnostic::error(Code::WrongArguments, span, label, message));
    let mut found: Vec<Option<f64>> = vec![None; fields.len()];
    for (position, argument) in call.arguments.iter().enumerate() {
        let index = match &argument.name {
            None => Some(position).filter(|position| *position < fields.len()),
            Some(name) => fields.iter().position(|(field, _, _)| *field == name.text),
        };
        let Some(index) = index else {
            let span = argument.name.as_ref().map_or(argument.value.span, |name| name.span);
            let known = fields.iter().map(|(field, _, _)| *field);
            let error = wrong(span, "no such setting", format!("`{optimizer}` has no such setting"));
            let help = argument.name.as_ref().and_then(|name| suggest::help(&name.text, known));
            return Err(Box::new(Diagnostic { help, ..*error }));
        };
        let (field, _, range) = fields[index];
        let value = number(&argument.value, values)?;
        if !range.contains(value) {
            return Err(outside(argument.value.span, format!("`{field}` cannot be {value}")));
        }
        if found[index].replace(value).is_some() {
            return Err(wrong(argument.value.span, "given again", format!("`{field}` is given twice")));
        }
    }
    let complete = fields.iter().zip(found).map(|((field, default, _), found)| {
        let missing = || wrong(call.span, "in this call", format!("`{optimizer}` needs a value for `{field}`"));
        found.or(*default).ok_or_else(missing)
    });
    complete.collect()
}
