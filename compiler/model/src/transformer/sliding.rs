//! Sliding windows of a `config.json`: how long they are, and which layers have one (the configuration classes of
//! transformers, `layer_types`).

use super::Settings;
use super::config::Config;
use super::families::{LARGE, Reader};
use super::graph::{Arguments, exact};

/// Which layers have a window: every n-th one of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Pattern {
    from: u64,
    to: u64,
    every: u64,
}

impl Pattern {
    const fn contains(self, layer: u64) -> bool {
        self.from <= layer && layer < self.to && (layer - self.from).is_multiple_of(self.every)
    }

    /// The pattern of a list, if it is one.
    fn of(has_window: &[bool]) -> Option<Self> {
        let with: Vec<u64> = (0..).zip(has_window).filter(|(_, has)| **has).map(|(layer, _)| layer).collect();
        let (first, last) = (with.first().copied().unwrap_or(0), with.last().map_or(0, |last| last + 1));
        let every = with.get(1).map_or(1, |second| second - first);
        let pattern = Self { from: first, to: last, every };
        (0..).zip(has_window).all(|(layer, has)| pattern.contains(layer) == *has).then_some(pattern)
    }
}

impl Reader<'_> {
    /// The windows of a model, where rows are longer.
    pub(super) fn windows(&mut self, config: &Config, family: &str, settings: &Settings, arguments: &mut Arguments) {
        let is_qwen = family.starts_with("qwen");
        let is_used = is_qwen && self.flag("use_sliding_window", false);
        let window = if is_used { self.window(Some(4_096)) } else { config.window };
        let pattern = self.pattern(config, family, is_used);
        let (Some(window), Some(pattern)) = (window.filter(|window| *window < settings.sequence), pattern) else {
            return;
        };
        let numbers = [
            ("window", window),
            ("window_from", pattern.from),
            ("window_to", pattern.to),
            ("window_every", pattern.every),
        ];
        numbers.into_iter().for_each(|(name, number)| arguments.set(name, size(number)));
    }

    /// Which layers have a window; none if the file says something that cannot be computed.
    fn pattern(&mut self, config: &Config, family: &str, is_used: bool) -> Option<Pattern> {
        let all = Pattern { from: 0, to: config.layers, every: 1 };
        let by_type = match family {
            "qwen2" | "qwen3" => Pattern { from: self.whole(&["max_window_layers"], 28, 0..=*LARGE.end()), ..all },
            // Every second layer of the first ones (`configuration_qwen2_moe.py`).
            "qwen2_moe" => {
                let to = self.whole(&["max_window_layers"], 28, 0..=*LARGE.end());
                Pattern { to, every: 2, ..all }
            }
            // Others have no `layer_types`: a window is that of all layers.
            _ => return Some(all),
        };
        let Some((_, written)) = self.object.get(&["layer_types"]) else { return Some(by_type) };
        let Ok(types) = serde_json::from_str::<Vec<String>>(written.text) else {
            self.refuse(&["layer_types"], "`layer_types` must be a list of types".to_owned());
            return None;
        };
        if let Some(other) = types.iter().find(|own| !["sliding_attention", "full_attention"].contains(&own.as_str())) {
            let help = "only `full_attention` and `sliding_attention` are supported".to_owned();
            self.refuse_with(&["layer_types"], format!("`layer_types` has the type `{other}`"), help);
            return None;
        }
        if types.len() as u64 != config.layers {
            let message = format!("`layer_types` has {} types, and the model {} layers", types.len(), config.layers);
            self.refuse(&["layer_types"], message);
            return None;
        }
        let has_window: Vec<bool> = types.iter().map(|own| own == "sliding_attention").collect();
        if !is_used && has_window.contains(&true) {
            let message = "`layer_types` has windows, and `use_sliding_window` is `false`".to_owned();
            self.refuse(&["layer_types"], message);
            return None;
        }
        let found = Pattern::of(&has_window);
        if found.is_none() {
            let help = "windows can be those of every n-th layer between two layers".to_owned();
            self.refuse_with(&["layer_types"], "`layer_types` has windows in no regular order".to_owned(), help);
        }
        found
    }
}

fn size(number: u64) -> pipe_syntax::expr::number::Number {
    exact(f64::from(u32::try_from(number).unwrap_or(u32::MAX)))
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn regular_lists_are_patterns() {
        let of = |text: &str| Pattern::of(&text.chars().map(|mark| mark == 'w').collect::<Vec<_>>());
        assert_eq!(of("--www"), Some(Pattern { from: 2, to: 5, every: 1 }));
        assert_eq!(of("w-w---"), Some(Pattern { from: 0, to: 3, every: 2 }));
        assert_eq!(of("----"), Some(Pattern { from: 0, to: 0, every: 1 }));
        assert_eq!(of("-w--w-"), Some(Pattern { from: 1, to: 5, every: 3 }));
        assert_eq!(of("ww-w"), None);
    }
}
