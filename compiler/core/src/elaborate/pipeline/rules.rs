//! `F[s, m, q] = ..`: names in the brackets of a number, which stand for the stage, the microbatch and the slice.

use pipe_ir::task::TaskKind;
use pipe_schedule::schedule::Schedule;
use pipe_syntax::ast::TaskNumber;
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::expr::scope::Fault;

/// What the names stand for, and their usual letters.
const NAMES: [(&str, &str); 3] = [("s", "stage"), ("m", "microbatch"), ("q", "slice")];

/// An error of a number, which says how to name what it depends on.
pub(super) fn unnamed(fault: Fault, number: &TaskNumber) -> Fault {
    let named = NAMES.iter().position(|(letter, _)| fault.message == format!("unknown name `{letter}`"));
    let Some(last) = named.filter(|_| fault.code == Code::UnknownName) else { return fault };
    let names: Vec<&str> = NAMES[..=last].iter().map(|(letter, _)| *letter).collect();
    let help = format!(
        "write `{}[{}] = ..` for a number that depends on the {}",
        letters(number),
        names.join(", "),
        NAMES[last].1
    );
    Box::new(Diagnostic { fix: None, ..*fault }.help(help))
}

/// What a number is for without its brackets: `F` of `F[s, m]`, `F.dispatch` of `F.dispatch[s]`.
pub(super) fn letters(number: &TaskNumber) -> &str {
    number.name.text.split('[').next().unwrap_or_default()
}

/// `` `attention`, `mlp` ``.
pub(super) fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// The kind and the part of that, if it names a part.
pub(super) fn kind_and_part(letters: &str) -> (&str, Option<&str>) {
    letters.split_once('.').map_or((letters, None), |(kind, part)| (kind, Some(part)))
}

/// What a number is for, and how many stages, microbatches and slices it depends on: 1 where it does not.
pub(super) struct Counts {
    pub(super) kind: TaskKind,
    pub(super) stages: u32,
    pub(super) microbatches: u32,
    pub(super) slices: u32,
}

/// Rule: a kind of task has a stage, a microbatch and a slice, and each has a name of its own.
pub(super) fn counts(number: &TaskNumber, schedule: &Schedule) -> Result<Counts, Fault> {
    let TaskNumber { name, variables, .. } = number;
    let letters = letters(number);
    let wrong =
        |span, label: &str, message: String| Box::new(Diagnostic::error(Code::OutOfRange, span, label, message));
    let Some(kind) = TaskKind::from_letters(kind_and_part(letters).0) else {
        let message = format!("`{letters}` is no kind of task, so it has no stage");
        let error = wrong(name.span, "of no stage", message);
        return Err(if letters == "comm" {
            Box::new(error.help("name two devices, as in `comm[0-1]`"))
        } else {
            error
        });
    };
    if let Some(fourth) = variables.get(3) {
        let message =
            format!("`{letters}` has a stage, a microbatch and a slice, and here are {} names", variables.len());
        return Err(wrong(fourth.span, "one too many", message));
    }
    for (index, variable) in variables.iter().enumerate() {
        if let Some(first) = variables[..index].iter().find(|first| first.text == variable.text) {
            let message = format!("`{}` stands for two things in `{}`", variable.text, name.text);
            let error = Diagnostic::error(Code::RepeatedItem, variable.span, "named again", message);
            return Err(Box::new(error.label(first.span, "named here")));
        }
    }
    // The letters that everybody uses stand where everybody has them.
    for (index, variable) in variables.iter().enumerate() {
        let usual = NAMES.iter().position(|(letter, _)| *letter == variable.text);
        if let Some(usual) = usual.filter(|usual| *usual != index) {
            let (here, there) = (NAMES[index].1, NAMES[usual].1);
            let message = format!("`{}` stands for the {here} here, and elsewhere for the {there}", variable.text);
            let error = wrong(variable.span, &format!("the {here}"), message);
            let order = format!("`{letters}[s, m, q]` is of stage s, microbatch m and slice q");
            return Err(Box::new(error.help(format!("{order}: write them in this order, or take other names"))));
        }
    }
    let slices = schedule.slices.count();
    let counts = [schedule.n_whole_stages() as u32, schedule.microbatches_of_step() / slices, slices];
    let count = |position: usize| if position < variables.len() { counts[position] } else { 1 };
    Ok(Counts { kind, stages: count(0), microbatches: count(1), slices: count(2) })
}
