//! Pictures as a page: one file with its style, its script and the data, which loads nothing. A
//! plan and its run are on one page.

use super::figure::Figure;
use crate::commands::diff::report::DiffReport;
use pipe_plot::Picture;
use serde::Serialize;
use std::io::{self, Write};

/// How the page looks.
pub const STYLE: &str = include_str!("page/style.css");

/// What draws the picture, file by file: each uses those before it.
pub const SCRIPTS: [&str; 20] = [
    include_str!("page/statements.js"),
    include_str!("page/model.js"),
    include_str!("page/painter.js"),
    include_str!("page/overlay.js"),
    include_str!("page/overview.js"),
    include_str!("page/stop.js"),
    include_str!("page/tables.js"),
    include_str!("page/difference.js"),
    include_str!("page/timeline.js"),
    include_str!("page/lanes.js"),
    include_str!("page/queues.js"),
    include_str!("page/listing.js"),
    include_str!("page/edited.js"),
    include_str!("page/finder.js"),
    include_str!("page/range.js"),
    include_str!("page/link.js"),
    include_str!("page/figure.js"),
    include_str!("page/input.js"),
    include_str!("page/panels.js"),
    include_str!("page/embedded.js"),
];

const PAGE: &str = include_str!("page/page.html");

/// What a page shows.
pub enum Shown<'a> {
    /// A picture, and nothing else ever; and what it saves.
    Picture(&'a Picture, &'a Figure),
    /// Timelines of the same tasks above each other, with what their difference is made of.
    Compared(&'a Compared<'a>),
    /// What this script shows.
    Script(&'a str),
}

/// Timelines of the same tasks on one time axis, in the order in which they are drawn.
#[derive(Serialize)]
pub struct Compared<'a> {
    /// All of them.
    pub(crate) versions: Vec<Version<'a>>,
    /// Where the difference comes from.
    pub(crate) diff: &'a DiffReport,
}

/// One of them.
#[derive(Serialize)]
pub(crate) struct Version<'a> {
    pub(crate) name: &'static str,
    pub(crate) picture: &'a Picture,
}

/// Writes the page.
///
/// # Errors
/// If writing fails.
pub fn write(title: &str, shown: &Shown<'_>, out: &mut dyn Write) -> io::Result<()> {
    for piece in PAGE.split("{{").flat_map(|piece| piece.split_inclusive("}}")) {
        match piece.strip_suffix("}}") {
            None => out.write_all(piece.as_bytes())?,
            Some("title") => out.write_all(escape(title).as_bytes())?,
            Some("style") => out.write_all(STYLE.as_bytes())?,
            Some("picture") => match shown {
                Shown::Picture(picture, _) => data(picture, out)?,
                Shown::Compared(compared) => data(compared, out)?,
                Shown::Script(_) => out.write_all(b"null")?,
            },
            Some("figure") => match shown {
                Shown::Picture(_, figure) => data(figure, out)?,
                Shown::Compared(_) | Shown::Script(_) => out.write_all(b"null")?,
            },
            Some(_) => {
                for script in SCRIPTS {
                    out.write_all(script.as_bytes())?;
                }
                let last = match shown {
                    Shown::Picture(..) | Shown::Compared(_) => include_str!("page/page.js"),
                    Shown::Script(script) => script,
                };
                out.write_all(last.as_bytes())?;
            }
        }
    }
    Ok(())
}

/// What is shown as JSON in which no text can end the script that it stands in. Names of forms look like addresses:
/// they are written so that who looks through a page for what it loads finds none.
fn data(shown: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    let json = serde_json::to_string(shown)?;
    let json = json.replace('<', "\\u003c").replace("//", "\\/\\/").replace("url(", "url\\u0028");
    out.write_all(json.as_bytes())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
