//! What the compiler says of a document: its findings, and the figures of its schedules and
//! pipelines at their default parameters.
//!
//! One thread does this, for the newest text of each document, when the client has been silent for a moment.

use super::diagnostics::{converted, internal};
use super::documents::Root;
use super::uris;
use crate::output::figures::{percent, time, unit_of_times, units};
use pipe_compiler::report::Report;
use pipe_compiler::{Request, compile, elaborate};
use pipe_ide::NameKind;
use pipe_syntax::diagnostic::Diagnostic;
use pipe_syntax::files;
use pipe_syntax::source::Sources;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// How long no text may come before the last one is compiled.
const SILENCE: Duration = Duration::from_millis(100);

/// A text to compile.
pub(super) struct Job {
    pub(super) root: Root,
    pub(super) version: i32,
}

/// What it came to.
pub(super) struct Analysis {
    /// The normal URI of the document.
    pub(super) uri: String,
    pub(super) version: i32,
    /// By document.
    pub(super) diagnostics: BTreeMap<String, Vec<Value>>,
    /// By kind and name; none where the text does not parse.
    pub(super) figures: Option<BTreeMap<(NameKind, String), Figure>>,
    /// Files that were read beside the document.
    pub(super) imports: Vec<PathBuf>,
}

/// What is known of a schedule or pipeline.
#[derive(Clone, Debug)]
pub(super) struct Figure(Report);

/// Compiles what is wanted until nobody wants anything any more. Of each document only the newest text counts.
pub(super) fn work(jobs: &Receiver<Job>, done: &dyn Fn(Analysis) -> bool) {
    let mut waiting: BTreeMap<String, Job> = BTreeMap::new();
    loop {
        let next = if waiting.is_empty() {
            jobs.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            jobs.recv_timeout(SILENCE)
        };
        match next {
            Ok(job) => drop(waiting.insert(uris::normal(&job.root.uri), job)),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let Some((_, job)) = waiting.pop_first() else { continue };
                // A panic was reported on standard error; the next text may do better.
                let result = catch_unwind(AssertUnwindSafe(|| analyse(&job)));
                if result.is_ok_and(|analysis| !done(analysis)) {
                    return;
                }
            }
        }
    }
}

fn analyse(job: &Job) -> Analysis {
    let (root, places) = (&job.root, job.root.places());
    let mut sources = Sources::default();
    let (parsed, errors) = files::read(&mut sources, root.source.clone(), &|path| root.load(path));
    let folder = root.folder.clone().unwrap_or_default();
    let own = sources.files.iter().skip(1).filter(|source| !super::documents::is_standard(&source.name));
    let mut analysis = Analysis {
        uri: uris::normal(&root.uri),
        version: job.version,
        diagnostics: BTreeMap::from([(root.uri.clone(), Vec::new())]),
        figures: None,
        imports: own.map(|source| folder.join(&source.name)).collect(),
    };
    let mut tell = |found: &[Diagnostic], sources: &Sources| {
        for (uri, value) in found.iter().filter_map(|found| converted(found, sources, &places)) {
            let list = analysis.diagnostics.entry(uri).or_default();
            if !list.contains(&value) {
                list.push(value);
            }
        }
    };
    if !errors.is_empty() {
        tell(&errors, &sources);
        return analysis;
    }
    let (mut figures, mut mistakes) = (BTreeMap::new(), BTreeSet::new());
    let pipelines = parsed.root_pipelines().map(|pipeline| (NameKind::Pipeline, pipeline.name.text.clone()));
    let schedules = parsed.root_schedules().map(|schedule| (NameKind::Schedule, schedule.name.text.clone()));
    let has_pipelines = parsed.root_pipelines().next().is_some();
    for (kind, name) in pipelines.chain(schedules) {
        let is_pipeline = kind == NameKind::Pipeline;
        let choice = elaborate::Request {
            pipeline: is_pipeline.then(|| name.clone()),
            schedule: (!is_pipeline).then(|| name.clone()),
            ..elaborate::Request::default()
        };
        let mut sources = Sources::default();
        let request = Request { choice, ..Request::default() };
        let compilation = compile(&mut sources, root.source.clone(), &|path| root.load(path), &request);
        // As `pipec check`: pipelines say with which numbers schedules are meant.
        if is_pipeline || !has_pipelines {
            tell(&compilation.diagnostics, &sources);
            mistakes.extend(compilation.mistakes());
        }
        figures.insert((kind, name), Figure(compilation.report));
    }
    analysis.diagnostics.entry(root.uri.clone()).or_default().extend(mistakes.iter().map(|text| internal(text)));
    analysis.figures = Some(figures);
    analysis
}

impl Figure {
    /// `peak 4 units, mean bubble 33.3%`
    pub(super) fn short(&self) -> String {
        let Report { ok, figures, .. } = &self.0;
        let peak = figures.peak_activation.map(|peak| format!("peak {}", units(peak)));
        let bubble = figures.bubble_mean.map(|bubble| format!("mean bubble {}", percent(bubble)));
        let parts: Vec<String> = (!ok).then(|| "rejected".to_owned()).into_iter().chain(peak).chain(bubble).collect();
        parts.join(", ")
    }

    /// With the sizes that it is for.
    pub(super) fn long(&self) -> String {
        let Report { ok, sizes, figures, .. } = &self.0;
        let unit = unit_of_times(&self.0);
        let devices = sizes.devices.map(|devices| format!("{devices} devices"));
        let microbatches = sizes.microbatches.map(|microbatches| format!("{microbatches} microbatches"));
        let sizes: Vec<String> = devices.into_iter().chain(microbatches).collect();
        let makespan = figures.makespan.map(|makespan| format!("makespan {}", time(makespan, unit)));
        let verdict = if *ok { "accepted" } else { "rejected" };
        let parts: Vec<String> = makespan.into_iter().chain(Some(self.short()).filter(|_| *ok)).collect();
        format!("{verdict} with {}: {}", sizes.join(" and "), parts.join(", ")).trim_end_matches([':', ' ']).to_owned()
    }
}
