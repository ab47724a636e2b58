//! Sources as text: what is there, in which order, and that equal programs have equal texts.

use crate::kernels::Sources;
use pipe_ir::kernels::{Fusion, plan_with};
use pipe_kernel_cases::cases;
use pipe_runtime::Precision;

/// The sources of all cases.
fn sources_of_cases(precision: Precision) -> Sources {
    let mut sources = Sources::new(precision);
    for case in cases() {
        for kernel in &plan_with(&case.graph, Fusion::On).kernels {
            sources.launches(kernel);
        }
    }
    sources
}

#[test]
fn equal_programs_have_equal_texts() {
    assert_eq!(sources_of_cases(Precision::Bf16).text(), sources_of_cases(Precision::Bf16).text());
}

#[test]
fn a_text_has_each_function_once_and_no_word_in_capitals_is_left() {
    for precision in [Precision::Fp32, Precision::Tf32, Precision::Bf16] {
        let sources = sources_of_cases(precision);
        let text = sources.text();
        for name in sources.names() {
            assert_eq!(text.matches(&format!("{name}(")).count(), 1, "{name}");
        }
        assert_eq!(text.matches("__global__ void").count(), sources.names().count());
        for word in [
            "_REAL", "SIDE", "LAYOUT", "ALONG_K>", "MODE", "COLUMNS", "OTHERS", "BLOCKS", "STORED", "RESULT",
            "#include",
        ] {
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let left: Vec<&str> = code.filter(|line| line.contains(word) && !line.contains("bool ALONG_K>")).collect();
            assert!(left.is_empty(), "{left:?}");
        }
    }
}

#[test]
fn a_text_has_nothing_that_nobody_asked_for() {
    assert_eq!(Sources::default().text().matches("__global__").count(), 0);
}
