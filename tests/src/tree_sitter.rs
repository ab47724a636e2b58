//! The grammar of `editors/tree-sitter-pipe`, from the grammar of the parser: `src/grammar.json` there.
//!
//! A rule of several words becomes a rule. One that is a single word becomes a pattern, a keyword or a mark. What pest
//! looks ahead for is left out: tree-sitter takes the longest word, and tries both ways where one of them is a
//! conflict.

use pest_meta::ast::{Expr, Rule, RuleType};
use pest_meta::parser::{self, consume_rules};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Rules between which more than one word has to be read.
const CONFLICTS: [&[&str]; 3] = [&["_operand", "schedule_name"], &["call", "schedule_name"], &["_part", "_operand"]];
/// A schedule has a name, or one that begins with digits.
const SCHEDULE_NAME: &str = "[0-9]+[A-Za-z_][A-Za-z0-9_]*";

/// The rules of a grammar by their names.
type Rules<'g> = BTreeMap<&'g str, &'g Rule>;

/// The text of `grammar.json`.
///
/// # Errors
/// If the grammar is none, or has what has no counterpart.
pub fn grammar(pest: &str) -> Result<String, String> {
    let pairs = parser::parse(parser::Rule::grammar_rules, pest).map_err(|error| error.to_string())?;
    let all = consume_rules(pairs).map_err(|errors| format!("{errors:?}"))?;
    let rules: Rules<'_> = all.iter().map(|rule| (rule.name.as_str(), rule)).collect();
    let mut lines = Vec::new();
    // The first rule is that of files.
    let (first, others): (Vec<&Rule>, _) = all.iter().partition(|rule| rule.name == "file");
    for rule in first.into_iter().chain(others) {
        let is_part_of_words = matches!(
            rule.name.as_str(),
            "WHITESPACE" | "byte_unit" | "ident_char" | "reserved" | "call_head" | "device_head"
        );
        if !is_part_of_words && word(rule).is_none() {
            lines.push(format!("    {}: {}", json!(named(rule)), converted(rule, &rules)?));
        }
    }
    let reserved: Vec<Value> =
        alternatives(&find(&rules, "reserved")?.expr).into_iter().map(string).collect::<Result<_, _>>()?;
    Ok(format!(
        "{{\n  \"name\": \"pipe\",\n  \"word\": \"name\",\n  \"rules\": {{\n{}\n  }},\n  \"extras\": [{}, {}],\n  \"conflicts\": {},\n  \
         \"precedences\": [],\n  \"externals\": [],\n  \"inline\": [],\n  \"supertypes\": [],\n  \"reserved\": {}\n}}\n",
        lines.join(",\n"),
        json!({"type": "PATTERN", "value": "[ \\t\\r\\n]"}),
        symbol("comment"),
        json!(CONFLICTS),
        json!({"global": reserved}),
    ))
}

fn find<'g>(rules: &Rules<'g>, name: &str) -> Result<&'g Rule, String> {
    rules.get(name).copied().ok_or_else(|| format!("no rule `{name}`"))
}

/// What a rule is called: those that leave no node begin with an underscore.
fn named(rule: &Rule) -> String {
    match (rule.ty, rule.name.as_str()) {
        (_, "COMMENT") => "comment".to_owned(),
        (RuleType::Silent, name) => format!("_{name}"),
        (_, name) => name.to_owned(),
    }
}

/// The text of a rule that is a keyword or a mark.
fn word(rule: &Rule) -> Option<&str> {
    match &rule.expr {
        Expr::Str(text) => Some(text),
        Expr::Seq(text, ahead) => match (&**text, &**ahead) {
            (Expr::Str(text), Expr::NegPred(_)) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

/// The alternatives of a choice.
fn alternatives(expr: &Expr) -> Vec<&Expr> {
    match expr {
        Expr::Choice(first, second) => [alternatives(first), alternatives(second)].concat(),
        other => vec![other],
    }
}

/// The parts of a sequence.
fn parts(expr: &Expr) -> Vec<&Expr> {
    match expr {
        Expr::Seq(first, second) => [parts(first), parts(second)].concat(),
        other => vec![other],
    }
}

fn string(expr: &Expr) -> Result<Value, String> {
    match expr {
        Expr::Str(text) => Ok(json!({"type": "STRING", "value": text})),
        other => Err(format!("`{other}` is no text")),
    }
}

fn symbol(name: &str) -> Value {
    json!({"type": "SYMBOL", "name": name})
}

/// What tree-sitter has for a rule.
fn converted(rule: &Rule, rules: &Rules<'_>) -> Result<Value, String> {
    if rule.name == "schedule_name" {
        return Ok(choice(vec![symbol("name"), json!({"type": "PATTERN", "value": SCHEDULE_NAME})]));
    }
    if rule.ty != RuleType::Atomic && rule.name != "COMMENT" {
        return node(&rule.expr, rules);
    }
    // One of several keywords, or a word of a form.
    let words = match parts(&rule.expr).as_slice() {
        [words, Expr::NegPred(_)] => alternatives(words).into_iter().map(string).collect::<Result<Vec<_>, _>>().ok(),
        _ => None,
    };
    match words {
        Some(words) => Ok(choice(words)),
        None => Ok(json!({"type": "PATTERN", "value": pattern(&rule.expr, rules)?})),
    }
}

fn choice(members: Vec<Value>) -> Value {
    json!({"type": "CHOICE", "members": members})
}

/// What tree-sitter has for a part of a rule of several words.
fn node(expr: &Expr, rules: &Rules<'_>) -> Result<Value, String> {
    let each =
        |members: Vec<&Expr>| members.into_iter().map(|member| node(member, rules)).collect::<Result<Vec<_>, _>>();
    Ok(match expr {
        Expr::Ident(name) => {
            let rule = find(rules, name)?;
            word(rule).map_or_else(|| symbol(&named(rule)), |text| json!({"type": "STRING", "value": text}))
        }
        Expr::Choice(..) => choice(each(alternatives(expr))?),
        Expr::Seq(..) => {
            let all = parts(expr);
            let is_word = |part: &&Expr| !matches!(part, Expr::NegPred(_) | Expr::PosPred(_)) && !is_end(part);
            let words: Vec<&Expr> = all.iter().copied().filter(is_word).collect();
            let mut members = each(words)?;
            let whole = if members.len() == 1 { members.remove(0) } else { json!({"type": "SEQ", "members": members}) };
            // What is refused before some words is tried first, and kept where both ways can be gone.
            let looks_ahead = all.iter().any(|part| matches!(part, Expr::NegPred(_)));
            if looks_ahead { json!({"type": "PREC_DYNAMIC", "value": 1, "content": whole}) } else { whole }
        }
        Expr::Opt(inner) => choice(vec![node(inner, rules)?, json!({"type": "BLANK"})]),
        Expr::Rep(inner) => json!({"type": "REPEAT", "content": node(inner, rules)?}),
        Expr::RepOnce(inner) => json!({"type": "REPEAT1", "content": node(inner, rules)?}),
        other => return Err(format!("`{other}` has no counterpart between words")),
    })
}

/// Whether this is the beginning or the end of a text.
fn is_end(expr: &Expr) -> bool {
    matches!(expr, Expr::Ident(name) if name == "SOI" || name == "EOI")
}

/// What a regular expression has for a part of a word.
fn pattern(expr: &Expr, rules: &Rules<'_>) -> Result<String, String> {
    let repeated = |inner: &Expr, sign: char| Ok::<_, String>(format!("({}){sign}", pattern(inner, rules)?));
    match expr {
        Expr::Str(text) => Ok(escaped(text)),
        Expr::Ident(name) => match name.as_str() {
            "ASCII_DIGIT" => Ok("[0-9]".to_owned()),
            "ASCII_ALPHA" => Ok("[A-Za-z]".to_owned()),
            "ASCII_ALPHANUMERIC" => Ok("[A-Za-z0-9]".to_owned()),
            name => pattern(&find(rules, name)?.expr, rules),
        },
        Expr::Choice(..) => {
            let all: Vec<String> =
                alternatives(expr).into_iter().map(|one| pattern(one, rules)).collect::<Result<_, _>>()?;
            Ok(format!("({})", all.join("|")))
        }
        Expr::Seq(..) => match parts(expr).as_slice() {
            // Any letter but some.
            [Expr::NegPred(some), Expr::Ident(any)] if any == "ANY" => {
                let letters: Vec<String> =
                    alternatives(some).into_iter().map(|one| pattern(one, rules)).collect::<Result<_, _>>()?;
                Ok(format!("[^{}]", letters.concat()))
            }
            all => all.iter().map(|part| pattern(part, rules)).collect(),
        },
        Expr::NegPred(_) => Ok(String::new()),
        Expr::Opt(inner) => repeated(inner, '?'),
        Expr::Rep(inner) => repeated(inner, '*'),
        Expr::RepOnce(inner) => repeated(inner, '+'),
        other => Err(format!("`{other}` has no counterpart within a word")),
    }
}

fn escaped(text: &str) -> String {
    let letter = |letter: char| match letter {
        '\n' => "\\n".to_owned(),
        '.' | '*' | '+' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '|' | '^' | '$' | '\\' | '/' => {
            format!("\\{letter}")
        }
        plain => plain.to_string(),
    };
    text.chars().map(letter).collect()
}
