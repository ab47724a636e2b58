//! Settings that stand in the brackets of an optimizer, or of a `config.json`: what they mean, and their defaults.

use pipe_ir::training::{Optimizer, Range};
use pipe_model::transformer::{Recompute, SETTINGS};

/// A setting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Described {
    /// Its name.
    pub name: &'static str,
    /// With its default, as a signature has it: `beta1 = 0.9`.
    pub usage: String,
    /// What it means, and its values.
    pub doc: String,
}

/// The settings of a call, in their order: of an optimizer, or of a path in quotes behind `model`. None where the call
/// is of something else.
pub fn settings(before: &str, callee: &str) -> Option<Vec<Described>> {
    match before {
        "optimizer" => of_optimizer(callee),
        "model" if callee.starts_with('"') => Some(of_config()),
        _ => None,
    }
}

fn of_optimizer(name: &str) -> Option<Vec<Described>> {
    let mut settings: Vec<_> = Optimizer::settings(name)?.iter().collect();
    settings.sort_by_key(|setting| setting.position);
    let described = settings.iter().map(|setting| {
        let values = match setting.range {
            Range::Positive => "above 0",
            Range::NotNegative => "0 or more",
            Range::Decay => "from 0 to below 1",
        };
        Described {
            name: setting.name,
            usage: format!("{} = {}", setting.name, setting.default),
            doc: format!("{} It is {values}.", setting.doc),
        }
    });
    let rate = "How far a step goes; what `warmup` leads to, and `decay` away from. It is above 0.";
    let rate = Described { name: "learning_rate", usage: "learning_rate".to_owned(), doc: rate.to_owned() };
    Some(std::iter::once(rate).chain(described).collect())
}

fn of_config() -> Vec<Described> {
    let described = |setting: &pipe_model::transformer::Setting| {
        let default = setting.default.map(|value| match setting.name {
            "recompute" => Recompute::ALL[0].word().to_owned(),
            _ => value.to_string(),
        });
        let usage = default.map_or_else(|| setting.name.to_owned(), |value| format!("{} = {value}", setting.name));
        Described { name: setting.name, usage, doc: setting.doc.to_owned() }
    };
    SETTINGS.iter().map(described).collect()
}

/// The rule of an optimizer.
pub fn optimizer(name: &str) -> Option<String> {
    let usages: Vec<String> = of_optimizer(name)?.into_iter().map(|setting| setting.usage).collect();
    Some(format!("`{name}({})`\n\n{}", usages.join(", "), Optimizer::rule(name)?))
}

/// What a value of `recompute` means.
pub fn recompute(word: &str) -> Option<&'static str> {
    Recompute::ALL.into_iter().find(|kind| kind.word() == word).map(|kind| match kind {
        Recompute::None => "Everything that the backward needs is kept.",
        Recompute::Selective => "All is kept but the scores of attention, which are computed once more.",
        Recompute::Full => "Only the inputs of layers are kept; each layer is computed once more.",
    })
}
