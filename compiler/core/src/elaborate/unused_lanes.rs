//! Warns of lanes that carry nothing and that no part is on.

use super::{Request, schedule_of, target};
use pipe_syntax::ast::{Lane, PipelineItem, ScheduleItem, StageParts};
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::files::Files;
use pipe_syntax::source::Span;

/// A warning for each lane of the target that no `parts` names.
pub fn unused_lanes(files: &Files, request: &Request) -> Diagnostics {
    let Some((schedule, _)) = schedule_of(files, request) else { return Diagnostics::new() };
    let mut lanes: Vec<&Lane> = Vec::new();
    let mut parts: Vec<&StageParts> = Vec::new();
    for item in &schedule.items {
        match item {
            ScheduleItem::Lane(lane) => lanes.push(lane),
            ScheduleItem::Parts(own) => parts.push(own),
            _ => {}
        }
    }
    if let Ok(target::Target::Pipeline(pipeline)) = target::choose(files, request) {
        let own = pipeline.span;
        let is_own = |span: Span| span.file == own.file && own.start <= span.start && span.end <= own.end;
        for item in &pipeline.items {
            match item {
                // What phases share, another one of them may use.
                PipelineItem::Lane(lane) if is_own(lane.span) => lanes.push(lane),
                PipelineItem::Parts(own) => parts.push(own),
                _ => {}
            }
        }
    }
    let mut used: Vec<&str> = Vec::new();
    parts.iter().for_each(|own| own.list.each_part(&mut |_, lane| used.extend(lane.map(|lane| lane.text.as_str()))));
    let is_used = |lane: &Lane| !lane.carries.is_empty() || used.contains(&lane.name.text.as_str());
    let unused = lanes.into_iter().filter(|lane| !is_used(lane));
    let warning = |lane: &Lane| {
        let name = &lane.name.text;
        let message = format!("no part is on lane `{name}`, which idles all the time");
        let help = format!("let a part run on it, as in `parts s = layers, exchange on {name}`, or leave it out");
        Diagnostic::warning(Code::UnusedLane, lane.span, "named by no `parts`", message).help(help)
    };
    unused.map(warning).collect()
}
