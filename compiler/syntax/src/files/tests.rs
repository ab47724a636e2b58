//! Imports: what is found, what is refused.

use super::*;

/// Files by path; the first is the root, in the folder `a/b`.
fn load_all(files: &[(&str, &str)]) -> Result<(Files, Sources), Vec<String>> {
    let root = Source { name: format!("a/b/{}", files[0].0), text: files[0].1.to_owned() };
    let mut sources = Sources::default();
    let loader = |path: &str| {
        let found = files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned());
        found.ok_or_else(|| "no such file".to_owned())
    };
    match load(&mut sources, root, &loader) {
        Ok(files) => Ok((files, sources)),
        Err(errors) => Err(errors.into_iter().map(|error| error.message).collect()),
    }
}

fn messages(files: &[(&str, &str)]) -> Vec<String> {
    load_all(files).map(drop).expect_err("it is wrong")
}

#[test]
fn imports_are_relative_to_the_importing_file_and_read_once() {
    let (files, sources) = load_all(&[
        ("root.pipe", "import \"parts/one.pipe\" import \"parts/../two.pipe\" import std.models.gpt"),
        ("parts/one.pipe", "import \"../two.pipe\" import \"./three.pipe\" layer one { input x output x }"),
        ("two.pipe", "layer two { input x output x }"),
        ("parts/three.pipe", "import \"../two.pipe\" layer three { input x output x }"),
    ])
    .expect("all is there");
    assert!(["one", "two", "three"].iter().all(|name| files.layer(name).is_some()));
    assert!(files.model("gpt").is_some() && files.schedule("1f1b").is_some());
    let names: Vec<&str> = sources.files.iter().take(5).map(|source| source.name.as_str()).collect();
    assert_eq!(
        names,
        ["a/b/root.pipe", "a/b/parts/one.pipe", "a/b/two.pipe", "a/b/parts/three.pipe", "std.models.gpt"]
    );
}

#[test]
fn paths_stay_in_the_root_folder() {
    for path in ["../x.pipe", "a/../../x.pipe", "/x.pipe", "C:/x.pipe", "..\\x.pipe"] {
        let found = messages(&[("root.pipe", &format!("import \"{path}\""))]);
        assert!(found[0].contains("leaves the folder") || found[0].contains("not a relative path"), "{found:?}");
    }
}

#[test]
fn cycles_and_missing_files_are_errors() {
    let cycle = [("root.pipe", "import \"x.pipe\""), ("x.pipe", "import \"root.pipe\"")];
    assert_eq!(messages(&cycle), ["`root.pipe` imports itself, directly or through others"]);
    assert_eq!(messages(&[("root.pipe", "import \"x.pipe\"")]), ["`x.pipe` cannot be read: no such file"]);
}

#[test]
fn too_many_files_are_refused() {
    let names: Vec<String> = (0..400).map(|n| format!("{n}.pipe")).collect();
    let texts: Vec<String> = (0..400).map(|n| format!("import \"{}.pipe\"", n + 1)).collect();
    let files: Vec<(&str, &str)> = names.iter().map(String::as_str).zip(texts.iter().map(String::as_str)).collect();
    assert_eq!(messages(&files), ["the file imports more than 256 files"]);
}

#[test]
fn a_schedule_hides_the_standard_one() {
    let (files, _) = load_all(&[("root.pipe", "schedule 1f1b { reorder }")]).expect("it parses");
    assert_eq!(files.schedule("1f1b").map(|schedule| schedule.items.len()), Some(1));
}

#[test]
fn names_are_unique_within_their_kind() {
    let found = messages(&[
        ("root.pipe", "layer x { } model x { } schedule y(a, a) { } import \"z.pipe\""),
        ("z.pipe", "layer x { }"),
    ]);
    assert_eq!(found.len(), 2, "{found:?}");
}

#[test]
fn numbers_are_read_from_files_of_the_same_folder() {
    let text = "# tokens\n8, 7.5\n\n 12 3e-1\n";
    let root = ("root.pipe", "import \"parts/x.pipe\"");
    let part = ("parts/x.pipe", "let tokens = numbers \"tokens.txt\" let numbers = 3");
    let (files, _) = load_all(&[root, part, ("parts/tokens.txt", text)]).expect("it parses");
    let found: Vec<_> = files.definitions().map(|(name, form)| (name.text.clone(), form.value())).collect();
    let [(tokens, Some(list)), (other, Some(_))] = &found[..] else { panic!("{found:?}") };
    assert_eq!((tokens.as_str(), other.as_str()), ("tokens", "numbers"));
    let ast::ExprKind::List(numbers) = &list.kind else { panic!("{list:?}") };
    let numbers: Vec<f64> = numbers
        .iter()
        .map(|number| match number.kind {
            ast::ExprKind::Integer(value) => value as f64,
            ast::ExprKind::Decimal(value) => value.to_f64(),
            _ => panic!("{number:?}"),
        })
        .collect();
    assert_eq!(numbers, [8.0, 7.5, 12.0, 0.3]);
}

#[test]
fn files_without_numbers_are_told() {
    let of = |text: &str| messages(&[("root.pipe", "let t = numbers \"t.txt\""), ("t.txt", text)]).remove(0);
    for (text, message) in [
        ("", "`t.txt` has no numbers"),
        ("# only words", "`t.txt` has no numbers"),
        ("1\n2, x7", "line 2 of `t.txt`: `x7` is no number"),
        ("1 -2", "line 1 of `t.txt`: `-2` is below 0"),
        ("1;2", "line 1 of `t.txt`: `1;2` is no number"),
        ("99999999999999999999", "line 1 of `t.txt`: `99999999999999999999` does not fit in 64 bits"),
    ] {
        assert_eq!(of(text), message, "{text:?}");
    }
    let missing = messages(&[("root.pipe", "let t = numbers \"t.txt\"")]);
    assert_eq!(missing, ["`t.txt` cannot be read: no such file"]);
    let outside = messages(&[("root.pipe", "let t = numbers \"../t.txt\"")]);
    assert_eq!(outside, ["`../t.txt` leaves the folder of the file that was named first"]);
}
