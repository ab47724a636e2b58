//! Other settings as edits of the pipeline that has them.

use super::Alternative;
use crate::Request;
use pipe_syntax::ast::{Call, Expr, Pipeline, PipelineItem};
use pipe_syntax::diagnostic::Edit;
use pipe_syntax::edits;
use std::collections::BTreeMap;

/// The edits that write all that an alternative sets. None where the caller sets some of it, or where a pipeline has
/// no place for it.
pub(super) fn edits(declared: &Pipeline, one: &Alternative, request: &Request) -> Option<Vec<Edit>> {
    let is_callers = |name: &str| request.choice.settings.iter().any(|(set, _)| set == name);
    if one.change.iter().any(|(name, _)| is_callers(name)) {
        return None;
    }
    let written: BTreeMap<&str, String> = one.change.iter().map(|(name, _)| (*name, one.value(name))).collect();
    let (mut made, mut more) = (Vec::new(), Vec::new());
    let replace = |expr: &Expr, text: &String| Edit { span: expr.span, text: text.clone() };
    for (name, value) in &written {
        match *name {
            "devices" | "microbatches" => made.push(replace(count(declared, name)?, value)),
            _ => match argument(config(declared)?, name) {
                Some(old) => made.push(replace(old, value)),
                None => more.push(format!("{name} = {value}")),
            },
        }
    }
    if !more.is_empty() {
        made.push(edits::one_more(config(declared)?, &more.join(", "))?);
    }
    Some(made)
}

fn count<'p>(declared: &'p Pipeline, name: &str) -> Option<&'p Expr> {
    declared.items.iter().find_map(|item| match item {
        PipelineItem::Devices { count, .. } if name == "devices" => Some(count),
        PipelineItem::Microbatches { count, .. } if name == "microbatches" => Some(count),
        _ => None,
    })
}

fn config(declared: &Pipeline) -> Option<&Call> {
    declared.items.iter().find_map(|item| if let PipelineItem::Config(call) = item { Some(call) } else { None })
}

fn argument<'c>(call: &'c Call, name: &str) -> Option<&'c Expr> {
    let named = |argument: &&pipe_syntax::ast::Argument| argument.name.as_ref().is_some_and(|own| own.text == name);
    call.arguments.iter().find(named).map(|argument| &argument.value)
}
