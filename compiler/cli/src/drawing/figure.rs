//! The picture that a page saves: what `pipec plot -o x.svg` draws, or how to have that drawn.

use pipe_compiler::Compilation;
use pipe_plot::Picture;
use pipe_plot::render::svg;
use serde::Serialize;

/// The picture of more tasks is not in the page: it would be most of it.
const TASKS: usize = 5_000;

/// The picture that a page saves.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Its text.
    Svg(String),
    /// The command that draws it.
    Command(String),
    /// Why there is none.
    Refused(String),
}

impl Figure {
    /// The picture of a compilation, which has `picture`.
    pub fn new(compilation: &Compilation, picture: &Picture) -> Self {
        if picture.tasks.len() > TASKS {
            return Self::Command(command(std::env::args().skip(1)));
        }
        svg::draw(compilation).map_or_else(Self::Refused, Self::Svg)
    }
}

/// The command that was given, with a picture instead of a page.
fn command(words: impl Iterator<Item = String>) -> String {
    let words = words.map(|word| match word.strip_suffix(".html") {
        Some(stem) => format!("{stem}.svg"),
        None if word == "html" => "svg".to_owned(),
        None => word.replace("--emit=html", "--emit=svg"),
    });
    words.fold("pipec".to_owned(), |command, word| command + " " + &quoted(&word))
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_./:=,+@%".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::command;

    #[test]
    fn the_command_is_the_one_that_was_given_with_a_picture_instead() {
        let words = |text: &str| command(text.split(' ').map(str::to_owned));
        assert_eq!(words("plot std:1f1b -o x.html"), "pipec plot std:1f1b -o x.svg");
        assert_eq!(words("plot a&b's.pipe --output=x.html"), "pipec plot 'a&b'\\''s.pipe' --output=x.svg");
        assert_eq!(words("build x.pipe --emit html"), "pipec build x.pipe --emit svg");
        assert_eq!(words("build x.pipe --emit=html"), "pipec build x.pipe --emit=svg");
    }
}
