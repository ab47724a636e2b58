#!/usr/bin/env bash
# Checks and measures pipec on an NVIDIA GPU: see `benches/card.sh --help`. It needs Python 3.10 and the driver.
exec python3 "$(dirname "$0")/card.py" "$@"
