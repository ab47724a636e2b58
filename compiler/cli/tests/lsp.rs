//! `pipec lsp` as editors use it: the real process, spoken to in its protocol.

mod client;
mod editing;
mod process;

use client::{Client, at, marked};
use process::{folder, pipec};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const URI: &str = "untitled:Untitled-1";
const FIRST: &str = include_str!("../../../examples/first_schedule.pipe");

fn uri_of(path: &Path) -> String {
    format!("file://{}", path.display())
}

/// A session with one document.
fn session(name: &str, text: &str) -> (Client, PathBuf) {
    let cache = folder(&format!("lsp-{name}"), &[]);
    let mut client = Client::new(&cache);
    client.open(URI, text);
    (client, cache)
}

fn hover(text: &str) -> String {
    let (text, place) = marked(text);
    let (mut client, _) = session("hover", &text);
    client.findings(URI, 1);
    let answer = client.at("textDocument/hover", URI, place);
    assert_eq!(client.end(), Some(0));
    answer["contents"]["value"].as_str().unwrap_or_default().to_owned()
}

fn offered(text: &str) -> Vec<String> {
    let (text, place) = marked(text);
    let (mut client, _) = session("completion", &text);
    let answer = client.at("textDocument/completion", URI, place);
    let labels = answer.as_array().cloned().unwrap_or_default();
    labels.iter().filter_map(|item| item["label"].as_str().map(str::to_owned)).collect()
}

#[test]
fn findings_follow_the_text() {
    let (mut client, _) = session("findings", "// é 🦀\nschedule a { stages é }\n");
    let found = client.findings(URI, 1);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        (&found[0]["code"], &found[0]["severity"], &found[0]["source"]),
        (&json!("syntax"), &json!(1), &json!("pipec"))
    );
    assert_eq!(found[0]["range"]["start"], json!({"line": 1, "character": 20}));
    // A burst of edits: only the last one counts, and it is right.
    let edit = |client: &mut Client, version: i32, line: u32, from: u32, to: u32, text: &str| {
        let range = json!({"start": {"line": line, "character": from}, "end": {"line": line, "character": to}});
        let document = json!({"uri": URI, "version": version});
        client.tell(
            "textDocument/didChange",
            json!({"textDocument": document, "contentChanges": [{"range": range, "text": text}]}),
        );
    };
    edit(&mut client, 2, 1, 20, 21, "x");
    edit(&mut client, 3, 0, 5, 7, "🦀🦀");
    edit(&mut client, 4, 1, 20, 21, "D place s on d");
    let found = client.findings(URI, 4);
    let messages: Vec<_> = found.iter().map(|found| found["message"].as_str().unwrap_or_default()).collect();
    assert!(messages.iter().any(|message| message.contains("has no `block` or `order`")), "{messages:?}");
    let document = json!({"textDocument": {"uri": URI, "version": 5}, "contentChanges": [{"text": FIRST}]});
    client.tell("textDocument/didChange", document);
    assert_eq!(client.findings(URI, 5), Vec::<Value>::new());
    // Windows' line ends, and findings with a second place and help.
    let text = "schedule a { stages D }\r\nschedule a { stages D }\r\n";
    client.tell(
        "textDocument/didChange",
        json!({"textDocument": {"uri": URI, "version": 6}, "contentChanges": [{"text": text}]}),
    );
    let found = client.findings(URI, 6);
    assert_eq!(found[0]["code"], "duplicate-name", "{found:?}");
    assert_eq!(found[0]["relatedInformation"][0]["message"], "declared here");
    assert_eq!(found[0]["relatedInformation"][0]["location"]["range"]["start"], json!({"line": 0, "character": 9}));
    client.tell("textDocument/didClose", json!({"textDocument": {"uri": URI}}));
    let gone = client.response("textDocument/hover", at(URI, (0, 0)));
    assert!(gone["error"]["message"].as_str().is_some_and(|message| message.contains("not open")), "{gone}");
    assert_eq!(client.end(), Some(0));
}

#[test]
fn hovers_say_what_is_known() {
    let schedule = hover(&FIRST.replace("one_f_one_b", "one_^f_one_b"));
    for part in [
        "schedule one_f_one_b",
        "accepted with 4 devices and 8 microbatches",
        "peak 4 units, mean bubble 27.3%",
        "One forward, one backward.",
    ] {
        assert!(schedule.contains(part), "{part} is not in\n{schedule}");
    }
    for (text, wanted) in [
        ("schedule a(chunks = 2) { stages ^chunks }", "parameter chunks = 2"),
        ("/// How wide.\nparam width = 4 * 64\nparam b = wi^dth", "param width = 4 * 64\n```\n\nHow wide."),
        ("pipeline p { schedule ^zb_h1 }", "ZB-H1 (arXiv 2401.10241)"),
        ("schedule a { ^stages D }", "How many stages there are: `stages 2 * D`"),
        ("schedule a { stages D^ }", "The number of devices"),
        ("schedule a { block every 3 { B^W[s] fill } }", "Both halves of the backward"),
        ("layer l { input x output ge^lu(x) }", "`gelu(x)`"),
        ("schedule a { ^) }", "pipec explain syntax"),
    ] {
        let found = hover(text);
        assert!(found.contains(wanted), "{wanted:?} is not in what is said at\n{text}\n{found}");
    }
    assert_eq!(hover("// stag^es\n"), "");
}

#[test]
fn completions_fit_their_place() {
    for (text, wanted, unwanted) in [
        ("^", vec!["schedule", "pipeline", "import", "param"], vec!["stages", "D"]),
        ("schedule a {\n    st^", vec!["stages", "place", "block", "order"], vec!["devices", "schedule"]),
        (
            "schedule a(group = 2) {\n    stages D\n    let i = ^\n}\nschedule b { }",
            vec!["D", "M", "group", "min", "if"],
            vec!["stages", "matmul", "b"],
        ),
        ("schedule a {\n    block every 3 { ^ }", vec!["F", "B", "W", "BW"], vec!["place"]),
        ("import std.mo^", vec!["std.models.gpt", "std.schedules.1f1b"], vec!["schedule"]),
        ("schedule own { }\npipeline p {\n    schedule ^", vec!["own", "v_half", "1f1b"], vec!["devices"]),
        ("import std.models.gpt\npipeline p {\n    model ^", vec!["gpt"], vec!["block"]),
        ("import std.models.gpt\nmodel m {\n    ^", vec!["embedding", "block", "repeat", "let"], vec!["stages"]),
        ("pipeline p {\n    schedule interleaved_1f1b(^", vec!["chunks"], vec![]),
        ("pipeline p {\n    cost F = 1, ^", vec!["F", "BW", "comm", "copy"], vec!["devices"]),
        ("pipeline p {\n    train { optimizer ^", vec!["adamw", "sgd"], vec![]),
        ("layer l(n) {\n    input x\n    output ^", vec!["matmul", "x", "n"], vec!["M"]),
        ("// a comment ^", vec![], vec!["schedule"]),
        ("pipeline p {\n    devices 4 ^", vec!["memory", "microbatches"], vec!["stages"]),
    ] {
        let found = offered(text);
        for word in wanted {
            assert!(found.iter().any(|label| label == word), "{word} is not offered at\n{text}\n{found:?}");
        }
        for word in unwanted {
            assert!(!found.iter().any(|label| label == word), "{word} is offered at\n{text}\n{found:?}");
        }
    }
}

#[test]
fn definitions_are_found_across_files() {
    let own = "import \"parts/own one.pipe\"\nimport std.models.gpt\npipeline p {\n    model gpt\n    schedule mine(turns = 2)\n}\n";
    let cache = folder("lsp-definitions", &[("x.pipe", own)]);
    std::fs::create_dir_all(cache.join("parts")).expect("a folder");
    let part = "/// Mine.\nschedule mine(turns = 1) {\n    stages D * turns\n    place s on s % D\n}\n";
    std::fs::write(cache.join("parts/own one.pipe"), part).expect("a file");
    let mut client = Client::new(&cache);
    let uri = uri_of(&cache.join("x.pipe"));
    client.open(&uri, own);
    let mine = client.at("textDocument/definition", &uri, (4, 15));
    let part_uri = uri_of(&cache.join("parts/own%20one.pipe"));
    assert_eq!((&mine["uri"], &mine["range"]["start"]["line"]), (&json!(part_uri), &json!(1)));
    let turns = client.at("textDocument/definition", &uri, (4, 20));
    assert_eq!(turns["range"]["start"], json!({"line": 1, "character": 14}));
    // Into the standard library: a copy that is there to be read.
    let gpt = client.at("textDocument/definition", &uri, (3, 12));
    let path = gpt["uri"].as_str().and_then(|uri| uri.strip_prefix("file://")).expect("a file");
    let copy = std::fs::read_to_string(path).expect("the copy is there");
    assert!(copy.contains("model gpt(") && path.starts_with(&cache.display().to_string()), "{path}");
    assert!(std::fs::metadata(path).is_ok_and(|data| data.permissions().readonly()));
    let refused = client.response(
        "textDocument/rename",
        json!({"textDocument": {"uri": uri}, "position": {"line": 3, "character": 12}, "newName": "x"}),
    );
    assert!(refused["error"]["message"].as_str().is_some_and(|text| text.contains("standard library")), "{refused}");
    // References and renaming reach the imported file; what is open there counts, not what is saved.
    let places = client.ask("textDocument/references", json!({"textDocument": {"uri": uri}, "position": {"line": 4, "character": 20}, "context": {"includeDeclaration": false}}));
    assert_eq!(places.as_array().map(Vec::len), Some(2), "{places}");
    client.open(&part_uri, &part.replace("stages D * turns", "\n    stages D * turns"));
    let edits = client.ask(
        "textDocument/rename",
        json!({"textDocument": {"uri": uri}, "position": {"line": 4, "character": 20}, "newName": "rounds"}),
    );
    assert_eq!(edits["changes"][&uri].as_array().map(Vec::len), Some(1), "{edits}");
    let inside = edits["changes"][&part_uri].as_array().cloned().unwrap_or_default();
    assert_eq!(
        inside.iter().map(|edit| edit["range"]["start"]["line"].as_u64()).collect::<Vec<_>>(),
        [Some(1), Some(3)]
    );
    // A mistake in the imported file is told in it.
    let broken = json!({"textDocument": {"uri": part_uri, "version": 2}, "contentChanges": [{"text": "schedule mine { stages ( }"}]});
    client.tell("textDocument/didChange", broken);
    assert_eq!(client.findings(&part_uri, 2).first().map(|found| found["code"].clone()), Some(json!("syntax")));
    assert_eq!(client.end(), Some(0));
}

#[test]
fn renaming_is_refused_where_it_would_change_the_meaning() {
    let text = "param width = 2\nschedule a(chunks = 2) {\n    stages chunks * D\n    place s on s % D\n    let i = s + chunks\n}\nschedule b { stages D }\n";
    let (mut client, _) = session("rename", text);
    let mut rename = |place: (u32, u32), name: &str| {
        let mut params = at(URI, place);
        params["newName"] = json!(name);
        client.response("textDocument/rename", params)
    };
    let renamed = rename((2, 13), "parts");
    let edits = renamed["result"]["changes"][URI].as_array().cloned().unwrap_or_default();
    assert_eq!(edits.len(), 3, "{renamed}");
    assert_eq!(rename((3, 10), "t")["result"]["changes"][URI].as_array().map(Vec::len), Some(3));
    for (place, name, wanted) in [
        ((2, 13), "i", "there is a let with the name `i` already"),
        ((2, 13), "D", "is a number that every source has"),
        ((2, 13), "width", "there is a parameter with the name `width` already"),
        ((2, 13), "if", "`if` is not a name"),
        ((2, 13), "a b", "`a b` is not a name"),
        ((1, 9), "b", "there is a schedule with the name `b` already"),
        ((1, 9), "gpipe", "there is a schedule with the name `gpipe` already"),
        ((0, 6), "chunks", "there is a parameter with the name `chunks` already"),
        ((2, 4), "x", "there is no name of a declaration here"),
    ] {
        let answer = rename(place, name);
        assert!(answer["error"]["message"].as_str().is_some_and(|text| text.contains(wanted)), "{name}: {answer}");
    }
    assert_eq!(rename((1, 9), "2f2b")["result"]["changes"][URI].as_array().map(Vec::len), Some(1));
}

#[test]
fn parts_and_lanes_are_found_completed_and_renamed() {
    let text = "schedule a {\n    stages D\n    place s on s\n    lane link\n    parts s = mlp, send on link\n    order d {\n        repeat M { F.mlp[d] F.send[d] }\n        repeat M { BW[d] }\n    }\n}\npipeline p {\n    devices 2\n    microbatches 2\n    schedule a\n    cost F.send = 2\n}\n";
    let (mut client, _) = session("parts", text);
    let found = client.response("textDocument/definition", at(URI, (14, 11)));
    assert!(found["result"].to_string().contains(r#""line":4"#), "{found}");
    let hover = client.response("textDocument/hover", at(URI, (6, 31)));
    assert!(hover["result"]["contents"].to_string().contains("part send on link"), "{hover}");
    let offers = client.response("textDocument/completion", at(URI, (6, 21)));
    let labels: Vec<&str> =
        offers["result"].as_array().into_iter().flatten().filter_map(|offer| offer["label"].as_str()).collect();
    assert_eq!(labels, ["mlp", "send"]);
    let mut rename = |place: (u32, u32), name: &str| {
        let mut params = at(URI, place);
        params["newName"] = json!(name);
        client.response("textDocument/rename", params)
    };
    assert_eq!(rename((6, 31), "exchange")["result"]["changes"][URI].as_array().map(Vec::len), Some(3));
    assert_eq!(rename((3, 10), "net")["result"]["changes"][URI].as_array().map(Vec::len), Some(2));
    // Numbers and lanes have names of their own.
    assert_eq!(rename((3, 10), "s")["result"]["changes"][URI].as_array().map(Vec::len), Some(2));
    let refused = rename((6, 31), "mlp");
    assert!(refused["error"]["message"].as_str().is_some_and(|text| text.contains("there is a part")), "{refused}");
}

#[test]
fn documents_are_formatted_outlined_and_have_figures() {
    let loose = FIRST.replace("place s on s ", "place   s on s ");
    let (mut client, _) = session("outline", &loose);
    client.findings(URI, 1);
    let document = json!({"textDocument": {"uri": URI}, "options": {"tabSize": 4, "insertSpaces": true}});
    let edits = client.ask("textDocument/formatting", document.clone());
    assert_eq!(edits[0]["newText"], FIRST);
    let symbols = client.ask("textDocument/documentSymbol", document.clone());
    assert_eq!((&symbols[0]["name"], &symbols[0]["children"][0]["name"]), (&json!("one_f_one_b"), &json!("s")));
    let mut range = document;
    range["range"] = json!({"start": {"line": 0, "character": 0}, "end": {"line": 99, "character": 0}});
    let hints = client.ask("textDocument/inlayHint", range);
    assert_eq!(
        (&hints[0]["label"], &hints[0]["position"]),
        (&json!("peak 4 units, mean bubble 27.3%"), &json!({"line": 6, "character": 22}))
    );
}

#[test]
fn findings_are_fixed_at_a_key() {
    editing::check("actions", editing::shown::actions);
}

#[test]
fn texts_are_folded() {
    editing::check("folds", editing::shown::folds);
}

#[test]
fn calls_say_what_they_take() {
    editing::check("signatures", editing::shown::signature);
}

#[test]
fn words_say_what_they_mean() {
    editing::check("hovers", editing::shown::hover);
}

#[test]
fn words_have_roles() {
    let mut client = Client::start(&folder("lsp-legend", &[]));
    let abilities = client.ask("initialize", json!({"capabilities": {}}));
    let legend = &abilities["capabilities"]["semanticTokensProvider"]["legend"];
    editing::check("roles", |document| editing::shown::roles(document, legend));
}

/// Whoever takes every default of a snippet of the VS Code extension has a source that is accepted and in the style.
#[test]
fn snippets_are_accepted() {
    let snippets: Value =
        serde_json::from_str(include_str!("../../../editors/vscode/snippets/pipe.json")).expect("JSON");
    for (name, snippet) in snippets.as_object().expect("an object") {
        let lines: Vec<&str> = snippet["body"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let mut source = String::new();
        for (index, part) in lines.join("\n").replace("$0", "").split("${").enumerate() {
            let (default, rest) = part.split_once('}').filter(|_| index > 0).unwrap_or(("", part));
            source.push_str(default.split_once(':').map_or("", |(_, default)| default));
            source.push_str(rest);
        }
        println!("{name}\n{source}");
        // A model is judged by the pipeline that trains it.
        let user = if source.contains("\nmodel ") {
            "pipeline p {\n    model dense_net\n    schedule 1f1b\n    devices 2\n    microbatches 4\n}\n"
        } else {
            ""
        };
        let place = folder("lsp-snippets", &[("x.pipe", &source), ("used.pipe", &format!("{source}{user}"))]);
        pipec(&place, "check used.pipe", "").with(0);
        pipec(&place, "fmt --check x.pipe", "").with(0);
    }
}

/// `name kind of a declaration, file` of what a workspace has for a query.
fn found(client: &mut Client, query: &str) -> Vec<String> {
    let symbols = client.ask("workspace/symbol", json!({"query": query}));
    let one = |symbol: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let uri = text(&symbol["location"]["uri"]);
        let file = uri.rsplit('/').next().unwrap_or_default().to_owned();
        let line = &symbol["location"]["range"]["start"]["line"];
        format!("{} {} {file}:{line}", text(&symbol["containerName"]), text(&symbol["name"]))
    };
    symbols.as_array().cloned().unwrap_or_default().iter().map(one).collect()
}

#[test]
fn declarations_of_a_workspace_are_found() {
    let files = [("x.pipe", "import \"y.pipe\"\n"), ("y.pipe", "schedule own_y { }\n"), ("z.pipe", "model own_z {")];
    let cache = folder("lsp-workspace", &files);
    for (name, text) in [("deep", "// é\nparam own_deep = 2\nlayer ( {\n"), (".hidden", "param own_hidden = 1\n")] {
        std::fs::create_dir_all(cache.join(name)).expect("a folder");
        std::fs::write(cache.join(name).join("a b.pipe"), text).expect("a file");
    }
    let mut client = Client::start(&cache);
    let root = uri_of(&cache);
    client.ask("initialize", json!({"capabilities": {}, "workspaceFolders": [{"uri": root, "name": "w"}]}));
    let saved = ["schedule own_y y.pipe:0", "parameter own_deep a%20b.pipe:1"];
    assert_eq!(found(&mut client, ""), [saved[1], saved[0]]);
    // What is open counts, not what is saved.
    client.open(&uri_of(&cache.join("y.pipe")), "\nschedule own_y { }\npipeline own_q { }\n");
    client.open(URI, "layer untitled { }\n");
    let now = ["schedule own_y y.pipe:1", "pipeline own_q y.pipe:2", "layer untitled untitled:Untitled-1:0", saved[1]];
    let all = found(&mut client, "");
    assert_eq!((all.len(), now.iter().all(|one| all.contains(&(*one).to_owned()))), (4, true), "{all:?}");
    assert_eq!(found(&mut client, "OWNQ"), ["pipeline own_q y.pipe:2"]);
    assert_eq!(found(&mut client, "vhalf"), ["schedule v_half v_half.pipe:5"]);
    assert_eq!(found(&mut client, "no such thing"), [""; 0]);
    assert_eq!(client.end(), Some(0));
    // Without a folder, there is what is open.
    let (mut client, _) = session("no-workspace", "model alone { }\n");
    assert_eq!(found(&mut client, ""), ["model alone untitled:Untitled-1:0"]);
}

/// Whatever was typed so far: every question has an answer.
#[test]
fn damaged_texts_are_answered() {
    let (mut client, _) = session("damaged", "");
    let text = FIRST.replace("schedule", "// 🦀 é\nschedule") + "pipeline p { schedule own(min(1, \"é\n";
    let ends: Vec<usize> = (0..=text.len()).step_by(11).filter(|end| text.is_char_boundary(*end)).collect();
    for (turn, end) in ends.iter().enumerate() {
        let texts = [text[..*end].to_owned(), text[*end..].to_owned()];
        for (half, text) in texts.into_iter().enumerate() {
            let version = 2 * turn + half + 2;
            let place = json!({"line": text.matches('\n').count(), "character": 99});
            let change = json!({"textDocument": {"uri": URI, "version": version}, "contentChanges": [{"text": text}]});
            client.tell("textDocument/didChange", change);
            for method in ["foldingRange", "semanticTokens/full", "signatureHelp", "codeAction"] {
                let params = json!({
                    "textDocument": {"uri": URI}, "position": place, "range": {"start": place, "end": place},
                    "context": {"diagnostics": []},
                });
                client.ask(&format!("textDocument/{method}"), params);
            }
        }
    }
    assert_eq!(client.end(), Some(0));
}

#[test]
fn fixes_are_of_the_wanted_kind_and_of_the_text_as_it_is() {
    let text = "schedule a { stages D  let warmup = 1  place s on s  order d { repeat warmpu { F[d] } } }\n";
    let (mut client, _) = session("kinds", text);
    client.findings(URI, 1);
    let kinds = |client: &mut Client, only: &[&str]| {
        let place = json!({"line": 0, "character": 74});
        let params = json!({
            "textDocument": {"uri": URI}, "range": {"start": place, "end": place},
            "context": {"diagnostics": [], "only": only},
        });
        let actions = client.ask("textDocument/codeAction", params);
        let kinds = actions.as_array().cloned().unwrap_or_default();
        kinds.iter().filter_map(|action| action["kind"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&mut client, &["quickfix"]), ["quickfix"]);
    assert_eq!(kinds(&mut client, &["source.fixAll"]), ["source.fixAll.pipec"]);
    assert_eq!(kinds(&mut client, &["refactor", "source.fix"]), [""; 0]);
    // What was found in another text has its places there.
    let change = json!({"textDocument": {"uri": URI, "version": 2}, "contentChanges": [{"text": format!("\n{text}")}]});
    client.tell("textDocument/didChange", change);
    assert_eq!(kinds(&mut client, &["quickfix"]), [""; 0]);
    assert_eq!(client.end(), Some(0));
}

#[test]
fn nothing_that_a_client_says_ends_the_session_but_the_end() {
    let cache = folder("lsp-broken", &[]);
    let mut client = Client::start(&cache);
    assert_eq!(client.response("textDocument/hover", at(URI, (0, 0)))["error"]["code"], -32002);
    client.ask("initialize", json!({"capabilities": {}}));
    for broken in [
        "Content-Length: 3\r\n\r\n{]}",
        "nonsense\r\n",
        "Content-Length: x\r\n\r\n",
        "Content-Length: 2\r\n\r\n[]",
        "\r\n",
    ] {
        client.write(broken.as_bytes());
    }
    assert_eq!(client.response("textDocument/semanticThing", json!({}))["error"]["code"], -32601);
    assert_eq!(client.response("textDocument/hover", json!({"textDocument": 3}))["error"]["code"], -32602);
    assert_eq!(client.response("textDocument/formatting", json!(null))["error"]["code"], -32602);
    client.tell("textDocument/didOpen", json!({"textDocument": 7}));
    client.tell(
        "textDocument/didChange",
        json!({"textDocument": {"uri": "file:///no", "version": 1}, "contentChanges": []}),
    );
    client.tell("$/unknown", json!({}));
    client.open("file:///c%3A/a%20folder/x.pipe", "import \"y.pipe\"\n");
    assert_eq!(client.findings("file:///c%3A/a%20folder/x.pipe", 1)[0]["code"], "import-failed");
    client.open("weird:x%20y", "schedule a {");
    assert_eq!(client.findings("weird:x%20y", 1)[0]["code"], "syntax");
    assert_eq!(client.ask("shutdown", json!(null)), Value::Null);
    assert_eq!(client.response("textDocument/hover", at(URI, (0, 0)))["error"]["code"], -32600);
    client.tell("exit", json!(null));
    assert_eq!(client.end(), Some(0));
    // Exit without shutdown is the client's mistake, as the protocol has it.
    let mut client = Client::new(&cache);
    client.tell("exit", json!(null));
    assert_eq!(client.end(), Some(1));
    let ended = pipec(&cache, "lsp --stdio", "").with(0);
    assert_eq!((ended.out.as_str(), ended.error.as_str()), ("", ""));
    let ended = pipec(&cache, "lsp", "Content-Length: 99\r\n\r\n{").with(0);
    assert_eq!((ended.out.as_str(), ended.error.as_str()), ("", ""));
    assert!(pipec(&cache, "lsp", "hello\n").with(0).error.contains("`hello` is not a header"));
}

/// About 300 lines: standard schedules under names of their own, and a pipeline.
fn long_source() -> String {
    let mut text = "import std.models.gpt\n".to_owned();
    for (name, source) in pipe_syntax::stdlib::SCHEDULES {
        if text.lines().count() + source.lines().count() < 290 {
            text.push_str(&source.replacen(&format!("schedule {name}"), &format!("schedule my_{name}"), 1));
        }
    }
    text + "pipeline p {\n    model gpt\n    devices 2\n    microbatches 4\n    schedule my_1f1b\n}\n"
}

#[test]
fn answers_take_no_time_on_three_hundred_lines() {
    const LIMIT: Duration = Duration::from_millis(50);
    let text = long_source();
    assert!((270..=310).contains(&text.lines().count()), "{} lines", text.lines().count());
    let (mut client, _) = session("speed", &text);
    client.findings(URI, 1);
    let line = text.lines().position(|line| line.contains("schedule my_1f1b {")).expect("it is there") as u32;
    let document = json!({"textDocument": {"uri": URI}, "options": {}, "context": {"includeDeclaration": true}, "newName": "mine"});
    let mut report = String::new();
    for method in [
        "hover",
        "definition",
        "references",
        "completion",
        "rename",
        "formatting",
        "documentSymbol",
        "inlayHint",
        "foldingRange",
        "semanticTokens/full",
    ] {
        let mut times: Vec<Duration> = (0..40)
            .map(|turn| {
                // Every question is about a text that was changed just now.
                let change = json!({"range": {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 0}}, "text": "\n"});
                client.tell("textDocument/didChange", json!({"textDocument": {"uri": URI, "version": turn + 2}, "contentChanges": [change]}));
                let undo = json!({"range": {"start": {"line": 0, "character": 0}, "end": {"line": 1, "character": 0}}, "text": ""});
                client.tell("textDocument/didChange", json!({"textDocument": {"uri": URI, "version": turn + 2}, "contentChanges": [undo]}));
                let mut params = document.clone();
                params["position"] = json!({"line": line, "character": 12});
                let started = Instant::now();
                let answer = client.ask(&format!("textDocument/{method}"), params);
                assert!(!answer.is_null(), "{method}");
                started.elapsed()
            })
            .collect();
        times.sort_unstable();
        let median = times[times.len() / 2];
        report.push_str(&format!("{method} {median:.1?}\n"));
        // Unoptimised, and beside other tests: a mistake in complexity would still be far above this.
        assert!(median < 4 * LIMIT, "{report}");
    }
    println!("{report}");
}
