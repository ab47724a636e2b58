//! Files in JSON that are no targets: what each seems to be, and what reads it.

use serde_json::{Map, Value};

/// Keys of the `config.json` of a model; two of them are enough.
const CONFIG: [&str; 8] = [
    "architectures",
    "hidden_size",
    "model_type",
    "n_embd",
    "n_layer",
    "num_attention_heads",
    "num_hidden_layers",
    "vocab_size",
];

/// What programs of this tool write, by the name of its schema, and what reads that.
const OWN: [(&str, &str, &str); 5] = [
    ("pipec.profile/", "times that `pipec profile` measured", "give a target, and this file with `--profile`"),
    ("pipec.program/", "a program as JSON", "write it with `--emit ir`: `check` and `run` take a program as `.ir`"),
    ("pipec.search/", "a report of `pipec search`", "its `source` is a target: `pipec search TARGET -o found.pipe`"),
    ("pipec.tune/", "a report of `pipec tune`", "write the best as a target: `pipec tune TARGET -o best.pipe`"),
    ("pipec.", "a report", "give the target that it is about"),
];

/// What a JSON file seems to be, and the option that reads it. `None` where the name does not end in `.json`.
pub(super) fn about(name: &str, text: &str) -> Option<String> {
    if !name.ends_with(".json") {
        return None;
    }
    let (what, instead) = match serde_json::from_str(text) {
        Ok(Value::Object(object)) => of_object(name, &object),
        Ok(_) => ("JSON, but not an object".to_owned(), NO_TARGET.to_owned()),
        Err(error) => {
            (format!("not a text in JSON (line {}, column {})", error.line(), error.column()), NO_TARGET.into())
        }
    };
    Some(format!("`{name}` is {what}: {instead}"))
}

/// What targets are.
const NO_TARGET: &str = "a target is a `.pipe` or `.ir` file, a table of PyTorch as `.csv`, or `std:NAME`";

fn of_object(name: &str, object: &Map<String, Value>) -> (String, String) {
    let has = |key: &&&str| object.contains_key(**key);
    let schema = object.get("schema").and_then(Value::as_str).unwrap_or_default();
    if let Some((_, what, instead)) = OWN.iter().find(|(own, ..)| schema.starts_with(own)) {
        return ((*what).to_owned(), instead.replace("{}", name));
    }
    if object.contains_key("traceEvents") {
        return ("a trace".to_owned(), format!("give the target that ran, and this file: `pipec diff TARGET {name}`"));
    }
    if object.keys().any(|key| is_of_megatron(key)) {
        let options = "give the `config.json` of the model as the target, and these as options: `--megatron \"torchrun \
                       --nproc-per-node 8 .. --tensor-model-parallel-size 2 ..\"`";
        return ("a list of Megatron-LM's arguments".to_owned(), options.to_owned());
    }
    if CONFIG.iter().filter(has).count() >= 2 {
        let model = object.get("model_type").and_then(Value::as_str);
        let what = model.map_or_else(|| "of a model".to_owned(), |model| format!("of a model, `{model}`"));
        let instead = format!(
            "name it in a pipeline, `model \"{name}\"(sequence = 4096)`, or add the options of Megatron-LM that divide \
             it, `--megatron \"torchrun --nproc-per-node 8 .. --pipeline-model-parallel-size 4 ..\"`"
        );
        return (format!("the configuration {what}"), instead);
    }
    ("settings in JSON".to_owned(), NO_TARGET.to_owned())
}

/// Whether this is how Megatron-LM names an argument that says how a job is divided.
fn is_of_megatron(key: &str) -> bool {
    let key = key.trim_start_matches('-').replace('-', "_");
    key.ends_with("_model_parallel_size") || matches!(key.as_str(), "micro_batch_size" | "global_batch_size")
}

#[cfg(test)]
mod tests {
    use super::about;

    #[test]
    fn files_are_told_by_what_stands_in_them() {
        let cases = [
            (r#"{"model_type": "llama", "hidden_size": 64}"#, "the configuration of a model, `llama`"),
            (r#"{"n_embd": 64, "n_layer": 2}"#, "the configuration of a model:"),
            (r#"{"hidden_size": 64}"#, "settings in JSON"),
            (r#"{"tensor_model_parallel_size": 2, "hidden_size": 64, "vocab_size": 9}"#, "Megatron-LM's arguments"),
            (r#"{"--micro-batch-size": 2}"#, "Megatron-LM's arguments"),
            (r#"{"schema": "pipec.profile/1"}"#, "`--profile`"),
            (r#"{"schema": "pipec.check/1"}"#, "a report"),
            (r#"{"traceEvents": []}"#, "`pipec diff TARGET x.json`"),
            ("[]", "JSON, but not an object"),
            ("{", "not a text in JSON (line 1, column 1)"),
        ];
        for (text, wanted) in cases {
            let said = about("x.json", text).expect("its name ends so");
            assert!(said.contains(wanted), "{text}: {said}");
        }
        assert_eq!(about("x.pipe", "{}"), None);
    }
}
