#!/usr/bin/env bash
# What half an hour with an NVIDIA GPU can show: `benches/card.sh --help`. Needs Python 3.10 and the driver; no Rust, no network.
exec python3 "$(dirname "$0")/card.py" "$@"
