//! The files that the playground has: the `config.json` of published models, by the names that the book gives them.

/// Names and texts.
macro_rules! configs {
    ($($name:literal)*) => {
        const CONFIGS: &[(&str, &str)] =
            &[
                ("tiny_llama.json", include_str!("../../../examples/tiny_llama.json")),
                $((concat!($name, ".json"), include_str!(concat!("../../../tests/data/configs/", $name, ".json")))),*
            ];
    };
}

configs! {
    "gpt2" "gpt2_xl" "gpt3_175b" "llama2_7b" "llama2_13b" "llama2_70b" "llama3_8b" "llama3_70b" "llama3_405b"
    "mistral_7b" "mixtral_8x7b" "qwen1_5_moe_a2_7b" "qwen2_0_5b" "qwen2_7b" "qwen3_8b" "qwen3_30b_a3b"
}

/// The text of a file.
///
/// # Errors
/// If the playground does not have it, which ones it has.
pub(crate) fn loader(path: &str) -> Result<String, String> {
    if let Some((_, text)) = CONFIGS.iter().find(|(name, _)| *name == path) {
        return Ok((*text).to_owned());
    }
    let names: Vec<String> = CONFIGS.iter().map(|(name, _)| format!("`{name}`")).collect();
    Err(format!("the playground has no file `{path}`; it has {}, and `std.` paths", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::{CONFIGS, loader};
    use crate::answer::answer;
    use serde_json::{Value, json};
    use std::fs;
    use std::path::{Path, PathBuf};

    /// The pages of the book.
    fn pages(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).expect("a folder of the book").filter_map(Result::ok).map(|it| it.path());
        let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
        let is_page = |path: &PathBuf| path.extension().is_some_and(|end| end == "md");
        files.into_iter().filter(is_page).chain(folders.iter().flat_map(|folder| pages(folder))).collect()
    }

    #[test]
    fn every_config_of_a_source_in_the_book_is_there() {
        let mut n_sources = 0;
        for page in pages(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..")) {
            let text = fs::read_to_string(&page).expect("a page");
            for source in text.split("\n```pipe").skip(1).filter_map(|rest| rest.split("\n```").next()) {
                for path in source.split("\n    model \"").skip(1).filter_map(|rest| rest.split('"').next()) {
                    n_sources += 1;
                    loader(path).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
                }
            }
        }
        assert!(n_sources >= 12, "{n_sources}");
    }

    #[test]
    fn a_pipeline_of_each_is_compiled() {
        for (name, _) in CONFIGS {
            let source = format!(
                "pipeline p {{\n    model \"{name}\"(sequence = 512)\n    devices 4\n    microbatches 8\n    schedule 1f1b\n}}\n"
            );
            let told: Value = serde_json::from_str(&answer(&json!({ "source": source }).to_string())).expect("JSON");
            assert_eq!(told["report"]["ok"], true, "{name}: {}", told["report"]["diagnostics"]);
            assert!(told["report"]["model"]["parameters"].as_u64().is_some_and(|count| count > 1_000_000), "{name}");
        }
    }
}
