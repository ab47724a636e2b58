//! The examples that the page offers beside the standard schedules: each one shows one thing, some of them an error.

use serde::Serialize;

/// Examples of one subject.
#[derive(Serialize)]
pub(crate) struct Group {
    subject: &'static str,
    examples: &'static [Example],
}

/// A source, whose only files are models that the page has.
#[derive(Serialize)]
struct Example {
    /// What it shows, in a few words.
    shows: &'static str,
    source: &'static str,
    /// The code of the error that it is there for; none if it is accepted.
    error: Option<&'static str>,
}

const fn accepted(shows: &'static str, source: &'static str) -> Example {
    Example { shows, source, error: None }
}

const fn rejected(shows: &'static str, source: &'static str, error: &'static str) -> Example {
    Example { shows, source, error: Some(error) }
}

/// A file of the folder `examples/`, which also explains how it is run.
macro_rules! example {
    ($name:literal) => {
        include_str!(concat!("../../../examples/", $name, ".pipe"))
    };
}

/// A file that is written for this page.
macro_rules! own {
    ($name:literal) => {
        include_str!(concat!("../examples_menu/", $name, ".pipe"))
    };
}

/// In the order of the menu.
pub(crate) const GROUPS: &[Group] = &[
    Group {
        subject: "what goes wrong",
        examples: &[
            rejected("a deadlock", own!("deadlock"), "deadlock"),
            rejected("memory that does not suffice", own!("does_not_fit"), "memory-exceeded"),
            rejected("a name with a fix", own!("misspelt"), "unknown-name"),
        ],
    },
    Group {
        subject: "a schedule of your own",
        examples: &[
            accepted("1F1B in ten lines", example!("first_schedule")),
            accepted("an order by hand", example!("by_hand")),
            accepted("unequal stages", own!("unequal_stages")),
        ],
    },
    Group {
        subject: "models",
        examples: &[
            accepted("a model and its pipeline", example!("mlp")),
            accepted("branches that join", example!("two_tower")),
            accepted("skip connections", example!("unet")),
            accepted("Llama 3 70B by its sizes", example!("llama3_70b")),
        ],
    },
    Group {
        subject: "less memory",
        examples: &[
            accepted("recomputation", example!("recompute")),
            accepted("activations in the host's memory", example!("offload_activations")),
            accepted("weights and optimizer in the host's memory", example!("offload")),
            accepted("ZeRO with replicas", example!("zero")),
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::GROUPS;
    use crate::answer::answer;
    use serde_json::{Value, json};

    #[test]
    fn each_is_accepted_or_shows_its_error() {
        for example in GROUPS.iter().flat_map(|group| group.examples) {
            let told = answer(&json!({ "source": example.source }).to_string());
            let told: Value = serde_json::from_str(&told).expect("JSON");
            let findings = told["report"]["diagnostics"].as_array().expect("findings");
            let codes: Vec<&Value> = findings.iter().map(|finding| &finding["code"]).collect();
            let wanted: Vec<&str> = example.error.into_iter().collect();
            assert_eq!(codes, wanted, "{}: {}", example.shows, told["report"]["diagnostics"]);
            assert_eq!(told["report"]["ok"], example.error.is_none(), "{}", example.shows);
        }
    }
}
