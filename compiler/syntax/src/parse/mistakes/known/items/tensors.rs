//! Tensors and layers as PyTorch has them.

use crate::parse::grammar::Rule;
use crate::parse::mistakes::mistake::Mistake;
use crate::parse::mistakes::view::{Detector, View, is_name, is_word};
use crate::parse::mistakes::within::Within;

/// Those that know layers that are called twice.
pub(in crate::parse::mistakes) const CALLS: &[Detector] = &[call_of_call];
pub(in crate::parse::mistakes) const DETECTORS: &[Detector] = &[
    frozen_before_the_end,
    matrix_product,
    weight_call,
    product_of_sizes,
    shape_of_input,
    two_inputs,
    part_of_tensor,
    attribute,
    bare_shape,
    no_first_values,
    deviation,
    arguments_of_normal,
    chain,
    times,
];

/// `weight w: [n] frozen = zeros`, `frozen dense(n)` and `dense(n) frozen from a`.
fn frozen_before_the_end(view: &View<'_>) -> Option<Mistake> {
    let index = match [view.word(-2), view.word(-1), view.word(0)] {
        ["frozen", "from" | "with", _] => view.at - 2,
        [_, "frozen", _] => view.at - 1,
        [_, _, "frozen"] => view.at,
        _ => return None,
    };
    let last = view.last_of_line(index);
    if last == index || !matches!(view.within(), Within::Layer | Within::Model) {
        return None;
    }
    Some(
        Mistake::new(view.span(index, index), "too early", "`frozen` comes last")
            .help("write it at the end of the weight or of the layer")
            .remove(view.with_gap(index, index))
            .insert(view.span(last, last).end, " frozen"),
    )
}

/// `x @ w`.
fn matrix_product(view: &View<'_>) -> Option<Mistake> {
    if view.word(0) != "@" || view.within() != Within::Layer {
        return None;
    }
    let first = view.operand_before(view.at.checked_sub(1)?)?;
    let last = view.operand_behind(view.at + 1)?;
    let is_transposed = view.token(last + 1) == "." && view.token(last + 2) == "T";
    let (left, right) = (view.slice(first, view.at - 1), view.slice(view.at + 1, last));
    let right = if is_transposed { format!("transpose({right}, 1, 0)") } else { right.to_owned() };
    let last = if is_transposed { last + 2 } else { last };
    let meant = format!("matmul({left}, {right})");
    Some(
        Mistake::new(view.range(0), "not an operator", "there is no operator `@`")
            .help(format!("write `{meant}`"))
            .replace(view.span(first, last), meant),
    )
}

/// `torch.matmul(x, w)` and `self.w`.
fn attribute(view: &View<'_>) -> Option<Mistake> {
    if view.word(0) != "." || !view.touches(0) || !view.touches(1) || !is_name(view.word(-1)) || !is_name(view.word(1))
    {
        return None;
    }
    let mut first = view.at - 1;
    while first >= 2 && view.token(first - 1) == "." && is_name(view.token(first - 2)) {
        first -= 2;
    }
    let mut last = view.at + 1;
    while view.token(last + 1) == "." && is_name(view.token(last + 2)) {
        last += 2;
    }
    let (written, meant) = (view.slice(first, last), view.token(last));
    if meant == "shape" && view.token(last + 1) == "[" {
        return size(view, first, last);
    }
    if meant == "T" {
        let owner = view.slice(first, last - 2);
        let text = format!("transpose({owner}, 1, 0)");
        return Some(
            Mistake::new(
                view.span(first, last),
                "not a name",
                format!("`{written}` is not a name: names cannot contain `.`"),
            )
            .help(format!("write `{text}`"))
            .replace(view.span(first, last), text),
        );
    }
    let owner = view.token(first);
    let is_module =
        matches!(owner, "torch" | "nn" | "F" | "np" | "jnp" | "math" | "self" | "tf" | "functional" | "std" | "model");
    let place = view.span(first, last);
    let mistake =
        Mistake::new(place.clone(), "not a name", format!("`{written}` is not a name: names cannot contain `.`"));
    if is_module {
        return Some(mistake.help(format!("write `{meant}`")).replace(place, meant));
    }
    // A method: what it belongs to is its first argument.
    if view.token(last + 1) == "(" && last == view.at + 1 {
        let comma = if view.token(last + 2) == ")" { "" } else { ", " };
        let written = view.span(first, last + 1);
        let text = format!("{meant}({owner}{comma}");
        return Some(
            mistake.help(format!("functions stand before their arguments: write `{text}..)`")).replace(written, text),
        );
    }
    Some(mistake.help("write a name without `.`").replace(place, owner).guess())
}

/// `x.shape[0]`.
fn size(view: &View<'_>, first: usize, last: usize) -> Option<Mistake> {
    let closer = view.closer(last + 1)?;
    let (owner, dimension) = (view.slice(first, last.checked_sub(2)?), view.slice(last + 2, closer.checked_sub(1)?));
    let meant = format!("size({owner}, {dimension})");
    Some(
        Mistake::new(view.span(first, closer), "not a name", "a tensor has no attributes")
            .help(format!("write `{meant}`"))
            .replace(view.span(first, closer), meant),
    )
}

/// `weight w: [n] = normal`.
fn deviation(view: &View<'_>) -> Option<Mistake> {
    let end = view.range(-1).end;
    (view.word(-1) == "normal" && view.expects(&[Rule::open_round]) && view.word(0) != "(").then(|| {
        Mistake::new(end..end, "a number is missing here", "`normal` does not say how far its numbers spread")
            .help("write `normal(0.02)`")
            .insert(end, "(0.02)")
    })
}

/// `normal(mean = 0, std = 0.02)`.
fn arguments_of_normal(view: &View<'_>) -> Option<Mistake> {
    let opener = view.opener(view.at, &["(", "[", "{"])?;
    let is_normal = view.token(opener.checked_sub(1)?) == "normal" && matches!(view.word(0), "=" | ",");
    let closer = view.closer(opener).filter(|_| is_normal)?;
    let arguments = view.arguments(opener, closer);
    let last = arguments.last()?;
    let value = last.split_once('=').map_or(*last, |(_, value)| value.trim());
    let meant = format!("normal({value})");
    Some(
        Mistake::new(
            view.span(opener, closer),
            "one number",
            "`normal` takes its standard deviation, and nothing else",
        )
        .help(format!("write `{meant}`"))
        .replace(view.span(opener - 1, closer), meant),
    )
}

/// `embedding() -> block()` and `embedding() >> block()`.
fn chain(view: &View<'_>) -> Option<Mistake> {
    let second = view.word(1);
    let is_pair = matches!((view.word(0), second), ("-" | "=" | "|", ">") | (">", ">")) && view.touches(1);
    let last = view.at + usize::from(is_pair);
    let is_mark = is_pair || matches!(view.word(0), "|" | ">" | "+");
    let is_chain = view.word(-1) == ")" && view.within() == Within::Model && is_name(view.token(last + 1));
    (is_mark && is_chain).then(|| {
        let mark = view.slice(view.at, last);
        Mistake::new(view.span(view.at, last), "not needed", format!("`{mark}` stands between two layers"))
            .help("write layers one after the other: each reads the one before it")
            .remove(view.spaced(view.at).start..view.span(last, last).end)
    })
}

/// `block() * 4`.
fn times(view: &View<'_>) -> Option<Mistake> {
    if view.word(0) != "*" || view.word(-1) != ")" || view.within() != Within::Model {
        return None;
    }
    let first = view.operand_before(view.at.checked_sub(1)?)?;
    let last = view.expression_behind(view.at + 1)?;
    let meant = format!("repeat {} {{ {} }}", view.slice(view.at + 1, last), view.slice(first, view.at - 1));
    Some(
        Mistake::new(view.span(first, last), "a layer is not a number", "layers cannot be multiplied")
            .help(format!("write `{meant}`"))
            .replace(view.span(first, last), meant),
    )
}

/// `weight w: 4, 4 = zeros`.
fn bare_shape(view: &View<'_>) -> Option<Mistake> {
    if !view.expects(&[Rule::shape, Rule::open_square]) || view.within() != Within::Layer {
        return None;
    }
    if view.word(0) == "(" {
        let closer = view.closer(view.at)?;
        return Some(
            Mistake::new(view.range(0), "`[` is expected here", "the sizes of a tensor stand in square brackets")
                .help(format!("write `[{}]`", view.slice(view.at + 1, closer.saturating_sub(1))))
                .replace(view.range(0), "[")
                .replace(view.span(closer, closer), "]"),
        );
    }
    if is_name(view.word(0)) && view.word(1) == "[" {
        return Some(
            Mistake::new(view.range(0), "not needed", "weights have no type of their own")
                .help("leave it out: a pipeline chooses with `precision`")
                .remove(view.range(0)),
        );
    }
    if !is_word(view.word(0)) {
        return None;
    }
    let assign = (view.at..=view.last_of_line(view.at)).find(|index| view.token(*index) == "=");
    let last = assign.map_or(view.last_of_line(view.at), |assign| assign.saturating_sub(1));
    let sizes = view.slice(view.at, last);
    Some(
        Mistake::new(view.span(view.at, last), "not in brackets", "the sizes of a tensor stand in square brackets")
            .help(format!("write `[{sizes}]`"))
            .replace(view.span(view.at, last), format!("[{sizes}]")),
    )
}

/// `weight w: [4, 4]`.
fn no_first_values(view: &View<'_>) -> Option<Mistake> {
    let ends = view.begins_line(view.at) || matches!(view.word(0), "}" | "");
    let end = view.range(-1).end;
    (view.within() == Within::Layer && view.word(-1) == "]" && view.expects(&[Rule::assign]) && ends).then(|| {
        Mistake::new(end..end, "`=` is missing here", "a weight does not say what it is before training")
            .help("write `= zeros`, `= ones` or `= normal(deviation)`")
            .insert(end, " = zeros")
            .guess()
    })
}

/// `weight w = zeros([n, n])`.
fn weight_call(view: &View<'_>) -> Option<Mistake> {
    let meant = match view.word(1) {
        "zeros" | "empty" => "zeros",
        "ones" => "ones",
        "randn" | "rand" => "normal(0.02)",
        _ => return None,
    };
    if view.word(-2) != "weight" || view.word(0) != "=" || view.word(2) != "(" || view.within() != Within::Layer {
        return None;
    }
    let closer = view.closer(view.at + 2)?;
    let sizes = view.slice(view.at + 3, closer.checked_sub(1)?).trim_start_matches('[').trim_end_matches(']');
    let written = format!(": [{sizes}] = {meant}");
    Some(
        Mistake::new(view.range(0), "`:` is expected here", "a weight has its sizes behind `:`")
            .help(format!("write `{}{written}`", view.word(-1)))
            .replace(view.range(-1).end..view.span(closer, closer).end, written),
    )
}

/// `weight w: n x m = zeros`.
fn product_of_sizes(view: &View<'_>) -> Option<Mistake> {
    let is_weight = matches!(view.word(-3), "weight" | "data") && view.word(-1) == ":";
    let mark = view.word(1);
    (is_weight && is_word(view.word(0)) && matches!(mark, "x" | "X" | "*" | "×") && is_word(view.word(2))).then(|| {
        let meant = format!("[{}, {}]", view.word(0), view.word(2));
        Mistake::new(view.span(view.at, view.at + 2), "not the sizes", "the sizes of a tensor stand in square brackets")
            .help(format!("write `{meant}`"))
            .replace(view.span(view.at, view.at + 2), meant)
    })
}

/// Whether the place stands behind the name in a line `input x`.
fn is_behind_input(view: &View<'_>) -> bool {
    view.within() == Within::Layer && view.word(-2) == "input" && view.at >= 2 && view.begins_line(view.at - 2)
}

/// `input x: [n, m]`.
fn shape_of_input(view: &View<'_>) -> Option<Mistake> {
    (is_behind_input(view) && view.word(0) == ":").then(|| {
        let last = view.last_of_line(view.at);
        Mistake::new(view.span(view.at, last), "not needed", "an input has the sizes of what flows in")
            .help(format!("write `input {}`", view.word(-1)))
            .remove(view.range(-1).end..view.span(last, last).end)
    })
}

/// `input x, y`.
fn two_inputs(view: &View<'_>) -> Option<Mistake> {
    (is_behind_input(view) && view.word(0) == "," && is_name(view.word(1))).then(|| {
        let line = format!("\n{}input ", " ".repeat(view.indentation(view.at - 2)));
        Mistake::new(view.range(0), "a line ends here", "each input has a line of its own")
            .help(format!("write `input {}` in the next line", view.word(1)))
            .replace(view.range(-1).end..view.range(1).start, line)
    })
}

/// `block(64)(x)`.
fn call_of_call(view: &View<'_>) -> Option<Mistake> {
    if view.word(-1) != ")" || view.word(0) != "(" || !view.touches(0) || view.within() != Within::Model {
        return None;
    }
    let closer = view.closer(view.at)?;
    let inputs = view.slice(view.at + 1, closer.checked_sub(1)?);
    Some(
        Mistake::new(view.span(view.at, closer), "not another call", "what flows into a layer stands behind `from`")
            .help(format!("write `from {inputs}`"))
            .replace(view.span(view.at, closer), format!(" from {inputs}")),
    )
}

/// `x[0]` in a layer.
fn part_of_tensor(view: &View<'_>) -> Option<Mistake> {
    let is_part = view.word(0) == "[" && view.touches(0) && is_name(view.word(-1)) && view.word(-2) != "weight";
    let closer = view.closer(view.at).filter(|_| is_part && view.within() == Within::Layer)?;
    (!view.expects(&[Rule::colon])).then(|| {
        let name = view.word(-1);
        Mistake::new(view.span(view.at, closer), "not an operator", format!("`{name}` is not indexed by `[..]`"))
            .help(format!("write `slice({name}, axis, start, size)`"))
            .remove(view.span(view.at, closer))
            .guess()
    })
}
