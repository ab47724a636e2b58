//! Layouts: the value of Megatron-LM's `--pipeline-model-parallel-layout`, such as `Et*3|(t*4|)*6t*3L`
//! (`megatron/core/transformer/pipeline_parallel_layer_layout.py`).
//!
//! A letter for each layer, `E` for the embedding, `t` for a layer of the transformer and `L` for
//! the head with the loss; `|` between stages, `x*n` and `(..)*n` for repeats, and commas as one
//! likes.

use super::in_turn;
use crate::analyze::Analysis;
use pipe_model::transformer::accounts;
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use std::fmt;
use std::str::FromStr;

/// The most characters of a layout whose repeats are written out.
const MOST: usize = 1 << 16;

/// How many layers of the transformer each stage has. The first one has the embedding as well, the last one the head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// By stage.
    pub layers: Vec<u64>,
}

impl Layout {
    /// The layout of a pipeline's model.
    ///
    /// # Errors
    /// If the model is not from a `config.json`, or its stages are not where Megatron has them.
    pub fn of(analysis: &Analysis) -> Result<Self, Diagnostics> {
        let schedule = &analysis.schedule;
        let transformer = analysis.pipeline.as_ref().and_then(|pipeline| pipeline.transformer.as_ref());
        let Some(transformer) = transformer else {
            let span = analysis.pipeline.as_ref().map_or(schedule.span, |pipeline| pipeline.span);
            let message = "a layout names the layers of a transformer, and this has no model from a `config.json`";
            let error = Diagnostic::error(Code::CannotExport, span, "here", message);
            return Err(vec![error.help("write `model \"config.json\"(sequence = 4096)` in a pipeline")]);
        };
        if let Some(wrong) = in_turn(analysis) {
            return Err(vec![wrong]);
        }
        let stages = accounts(transformer, &schedule.placement, schedule.span).map_err(|error| vec![error])?;
        Ok(Self { layers: stages.iter().map(|stage| stage.layers.end - stage.layers.start).collect() })
    }
}

impl FromStr for Layout {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let written: String = text.chars().filter(|letter| *letter != ',').collect();
        let letters = expand(&written)?;
        let count = |wanted: char| letters.matches(wanted).count();
        if let Some(other) = letters.chars().find(|letter| !"EtL|".contains(*letter)) {
            let known = "`E` the embedding, `t` a layer, `L` the head, `|` the end of a stage";
            return Err(match other {
                'm' => "`m`, the prediction of further tokens, is in no model that pipec knows".to_owned(),
                _ => format!("`{other}` is not a letter of a layout: {known}"),
            });
        }
        if count('E') != 1 || count('L') != 1 || !letters.starts_with('E') || !letters.ends_with('L') {
            return Err("a layout begins with the only `E` and ends with the only `L`, as in `Ett|tt|ttL`".to_owned());
        }
        let layers = |stage: &str| stage.matches('t').count() as u64;
        Ok(Self { layers: letters.split('|').map(layers).collect() })
    }
}

/// Writes repeats out: of brackets first, then of single letters.
fn expand(text: &str) -> Result<String, String> {
    let mut whole = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('(') {
        let (inner, behind) = after.split_once(')').ok_or("a bracket of the layout is not closed")?;
        if inner.contains('(') {
            return Err("brackets of a layout do not hold others".to_owned());
        }
        let (times, behind) = times(behind)?.ok_or("brackets of a layout are repeated, as in `(tt|)*3`")?;
        whole.push_str(before);
        repeat(inner, times, &mut whole)?;
        rest = behind;
    }
    whole.push_str(rest);
    let (mut letters, mut rest) = (String::new(), whole.as_str());
    while let Some(letter) = rest.chars().next() {
        let behind = &rest[letter.len_utf8()..];
        let (count, behind) = times(behind)?.unwrap_or((1, behind));
        repeat(&rest[..letter.len_utf8()], count, &mut letters)?;
        rest = behind;
    }
    Ok(letters)
}

/// `*12` at the beginning of a text, and what is behind it.
fn times(text: &str) -> Result<Option<(usize, &str)>, String> {
    let Some(digits) = text.strip_prefix('*') else { return Ok(None) };
    let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
    let count = digits[..end].parse().map_err(|_| "behind `*` a layout has a number, as in `t*4`".to_owned())?;
    Ok(Some((count, &digits[end..])))
}

fn repeat(part: &str, times: usize, out: &mut String) -> Result<(), String> {
    if part.len().saturating_mul(times).saturating_add(out.len()) > MOST {
        return Err(format!("a layout has at most {MOST} letters"));
    }
    out.push_str(&part.repeat(times));
    Ok(())
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.layers.len().saturating_sub(1);
        let layers = |stage: usize| match self.layers[stage] {
            count @ 0..=2 => "t".repeat(usize::try_from(count).unwrap_or(0)),
            count => format!("t*{count}"),
        };
        f.write_str("E")?;
        let mut stage = 0;
        while stage <= last {
            let own = |other: &usize| *other < last && self.layers[*other] == self.layers[stage];
            let alike = if stage == last { 1 } else { (stage..=last).take_while(own).count() };
            match alike {
                _ if stage == last => write!(f, "{}L", layers(stage))?,
                // The first one stands behind the embedding, which is not repeated.
                1 => write!(f, "{}|", layers(stage))?,
                _ if stage == 0 => {
                    write!(f, "{}|", layers(0))?;
                    stage = 1;
                    continue;
                }
                _ => write!(f, "({}|)*{alike}", layers(stage))?,
            }
            stage += alike;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Layout;

    fn read(text: &str) -> Result<Vec<u64>, String> {
        text.parse::<Layout>().map(|layout| layout.layers)
    }

    #[test]
    fn layouts_are_read_as_megatron_reads_them() {
        assert_eq!(read("Ettt|(tt|)*3,L"), Ok(vec![3, 2, 2, 2, 0]));
        assert_eq!(read("Et*3|(t*4|)*2t*3L"), Ok(vec![3, 4, 4, 3]));
        assert_eq!(read("E|t|*3L"), Ok(vec![0, 1, 0, 0, 0]));
        assert_eq!(read("E(tt|tt)*2L"), Ok(vec![2, 4, 2]));
        assert_eq!(read("EtL"), Ok(vec![1]));
    }

    #[test]
    fn what_is_no_layout_is_refused() {
        for (text, words) in [
            ("", "begins with the only `E`"),
            ("ttL", "begins with the only `E`"),
            ("EE|L", "begins with the only `E`"),
            ("Et|m|L", "further tokens"),
            ("Et|x|L", "`x` is not a letter"),
            ("E(t|L", "not closed"),
            ("E((t|)*2)*2L", "do not hold others"),
            ("E(t|)L", "are repeated"),
            ("Et*L", "behind `*`"),
            ("E(t*9999|)*99999L", "at most 65536"),
            ("Et*99999999999999999999L", "behind `*`"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        for layers in
            [vec![4], vec![1, 2], vec![3, 4, 4, 3], vec![4, 4, 4, 4], vec![0, 1, 1, 1, 0], vec![5, 5, 1, 2, 2, 7]]
        {
            let layout = Layout { layers };
            assert_eq!(layout.to_string().parse(), Ok(layout.clone()), "{layout}");
        }
        assert_eq!(Layout { layers: vec![19, 20, 20, 20, 20, 20, 7] }.to_string(), "Et*19|(t*20|)*5t*7L");
    }
}
