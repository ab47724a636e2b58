//! Parameters of files, and the values that the caller sets.

use super::Request;
use super::target::Target;
use pipe_model::transformer::{SETTINGS, SETTINGS_OF_GRAPH};
use pipe_syntax::ast::{Name, PipelineItem, Schedule, ScheduleItem, Weights};
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::expr::arguments::Values;
use pipe_syntax::expr::arithmetic::Decimals;
use pipe_syntax::expr::errors::{built_in, fixed};
use pipe_syntax::expr::evaluate::Machine;
use pipe_syntax::expr::number::Number;
use pipe_syntax::expr::scope::{Fault, Form, Scope};
use pipe_syntax::files::Files;
use pipe_syntax::limits::Report;
use pipe_syntax::suggest;

/// Parameters that every target has.
const ALWAYS: [&str; 2] = ["devices", "microbatches"];
/// What pipelines have beside: how many devices divide each tensor, and how many pipelines divide the batch.
const PARALLEL: [&str; 2] = ["tensor", "data"];
/// What those have beside whose blocks run on across steps.
const STEPS: &str = "steps";

/// The last value that the caller set for a parameter.
pub(super) fn setting(request: &Request, name: &str) -> Option<i64> {
    request.settings.iter().rev().find(|(set, _)| set == name).map(|(_, value)| *value)
}

/// The same for a schedule that no pipeline binds, where a parameter of the files may say it as well.
pub(super) fn chosen(request: &Request, parameters: &Values, name: &str) -> Option<i64> {
    setting(request, name).or_else(|| parameters.get(name).copied())
}

/// Refuses values for parameters that neither the target nor the files have.
pub(super) fn check_settings(files: &Files, target: Target<'_>, request: &Request) -> Result<(), Diagnostics> {
    let mut known: Vec<&str> = ALWAYS.to_vec();
    known.extend(files.parameters().map(|parameter| parameter.name.text.as_str()));
    let declared: &Name = match target {
        Target::Schedule(schedule) => {
            known.extend(schedule.parameters.iter().map(|parameter| parameter.name.text.as_str()));
            known.extend(runs_on(schedule).then_some(STEPS));
            &schedule.name
        }
        Target::Pipeline(pipeline) => {
            known.extend(PARALLEL);
            for item in &pipeline.items {
                if let PipelineItem::Config(_) = item {
                    let is_train = |item: &PipelineItem| matches!(item, PipelineItem::Train { .. });
                    match pipeline.items.iter().any(is_train) {
                        true => known.extend(SETTINGS_OF_GRAPH),
                        false => known.extend(SETTINGS.iter().map(|setting| setting.name)),
                    }
                }
                let parameters = match item {
                    PipelineItem::Model(call) => files.model(&call.name.text).map(|it| &it.parameters),
                    PipelineItem::Schedule(call) => files.schedule(&call.name.text).map(|it| {
                        known.extend(runs_on(it).then_some(STEPS));
                        &it.parameters
                    }),
                    _ => None,
                };
                known.extend(parameters.into_iter().flatten().map(|parameter| parameter.name.text.as_str()));
            }
            &pipeline.name
        }
    };
    let unknown: Vec<&(String, i64)> =
        request.settings.iter().filter(|(name, _)| !known.contains(&name.as_str())).collect();
    let Some(((first, value), others)) = unknown.split_first() else { return Ok(()) };
    let message = format!("`{}` has no parameter `{first}`, which was set to {value}", declared.text);
    let error = Diagnostic::error(Code::WrongArguments, declared.span, "set from outside", message).of_caller();
    let also = |(name, value): &&(String, i64)| {
        let asked = suggest::question(name, known.iter().copied());
        format!(
            "nor `{name}`, which was set to {value}{}",
            asked.map_or_else(String::new, |asked| format!(": {asked}"))
        )
    };
    let error = others.iter().map(also).fold(error, Diagnostic::note);
    let help = match first.as_str() {
        "D" => Some("`D` is set as `devices`".to_owned()),
        "M" => Some("`M` is set as `microbatches`".to_owned()),
        _ => suggest::help(first, known.iter().copied()),
    };
    Err(vec![Diagnostic { help, ..error }])
}

/// Whether a schedule's blocks run on from step to step.
fn runs_on(schedule: &Schedule) -> bool {
    schedule.items.iter().any(|item| match item {
        ScheduleItem::Weights { branches, otherwise, .. } => {
            branches.iter().map(|(_, weights)| weights).chain([otherwise]).any(|weights| *weights != Weights::Flush)
        }
        _ => false,
    })
}

/// Values of the parameters of all files: set by the caller, or as written.
pub(super) fn of_files(files: &Files, request: &Request) -> Result<Values, Diagnostics> {
    let set = files.parameters().filter_map(|parameter| {
        let name = &parameter.name.text;
        Some((name.clone(), setting(request, name)?))
    });
    let mut values: Values = set.collect();
    let taken: Diagnostics = files.parameters().filter_map(|parameter| fixed(&parameter.name)).collect();
    if !taken.is_empty() {
        let help = "`D` is the number of devices, `M` of microbatches, `S` of stages; a pipeline's `devices` line, or else \
                    `param devices`, gives `D` its value, and `--set devices=4` another one";
        return Err(taken.into_iter().map(|error| error.help(help)).collect());
    }
    let mut scope = Scope::new(values.clone()).exact(Decimals::Refused);
    let mut written = Vec::new();
    for parameter in files.parameters().filter(|parameter| setting(request, &parameter.name.text).is_none()) {
        if let Some(default) = &parameter.default {
            scope.add(&parameter.name.text, Form::Let(default));
            written.push((&parameter.name.text, default));
        }
    }
    let mut report = Report::default();
    let faults = scope.resolve_lets(false);
    report.extend(faults.into_iter().map(|fault| *fault));
    report.extend(definitions(files).into_iter().map(|fault| *fault));
    let mut machine = Machine::<Number>::default();
    if !report.is_empty() {
        return report.finish(values);
    }
    for (name, default) in written {
        let value = scope.number(default).and_then(|code| machine.whole(&scope, &code));
        values.extend(report.take(value).map(|value| (name.clone(), value)));
    }
    report.finish(values)
}

/// What is wrong with what files define, wherever it is used. The numbers of devices, microbatches and stages are known
/// there.
fn definitions(files: &Files) -> Vec<Fault> {
    // Pipelines read decimals there, too; a schedule that does says so itself.
    let mut scope = Scope::default().exact(Decimals::Exact);
    scope.variable("S");
    let known = files.parameters().map(|parameter| parameter.name.text.clone());
    let known = known.chain(["D", "M"].map(str::to_owned)).map(|name| (name, 1));
    scope.share(files.definitions(), known.collect());
    let taken = files.definitions().filter_map(|(name, form)| fixed(name).or_else(|| built_in(name, form)));
    taken.map(Box::new).chain(scope.resolve_lets(true)).collect()
}
