//! Puts the playground together:
//! `gzip -9c compiler.wasm | base64 | cargo run -p pipe-playground --example page > index.html`.
//!
//! Style and scripts of the timeline are those of `pipec plot -o x.html`. Everything is in one
//! file, so that it also works where it was saved.

use pipec::drawing::html::{self, Shown};
use std::io::{self, Read, Write};

const STYLE: &str = include_str!("../page/playground.css");
const WORKER: &str = include_str!("../page/worker.js");
const SCRIPTS: [&str; 5] = [
    include_str!("../page/editor.js"),
    include_str!("../page/assist.js"),
    include_str!("../page/beside.js"),
    include_str!("../page/search.js"),
    include_str!("../page/playground.js"),
];

fn main() -> io::Result<()> {
    let mut wasm = String::new();
    io::stdin().read_to_string(&mut wasm)?;
    wasm.retain(|letter| !letter.is_whitespace());
    let worker = serde_json::Value::from(WORKER.replace("</", "<\\/"));
    let script = format!("const WASM = \"{wasm}\";\nconst WORKER = {worker};\n{}", SCRIPTS.concat());
    let mut page = Vec::new();
    html::write("pipec playground", &Shown::Script(&script), &mut page)?;
    let page = String::from_utf8_lossy(&page).replacen("</style>", &format!("{STYLE}</style>"), 1);
    io::stdout().write_all(page.as_bytes())
}
