//! Errors inside a model of the standard library: they point at the user's call first.

use pipe_model::pipeline::{Elaborated, ModelCall};
use pipe_schedule::ratio::gcd;
use pipe_syntax::diagnostic::{Diagnostic, Diagnostics, Label};
use pipe_syntax::source::Sources;

/// Puts a label at the call of the model before the labels in the standard library, which no user edits.
pub(crate) fn at_the_call(found: Diagnostics, elaborated: &Elaborated, sources: &Sources) -> Diagnostics {
    let Some(call) = elaborated.pipeline.as_ref().and_then(|pipeline| pipeline.model.as_ref()) else { return found };
    let is_standard = |label: &Label| sources.get(label.span.file).name.starts_with("std.");
    let moved = |one: Diagnostic| if one.labels.first().is_some_and(is_standard) { at(call, one) } else { one };
    found.into_iter().map(moved).collect()
}

fn at(call: &ModelCall, mut found: Diagnostic) -> Diagnostic {
    let quotient = quotient(call, &found);
    let text = match quotient {
        Some([(whole, value), (part, divisor)]) => format!("`{whole} = {value}` and `{part} = {divisor}`"),
        None => format!("with these numbers for `{}`", call.model),
    };
    found.labels.insert(0, Label { span: call.span, text });
    found.help = quotient.map(|[(whole, _), (part, _)]| format!("`{part}` must divide `{whole}`"));
    found.fix = None;
    found
}

/// An argument of the model with its name.
type Argument<'a> = (&'a str, i64);

/// The two arguments of the call whose quotient, in the layer with the error, is no whole number.
fn quotient<'a>(call: &'a ModelCall, found: &Diagnostic) -> Option<[Argument<'a>; 2]> {
    // The note about the layer has its numbers.
    let is_passed_on = |name: &str, value: i64| {
        let number = format!(" {name} = {value}");
        found.notes.iter().any(|note| note.split(',').any(|part| part.ends_with(&number)))
    };
    let arguments = call.arguments.iter().filter_map(|(name, value)| Some((name.as_str(), value.as_whole()?)));
    let arguments: Vec<Argument<'a>> =
        arguments.filter(|(name, value)| *value > 0 && is_passed_on(name, *value)).collect();
    let pairs = arguments.iter().flat_map(|whole| arguments.iter().map(|part| [*whole, *part]));
    let mut fitting = pairs.filter(|[(_, value), (_, divisor)]| {
        let common = gcd(*value, *divisor);
        found.message.ends_with(&format!(" {}/{}", value / common, divisor / common))
    });
    // Of several pairs, any may be meant.
    let first = fitting.next()?;
    fitting.next().is_none().then_some(first)
}
