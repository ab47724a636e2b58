//! The library: files of CUDA C. A name has words in capitals, which stand for types and the like
//! in the file's text as in its name.

/// A file, and what it needs before it: names of files; `team_REAL=f64` is a file for one type
/// whatever the type of who needs it.
pub(super) struct File {
    pub(super) name: &'static str,
    pub(super) text: &'static str,
    pub(super) needs: &'static [&'static str],
}

macro_rules! files {
    ($($name:ident [$($need:literal),*])*) => {
        const FILES: &[File] = &[$(File {
            name: stringify!($name),
            text: include_str!(concat!("cu/", stringify!($name), ".cu")),
            needs: &[$($need),*],
        }),*];
    };
}

files! {
    prelude []
    step []
    working []
    index []
    team_REAL []
    four []
    weight_REAL []
    peak_REAL ["four", "weight_REAL"]
    fold_REAL []
    columns_REAL ["four", "working", "fold_REAL"]
    softmax_REAL_STORED_RESULT ["peak_REAL"]
    softmax_grad_REAL_STORED_RESULT ["team_REAL"]
    cross_entropy_REAL_STORED_xLANES ["index", "working", "team_REAL=f64", "peak_REAL"]
    cross_entropy_grad_REAL_STORED_RESULT_xLANES ["index", "peak_REAL"]
    norm_statistics_REAL_STORED_xLANES ["four", "team_REAL"]
    normalize_REAL_STORED_RESULT_xLANES ["four"]
    normalize_grad_input_REAL_STORED_RESULT_xLANES ["four", "team_REAL"]
    normalize_grad_gain_REAL_STORED_xLANES ["columns_REAL"]
    sum_columns_REAL_STORED_xLANES ["columns_REAL"]
    sum_rows_REAL_STORED ["team_REAL"]
    gather_REAL ["index"]
    scatter_add_REAL_STORED ["index"]
    positions_REAL []
    powers_REAL []
    order_REAL []
    top_k_REAL_STORED ["order_REAL"]
    take_along_REAL_STORED ["index"]
    add_along_REAL_RESULT ["index"]
    own_indices ["index"]
    route_rows ["index"]
    routed_REAL []
    routed_gemm_REAL_STORED ["routed_REAL"]
    routed_gemm_grad_REAL_STORED ["product", "routed_REAL"]
    zero_REAL []
    copy_tiles_REAL []
    product []
    strip []
    mma []
    gemm_REAL_SIDE_LAYOUT ["product", "strip"]
    gemm_MODE_REAL_RESULT_COLUMNS_LAYOUT ["product", "strip", "mma"]
    attention ["product"]
    attention_REAL ["attention", "weight_REAL", "strip"]
    attention_forward_REAL_STORED_RESULT_GROUPS ["attention_REAL"]
    attention_statistics_REAL_STORED ["attention_REAL"]
    attention_grad_queries_REAL_STORED_RESULT_GROUPS ["attention_REAL"]
    attention_grad_keys_REAL_STORED_RESULT_GROUPS ["attention_REAL"]
    attention_MODE ["attention", "mma"]
    attention_forward_MODE_STORED_RESULT_WIDTH ["attention_MODE"]
    attention_statistics_MODE_STORED_WIDTH ["attention_MODE"]
    attention_grad_queries_MODE_STORED_RESULT_WIDTH_SPAN ["attention_MODE"]
    attention_grad_keys_MODE_STORED_RESULT_WIDTH_SPAN ["attention_MODE"]
    squares_REAL ["team_REAL=f64"]
    add_sums ["team_REAL=f64"]
    adamw_REAL ["step"]
    lion_REAL ["step"]
    muon_momentum_REAL ["step"]
    muon_step_REAL ["step"]
    plain_sgd_REAL ["step"]
    momentum_sgd_REAL ["step"]
}

/// The file of this name.
pub(super) fn file_of(name: &str) -> &'static File {
    FILES.iter().find(|file| file.name == name).expect("whoever names a file names one of this list")
}

/// A text with these words in place of its own.
pub(super) fn substituted(text: &str, words: &[(&str, &str)]) -> String {
    words.iter().fold(text.to_owned(), |text, (word, meaning)| text.replace(word, meaning))
}

/// The name of a file's function, which is that of the file with these words in place of its own.
pub(super) fn instance_name(name: &str, words: &[(&str, &str)]) -> String {
    substituted(name, words)
}
