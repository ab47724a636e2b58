"""Finds the compiler, and keeps four processes that tests run on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from cluster import Cluster

ROOT = Path(__file__).resolve().parents[2]


def pytest_configure() -> None:
    """Sets `PIPEC` to the binary of this clone, unless it says another one. Sums of several threads would have other
    bits.
    """
    torch.set_num_threads(1)
    places = [ROOT / "target" / profile / "pipec" for profile in ("debug", "release")]
    found = next((str(place) for place in places if place.exists()), shutil.which("pipec"))
    if found is not None:
        os.environ.setdefault("PIPEC", found)
    if "PIPEC" not in os.environ:
        pytest.exit("there is no `pipec`: `cargo build` makes target/debug/pipec, or let PIPEC name one", returncode=2)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Four ranks over gloo, started once."""
    running = Cluster(4, tmp_path_factory.mktemp("cluster") / "rendezvous")
    yield running
    running.stop()
