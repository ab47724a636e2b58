//! Training settings of a pipeline.

use super::number::{outside, whole};
use pipe_ir::training::{
    Checkpoint, DataSource, Decay, DecayedWeights, HeldOut, LearningRate, Optimizer, Range, Training, Validation,
};
use pipe_model::pipeline::TrainingFiles;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::step_tasks::StepTaskKind;
use pipe_syntax::ast::{Argument, Call, DataFile, Expr, Name, Setting, SettingValue};
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::expr::arguments::Signature;
use pipe_syntax::expr::evaluate::decimal;
use pipe_syntax::expr::known::Known;
use pipe_syntax::expr::scope::Fault;
use pipe_syntax::limits::Report;
use pipe_syntax::source::Span;
use std::collections::BTreeMap;

/// Steps between two checkpoints where the text does not say.
const CHECKPOINT_EVERY: u32 = 1_000;

/// Reads the settings; none where something is wrong with them.
pub(super) fn training(
    (declared, span): (&Name, Span),
    settings: &[Setting],
    values: &Known<'_>,
    report: &mut Report,
) -> Option<Training> {
    let mut said: BTreeMap<&str, Span> = BTreeMap::new();
    let (mut data, mut init, mut steps, mut seed, mut optimizer) = (None, None, None, 0, None);
    let (mut warmup, mut minimum, mut decay, mut checkpoint) = ((0, span), None, None, None);
    let (mut clip_norm, mut document) = (None, None);
    let mut decayed = DecayedWeights::All;
    let (mut shuffled, mut tokenizer, mut validation) = (false, None, None);
    for setting in settings {
        let (word, place) = (word(&setting.value), setting.span);
        if let Some(first) = said.insert(word, place) {
            let message = format!("`train` sets `{word}` twice");
            let error = Diagnostic::error(Code::RepeatedItem, place, "given again", message);
            report.add(error.label(first, "given here"));
        }
        match &setting.value {
            SettingValue::Data { files, details, is_shuffled } => {
                document = details.as_ref().and_then(|details| report.take(document_of(details, values)));
                data = Some(source_of(files, report).unwrap_or(DataSource::Synthetic));
                shuffled = *is_shuffled;
            }
            SettingValue::Tokenizer(path) => tokenizer = Some(path.clone()),
            SettingValue::Validation { files, share, every } => {
                let every = report.take(whole(every, values, 1, "`every`"));
                let held_out = match (source_of(files, report), share) {
                    (Some(source), _) => Some(HeldOut::File(source)),
                    (None, share) => share.as_ref().and_then(|share| report.take(share_of(share, values))),
                };
                validation = held_out.zip(every).map(|(data, every)| (Validation { data, every }, place));
            }
            SettingValue::Init(path) => init = Some(path.clone()),
            SettingValue::Steps(expr) => steps = report.take(whole(expr, values, 1, "`steps`")),
            SettingValue::Seed(expr) => seed = report.take(whole(expr, values, 0, "`seed`")).unwrap_or(0),
            SettingValue::Optimizer(call) => {
                optimizer = optimizer_of(call, values).map_err(|found| report.extend(found)).ok();
            }
            SettingValue::Warmup(expr) => {
                warmup = (report.take(whole(expr, values, 0, "`warmup`")).unwrap_or(0), expr.span);
            }
            SettingValue::Minimum(expr) => minimum = report.take(decimal(expr, values)).map(|value| (value, expr.span)),
            SettingValue::ClipNorm(expr) => {
                let most = report.take(decimal(expr, values));
                clip_norm = most.filter(|most| *most > 0.0);
                if let (Some(most), None) = (most, clip_norm) {
                    report.add(*outside(expr.span, format!("`clip_norm` is {most}; it must be above 0")));
                }
            }
            SettingValue::Decay { shape, over } => {
                let (shape, place) = (*shape, over.as_ref().map_or(place, |over| over.span));
                let over = over.as_ref().and_then(|over| report.take(whole(over, values, 1, "`over`")));
                decay = Some((Decay { shape, over }, place));
            }
            SettingValue::WeightDecay(weights) => {
                decayed = *weights;
                report.extend(settings.iter().filter_map(|setting| nothing_decays(place, setting, values)));
            }
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
    } else if let Some((Decay { over: Some(over), .. }, place)) = decay
        && over > steps - warmup.0
    {
        let (room, message) = (steps - warmup.0, "the learning rate decays over");
        let whole = if warmup.0 == 0 { String::new() } else { format!(", after {} of warm-up", warmup.0) };
        let error = *outside(place, format!("{message} {over} steps, and the run has {steps}{whole}"));
        report.add(match room {
            0 => error.help("a shorter warm-up leaves steps for it"),
            1 => error.help("it can decay over one step").edit(place, "1"),
            _ => error.help(format!("it can decay over {room} steps at most")).edit(place, room.to_string()),
        });
    }
    if let Some((minimum, place)) = minimum.filter(|(minimum, _)| !(0.0..=peak).contains(minimum)) {
        report.add(*outside(
            place,
            format!("`minimum` is {minimum}; it must lie between 0 and the learning rate, {peak}"),
        ));
    }
    if let (Some((Validation { data: HeldOut::Share(share), .. }, place)), Some(DataSource::Synthetic)) =
        (&validation, &data)
    {
        let message = format!("`validation {share}` is a share of a file, and the data are synthetic");
        let error = Diagnostic::error(Code::WrongArguments, *place, "a share of nothing", message);
        report.add(error.help("name a file: `validation \"val.txt\" every 100`"));
    }
    let learning_rate = LearningRate {
        peak,
        warmup: warmup.0,
        minimum: minimum.map(|(minimum, _)| minimum).or(decay.map(|_| 0.0)),
        decay: decay.map(|(decay, _)| decay).unwrap_or_default(),
    };
    Some(Training {
        steps,
        seed,
        optimizer,
        decayed,
        learning_rate,
        clip_norm,
        data: data?,
        shuffled,
        document,
        tokenizer,
        validation: validation.map(|(validation, _)| validation),
        init,
        config: None,
        checkpoint,
        model: None,
    })
}

const fn word(value: &SettingValue) -> &'static str {
    match value {
        SettingValue::Data { .. } => "data",
        SettingValue::Tokenizer(_) => "tokenizer",
        SettingValue::Validation { .. } => "validation",
        SettingValue::Init(_) => "init",
        SettingValue::Steps(_) => "steps",
        SettingValue::Seed(_) => "seed",
        SettingValue::Optimizer(_) => "optimizer",
        SettingValue::Warmup(_) => "warmup",
        SettingValue::Minimum(_) => "minimum",
        SettingValue::Decay { .. } => "decay",
        SettingValue::ClipNorm(_) => "clip_norm",
        SettingValue::WeightDecay(_) => "weight_decay",
        SettingValue::Checkpoint { .. } => "checkpoint",
    }
}

/// Refuses to clip gradients where weights change before all gradients of a step are known.
pub(super) fn check_clip_norm(settings: &[Setting], schedule: Option<&Schedule>, report: &mut Report) {
    let mut lines = settings.iter().filter(|setting| matches!(setting.value, SettingValue::ClipNorm(_)));
    let (Some(line), Some(schedule)) = (lines.next(), schedule) else { return };
    let error = |label: &str, message| Diagnostic::error(Code::CannotClip, line.span, label, message);
    if let Some(window) = &schedule.window {
        let word = window.weights.word();
        let message = format!(
            "under `weights {word}` weights change while gradients of their step are computed, which have no norm before"
        );
        let error = error("of which gradients", message);
        report.add(error.help("use a schedule with `weights flush`, or leave `clip_norm` out"));
    } else if let Some(update) = schedule.step_tasks.first(StepTaskKind::Update) {
        let (name, place) = (schedule.step_task_name(update), schedule.origins[usize::from(update.origin)]);
        let message =
            format!("`clip_norm` lets all updates wait for all gradients, so that `{name}` cannot choose a place");
        let error = error("waits for all gradients", message).label(place, "has a place");
        report.add(error.help("leave `update` out of the order, or `clip_norm` out"));
    }
}

/// Where the settings name files.
pub(super) fn files(settings: &[Setting]) -> TrainingFiles {
    let mut files = TrainingFiles::default();
    for setting in settings {
        match &setting.value {
            SettingValue::Data { files: named, .. } if !named.is_empty() => files.data = Some(setting.span),
            SettingValue::Tokenizer(_) => files.tokenizer = Some(setting.span),
            SettingValue::Validation { .. } => files.validation = Some(setting.span),
            SettingValue::Init(_) => files.init = Some(setting.span),
            SettingValue::Checkpoint { .. } => files.checkpoint = Some(setting.span),
            _ => {}
        }
    }
    files
}

/// Where data come from: one file, or one for each data tensor. Nothing where no file is named.
fn source_of(files: &[DataFile], report: &mut Report) -> Option<DataSource> {
    let named = files.iter().filter_map(|file| Some((file.tensor.as_ref()?, &file.path)));
    let mut of_tensors: Vec<(String, String)> = Vec::new();
    let mut places: BTreeMap<&str, Span> = BTreeMap::new();
    for (tensor, path) in named {
        if let Some(first) = places.insert(&tensor.text, tensor.span) {
            let message = format!("`{}` has two files", tensor.text);
            let error = Diagnostic::error(Code::RepeatedItem, tensor.span, "given again", message);
            report.add(error.label(first, "given here"));
            continue;
        }
        of_tensors.push((tensor.text.clone(), path.clone()));
    }
    match files {
        [DataFile { tensor: None, path }] => Some(DataSource::of_file(path)),
        _ => (!of_tensors.is_empty()).then_some(DataSource::ExamplesOf(of_tensors)),
    }
}

/// The share of the data that is not trained on.
fn share_of(expr: &Expr, values: &Known<'_>) -> Result<HeldOut, Fault> {
    match decimal(expr, values)? {
        share if share > 0.0 && share < 1.0 => Ok(HeldOut::Share(share)),
        share => Err(outside(expr.span, format!("the share for `validation` is {share}; it lies between 0 and 1"))),
    }
}

/// A choice of the weights that decay, where the optimizer is asked for no decay at all.
fn nothing_decays(place: Span, setting: &Setting, values: &Known<'_>) -> Option<Diagnostic> {
    let SettingValue::Optimizer(call) = &setting.value else { return None };
    let (optimizer, _) = optimizer_of(call, values).ok()?;
    let is_named = |argument: &Argument| argument.name.as_ref().is_some_and(|name| name.text == "weight_decay");
    // A value of 0 that is said may come from a parameter.
    if optimizer.weight_decay() != 0.0 || call.arguments.iter().any(is_named) {
        return None;
    }
    let name = optimizer.name();
    let message = format!("`{name}` has a `weight_decay` of 0, so no weights decay");
    let error = Diagnostic::error(Code::WrongArguments, place, "no effect", message);
    let help = format!("name the decay in the brackets of the optimizer: `{name}(.., weight_decay = 0.1)`");
    Some(error.label(call.span, "no `weight_decay` here").help(help))
}

/// The update rule, and the learning rate after the warm-up, which every optimizer takes first.
fn optimizer_of(call: &Call, values: &Known<'_>) -> Result<(Optimizer, f64), Diagnostics> {
    let name = call.name.text.as_str();
    let Some(settings) = Optimizer::settings(name) else {
        let message = format!("unknown optimizer `{name}`");
        let error = Diagnostic::error(Code::UnknownName, call.name.span, "not known", message);
        return Err(vec![error.suggest(call.name.span, name, Optimizer::NAMES.iter().copied())]);
    };
    let mut fields = vec![("learning_rate", None, Range::Positive); settings.len() + 1];
    for setting in settings {
        fields[setting.position + 1] = (setting.name, Some(setting.default), setting.range);
    }
    let numbers = numbers_of(call, &fields, values)?;
    let of_setting: Vec<f64> = settings.iter().map(|setting| numbers[setting.position + 1]).collect();
    let optimizer = Optimizer::new(name, &of_setting).expect("as many values as settings");
    Ok((optimizer, numbers[0]))
}

/// The largest token.
const MOST_TOKEN: u32 = i32::MAX.cast_unsigned();

/// The token that ends a document.
fn document_of(details: &Call, values: &Known<'_>) -> Result<u32, Fault> {
    let signature = Signature::undeclared("data", vec!["document"], "setting");
    let mut found = Diagnostics::new();
    let given = signature.arguments(details, &mut found);
    if let Some(error) = found.into_iter().next() {
        return Err(Box::new(error));
    }
    let Some(argument) = given.first().copied().flatten() else {
        return Err(Box::new(signature.missing("document", details.span)));
    };
    let token = whole(&argument.value, values, 0, "`document`")?;
    if token > MOST_TOKEN {
        let message = format!("`document` is {token}, and the largest token is {MOST_TOKEN}");
        return Err(outside(argument.value.span, message));
    }
    Ok(token)
}

/// Whether data have documents that end with a token, whatever it is.
pub(super) fn has_documents(settings: &[Setting]) -> bool {
    settings.iter().any(|setting| matches!(setting.value, SettingValue::Data { details: Some(_), .. }))
}

/// A parameter of an optimizer: its name, its default, and the values that it may have.
type Field = (&'static str, Option<f64>, Range);

/// A value for each field, in their order.
fn numbers_of(call: &Call, fields: &[Field], values: &Known<'_>) -> Result<Vec<f64>, Diagnostics> {
    let parameters = fields.iter().map(|(field, _, _)| *field).collect();
    let signature = Signature::undeclared(&call.name.text, parameters, "setting");
    let mut found = Diagnostics::new();
    let given = signature.arguments(call, &mut found);
    let of_field = |(field, default, range): &Field, argument: Option<&Argument>| match argument {
        None => default.ok_or_else(|| Box::new(signature.missing(field, call.span))),
        Some(argument) => match decimal(&argument.value, values)? {
            value if range.contains(value) => Ok(value),
            value => Err(outside(argument.value.span, format!("`{field}` is {value}; it must be {}", range.words()))),
        },
    };
    let mut numbers = Vec::with_capacity(fields.len());
    for (field, argument) in fields.iter().zip(given) {
        match of_field(field, argument) {
            Ok(number) => numbers.push(number),
            Err(fault) => found.push(*fault),
        }
    }
    if found.is_empty() { Ok(numbers) } else { Err(found) }
}
