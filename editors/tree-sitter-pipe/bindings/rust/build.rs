//! Compiles the parser.

fn main() {
    let folder = std::path::Path::new("src");
    cc::Build::new().std("c11").include(folder).file(folder.join("parser.c")).compile("tree-sitter-pipe");
    println!("cargo:rerun-if-changed=src/parser.c");
}
