//! What fuzzers throw bytes at: no input makes these panic, hang or take much memory, and what they accept is sound.

use crate::mutation::machine::{self, Pace};
use crate::mutation::subjects::kinds;
use pipe_compiler::{Request, compile};
use pipe_ir::forms::json;
use pipe_ir::program::{DeviceProgram, Program, Space};
use pipe_ir::text;
use pipe_ir::text::Rejected;
use pipe_ir::verify::verify;
use pipe_runtime::checkpoint;
use pipe_syntax::format::format;
use pipe_syntax::source::{FileId, Source, Sources};
use pipec::output::diagnostics::{Look, draw};

/// Between the text of a source and that of the file that it imports.
const IMPORTED: &str = "\n//=\n";

/// Formats and compiles a source, draws everything that speaks against it, and runs what is accepted.
///
/// # Panics
/// If the compiler breaks its own rules.
pub fn source(bytes: &[u8]) {
    let Ok(both) = std::str::from_utf8(bytes) else { return };
    let (text, imported) = both.split_once(IMPORTED).unwrap_or((both, ""));
    let mut sources = Sources::default();
    let root = Source { name: "fuzz.pipe".to_owned(), text: text.to_owned() };
    let compilation = compile(&mut sources, root, &|_| Ok(imported.to_owned()), &Request::default());
    let drawn = draw(&compilation.diagnostics, &sources, Look { width: 100, colours: false });
    if let Ok(styled) = format(FileId(0), text) {
        assert_eq!(format(FileId(0), &styled), Ok(styled), "formatting twice is not formatting once");
    }
    assert_eq!(drawn.is_empty(), compilation.diagnostics.is_empty());
    assert!(compilation.our_mistakes.is_empty(), "{:#?}", compilation.our_mistakes);
    let analysis = compilation.analysis.as_ref();
    let has_none = analysis.is_some_and(|analysis| pipe_lower::undivided(&analysis.schedule).is_some());
    assert!(compilation.report.ok <= (compilation.program.is_some() || has_none), "accepted, but there is no program");
    if let Some(verified) = compilation.program {
        sound(verified.program());
    }
}

/// Reads a program in its textual form and verifies it; whatever can be read is written and read again as the same.
///
/// # Panics
/// If it is not the same, or an accepted program does not run to its end.
pub fn ir(bytes: &[u8]) {
    let Ok(written) = std::str::from_utf8(bytes) else { return };
    let Ok(parsed) = text::parse(written) else { return };
    match text::check(written) {
        Err(Rejected::Parse(error)) => panic!("it was read once, and not again: {error}"),
        Err(Rejected::Verify(errors)) => assert!(errors.iter().all(|error| !error.to_string().is_empty())),
        Ok(verified) => {
            let again = text::parse(&text::print(verified.program())).map(|again| again.program);
            assert_eq!(again.as_ref(), Ok(&parsed.program));
            sound(verified.program());
        }
    }
}

/// Reads a program in JSON and verifies it; an accepted one is written in both forms and read again as the same.
///
/// # Panics
/// If it is not the same, or an accepted program does not run to its end.
pub fn json(bytes: &[u8]) {
    let Ok(written) = std::str::from_utf8(bytes) else { return };
    let Ok(program) = json::parse(written) else { return };
    match verify(program) {
        Err(errors) => assert!(errors.iter().all(|error| !error.to_string().is_empty())),
        Ok(verified) => {
            let mut again = Vec::new();
            json::write(verified.program(), &mut again).unwrap_or_else(|error| panic!("it is not written: {error}"));
            assert_eq!(json::parse(&String::from_utf8_lossy(&again)).ok().as_ref(), Some(verified.program()));
            // The text knows no table of operands, so that only what it says is compared.
            let written = text::print(verified.program());
            let again = text::parse(&written).map(|again| text::print(&again.program));
            assert_eq!(again.as_ref(), Ok(&written));
            sound(verified.program());
        }
    }
}

/// Reads a checkpoint.
///
/// # Panics
/// If what was read is not written and read again as the same.
pub fn checkpoint(bytes: &[u8]) {
    let Ok(mut state) = checkpoint::from_bytes(bytes) else { return };
    let written = checkpoint::to_bytes(&state).unwrap_or_else(|error| panic!("read, but not written: {error}"));
    let again = checkpoint::from_bytes(&written).unwrap_or_else(|error| panic!("written, but not read: {error}"));
    // Of files without checksums, what is written has some.
    state.is_verified = true;
    // Numbers that are not numbers differ from themselves.
    assert_eq!(format!("{state:?}"), format!("{again:?}"));
}

/// Runs a verified program to its end, with the peaks that it states.
fn sound(program: &Program) {
    // Large programs take long; small ones show the same.
    if program.n_instructions() > 5000 {
        return;
    }
    for pace in [Pace::Eager, Pace::Lazy] {
        let outcome = machine::run(program, &kinds(program), 2, pace);
        let outcome = outcome.unwrap_or_else(|why| panic!("an accepted program does not run: {why}"));
        let of = |code: &DeviceProgram| Space::ALL.map(|space| code.extent(space).peak.0);
        let stated: Vec<[u64; 2]> = program.devices.iter().map(of).collect();
        assert_eq!(outcome.peaks, stated);
    }
}
