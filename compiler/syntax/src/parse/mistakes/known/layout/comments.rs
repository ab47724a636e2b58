//! Comments as other languages write them, and `//` that was meant as a division.

use crate::parse::mistakes::mistake::Mistake;
use crate::parse::mistakes::view::{Detector, View, is_word};

pub(in crate::parse::mistakes) const DETECTORS: &[Detector] = &[hash, block, dashes, page, docstring, division];

/// `# a comment`: all of the text are told at once.
fn hash(view: &View<'_>) -> Option<Mistake> {
    if view.word(0) != "#" {
        return None;
    }
    if matches!(view.word(1), "include" | "import") && view.touches(1) {
        let place = view.range(0).start..view.range(1).end;
        return Some(
            Mistake::new(place.clone(), "not a keyword", format!("unknown keyword `#{}`", view.word(1)))
                .help("write `import`")
                .replace(place, "import"),
        );
    }
    let mut mistake =
        Mistake::new(view.range(0), "not the beginning of a comment", "comments begin with `//`, not with `#`")
            .help("write `//` for `#`");
    let mut line_end = 0;
    for index in view.at..view.tokens.len() {
        let token = view.tokens[index].clone();
        if view.token(index) == "#" && token.start >= line_end {
            line_end = view.text[token.start..].find('\n').map_or(view.text.len(), |end| token.start + end);
            let marks = view.text[token.start..line_end].bytes().take_while(|mark| *mark == b'#').count();
            mistake = mistake.replace(token.start..token.start + marks, "//");
        }
    }
    Some(mistake)
}

/// `/* a comment */`.
fn block(view: &View<'_>) -> Option<Mistake> {
    let start = view.range(0).start;
    if !view.text[start..].starts_with("/*") {
        return None;
    }
    let end = view.text[start..].find("*/").map_or(view.text.len(), |end| start + end);
    let mistake = Mistake::new(
        start..start + 2,
        "not the beginning of a comment",
        "comments begin with `//`, and end with the line",
    )
    .help("write `//` before each line of the comment");
    // What stands behind the comment in its last line would become a part of it.
    let behind = view.text.get(end + 2..).unwrap_or_default();
    let is_alone = behind.split('\n').next().unwrap_or_default().trim().is_empty();
    let lines = view.text[start + 2..end].trim_end().lines().map(|line| line.trim().trim_start_matches('*').trim());
    let indentation = view.indentation(view.at);
    let text = lines.filter(|line| !line.is_empty()).map(|line| format!("// {line}")).collect::<Vec<_>>();
    let gap = if is_alone { String::new() } else { format!("\n{}", " ".repeat(indentation)) };
    let comment = text.join(&format!("\n{}", " ".repeat(indentation)));
    Some(mistake.replace(start..(end + 2).min(view.text.len()), comment + &gap))
}

/// `-- a comment`.
fn dashes(view: &View<'_>) -> Option<Mistake> {
    let start = view.range(0).start;
    let is_comment = view.text[start..].starts_with("-- ") && view.is_between_lines();
    is_comment.then(|| {
        Mistake::new(start..start + 2, "not the beginning of a comment", "comments begin with `//`, not with `--`")
            .help("write `//` for `--`")
            .replace(start..start + 2, "//")
    })
}

/// `<!-- a comment -->`.
fn page(view: &View<'_>) -> Option<Mistake> {
    let start = view.range(0).start;
    let line = view.text[start..].split('\n').next().unwrap_or_default();
    line.starts_with("<!--").then(|| {
        let mistake = Mistake::new(
            start..start + 4,
            "not the beginning of a comment",
            "comments begin with `//`, not with `<!--`",
        )
        .help("write `//` for `<!--`")
        .replace(start..start + 4, "//");
        match line.find("-->") {
            Some(end) => mistake.remove(start + end..start + end + 3),
            None => mistake,
        }
    })
}

/// `"""What it is."""` before a declaration.
fn docstring(view: &View<'_>) -> Option<Mistake> {
    let start = view.range(0).start;
    let mark = ["\"\"\"", "'''"].into_iter().find(|mark| view.text[start..].starts_with(mark))?;
    let end = start + 3 + view.text[start + 3..].find(mark)?;
    let lines =
        view.text[start + 3..end].trim().lines().map(|line| format!("/// {}", line.trim()).trim_end().to_owned());
    let gap = format!("\n{}", " ".repeat(view.indentation(view.at)));
    let text = lines.collect::<Vec<_>>().join(&gap);
    Some(
        Mistake::new(
            start..start + 3,
            "not the beginning of a comment",
            format!("comments begin with `//`, not with `{mark}`"),
        )
        .help("write `///` before each line of what documents a declaration")
        .replace(start..end + 3, text),
    )
}

/// `(D // 2)`: the bracket lies in a comment.
fn division(view: &View<'_>) -> Option<Mistake> {
    let before = view.at.checked_sub(1)?;
    let is_operand = is_word(view.token(before)) || matches!(view.token(before), ")" | "]");
    let from = view.range(-1).end;
    let line = view.text[from..].split('\n').next().unwrap_or_default();
    let start = from + line.find("//")?;
    let divisor = view.text[start..from + line.len()].trim_start_matches('/').trim();
    if !is_operand || start - from > 1 || !divisor.starts_with(|mark: char| mark.is_alphanumeric() || mark == '(') {
        return None;
    }
    Some(
        Mistake::new(start..start + 2, "a comment begins here", "`//` is not a division")
            .help("write `/`, which rounds down in schedules")
            .replace(start..start + 2, "/"),
    )
}
