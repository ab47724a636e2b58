//! Targets: which of a file's declarations is meant.

use super::Request;
use pipe_syntax::ast::{self, Name};
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::files::Files;
use pipe_syntax::suggest;

/// What is elaborated.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target<'a> {
    Pipeline(&'a ast::Pipeline),
    Schedule(&'a ast::Schedule),
}

/// The declaration that the request names, or the only one there is.
pub(super) fn choose<'a>(files: &'a Files, request: &Request) -> Result<Target<'a>, Diagnostics> {
    if let Some(name) = &request.schedule {
        let known = || files.schedule_names();
        return files.schedule(name).map(Target::Schedule).ok_or_else(|| nothing(files, "schedule", name, known()));
    }
    let pipelines: Vec<_> = files.root_pipelines().collect();
    if let Some(name) = &request.pipeline {
        let found = pipelines.iter().find(|pipeline| pipeline.name.text == *name);
        let known = || pipelines.iter().map(|pipeline| pipeline.name.text.as_str());
        return found.map(|it| Target::Pipeline(it)).ok_or_else(|| nothing(files, "pipeline", name, known()));
    }
    let schedules: Vec<_> = files.root_schedules().collect();
    match (pipelines.as_slice(), schedules.as_slice()) {
        ([only], _) => Ok(Target::Pipeline(only)),
        ([], [only]) => Ok(Target::Schedule(only)),
        ([], []) => {
            let message = "the file declares no pipeline and no schedule";
            let error = Diagnostic::error(Code::UnclearTarget, files.root_span(), "in this file", message);
            let help = "`--schedule NAME` takes one of the standard library, such as `1f1b`";
            let has_parts = files.definitions().next().is_some();
            let import = "check a file that imports this one: its definitions are for schedules elsewhere";
            Err(vec![error.help(if has_parts { import } else { help })])
        }
        ([], _) => Err(several("schedule", schedules.iter().map(|it| &it.name))),
        _ => Err(several("pipeline", pipelines.iter().map(|it| &it.name))),
    }
}

fn nothing<'n>(files: &Files, word: &str, name: &str, known: impl Iterator<Item = &'n str>) -> Diagnostics {
    let message = format!("there is no {word} with the name `{name}`");
    let error = Diagnostic::error(Code::UnclearTarget, files.root_span(), "in this file", message);
    let help = suggest::help(name, known).unwrap_or_else(|| format!("the file declares no {word}"));
    vec![error.of_caller().help(help)]
}

fn several<'a>(word: &str, names: impl Iterator<Item = &'a Name>) -> Diagnostics {
    let names: Vec<&Name> = names.collect();
    let listed: Vec<String> = names.iter().map(|name| format!("`{}`", name.text)).collect();
    let owner = |name: &Name| name.text.split_once('.').map(|(owner, _)| owner.to_owned());
    let of_one = owner(names[0]).filter(|first| names.iter().all(|name| owner(name).as_ref() == Some(first)));
    let message = match &of_one {
        Some(owner) => format!("`{owner}` has {} phases, and one must be picked: {}", names.len(), listed.join(", ")),
        None => format!("the file declares {} {word}s, and one must be picked: {}", names.len(), listed.join(", ")),
    };
    let mut spans = names.iter().rev().map(|name| name.span);
    let mut error = Diagnostic::error(Code::UnclearTarget, names[names.len() - 1].span, "this one", message);
    spans.next();
    for span in spans.take(3) {
        error = error.label(span, "or this one");
    }
    let help = format!("add `--{word} {}`", names[0].text);
    vec![error.help(match of_one {
        Some(_) => format!("{help}; `check` and `plot` take all phases"),
        None => help,
    })]
}
