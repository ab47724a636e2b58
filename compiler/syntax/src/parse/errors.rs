//! What the grammar expected, in words.

use super::grammar::Rule;
use super::scan;
use crate::diagnostic::{Code, Diagnostic};
use crate::source::{FileId, Span};
use pest::error::{Error, ErrorVariant, InputLocation};

/// The position of an error in the whole text, and what to say about it. `part` begins at byte `base`.
pub(super) fn describe(file: FileId, part: &str, base: usize, error: &Error<Rule>) -> (usize, Diagnostic) {
    let position = match error.location {
        InputLocation::Pos(position) | InputLocation::Span((position, _)) => position,
    };
    let found = scan::token_at(part, position);
    let span = |start: usize, length: usize| {
        let byte = |position| u32::try_from(base + position).unwrap_or(u32::MAX);
        Span { file, start: byte(start), end: byte(start + length) }
    };
    let expected = match &error.variant {
        ErrorVariant::ParsingError { positives, .. } => alternatives(positives),
        ErrorVariant::CustomError { message } => message.clone(),
    };
    let seen = found.map_or("the end of the text".to_owned(), |token| format!("`{}`", shortened(token)));
    let message = format!("expected {expected}, found {seen}");
    let mut diagnostic =
        Diagnostic::error(Code::Syntax, span(position, found.map_or(0, str::len)), "not expected here", message);
    if let Some(bracket) = scan::unmatched(part).filter(|bracket| *bracket != position) {
        diagnostic = diagnostic.label(span(bracket, 1), "this bracket has no partner");
    }
    if let Some(help) = found.and_then(|token| hint(token, error)) {
        diagnostic = diagnostic.help(help);
    }
    (base + position, diagnostic)
}

/// What was expected at the end of a text of so many bytes, one phrase for each; nothing where the error is before it.
pub(super) fn expected_at(error: &Error<Rule>, end: usize) -> Vec<String> {
    match (&error.variant, &error.location) {
        (ErrorVariant::ParsingError { positives, .. }, InputLocation::Pos(position)) if *position == end => {
            positives.iter().filter_map(|rule| phrase(*rule)).collect()
        }
        _ => Vec::new(),
    }
}

/// Help for what people write who come from other languages.
fn hint(found: &str, error: &Error<Rule>) -> Option<&'static str> {
    let expects = |rule| match &error.variant {
        ErrorVariant::ParsingError { positives, .. } => positives.contains(&rule),
        ErrorVariant::CustomError { .. } => false,
    };
    Some(match found {
        "&" if !expects(Rule::task) => "write `and`",
        "|" => "write `or`",
        "!" => "write `not`",
        "?" => "write `if condition then value else other`",
        ";" => "statements need no mark between them",
        "=" if expects(Rule::equal) => "write `==` to compare",
        "{" if expects(Rule::kw_then) => "inside an expression, write `if condition then value else other`",
        "I" | "U" if expects(Rule::kind) => "`B` is the backward for the input, `W` for the weights, `BW` both",
        size if is_decimal_size(size) => "sizes are counted in `B`, `KiB`, `MiB`, `GiB` and `TiB`",
        _ => return None,
    })
}

/// `80GB`.
fn is_decimal_size(token: &str) -> bool {
    let unit = token.trim_start_matches(|mark: char| mark.is_ascii_digit() || mark == '.');
    unit.len() < token.len() && ["kB", "KB", "MB", "GB", "TB"].contains(&unit)
}

fn shortened(token: &str) -> String {
    let shown: String = token.chars().take(24).collect();
    let end = if shown.len() < token.len() { "…" } else { "" };
    // Control characters would act on the terminal, or not be seen at all.
    shown
        .chars()
        .map(|mark| if mark.is_control() { mark.escape_unicode().to_string() } else { mark.into() })
        .collect::<String>()
        + end
}

/// `a, b or c`, without doubles.
fn alternatives(rules: &[Rule]) -> String {
    if matches!(rules, [Rule::at_most]) {
        return "`<=`".to_owned();
    }
    let mut operators = false;
    let mut words: Vec<String> = Vec::new();
    for rule in rules {
        match phrase(*rule) {
            Some(word) if !words.contains(&word) => words.push(word),
            Some(_) => {}
            None => operators = true,
        }
    }
    if operators && words.len() < 4 {
        words.push("an operator".to_owned());
    }
    match words.split_last() {
        None => "an operator".to_owned(),
        Some((only, [])) => only.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
    }
}

/// What a user would call a rule; none for operators, of which there are many.
fn phrase(rule: Rule) -> Option<String> {
    let words = match rule {
        Rule::EOI => "the end of the text",
        Rule::file => "`import`, `param`, `schedule`, `layer`, `model` or `pipeline`",
        Rule::name => "a name",
        Rule::schedule_name | Rule::schedule_call => "the name of a schedule",
        Rule::number => "a number",
        Rule::string => "a text in quotes",
        Rule::standard_path => "`std.` with a name",
        Rule::kind | Rule::task | Rule::pair | Rule::block_task | Rule::duration => "`F`, `B`, `W` or `BW`",
        Rule::cost_name | Rule::cost_pair | Rule::cost_entry => "`F`, `B`, `W`, `BW`, `comm` or `copy`",
        Rule::activation_name | Rule::activation_entry => "`F` or `W`",
        Rule::cost_stages => "`[stages]`",
        Rule::cost_link => "`[device-device]`",
        Rule::overlap => "`&`",
        Rule::version => "`flush`, `previous` or `newest`",
        Rule::dtype => "`i32` or `f32`",
        Rule::offloaded => "`activations`, `optimizer`, `parameters`",
        Rule::number_type => "`f32`, `f64` or `bf16`",
        Rule::init => "`zeros`, `ones` or `normal(deviation)`",
        Rule::expr | Rule::operation | Rule::group | Rule::list | Rule::call | Rule::r#use | Rule::argument => {
            "an expression"
        }
        Rule::homes => "a device or several",
        Rule::peak_limit | Rule::part_of => "a number or a schedule",
        Rule::parameter => "a parameter",
        Rule::shape => "`[sizes]`",
        Rule::open | Rule::body => "`{`",
        Rule::close => "`}`",
        Rule::open_round | Rule::arguments | Rule::parameters => "`(`",
        Rule::close_round => "`)`",
        Rule::open_square => "`[`",
        Rule::close_square => "`]`",
        Rule::comma => "`,`",
        Rule::colon => "`:`",
        Rule::assign => "`=`",
        Rule::range => "`..`",
        Rule::plus | Rule::minus | Rule::times | Rule::over | Rule::modulo | Rule::kw_and | Rule::kw_or => return None,
        Rule::equal | Rule::not_equal | Rule::at_most | Rule::at_least | Rule::above | Rule::below => return None,
        Rule::binding => "`let`",
        Rule::condition | Rule::requirement => "`require`",
        Rule::file_parameter => "`param`",
        Rule::layers => "`repeat`",
        Rule::model_use => "`model`",
        Rule::config_use => "a path in quotes",
        Rule::schedule_use => "`schedule`",
        _ => return Some(format!("`{}`", word_of(rule))),
    };
    Some(words.to_owned())
}

/// The word that an item begins with: rules are named after it.
fn word_of(rule: Rule) -> String {
    let name = format!("{rule:?}");
    name.trim_start_matches("r#").trim_start_matches("kw_").trim_start_matches("set_").to_owned()
}
