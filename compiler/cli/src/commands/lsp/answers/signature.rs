//! Signature help.

use crate::commands::lsp::here::Here;
use pipe_ide::signature::signature;
use serde_json::{Value, json};

pub(in crate::commands::lsp) fn help(here: &Here<'_>) -> Value {
    let Some(signature) = signature(&here.place()) else { return Value::Null };
    let mut label = format!("{}(", signature.name);
    let units = |text: &str| text.encode_utf16().count();
    let mut parameters = Vec::new();
    for (index, parameter) in signature.parameters.iter().enumerate() {
        label.push_str(if index == 0 { "" } else { ", " });
        let start = units(&label);
        label.push_str(parameter);
        parameters.push(json!({"label": [start, units(&label)]}));
    }
    label.push(')');
    // Past the last parameter, so that clients highlight none.
    let active = signature.active.unwrap_or(parameters.len());
    let doc = json!({"kind": "markdown", "value": signature.doc});
    let told = json!({"label": label, "documentation": doc, "parameters": parameters, "activeParameter": active});
    json!({"signatures": [told], "activeSignature": 0, "activeParameter": active})
}
