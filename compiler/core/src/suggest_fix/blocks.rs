//! The loops and branches around a place of a text, by their brackets.

use pipe_syntax::source::Span;

/// Brackets with what stands between them, and the words before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Block {
    /// Where its first word begins. None of an `else`, which belongs to the branch before.
    pub(super) start: Option<usize>,
    /// Where its bracket opens.
    pub(super) open: usize,
    /// Behind the bracket that closes it.
    end: usize,
}

/// The blocks that hold a place, from the outermost to the innermost.
pub(super) fn around(text: &str, place: usize) -> Vec<Block> {
    let mut open = Vec::new();
    let mut found = Vec::new();
    let mut is_hidden = [false; 2];
    for (at, letter) in text.char_indices() {
        match letter {
            // Comments end with their line; neither they nor paths have brackets of the language.
            '\n' => is_hidden = [false; 2],
            '"' if !is_hidden[0] => is_hidden[1] = !is_hidden[1],
            '/' if text[at..].starts_with("//") => is_hidden[0] = true,
            '{' if is_hidden == [false; 2] => open.push(at),
            '}' if is_hidden == [false; 2] => {
                let Some(begin) = open.pop() else { return Vec::new() };
                if begin < place && place <= at {
                    found.push(Block { start: header(text, begin), open: begin, end: at + 1 });
                }
            }
            _ => {}
        }
    }
    found.reverse();
    found
}

/// Where the words before a bracket begin.
fn header(text: &str, open: usize) -> Option<usize> {
    let before = &text[..open];
    let begins =
        |word: &str| before.rmatch_indices(word).map(|(at, _)| at).find(|at| !before[..*at].ends_with(is_letter));
    let start = ["for ", "repeat ", "if ", "order ", "schedule "].into_iter().filter_map(begins).max()?;
    let is_else = before.trim_end().ends_with("else") || before[..start].trim_end().ends_with("else");
    (!is_else).then_some(start)
}

fn is_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// The innermost block around two statements: the two statements of it that contain them. At least one is a block.
pub(super) fn siblings(text: &str, statements: [Span; 2]) -> Option<[Span; 2]> {
    let [one, other] = statements.map(|span| around(text, span.start as usize));
    let common = one.iter().zip(&other).take_while(|(one, other)| one == other).count();
    let side = |blocks: &[Block], statement: Span| {
        let Some(block) = blocks.get(common) else { return Some(statement) };
        let byte = |place: usize| u32::try_from(place).ok();
        Some(Span { start: byte(block.start?)?, end: byte(block.end)?, ..statement })
    };
    (common < one.len().max(other.len())).then_some(())?;
    Some([side(&one, statements[0])?, side(&other, statements[1])?])
}

#[cfg(test)]
mod tests {
    use super::siblings;
    use pipe_syntax::source::{FileId, Span};

    #[test]
    fn loops_that_follow_each_other_are_found_around_two_statements() {
        let text = "order d { // {\n if d == 0 { A } else { repeat 2 * M { B } for k in 0..M { if k > 0 { C } } D } }";
        let span = |word: &str| {
            let start = u32::try_from(text.find(word).expect("a word")).expect("short");
            Span { file: FileId(0), start, end: start + 1 }
        };
        let words = |span: Span| &text[span.start as usize..span.end as usize];
        let found = |one: &str, other: &str| siblings(text, [span(one), span(other)]).map(|both| both.map(words));
        assert_eq!(found("C", "B"), Some(["for k in 0..M { if k > 0 { C } }", "repeat 2 * M { B }"]));
        assert_eq!(found("B", "D"), Some(["repeat 2 * M { B }", "D"]));
        // What stands behind `else` does not move without it, and two plain statements are no blocks.
        assert_eq!(found("A", "B"), None);
        assert_eq!(found("D", "D"), None);
    }
}
