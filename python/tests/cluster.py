"""Processes that run what tests ask them to, over gloo: starting them once takes longer than all tests."""

from __future__ import annotations

import faulthandler
import importlib
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

ALL = pytest.mark.skipif("PIPEC_ALL" not in os.environ, reason="takes long: PIPEC_ALL=1")
"""A test of `.ci/full`."""
PATIENCE = 180.0
"""Seconds until an answer that does not come is a failure."""
PATIENCE_TO_START = 240.0
"""The same for processes that start."""
IMPORTED = [
    "pipec.torch",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "torch._dynamo",
    "torch.export",
    "numpy",
]
"""What takes long to import: one process does so, and the others are forked from it."""
OLD = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 15)
"""Whether torch cannot make process groups within a group."""


def needs_groups_within_a_group(needs: bool = True) -> None:
    """Skips a test that does, where torch cannot make them."""
    if needs and OLD:
        pytest.skip("torch before 2.15 cannot make groups within a group")


class Cluster:
    """Some ranks; `run` calls a function on the first of them."""

    def __init__(self, size: int, rendezvous: Path) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(IMPORTED)
        self._connections: list[Connection] = []
        self._processes = []
        self._stuck = False
        for rank in range(size):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there, rank, size, str(rendezvous)), daemon=True)
            process.start()
            self._connections.append(here)
            self._processes.append(process)
        for rank, connection in enumerate(self._connections):
            if not connection.poll(PATIENCE_TO_START):
                raise TimeoutError(f"rank {rank} has not started for {PATIENCE_TO_START} seconds")
            connection.recv()

    def run(self, function: Callable[..., Any], n_ranks: int, *arguments: Any) -> list[Any]:
        """Calls `function(rank, group, *arguments)` on the first ranks, whose group it is, and returns what each
        returned.
        """
        assert not self._stuck, "an earlier test is stuck on the cluster"
        call = (function.__module__, function.__name__, n_ranks, arguments)
        for connection in self._connections:
            connection.send(call)
        answers = []
        for rank, connection in enumerate(self._connections):
            if not connection.poll(PATIENCE):
                self._stuck = True
                for process in self._processes:
                    os.kill(process.pid or 0, signal.SIGUSR1)
                raise TimeoutError(f"rank {rank} has not answered `{function.__name__}` for {PATIENCE} seconds")
            answers.append(connection.recv())
        for rank, (_, failure) in enumerate(answers):
            if failure is not None:
                raise AssertionError(f"rank {rank}: {failure}")
        return [answer for answer, _ in answers[:n_ranks]]

    def stop(self) -> None:
        """Ends the processes."""
        for connection in self._connections:
            connection.send(None)
        for process in self._processes:
            process.join(0 if self._stuck else 5)
            if process.is_alive():
                process.kill()


def _count_alike(size: int) -> None:
    """Ranks that were not asked have made no groups, and torch names the next one by how many a rank has made."""
    world = dist.distributed_c10d._world
    counts: list[Any] = [None] * size
    dist.all_gather_object(counts, world.group_count)
    world.group_count = max(counts)


def _serve(connection: Connection, rank: int, size: int, rendezvous: str) -> None:
    torch.set_num_threads(1)
    faulthandler.register(signal.SIGUSR1)
    dist.init_process_group("gloo", rank=rank, world_size=size, init_method=f"file://{rendezvous}")
    groups = {count: dist.new_group(list(range(count))) for count in range(1, size + 1)}
    connection.send("ready")
    while (call := connection.recv()) is not None:
        module, function, count, arguments = call
        answer, failure = None, None
        if rank < count:
            try:
                answer = getattr(importlib.import_module(module), function)(rank, groups[count], *arguments)
            except BaseException:
                failure = traceback.format_exc()
                print(f"rank {rank}: {failure}", file=sys.stderr, flush=True)
        _count_alike(size)
        connection.send((answer, failure))
    os._exit(0)
