//! How positions rotate: `rope_parameters` of a `config.json`, or `rope_theta` and `rope_scaling` of older files.
//!
//! YaRN (arXiv 2309.00071) and the scaling of Llama 3 slow down the pairs that turn slowly; the arithmetic is that of
//! transformers (`src/transformers/modeling_rope_utils.py`).

use super::families::Reader;
use super::graph::{Arguments, exact};
use serde_json::{Map, Value};

/// Where newer and older files say it.
const KEYS: [&str; 2] = ["rope_parameters", "rope_scaling"];

impl Reader<'_> {
    /// The key that is there, and what it holds.
    fn rotation_of_file(&self) -> (&'static str, Map<String, Value>) {
        let key = KEYS.into_iter().find(|key| self.object.get(&[key]).is_some());
        let own = key.and_then(|key| serde_json::from_str(self.object.get(&[key])?.1.text).ok());
        (key.unwrap_or(KEYS[0]), own.unwrap_or_default())
    }

    /// One of its numbers.
    pub(super) fn rotation_setting(&self, name: &str) -> Option<f64> {
        self.rotation_of_file().1.get(name).and_then(Value::as_f64)
    }

    /// What a model of `std.models.llama` takes for it. `theta` stands where the file says nothing, and `width`
    /// elements of a head rotate.
    pub(super) fn rotation(&mut self, arguments: &mut Arguments, (theta, width): (f64, u64)) {
        let (key, own) = self.rotation_of_file();
        let of = |name: &str| own.get(name).and_then(Value::as_f64);
        let written = self.number("rope_theta", theta);
        let theta = of("rope_theta").map_or(written, exact);
        arguments.set("theta", theta);
        let kind = own.get("rope_type").or_else(|| own.get("type")).and_then(Value::as_str).unwrap_or("default");
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
