#!/usr/bin/env bash
# Builds the playground: docs/playground/dist/index.html, one file for any file server, or to be opened where it lies.
set -euo pipefail
cd "$(dirname "$0")/../.."
target="${CARGO_TARGET_DIR:-$PWD/target}"
rustup target list --installed 2>/dev/null | grep -q wasm32-unknown-unknown || rustup target add wasm32-unknown-unknown
cargo build --locked --quiet --profile playground -p pipe-playground --lib --target wasm32-unknown-unknown
# With the features of the whole workspace, so that this and tests share what is built.
cargo build --locked --quiet --workspace --example page
mkdir -p docs/playground/dist
wasm="$target/wasm32-unknown-unknown/playground/pipe_playground.wasm"
gzip -9nc "$wasm" | base64 -w0 | "$target/debug/examples/page" >docs/playground/dist/index.html
# The book asks for this script to know whether the playground is there.
echo 'globalThis.hasPlayground = true;' >docs/playground/dist/built.js
kib() { echo "$(($(stat -c %s "$1") / 1024)) KiB"; }
printf 'docs/playground/dist/index.html: %s, with a compiler of %s\n' "$(kib docs/playground/dist/index.html)" "$(kib "$wasm")"
