//! Functions and lists, of schedules and of files.

use super::{elaborated, errors, schedule, shown};

const MIXED: &str = "
let place_of = [0, 3, 1, 2]
let stage_of = [0, 2, 3, 1]
let warmup(s) = min(D - 1 - s, M)
let drain(n, s) { repeat n { B[s] }  repeat n { W[s] } }
schedule mixed {
    require D == 4
    stages D
    place s on place_of[s]
    order d {
        let s = stage_of[d]
        repeat warmup(s) { F[s] }
        repeat M - warmup(s) { F[s] BW[s] }
        drain(warmup(s), s)
    }
}";

const WRITTEN_OUT: &str = "
schedule mixed {
    stages D
    place s on if s == 0 then 0 else if s == 1 then 3 else s - 1
    order d {
        let s = if d == 0 then 0 else if d == 3 then 1 else d + 1
        let warmup = min(D - 1 - s, M)
        repeat warmup { F[s] }
        repeat M - warmup { F[s] BW[s] }
        repeat warmup { B[s] }
        repeat warmup { W[s] }
    }
}";

#[test]
fn functions_and_lists_say_what_their_text_says() {
    for microbatches in [1, 2, 3, 8] {
        let settings = [("microbatches", microbatches)];
        let (short, long) = (schedule(MIXED, &settings), schedule(WRITTEN_OUT, &settings));
        assert_eq!(shown(&short), shown(&long), "{microbatches}");
        assert_eq!(short.placement, long.placement);
        assert!(pipe_schedule::check::check(&short).is_ok());
    }
}

/// The tasks of two devices, in an order for one microbatch, where `HERE` is the stage of all tasks.
fn stages_of(definitions: &str, here: &str) -> Vec<String> {
    let text = format!("{definitions} schedule x {{ stages D place s on s order d {{ F[{here}] BW[{here}] }} }}");
    shown(&schedule(&text, &[("devices", 2), ("microbatches", 1)]))
}

#[test]
fn values_of_functions_and_lists() {
    let plain = ["F0.0 BW0.0", "F1.0 BW1.0"];
    for (definitions, here) in [
        ("", "[0, 1][d]"),
        ("", "[k for k in 0..D][d]"),
        ("", "[k * k + D - 2 for k in 0..2][d]"),
        ("", "[[k + 10 * j for j in 0..3] for k in 0..2][d][0]"),
        ("", "[k for k in 0..[j for j in 0..5][D]][[0, 1][d]]"),
        // The same name inside and outside.
        ("", "[[k for k in 0..k + 1][k] for k in 0..2][d]"),
        ("", "(if d == 0 then [0] else [5, 1])[d]"),
        ("let own = [0, 1]", "own[own[own[d]]]"),
        ("let own(d) = d", "own(own(d))"),
        ("let own(s, by = 0) = s + by", "own(by = d, s = 0)"),
        ("let own(s, by = s + 1) = s + by", "own(d) - d - 1"),
        ("let both(s) = [s, s + 1]", "both(d - 1)[1]"),
        ("let rows = [[0, 7], [7, 1]]", "rows[d][d]"),
        // A file's names mean the same wherever they are used: `k` is no `let` of the order.
        ("param k = 3 let three = k", "[d, three - 2][d]"),
        ("let zero = half(1) let half(n) = n / 2", "zero + d"),
        ("let is_last(s) = s == S - 1", "if is_last(d) then S - 1 else 0"),
    ] {
        assert_eq!(stages_of(definitions, here), plain, "{definitions} {here}");
    }
}

#[test]
fn a_schedule_has_functions_and_lists_of_its_own() {
    let text = "
    let offset = 100
    schedule x(shift = 0) {
        stages D
        let homes = [(k + shift) % D for k in 0..D]
        let offset = 0
        place s on homes[s] + offset
        let own(d) = (d + D - shift) % D
        let both(s, n = M) { repeat n { F[s] BW[s] } let left = M - n for k in 0..left { F[s] BW[s] } }
        order d { both(own(d), M - 1) }
    }";
    let found = schedule(text, &[("devices", 3), ("microbatches", 2), ("shift", 1)]);
    assert_eq!(shown(&found), ["F2.0 BW2.0 F2.1 BW2.1", "F0.0 BW0.0 F0.1 BW0.1", "F1.0 BW1.0 F1.1 BW1.1"]);
}

#[test]
fn homes_from_a_list_repeat_as_its_positions_do() {
    let text = |home: &str| {
        format!("schedule x {{ stages D place s, m on {home} block every 4 {{ F[s] at s BW[s] at 3 * D - 2 * s }} }}")
    };
    let written = "if m % 2 == 0 then s else D - 1 - s";
    for home in ["[s, D - 1 - s][m % 2]", "[[s, D - 1 - s][k] for k in 0..2][m % 2]"] {
        let (one, other) = (elaborated(&text(home), &[("devices", 2)]), elaborated(&text(written), &[("devices", 2)]));
        assert_eq!(one.map(|it| it.schedule.placement), other.map(|it| it.schedule.placement), "{home}");
    }
}

#[test]
fn what_is_wrong_with_functions_and_lists_is_said() {
    let order = |definitions: &str, body: &str| {
        format!("{definitions} schedule x {{ stages D place s on s order d {{ {body} }} }}")
    };
    for (definitions, body, message, place) in [
        ("", "F[[0, 1][d + 2]]", "position 2 of a list of 2 numbers: positions are 0 to 1", "d + 2"),
        ("", "F[[7][d - 1]]", "position -1 of a list of 1 number: its position is 0", "d - 1"),
        ("", "F[[][d]]", "position 0 of a list of 0 numbers", "d"),
        ("", "F[[k for k in 2..0][d]]", "position 0 of a list of 0 numbers", "d"),
        ("let own = [0]", "F[own]", "expected a number, found a list", "own"),
        ("", "F[d[0]]", "expected a list, found a number", "d"),
        ("", "F[[[0], 1][d][d]]", "expected a list, found a number", "1"),
        ("let own(s) = s", "F[own]", "`own` is a function, and stands here without its arguments", "own"),
        ("let own = 3", "F[own(d)]", "`own` is not a function", "own"),
        ("", "F[D(d)]", "`D` is not a function", "D"),
        ("let own(s) = s", "F[own()]", "`own` needs a value for `s`", "own()"),
        ("let own(s) = s", "F[own(1, 2)]", "`own` takes 1 argument, found 2", "2"),
        ("let own(s) = s", "F[own(t = 2)]", "`own` has no parameter `t`", "t"),
        ("let own(s) = s", "F[onw(2)]", "unknown function `onw`", "onw"),
        ("let own(s) = s", "own(d)", "`own` stands for a value, and is no statement", "own(d)"),
        ("let own(s) { F[s] }", "F[own(d)]", "`own` stands for statements, and has no value", "own(d)"),
        ("", "drain(3)", "unknown function `drain`", "drain"),
        ("let own(s) = own(s - 1)", "F[own(d)]", "`own` uses itself, directly or through others", "own"),
        ("let own(s) { own(s - 1) }", "own(d)", "`own` uses itself, directly or through others", "own"),
        ("let own(s, s) = s", "F[own(d, d)]", "there are two parameters with the name `s`", "s"),
        ("let own(D) = D", "F[own(d)]", "`D` has a fixed meaning in schedules", "D"),
        ("let min(a) = a", "F[d]", "`min` is a function of the language", "min"),
        ("let own = d", "F[own]", "unknown name `d`", "d"),
        (
            "let own(n) { let n = n - 1 F[n] }",
            "own(d)",
            "`n` is a parameter of this function, and would have two meanings",
            "n",
        ),
        (
            "let own(n) { for n in 0..2 { F[n] } }",
            "own(d)",
            "`n` is a parameter of this function, and would have two meanings",
            "n",
        ),
        ("", "let own = [0, 1] F[own[d]]", "`own` is a list, and a `let` between tasks names a number", "[0, 1]"),
        ("let uncalled(s) { F[nobody] }", "F[d] BW[d]", "unknown name `nobody`", "nobody"),
        ("let unused = nobody", "F[d] BW[d]", "unknown name `nobody`", "nobody"),
        ("let twice = 1 param twice = 2", "F[d]", "there are two definitions with the name `twice`", "twice"),
    ] {
        let found = errors(&order(definitions, body), &[]);
        assert_eq!((found[0].0.as_str(), found[0].1.as_str()), (message, place), "{definitions} {body}: {found:?}");
    }
}

#[test]
fn what_would_take_too_long_is_refused() {
    let text = "
    let a(n) = n + n  let b(n) = a(a(a(a(n))))  let c(n) = b(b(b(b(n))))
    schedule x { stages D place s on s order d { repeat c(c(c(1))) { F[d] } } }";
    let found = errors(text, &[]);
    assert!(found[0].0.contains("has 281474976710656 turns"), "{found:?}");
    // 2^40 additions: given up, and the stack holds.
    let doubled = (1..40).map(|n| format!("let f{n}(x) = f{}(x) + f{}(x)\n", n - 1, n - 1)).collect::<String>();
    let text = format!("let f0(x) = x\n{doubled} schedule x {{ stages f39(1) place s on s order d {{ F[d] }} }}");
    let found = errors(&text, &[]);
    assert!(found[0].0.contains("operations to write out"), "{found:?}");
}
