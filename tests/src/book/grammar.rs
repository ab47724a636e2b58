//! `docs/grammar.md`, from the comments of the grammar.

use std::fmt::Write;

/// Opens the page.
const HEAD: &str = "# The grammar

Written from `grammar/pipe.pest`, which the compiler is built from; `cargo bless` writes it again. [language.md](language.md) says what it all means.

Spaces, line ends and comments may stand between any two words. In the rules `~` means *and then*, `|` *or else*, `?` *perhaps*, `*` *any number of times*, `+` *at least once*, `!` *not followed by*. A rule
marked `@` or `$` is a single word, without spaces in it. A rule `kw_x` is the keyword `x`.
";

/// What a group of rules is called, by its first rule.
const TITLES: [(&str, &str); 10] = [
    ("WHITESPACE", "Spaces and comments"),
    ("file", "Files"),
    ("import", "Imports and parameters"),
    ("schedule", "Schedules"),
    ("layer", "Layers"),
    ("model", "Models"),
    ("pipeline", "Pipelines"),
    ("expr", "Expressions"),
    ("name", "Names and numbers"),
    ("open", "Marks"),
];

/// A rule with its comment.
struct Rule<'t> {
    comment: &'t str,
    name: &'t str,
    /// The whole line.
    text: &'t str,
}

/// Keywords of a paragraph.
const PARAGRAPH: usize = 40;

/// The page.
///
/// # Errors
/// What of the grammar has no comment or no title.
pub fn page(grammar: &str) -> Result<String, String> {
    let mut text = HEAD.to_owned();
    let groups = grammar.split("\n\n").map(rules).collect::<Result<Vec<_>, _>>()?;
    for group in groups.iter().filter(|group| !group.is_empty()) {
        let first = group[0].name;
        if first.starts_with("kw_") {
            let words = group.iter().filter_map(|rule| Some(format!("`{}`", rule.name.strip_prefix("kw_")?)));
            let words: Vec<String> = words.collect();
            let paragraphs: Vec<String> = words.chunks(PARAGRAPH).map(|words| words.join(" ")).collect();
            let _ = write!(text, "\n## Keywords\n\n{}\n", paragraphs.join("\n\n"));
            continue;
        }
        let title = TITLES.iter().find(|(name, _)| *name == first).map(|(_, title)| *title);
        let title = title.ok_or_else(|| format!("the group of `{first}` has no title in tests/src/book/grammar.rs"))?;
        let _ = write!(text, "\n## {title}\n\n");
        if title == "Marks" {
            let marks = group.iter().map(|rule| format!("{} {}", rule.name, rule.comment.replace("The mark ", "")));
            let _ = writeln!(text, "{}", marks.collect::<Vec<_>>().join(", "));
            continue;
        }
        text.push_str("| rule | stands for | as in |\n|---|---|---|\n");
        for Rule { comment, name, .. } in group {
            let (meaning, example) = comment
                .rsplit_once(": `")
                .map_or((*comment, String::new()), |(meaning, rest)| (meaning, format!("`{rest}")));
            // Of two examples the first colon counts.
            let (meaning, example) = match comment.find(": `").filter(|at| comment[*at..].contains("`, or `")) {
                Some(at) => (&comment[..at], comment[at + 2..].to_owned()),
                None => (meaning, example),
            };
            let _ = writeln!(text, "| `{name}` | {meaning} | {} |", example.replace('|', "\\|"));
        }
        let lines: Vec<&str> = group.iter().map(|rule| rule.text).collect();
        let _ = write!(text, "\n```text\n{}\n```\n", lines.join("\n"));
    }
    Ok(text)
}

/// The rules of a group; none of the comment that opens the file.
fn rules(group: &str) -> Result<Vec<Rule<'_>>, String> {
    let mut comment = None;
    let mut rules = Vec::new();
    for line in group.lines().filter(|line| !line.starts_with("//!")) {
        if let Some(text) = line.strip_prefix("/// ") {
            comment = Some(text);
        } else if let Some((name, _)) = line.split_once(" = ") {
            let comment = comment.take().ok_or_else(|| format!("the rule `{name}` has no comment"))?;
            rules.push(Rule { comment, name, text: line });
        } else {
            return Err(format!("this is neither a comment nor a rule: {line}"));
        }
    }
    Ok(rules)
}
