//! How positions rotate: `rope_parameters` of a `config.json`, or `rope_theta` and `rope_scaling` of older files.
//!
//! YaRN (arXiv 2309.00071) and the scaling of Llama 3 slow down the pairs that turn slowly; the arithmetic is that of
//! transformers (`src/transformers/modeling_rope_utils.py`).

use super::families::Reader;
use super::graph::{Arguments, exact};
use pipe_syntax::diagnostic::{Code, Diagnostic};
use serde_json::{Map, Value};

/// Where newer and older files say it.
const KEYS: [&str; 2] = ["rope_parameters", "rope_scaling"];

impl Reader<'_> {
    /// The key that is there, and what it holds; what both hold where both are there.
    fn rotation_of_file(&self) -> (&'static str, Map<String, Value>) {
        let held = KEYS.map(|key| self.rotation_of(key));
        let key = KEYS.into_iter().zip(&held).find(|(_, own)| own.is_some()).map_or(KEYS[0], |(key, _)| key);
        // Where both have something, they have the same.
        (key, held.into_iter().flatten().flatten().collect())
    }

    fn rotation_of(&self, key: &str) -> Option<Map<String, Value>> {
        let (_, written) = self.object.get(&[key])?;
        Some(serde_json::from_str(written.text).unwrap_or_default())
    }

    /// Rule: where both keys are there, they say the same. Versions of transformers differ in which one they take.
    fn one_rotation(&mut self) {
        let [Some(newer), Some(older)] = KEYS.map(|key| self.rotation_of(key)) else { return };
        // Only the newer one has to hold the base.
        let same = |name: &str| match (newer.get(name), older.get(name)) {
            (Some(one), Some(other)) => is_same(one, other),
            (one, other) => name == "rope_theta" || one.is_none() && other.is_none(),
        };
        let names = newer.keys().chain(older.keys()).filter(|name| !matches!(name.as_str(), "rope_type" | "type"));
        let differs = (kind(&newer) != kind(&older)).then_some("rope_type");
        let Some(name) = differs.or_else(|| names.map(String::as_str).find(|name| !same(name))) else { return };
        let [newer, older] = KEYS.map(|key| self.object.get(&[key]).map(|(_, written)| written.span));
        let (Some(newer), Some(older)) = (newer, older) else { return };
        let message = format!("`rope_parameters` and `rope_scaling` do not say the same: `{name}` differs");
        let error = Diagnostic::error(Code::UnusableConfig, older, "this one", message);
        let help =
            "versions of transformers differ in which one they take: keep the one that the model was trained with";
        self.found.push(error.label(newer, "and this one").help(help));
    }

    /// One of its numbers.
    pub(super) fn rotation_setting(&self, name: &str) -> Option<f64> {
        self.rotation_of_file().1.get(name).and_then(Value::as_f64)
    }

    /// What a model of `std.models.llama` takes for it. `theta` stands where the file says nothing, and `width`
    /// elements of a head rotate.
    pub(super) fn rotation(&mut self, arguments: &mut Arguments, (theta, width): (f64, u64)) {
        self.one_rotation();
        let (key, own) = self.rotation_of_file();
        let of = |name: &str| own.get(name).and_then(Value::as_f64);
        let written = self.number("rope_theta", theta);
        let theta = of("rope_theta").map_or(written, exact);
        if theta.to_f64() <= 0.0 {
            let key = if own.contains_key("rope_theta") { key } else { "rope_theta" };
            return self.refuse(&[key], format!("`rope_theta` is {}; it must be above 0", theta.to_f64()));
        }
        arguments.set("theta", theta);
        let kind = kind(&own);
        let numbers: Vec<(&str, Option<f64>)> = match kind {
            "default" => return,
            // All frequencies, as if none turned fast enough to stay.
            "linear" => {
                vec![("factor", of("factor")), ("low", Some(1e9)), ("high", Some(2e9)), ("original", Some(1.0))]
            }
            "llama3" => vec![
                ("factor", of("factor")),
                ("low", of("low_freq_factor")),
                ("high", of("high_freq_factor")),
                ("original", of("original_max_position_embeddings")),
            ],
            "yarn" => yarn(&of, (theta.to_f64(), width), own.get("truncate") != Some(&Value::Bool(false))),
            _ => {
                let message = format!("rotary positions of the type `{kind}` are not supported");
                let help = "`default`, `linear`, `llama3` and `yarn` are supported".to_owned();
                return self.refuse_with(&[key], message, help);
            }
        };
        for (name, value) in numbers {
            match value.filter(|value| value.is_finite() && *value >= 0.0 && (*value > 0.0 || name == "ramp_start")) {
                Some(value) => arguments.set(name, exact(value)),
                None => {
                    let message = format!("`{kind}` positions need a number for each of their settings");
                    return self.refuse(&[key], message);
                }
            }
        }
    }
}

/// By which rule.
fn kind(own: &Map<String, Value>) -> &str {
    own.get("rope_type").or_else(|| own.get("type")).and_then(Value::as_str).unwrap_or("default")
}

/// Whether two values are the same, however numbers are written.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => one.total_cmp(&other).is_eq(),
        _ => one == other,
    }
}

/// How much more attention tells apart at so many times the length (arXiv 2309.00071, equation 22).
pub(super) fn magnitude(factor: f64, times: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * times * factor.ln() + 1.0 }
}

/// Pairs are slowed down more and more from `ramp_start` to `ramp_end`; what is turned is multiplied with `strength`.
fn yarn(
    of: &dyn Fn(&str) -> Option<f64>,
    (theta, width): (f64, u64),
    is_whole: bool,
) -> Vec<(&'static str, Option<f64>)> {
    let (factor, original) = (of("factor"), of("original_max_position_embeddings"));
    let not_zero = |name: &str, usual: f64| of(name).filter(|value| *value != 0.0).unwrap_or(usual);
    let width = width as f64;
    // The pair that turns so many times in the original length.
    let pair = |turns: f64| {
        let original = original?;
        Some(width * (original / (turns * std::f64::consts::TAU)).ln() / (2.0 * theta.ln()))
    };
    let (start, end) = (pair(not_zero("beta_fast", 32.0)), pair(not_zero("beta_slow", 1.0)));
    let start = start.map(|start| if is_whole { start.floor() } else { start }.max(0.0));
    let end = end.map(|end| if is_whole { end.ceil() } else { end }.min(width - 1.0));
    // Both may be one.
    let end = start.zip(end).map(|(start, end)| if start == end { end + 0.001 } else { end });
    let said = of("attention_factor");
    let strength = said.or_else(|| {
        let times = [of("mscale")?, of("mscale_all_dim")?];
        let is_said = times.iter().all(|times| *times != 0.0);
        is_said.then(|| magnitude(factor.unwrap_or(1.0), times[0]) / magnitude(factor.unwrap_or(1.0), times[1]))
    });
    let strength = strength.or_else(|| Some(magnitude(factor?, 1.0)));
    vec![("factor", factor), ("ramp_start", start), ("ramp_end", end), ("strength", strength)]
}
