//! Phases: pipelines that run one after the other in every step. Each is a pipeline of its own, `reinforce.train`, with
//! the lines that all phases share.

use crate::ast::{Name, Pipeline, PipelineItem};
use crate::diagnostic::{Code, Diagnostic, Diagnostics};

/// The phases of a pipeline, in the order in which they run. Empty if it has none.
pub(super) fn of(pipeline: &Pipeline) -> Vec<Pipeline> {
    let is_shared = |item: &&PipelineItem| !matches!(item, PipelineItem::Phase(_));
    let phases =
        pipeline.items.iter().filter_map(|item| if let PipelineItem::Phase(it) = item { Some(it) } else { None });
    let one = |phase: &Pipeline| Pipeline {
        name: Name { text: format!("{}.{}", pipeline.name.text, phase.name.text), span: phase.name.span },
        items: pipeline.items.iter().filter(is_shared).chain(&phase.items).cloned().collect(),
        ..phase.clone()
    };
    phases.map(one).collect()
}

/// Rule: phases have different names, and none of their own.
pub(super) fn check(pipeline: &Pipeline, errors: &mut Diagnostics) {
    let mut seen: Vec<&Name> = Vec::new();
    for item in &pipeline.items {
        let PipelineItem::Phase(phase) = item else { continue };
        let name = &phase.name;
        if let Some(first) = seen.iter().find(|first| first.text == name.text) {
            let message = format!("`{}` has two phases with the name `{}`", pipeline.name.text, name.text);
            let error = Diagnostic::error(Code::DuplicateName, name.span, "declared again", message);
            errors.push(error.label(first.span, "declared here"));
        }
        seen.push(name);
        for inner in &phase.items {
            if let PipelineItem::Phase(inner) = inner {
                let message = format!("phase `{}` has a phase of its own", name.text);
                let error = Diagnostic::error(Code::RepeatedItem, inner.name.span, "inside of a phase", message);
                errors.push(error.label(name.span, "this phase").help("write one phase behind the other"));
            }
        }
    }
}
