//! What devices have and how fast they are: the same for all in the line `devices`, or a number for each in `device d`.

use super::number::{outside, ratio_at, whole, whole_at};
use pipe_ir::ids::DeviceId;
use pipe_ir::units::Bytes;
use pipe_ir::units::capacity::Capacity;
use pipe_schedule::ratio::Ratio;
use pipe_schedule::timing::speeds::Speeds;
use pipe_syntax::ast::{Expr, Name};
use pipe_syntax::diagnostic::{Code, Diagnostic, Edit};
use pipe_syntax::expr::evaluate::Rule;
use pipe_syntax::expr::known::Known;
use pipe_syntax::expr::scope::Fault;
use pipe_syntax::limits::Report;
use pipe_syntax::source::Span;

/// The highest speed, and one divided by the lowest.
const FASTEST: u64 = 1_000_000;

/// The line of each device: its name for the device, and the numbers that follow.
pub(super) type Line<'a> = (&'a Name, &'a [(Name, Expr)]);

/// What a pipeline's lines say of its devices, and where.
#[derive(Default)]
pub(super) struct Devices {
    pub(super) memory: Option<(Capacity, Span)>,
    pub(super) host: Option<(Capacity, Span)>,
    pub(super) speeds: Option<(Speeds, Span)>,
}

/// Reads both lines; `known` has also the number of devices.
pub(super) fn devices(
    [memory, host]: [Option<&Expr>; 2],
    line: Option<Line<'_>>,
    (n_devices, known): (u32, &Known<'_>),
    report: &mut Report,
) -> Devices {
    let mut of_all = |said: Option<&Expr>, word: &str| {
        said.and_then(|said| Some((Bytes(report.take(whole(said, known, 1, word))?).into(), said.span)))
    };
    let mut found = Devices { memory: of_all(memory, "`memory`"), host: of_all(host, "`host`"), speeds: None };
    let Some((variable, numbers)) = line else { return found };
    let before = |word: &str| match word {
        "memory" => memory,
        "host" => host,
        _ => None,
    };
    for (index, (word, number)) in numbers.iter().enumerate() {
        let same = numbers[..index].iter().find(|(other, _)| other.text == word.text);
        if let Some(first) = same.map(|(_, number)| number).or(before(&word.text)) {
            report.add(twice(word, number, first));
            continue;
        }
        let each = |at: &mut dyn FnMut(&mut Rule<'_>, DeviceId) -> Result<(), Fault>| {
            let mut rule = Rule::new(number, std::slice::from_ref(variable), known)?;
            (0..n_devices).map(DeviceId).try_for_each(|device| at(&mut rule, device))
        };
        if word.text == "speed" {
            let mut speeds = Vec::with_capacity(n_devices as usize);
            let all = each(&mut |rule, device| {
                speeds.push(speed(rule, number, device)?);
                Ok(())
            });
            found.speeds = report.take(all).map(|()| (Speeds::new(speeds), number.span));
            continue;
        }
        let what = format!("`{}`", word.text);
        let mut bytes = Vec::with_capacity(n_devices as usize);
        let all = each(&mut |rule, device| {
            bytes.push(Bytes(whole_at(rule, number, &[i64::from(device.0)], &format!("{what} of {device}"))?));
            Ok(())
        });
        let all = report.take(all).map(|()| (Capacity::of_devices(bytes), number.span));
        *(if word.text == "host" { &mut found.host } else { &mut found.memory }) = all;
    }
    found
}

/// The speed of one device.
fn speed(rule: &mut Rule<'_>, number: &Expr, device: DeviceId) -> Result<Ratio, Fault> {
    let speed = ratio_at(rule, number, &[i64::from(device.0)])?;
    let slowest = Ratio::new(1, FASTEST).unwrap_or(Ratio::ONE);
    if !speed.is_below(slowest) && !Ratio::whole(FASTEST).is_below(speed) {
        return Ok(speed);
    }
    let error = *outside(number.span, format!("`speed` of {device} is {speed}; it must be 1 / {FASTEST} to {FASTEST}"));
    Err(rule.explained(error.help("1 is the usual speed: a device of speed 2 takes half of what costs say")))
}

/// Rule: each number is said once.
fn twice(word: &Name, number: &Expr, first: &Expr) -> Diagnostic {
    let message = format!("`{}` of the devices is given twice", word.text);
    let error = Diagnostic::error(Code::RepeatedItem, word.span, "given again", message);
    let error = error.label(first.span, "given here").help("leave one of them out");
    error.edit_with(Some(Edit { span: Span { end: number.span.end, ..word.span }, text: String::new() }))
}
