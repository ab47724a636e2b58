//! Values of a TOML file with their places, and what is wrong with them.

use super::quantity::{Dimension, scaled, split};
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::json::span;
use pipe_syntax::source::FileId;
use pipe_syntax::suggest;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The file while nothing else of a compilation is there.
pub(super) const FILE: FileId = FileId(0);

/// A value and its place.
pub(super) type Value<'t> = Spanned<DeValue<'t>>;

/// An error at a place of the file.
pub(super) fn error(place: &Range<usize>, label: impl Into<String>, message: impl Into<String>) -> Diagnostic {
    Diagnostic::error(Code::UnusableCluster, span(FILE, place.start, place.end), label, message)
}

/// A table with the name that messages give it, and the place to point at where something is missing.
#[derive(Clone)]
pub(super) struct Table<'a, 't> {
    /// `device`, `links.node`; empty for the whole file.
    pub name: String,
    pub place: Range<usize>,
    pub entries: &'a DeTable<'t>,
}

impl<'a, 't> Table<'a, 't> {
    /// Tells keys that mean nothing.
    pub(super) fn only(&self, keys: &[&str], found: &mut Diagnostics) {
        for (key, _) in self.entries.iter().filter(|(key, _)| !keys.contains(&key.get_ref().as_ref())) {
            let message = format!("{} has no key `{}`", self.words(), key.get_ref());
            let one = error(&key.span(), "not known", message);
            let place = span(FILE, key.span().start, key.span().end);
            found.push(one.suggest(place, key.get_ref(), keys.iter().copied()));
        }
    }

    /// A key that must be there.
    pub(super) fn needed(&self, key: &str, example: &str, found: &mut Diagnostics) -> Option<&'a Value<'t>> {
        let value = self.entries.get(key);
        if value.is_none() {
            let message = format!("{} says no `{key}`", self.words());
            found.push(error(&self.place, "in here", message).help(format!("add `{key} = {example}`")));
        }
        value
    }

    /// A key that may be missing.
    pub(super) fn get(&self, key: &str) -> Option<&'a Value<'t>> {
        self.entries.get(key)
    }

    /// A table in this one, if it is there.
    pub(super) fn table(&self, key: &str, found: &mut Diagnostics) -> Option<Table<'a, 't>> {
        let value = self.entries.get(key)?;
        let name = if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) };
        let DeValue::Table(entries) = value.get_ref() else {
            let message = format!("expected a table for `{name}`, found {}", kind(value));
            found
                .push(error(&value.span(), "no table", message).help(format!("write `[{name}]` on a line of its own")));
            return None;
        };
        Some(Table { name, place: value.span(), entries })
    }

    /// A table in this one that must be there.
    pub(super) fn needed_table(&self, key: &str, example: &str, found: &mut Diagnostics) -> Option<Table<'a, 't>> {
        if self.entries.get(key).is_none() {
            let name = if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) };
            let message = format!("{} has no table `[{name}]`", self.words());
            found.push(error(&self.place, "in here", message).help(format!("add `[{name}]` with {example}")));
            return None;
        }
        self.table(key, found)
    }

    fn words(&self) -> String {
        if self.name.is_empty() { "the cluster".to_owned() } else { format!("`[{}]`", self.name) }
    }
}

/// What a value is, in words.
pub(super) fn kind(value: &Value<'_>) -> &'static str {
    match value.get_ref() {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// A whole number between two others.
pub(super) fn whole(name: &str, value: &Value<'_>, range: (u64, u64)) -> Result<u64, Diagnostic> {
    let (low, high) = range;
    let DeValue::Integer(number) = value.get_ref() else {
        let message = format!("expected a whole number for `{name}`, found {}", kind(value));
        return Err(error(&value.span(), "no whole number", message).help(format!("write `{name} = 8`")));
    };
    let read = u64::from_str_radix(&number.as_str().replace('_', ""), number.radix()).ok();
    read.filter(|number| (low..=high).contains(number)).ok_or_else(|| {
        let message = format!("`{name}` is {number}; it must be {low} to {high}");
        error(&value.span(), format!("this is {number}"), message)
    })
}

/// A quantity with its unit, which is at least so much.
pub(super) fn quantity(name: &str, value: &Value<'_>, of: Dimension, least: u64) -> Result<u64, Diagnostic> {
    let example = format!("write `{name} = \"{}\"`", of.example());
    let text = match value.get_ref() {
        DeValue::String(text) => text,
        DeValue::Integer(_) | DeValue::Float(_) => {
            let message = format!("`{name}` is a number without a unit");
            return Err(error(&value.span(), "of what?", message).help(example));
        }
        _ => {
            let message = format!("expected {} for `{name}`, found {}", of.words(), kind(value));
            return Err(error(&value.span(), "here", message).help(example));
        }
    };
    let (number, unit) = split(text);
    let Some(size) = of.unit(unit) else {
        return Err(wrong_unit(name, text, of, &value.span()));
    };
    amount((name, number, unit), size, least, &value.span())
}

/// So many of a unit, at least so much.
pub(super) fn amount(
    (name, number, unit): (&str, &str, &str),
    size: u64,
    least: u64,
    place: &Range<usize>,
) -> Result<u64, Diagnostic> {
    let amount = scaled(number, size).ok_or_else(|| {
        let message =
            format!("`{name}` is `{number}{unit}`, which is not a number from 0 to 10^9 with at most 6 decimals");
        error(place, "here", message)
    })?;
    if amount < least {
        return Err(error(place, "nothing", format!("`{name}` is {number}{unit}; it must be above 0")));
    }
    Ok(amount)
}

fn wrong_unit(name: &str, text: &str, of: Dimension, place: &Range<usize>) -> Diagnostic {
    let (number, unit) = split(text);
    let message = format!("expected {} with its unit for `{name}`, found `{text}`", of.words());
    let meant = suggest::closest(unit, of.unit_names());
    let help = match (of, unit) {
        (Dimension::Bandwidth, "Gb/s" | "Mb/s" | "Tb/s") => {
            let prefix = &unit[..1];
            Some(format!("write `{number}{prefix}bit/s` for bits, or `{number}{prefix}B/s` for bytes"))
        }
        _ => meant
            .map(|unit| format!("did you mean `{number}{unit}`?"))
            .or_else(|| Some(format!("write it as in `{name} = \"{}\"`", of.example()))),
    };
    let one = Diagnostic { help, ..error(place, "here", message) };
    let is_clear = one.help.as_ref().is_some_and(|help| help.starts_with("did you mean"));
    match meant.filter(|_| is_clear) {
        Some(unit) => one.edit(span(FILE, place.start, place.end), format!("\"{number}{unit}\"")),
        None => one,
    }
}
