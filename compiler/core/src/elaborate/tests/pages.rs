//! The pages about errors of syntax, names and elaboration: their example fails with their code, their fix does not.

use super::super::{Request, elaborate};
use pipe_syntax::diagnostic::{Code, Diagnostics};
use pipe_syntax::files;
use pipe_syntax::source::{Source, Sources};

const CODES: [Code; 16] = [
    Code::Syntax,
    Code::ImportFailed,
    Code::ImportCycle,
    Code::DuplicateName,
    Code::UnknownName,
    Code::WrongArguments,
    Code::WrongType,
    Code::CyclicDefinition,
    Code::MissingItem,
    Code::RepeatedItem,
    Code::Arithmetic,
    Code::OutOfRange,
    Code::TooLarge,
    Code::ConditionFailed,
    Code::NoFreeSlot,
    Code::UnclearTarget,
];

fn compiled(text: &str) -> Result<(), Diagnostics> {
    let root = Source { name: "x.pipe".to_owned(), text: text.to_owned() };
    let files = files::load(&mut Sources::default(), root, &|path| Err(format!("no file {path}")))?;
    elaborate(&files, &Request::default()).map(drop)
}

#[test]
fn examples_fail_with_their_code_and_fixes_pass() {
    for code in CODES {
        let page = code.page();
        let blocks: Vec<&str> =
            page.split("```").skip(1).step_by(2).map(|block| block.trim_start_matches("pipe")).collect();
        let [example, fix] = blocks[..] else { panic!("{code}: an example and a fix") };
        let found = compiled(example).expect_err(code.name());
        assert!(found.iter().all(|error| error.code == code), "{code}: {found:#?}");
        compiled(fix).unwrap_or_else(|errors| panic!("{code}: {errors:#?}"));
    }
}
