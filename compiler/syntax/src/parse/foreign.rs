//! Words that other systems have for tasks, and for what the compiler writes by itself.

/// The letter that other systems have another word for, with what it stands for.
pub(crate) fn letter(word: &str) -> Option<(&'static str, &'static str)> {
    Some(match word.to_ascii_lowercase().as_str() {
        "f" | "fwd" | "forward" | "fprop" => ("F", "the forward"),
        "bw" | "bwd" | "backward" | "full_backward" | "bprop" | "wb" => ("BW", "both halves of the backward"),
        "b" | "i" | "dgrad" | "bwd_i" | "backward_input" | "input_backward" | "bi" => {
            ("B", "the backward for the input")
        }
        "w" | "wgrad" | "bwd_w" | "backward_weight" | "backward_weights" | "weight_backward" => {
            ("W", "the backward for the weights")
        }
        "r" | "recompute" | "recomp" | "rematerialize" | "remat" => ("R", "the recomputation"),
        _ => return None,
    })
}

/// Why a word is not written in an order: what the compiler does by itself.
pub(crate) fn inferred(word: &str) -> Option<&'static str> {
    Some(match word.to_ascii_lowercase().as_str() {
        "send" | "recv" | "receive" | "isend" | "irecv" | "send_forward" | "recv_forward" | "send_backward"
        | "recv_backward" => "the compiler adds sends and receives where stages are on different devices",
        "wait" | "sync" | "synchronize" | "barrier" | "idle" | "noop" | "nop" | "bubble" | "sleep" => {
            "a device waits by itself until the inputs of its next task are there"
        }
        "step" | "optimizer" | "optimizer_step" | "update" | "all_reduce" | "allreduce" | "reduce" => {
            "the compiler adds sums of gradients and updates of weights"
        }
        _ => return None,
    })
}
