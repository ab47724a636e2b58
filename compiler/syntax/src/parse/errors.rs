//! What the grammar expected, in words.

use super::grammar::Rule;
use pest::error::{Error, ErrorVariant, InputLocation};

/// More words than a message should list.
const MANY: usize = 6;

/// What was expected, and what stands there instead: a message, and what to do about it where there is much to list.
/// `within` says where the place lies.
pub(super) fn message(error: &Error<Rule>, found: &str, within: &str) -> (String, Option<String>) {
    let (words, has_operators) = match &error.variant {
        ErrorVariant::ParsingError { positives, .. } => phrases(positives),
        ErrorVariant::CustomError { message } => (vec![message.clone()], false),
    };
    if words.len() <= MANY {
        let operators = has_operators.then(|| "an operator".to_owned());
        return (format!("expected {}, found {found}", joined(words.into_iter().chain(operators).collect())), None);
    }
    // Lines may end here: what may follow are marks of this line, and words that begin the next one.
    let (keywords, marks): (Vec<String>, Vec<String>) =
        words.into_iter().partition(|word| word.contains(|mark: char| mark.is_ascii_alphabetic()));
    let operators = has_operators.then(|| "an operator".to_owned());
    let (line, lines) = match within {
        "a file" => ("a declaration".to_owned(), "declarations".to_owned()),
        _ => (format!("a line of {within}"), format!("lines of {within}")),
    };
    let keywords = keywords.into_iter().filter(|word| word.starts_with('`')).collect();
    let expected = joined(marks.into_iter().chain(operators).chain([line]).collect());
    let help = format!("{lines} begin with {}", joined(keywords));
    (format!("expected {expected}, found {found}"), Some(help))
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

/// A word of a text as a message shows it.
pub(super) fn quoted(token: &str) -> String {
    let shown: String = token.chars().take(24).collect();
    let end = if shown.len() < token.len() { "…" } else { "" };
    // Control characters would act on the terminal, or not be seen at all.
    let escape = |mark: char| if mark.is_control() { mark.escape_unicode().to_string() } else { mark.into() };
    format!("`{}{end}`", shown.chars().map(escape).collect::<String>())
}

/// What rules are called, without doubles, and whether operators are among them.
fn phrases(rules: &[Rule]) -> (Vec<String>, bool) {
    // The only operator that a limit can have.
    if matches!(rules, [Rule::at_most]) {
        return (vec!["`<=`".to_owned()], false);
    }
    let mut words: Vec<String> = Vec::new();
    for phrase in rules.iter().filter_map(|rule| phrase(*rule)) {
        // Words that a phrase lists stand in one list with all others.
        let listed = phrase.split('`').skip(1).step_by(2).map(|word| format!("`{word}`"));
        let is_list = phrase.split('`').step_by(2).all(|between| matches!(between, "" | ", " | " or "));
        let listed: Vec<String> = if is_list { listed.collect() } else { vec![phrase.clone()] };
        for word in listed {
            if !words.contains(&word) {
                words.push(word);
            }
        }
    }
    (words, rules.iter().any(|rule| phrase(*rule).is_none()))
}

/// `a, b or c`.
fn joined(words: Vec<String>) -> String {
    match words.split_last() {
        None => "nothing more".to_owned(),
        Some((only, [])) => only.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
    }
}

/// What a user would call a rule; none for operators, of which there are many.
pub(super) fn phrase(rule: Rule) -> Option<String> {
    let words = match rule {
        Rule::EOI => "the end of the text",
        Rule::file => "`import`, `let`, `param`, `schedule`, `layer`, `model` or `pipeline`",
        Rule::name => "a name",
        Rule::schedule_name | Rule::schedule_call => "the name of a schedule",
        Rule::number => "a number",
        Rule::string => "a text in quotes",
        Rule::standard_path => "`std.` with a name",
        Rule::kind | Rule::task => "`F`, `B`, `W`, `BW` or `R`",
        Rule::pair | Rule::block_task | Rule::duration => "`F`, `B`, `W` or `BW`",
        Rule::movement | Rule::swap_kind => "`evict` or `fetch`",
        Rule::step_task | Rule::step_task_kind => "`reduce`, `update` or `gather`",
        Rule::carried => "`send` or `reduce`",
        Rule::cost_name | Rule::cost_pair | Rule::cost_entry => {
            "a cost: `F`, `B`, `W`, `BW`, `comm`, `copy`, `evict`, `fetch` or `reduce`"
        }
        Rule::activation_name | Rule::activation_entry => "`F` or `W`",
        Rule::cost_stages => "`[stages]`",
        Rule::cost_link => "`[device-device]`",
        Rule::overlap => "`&`",
        Rule::version => "`flush`, `previous` or `newest`",
        Rule::dtype => "`i32` or `f32`",
        Rule::offloaded => "`activations`, `optimizer`, `parameters`",
        Rule::decay_shape => "`linear` or `cosine`",
        Rule::shuffled => "`shuffled`",
        Rule::decayed => "`matrices`",
        Rule::frozen | Rule::frozen_layer => "`frozen`",
        Rule::trained => "`trained`",
        Rule::device_word | Rule::device_number => "`memory`, `host` or `speed`",
        Rule::device_head => "`device`",
        Rule::number_type => "`f32`, `f64` or `bf16`",
        Rule::init => "`zeros`, `ones` or `normal(deviation)`",
        Rule::expr | Rule::operation | Rule::group | Rule::list | Rule::call | Rule::r#use | Rule::argument => {
            "an expression"
        }
        Rule::homes => "a device or several",
        Rule::read_list => "a stage, several, or `none`",
        Rule::read => "a stage",
        Rule::part_list | Rule::stage_part => "a part",
        Rule::part_name => "`.` and a part",
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
        Rule::index | Rule::open_index => return None,
        Rule::plus | Rule::minus | Rule::times | Rule::over | Rule::modulo | Rule::kw_and | Rule::kw_or => return None,
        Rule::equal | Rule::not_equal | Rule::at_most | Rule::at_least | Rule::above | Rule::below => return None,
        Rule::binding | Rule::function => "`let`",
        Rule::statement_call | Rule::call_head => "a call of a function",
        Rule::condition | Rule::requirement => "`require`",
        Rule::file_parameter => "`param`",
        Rule::layers => "`repeat`",
        Rule::counted_layers => "`for`",
        Rule::source => "a name",
        Rule::model_use => "`model`",
        Rule::config_use => "a path in quotes",
        Rule::schedule_use => "`schedule`",
        _ => return Some(format!("`{}`", word_of(rule))),
    };
    Some(words.to_owned())
}

/// The word that an item begins with: rules are named after it.
pub(super) fn word_of(rule: Rule) -> String {
    let name = format!("{rule:?}");
    name.trim_start_matches("r#").trim_start_matches("kw_").trim_start_matches("set_").to_owned()
}
