//! What the playground asks, and what it is told.

use crate::configs::loader;
use pipe_compiler::report::Report;
use pipe_compiler::{Request, compile, elaborate};
use pipe_plot::Picture;
use pipe_schedule::memory_limit::MemoryLimit;
use pipe_schedule::policy::activation::Shares;
use pipe_schedule::policy::recompute::Recomputation;
use pipe_schedule::timing::costs::StageCosts;
use pipe_syntax::ast::PipelineItem;
use pipe_syntax::source::{Source, Sources};
use pipe_syntax::{files, stdlib};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Display;

/// What the source is called.
pub(crate) const ROOT: &str = "playground.pipe";

/// A source, and the options of the command line that go with it; what is empty was not given.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Question {
    source: String,
    #[serde(default)]
    settings: BTreeMap<String, i64>,
    #[serde(default)]
    cost: String,
    #[serde(default)]
    memory: String,
    #[serde(default)]
    activation: String,
    #[serde(default)]
    recompute: String,
    /// A standard schedule instead of the one that the source has.
    #[serde(default)]
    under: String,
    /// How long a search may take.
    #[serde(default)]
    pub(crate) seconds: f64,
}

/// The report of `check`, the picture if the schedule runs to its end, and options that cannot be read.
#[derive(Serialize)]
struct Answer {
    report: Report,
    picture: Option<Picture>,
    mistakes: BTreeMap<&'static str, String>,
}

/// Answers a question.
pub(crate) fn answer(question: &str) -> String {
    let told = match serde_json::from_str(question) {
        Ok(question) => serde_json::to_string(&compiled(question)),
        Err(error) => return serde_json::json!({ "refused": error.to_string() }).to_string(),
    };
    told.expect("reports and pictures are plain data")
}

/// The picture of a question as `pipec plot -o x.svg` writes it, or why there is none.
pub(crate) fn svg(question: &str) -> String {
    let drawn = serde_json::from_str(question).map_err(|error| error.to_string()).and_then(|question: Question| {
        let request = request(&question, &mut BTreeMap::new());
        pipe_plot::render::svg::draw(&compile(&mut Sources::default(), question.root(), &loader, &request))
    });
    let told = match drawn {
        Ok(svg) => serde_json::json!({ "svg": svg }),
        Err(refused) => serde_json::json!({ "refused": refused }),
    };
    told.to_string()
}

fn compiled(question: Question) -> Answer {
    let mut mistakes = BTreeMap::new();
    let request = request(&question, &mut mistakes);
    let mut sources = Sources::default();
    let compilation = compile(&mut sources, question.root(), &loader, &request);
    let picture = Picture::with_sources(&compilation, &sources);
    Answer { report: compilation.report, picture, mistakes }
}

impl Question {
    /// What is compiled.
    pub(crate) fn root(&self) -> Source {
        let text = if self.under.is_empty() { self.source.clone() } else { under(&self.source, &self.under) };
        Source { name: ROOT.to_owned(), text }
    }
}

/// What is asked of the source.
pub(crate) fn request(question: &Question, mistakes: &mut BTreeMap<&'static str, String>) -> Request {
    Request {
        choice: elaborate::Request {
            settings: question.settings.clone().into_iter().collect(),
            recompute: option("recompute", &question.recompute, mistakes, str::parse::<Recomputation>),
            activation: option("activation", &question.activation, mistakes, str::parse::<Shares>),
            ..elaborate::Request::default()
        },
        costs: option("cost", &question.cost, mistakes, StageCosts::parse),
        memory: option("memory", &question.memory, mistakes, MemoryLimit::parse),
        ..Request::default()
    }
}

/// The pipeline of a source under another schedule; of a source without one that schedule itself.
fn under(source: &str, schedule: &str) -> String {
    let root = Source { name: ROOT.to_owned(), text: source.to_owned() };
    let (files, _) = files::read(&mut Sources::default(), root, &loader);
    let call = |item: &PipelineItem| match item {
        PipelineItem::Schedule(call) => Some(call.span),
        _ => None,
    };
    let text = match files.root_pipelines().next().map(|pipeline| pipeline.items.iter().find_map(call)) {
        None => stdlib::schedule(schedule).map(str::to_owned),
        Some(None) => None,
        Some(Some(span)) => {
            let (before, behind) = (source.get(..span.start as usize), source.get(span.end as usize..));
            before.zip(behind).map(|(before, behind)| format!("{before}{schedule}{behind}"))
        }
    };
    text.unwrap_or_else(|| source.to_owned())
}

/// What an option says, or what is wrong with it.
fn option<T, E: Display>(
    name: &'static str,
    text: &str,
    mistakes: &mut BTreeMap<&'static str, String>,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Option<T> {
    if text.trim().is_empty() {
        return None;
    }
    parse(text).map_err(|error| mistakes.insert(name, error.to_string())).ok()
}

#[cfg(test)]
mod tests {
    use super::{Request, Source, Sources, answer, compile, loader};
    use serde_json::{Value, json};

    fn ask(question: Value) -> Value {
        serde_json::from_str(&answer(&question.to_string())).expect("JSON")
    }

    #[test]
    fn every_standard_schedule_has_its_picture() {
        for (name, source) in pipe_syntax::stdlib::SCHEDULES {
            let told = ask(json!({ "source": source, "settings": { "devices": 4, "microbatches": 8 } }));
            assert_eq!(
                (&told["report"]["ok"], &told["mistakes"]),
                (&true.into(), &json!({})),
                "{name}: {}",
                told["report"]["diagnostics"]
            );
            assert_eq!(told["picture"]["title"], *name);
            assert_eq!(told["picture"]["tasks"]["count"].as_u64().map(|count| count >= 32), Some(true), "{name}");
        }
    }

    #[test]
    fn mistakes_are_told_with_their_place_or_option() {
        let source = pipe_syntax::stdlib::schedule("1f1b").expect("a standard schedule");
        let told =
            ask(json!({ "source": source, "cost": "F=x", "memory": "much", "activation": "W=2", "recompute": "?" }));
        let names: Vec<&String> = told["mistakes"].as_object().expect("mistakes").keys().collect();
        assert_eq!(names, ["activation", "cost", "memory", "recompute"]);
        let told = ask(json!({ "source": "schedule x {\n    stages D +\n}" }));
        assert_eq!((&told["picture"], &told["report"]["diagnostics"][0]["line"]), (&Value::Null, &2.into()));
        let told = ask(json!({ "source": "import \"other.pipe\"\n" }));
        assert!(
            told["report"]["diagnostics"][0].to_string().contains("the playground has no file `other.pipe`"),
            "{told}"
        );
        assert!(ask(json!({ "text": "" }))["refused"].is_string());
    }

    #[test]
    fn the_picture_is_that_of_the_command_line() {
        let source = pipe_syntax::stdlib::schedule("1f1b").expect("a standard schedule");
        let told = super::svg(&json!({ "source": source }).to_string());
        let told: Value = serde_json::from_str(&told).expect("JSON");
        let root = Source { name: "1f1b.pipe".to_owned(), text: (*source).to_owned() };
        let compilation = compile(&mut Sources::default(), root, &loader, &Request::default());
        assert_eq!(told["svg"].as_str(), pipec::drawing::svg::draw(&compilation).ok().as_deref());
        let told = super::svg(&json!({ "source": "schedule x {" }).to_string());
        assert!(told.contains("has no timeline"), "{told}");
    }

    #[test]
    fn a_source_may_be_asked_for_under_another_schedule() {
        let source = pipe_syntax::stdlib::schedule("1f1b").expect("a standard schedule");
        let told = ask(json!({ "source": source, "under": "gpipe", "settings": { "devices": 3 } }));
        assert_eq!((&told["picture"]["title"], &told["report"]["devices"]), (&"gpipe".into(), &3.into()));
        let source = "pipeline p {\n    devices 2\n    microbatches 4\n    schedule interleaved_1f1b(chunks = 3)\n}\n";
        let told = ask(json!({ "source": source, "under": "zb_h1" }));
        assert_eq!((&told["report"]["pipeline"], &told["report"]["schedule"]), (&"p".into(), &"zb_h1".into()));
        assert_eq!(told["report"]["ok"], true, "{}", told["report"]["diagnostics"]);
    }

    #[test]
    fn what_is_too_large_is_cut() {
        let source = pipe_syntax::stdlib::schedule("1f1b").expect("a standard schedule");
        let told = ask(json!({ "source": source, "settings": { "devices": 4096, "microbatches": 1_000_000 } }));
        assert_eq!(
            (&told["report"]["ok"], &told["report"]["diagnostics"][0]["code"]),
            (&false.into(), &"too-large".into())
        );
    }
}
