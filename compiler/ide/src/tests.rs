//! Names of small sources: `«name»` marks every place where one definition is meant.

use super::*;
use pipe_syntax::source::{Source, Sources};

/// The names of a text with marks, and the marked places.
fn marked(text: &str) -> (Names, Vec<Span>) {
    let mut spans = Vec::new();
    let mut plain = String::new();
    for part in text.split_inclusive(['«', '»']) {
        plain.push_str(part.trim_end_matches(['«', '»']));
        let here = u32::try_from(plain.len()).expect("short");
        if part.ends_with('«') {
            spans.push(Span { file: FileId(0), start: here, end: 0 });
        } else if part.ends_with('»') {
            spans.last_mut().into_iter().for_each(|span| span.end = here);
        }
    }
    let mut sources = Sources::default();
    let root = Source { name: "x.pipe".to_owned(), text: plain };
    let (files, _) = pipe_syntax::files::read(&mut sources, root, &|_| Err("no files here".to_owned()));
    (Names::of(&files), spans)
}

/// All marked places, and no others, mean what the first one means.
fn means_one_thing(text: &str) {
    let (names, spans) = marked(text);
    let (_, definition) = names.at(FileId(0), spans[0].start).unwrap_or_else(|| panic!("nothing is meant in\n{text}"));
    assert_eq!(names.uses_of(definition).collect::<Vec<_>>(), spans, "{text}\n{:?}", names.definitions[definition]);
    assert_eq!(names.definitions[definition].span.file, FileId(0));
}

#[test]
fn names_of_schedules_have_one_meaning() {
    means_one_thing(
        "schedule a { stages D  let i = min(«s», D)  place «s» on i  block every 3 { F[«s»] at «s» + i  B[«s»] at 2 * «s» } }",
    );
    means_one_thing("schedule a { stages D  place s, «m» on s  block of 2 every 6 { F[s, «m»] at «m»  BW[s] fill } }");
    means_one_thing(
        "schedule a(«chunks» = 2, x = «chunks») { stages «chunks» } pipeline p { schedule a(«chunks» = 3) }",
    );
    means_one_thing("schedule «a» { stages D } pipeline p { schedule «a»  require peak <= 0.5 * «a» }");
    means_one_thing("param «width» = 2 param b = «width» + 1 schedule a(x = «width») { stages «width» }");
    means_one_thing(
        "schedule a { let «b» = 1 let c = «b» order d { repeat «b» { F[«b»] & BW[d] } } } schedule e { let b = 1 }",
    );
}

#[test]
fn statements_have_scopes() {
    means_one_thing(
        "schedule a { order «d» { for k in 0..«d» { F[«d», k] } for k in 0..3 { } if «d» == 0 { F[«d»] } } }",
    );
    means_one_thing("schedule a { order d { for «k» in 0..d { F[d, «k»] } for k in 0..3 { F[k] } } }");
    means_one_thing("schedule a { order d { if d == 0 { let «x» = 1 F[«x»] } else { let x = 2 F[x] } } }");
}

#[test]
fn functions_and_lists_have_names_of_their_own() {
    means_one_thing("let «home» = [0, 1] schedule a { place s on «home»[s] } schedule b { place s on «home»[0] }");
    means_one_thing("let f(«s», t = «s» + 1) = «s» * t schedule a { place s on f(s, t = s) }");
    means_one_thing("let «f»(n) { repeat n { F[0] } } schedule a { order d { «f»(2) «f»(n = d) } }");
    means_one_thing("let f(«n») { repeat «n» { F[0] } } schedule a { order d { f(2) f(«n» = d) } }");
    means_one_thing("schedule a { let «f»(s) = s place s on «f»(s) } let f(s) = 2 schedule b { place s on f(s) }");
    means_one_thing("schedule a { place s on [«k» + s for «k» in 0..s][k] }");
    let (names, _) = marked("/// Twice.\nlet f(n) = 2 * n\nschedule a { stages f(D) }");
    let found = names.find(NameKind::Function, "f").map(|index| &names.definitions[index]);
    assert_eq!(found.map(|found| found.doc.as_str()), Some("Twice."));
}

#[test]
fn lanes_and_parts_have_names() {
    means_one_thing(
        "schedule a { lane l lane «link» parts s = if s == 0 then mlp else repeat 2 { mlp, send on «link» } }
        pipeline p { schedule a parts s = x on «link» } schedule b { lane link parts s = y on link }",
    );
    means_one_thing(
        "schedule a { stages D parts s = if s == 0 then «mlp» else head, «mlp» slots F.«mlp» = 2, F = 1
            block every 3 { F.«mlp»[s] at s  F.head[s] fill } }
        pipeline p { schedule a cost F.«mlp»[s] = s, F.head = 1 activation F.«mlp» = 2 recompute F.«mlp», F.«mlp»[s] if s < 1 }
        pipeline q { schedule b cost F.mlp = 1 } schedule b { parts s = mlp order d { F.mlp[d] } }",
    );
    means_one_thing(
        "schedule a { order d { repeat M { F.«send»[d] & BW.«send»[d, 0] } } let f(n) { F.«send»[n] } parts s = «send» }
        let g(n) { F.«send»[n] }",
    );
    means_one_thing("pipeline p { schedule gpipe parts s = «a», b cost F.«a» = 1 }");
    // A phase names the parts of its own schedule.
    means_one_thing(
        "schedule a { parts s = «x» } schedule b { parts s = x }
        pipeline p { schedule b phase one { schedule a cost F.«x» = 1 } phase two { cost F.x = 1 } }",
    );
    // Where several schedules have a part, a function of the file may mean any of them.
    let (names, _) = marked("schedule a { parts s = x } schedule b { parts s = x } let f(n) { F.x[n] }");
    assert_eq!(names.definitions.iter().filter(|one| one.kind == NameKind::Part).count(), 2);
    assert_eq!(names.uses.iter().filter(|(_, of)| names.definitions[*of].kind == NameKind::Part).count(), 2);
}

#[test]
fn names_of_parts_and_lanes_are_offered() {
    let offered = |text: &str| {
        let (before, behind) = text.split_once('|').expect("a place");
        let mut sources = Sources::default();
        let root = Source { name: "x.pipe".to_owned(), text: format!("{before}{behind}") };
        let (files, _) = pipe_syntax::files::read(&mut sources, root, &|_| Err("no files here".to_owned()));
        let place = place::Place { names: &Names::of(&files), sources: &sources, byte: before.len() };
        let offers = completion::complete(&place).offers.into_iter();
        offers.map(|offer| format!("{}: {}", offer.label, offer.detail)).collect::<Vec<_>>()
    };
    let schedule = "schedule a { stages D lane link lane l parts s = if min(s, 2) == 0 then mlp else repeat 2 { mlp, send on link }, head";
    let parts = ["head: part head", "mlp: part mlp", "send: part send on link"];
    assert_eq!(offered(&format!("{schedule} order d {{ F.|[d] }} }}")), parts);
    assert_eq!(offered(&format!("{schedule} order d {{ repeat M {{ F[d] BW.he| }}")), parts);
    assert_eq!(offered(&format!("{schedule} slots F.| = 2 }}")), parts);
    assert_eq!(offered(&format!("{schedule} }} pipeline p {{ devices 2 schedule a cost F.|")), parts);
    assert_eq!(offered(&format!("{schedule} }}\nlet f(n) {{ B.| }}")), parts);
    assert_eq!(offered("schedule a { lane l lane link parts s = x, y on |"), ["l: lane l", "link: lane link"]);
    assert_eq!(
        offered(&format!("{schedule} }} pipeline p {{ schedule a lane own parts s = x on | }}")),
        ["l: lane l", "link: lane link", "own: lane own"]
    );
    // Places are no lanes, and numbers have no parts.
    let places = offered(&format!("{schedule} place s on | }}"));
    assert!(!places.iter().any(|offer| offer.ends_with("lane l")), "{places:?}");
    assert!(!offered(&format!("{schedule} order d {{ F[2.|] }} }}")).iter().any(|offer| offer.contains("part")));
}

#[test]
fn models_name_layers_and_their_weights() {
    let layers = "layer l(n) { input x  weight w: [n] = ones  output x } ";
    means_one_thing(&format!("{layers} model m {{ let «q» = l(1)  l(2) from «q», «q» with w = «q».w }}"));
    means_one_thing(
        "layer l(n) { input x weight «w»: [n] = ones output x * «w» } model m { let q = l(1) from q  l(2) with «w» = q.«w» }",
    );
    means_one_thing("layer «l»(n) { input x output x } model m { «l»(1) repeat 2 { «l»(n = 2) } let x = «l»(1) }");
    means_one_thing("layer l(«n») { input x output x * «n» } model m { l(1) repeat 2 { l(«n» = 2) } }");
    means_one_thing("model «m» { } pipeline p { model «m» } pipeline m { }");
}

#[test]
fn other_declarations_are_found_where_one_does_not_parse() {
    means_one_thing("schedule «a» { stages D }\nschedule b {\nstages (\n}\npipeline p { schedule «a» }\n");
    let (names, _) =
        marked("/// First.\nschedule a { }\nschedule b { stages ( }\n/// Third.\nschedule c { stages D }\n");
    let doc = |name: &str| names.find(NameKind::Schedule, name).map(|index| names.definitions[index].doc.clone());
    assert_eq!((doc("a"), doc("b"), doc("c")), (Some("First.".into()), None, Some("Third.".into())));
}

#[test]
fn the_standard_library_is_there() {
    let (names, _) = marked("import std.models.gpt pipeline p { model gpt schedule v_half }");
    for (kind, name) in [(NameKind::Schedule, "v_half"), (NameKind::Model, "gpt"), (NameKind::Layer, "block")] {
        let index = names.find(kind, name).unwrap_or_else(|| panic!("{name}"));
        assert!(!names.definitions[index].doc.is_empty(), "{name}");
        assert!(names.inside(index).count() > 0 || kind == NameKind::Schedule, "{name}");
    }
}

#[test]
fn every_keyword_has_a_line_of_reference() {
    let keywords: Vec<_> = reference::keywords().collect();
    assert!(keywords.len() > 60, "{keywords:?}");
    let missing: Vec<_> =
        keywords.iter().filter(|word| reference::keyword(word).is_none_or(|text| text.is_empty())).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert_eq!(
        reference::keyword("stages").as_deref().and_then(|text| text.lines().next()),
        Some("How many stages there are: `stages 2 * D`")
    );
    assert_eq!(reference::keyword("warm"), None);
}

#[test]
fn every_word_of_the_language_says_what_it_means() {
    let mut silent: Vec<String> = Vec::new();
    let told = |text: Option<String>| text.is_some_and(|text| text.split_whitespace().count() > 2);
    let words = reference::words().chain(reference::CONSTANTS.map(|(name, _)| name));
    silent.extend(words.filter(|word| !told(reference::described(word))).map(str::to_owned));
    let functions = reference::functions().map(|(name, ..)| name).chain(reference::NUMBERS.map(|(name, ..)| name));
    for name in functions {
        let text = reference::function(name, true).unwrap_or_default();
        let (usage, doc) = text.split_once("\n\n").unwrap_or_default();
        if !usage.contains(name) || doc.split_whitespace().count() < 3 || !doc.ends_with('.') {
            silent.push(name.to_owned());
        }
    }
    let optimizers = pipe_ir::training::Optimizer::NAMES.iter().map(|name| ("optimizer", *name));
    for (before, callee) in optimizers.chain([("model", "\"small.json\"")]) {
        silent.extend((before == "optimizer" && !told(settings::optimizer(callee))).then(|| callee.to_owned()));
        let all = settings::settings(before, callee).expect("a call with settings");
        assert!(all.len() > 2, "{callee}");
        silent.extend(all.into_iter().filter(|one| !told(Some(one.doc.clone()))).map(|one| one.usage));
    }
    assert!(silent.is_empty(), "nothing is said of {silent:?}");
}

#[test]
fn every_keyword_has_the_colour_of_one() {
    let others = "schedule sliced { stages D slices 2 place s on s order d { F[d] } }
        pipeline others { precision bf16 devices 4 memory 1GiB host 1GiB cut auto recompute all offload auto zero 1 }";
    let text = include_str!("../../syntax/src/parse/tests/everything.pipe").to_owned() + others;
    let mut sources = Sources::default();
    let root = Source { name: "x.pipe".to_owned(), text: text.clone() };
    let (files, _) = pipe_syntax::files::read(&mut sources, root, &|_| Err("no files here".to_owned()));
    let coloured = roles::roles(&Names::of(&files), &sources);
    let has = |word: &str, role: roles::Role| {
        coloured.iter().any(|one| one.role == role && text.get(one.place.clone()) == Some(word))
    };
    let plain: Vec<&str> = reference::keywords().filter(|word| !has(word, roles::Role::Keyword)).collect();
    assert!(plain.is_empty(), "{plain:?}");
    for (word, role) in [
        ("i32", roles::Role::Type),
        ("flush", roles::Role::EnumMember),
        ("comm", roles::Role::EnumMember),
        ("learning_rate", roles::Role::Parameter),
        ("std.models.gpt", roles::Role::Namespace),
    ] {
        assert!(has(word, role), "{word}");
    }
}

#[test]
fn what_may_come_next_is_said_in_words() {
    let expects = |text: &str, wanted: &str| {
        let found = pipe_syntax::parse::expected_behind(text);
        assert!(found.iter().any(|phrase| phrase.contains(wanted)), "behind `{text}`: {found:?}");
    };
    expects("", "`schedule`");
    expects("schedule a { ", "`place`");
    expects("schedule a { stages D ", "`block`");
    expects("schedule a { place s ", "`on`");
    expects("schedule a { block every 3 { ", "`BW`");
    expects("pipeline p { schedule ", "the name of a schedule");
    expects("pipeline p { cost F = 1, ", "`comm`");
    expects("pipeline p { devices 4 ", "`memory`");
    expects("schedule a { stages ", "an expression");
    expects("import ", "`std.`");
    assert!(pipe_syntax::parse::expected_behind("schedule a { ) ").is_empty());
}
