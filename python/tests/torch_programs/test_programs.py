"""The examples of torch.distributed have the losses that they have under Gloo."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import programs
import pytest
from place import search_path

pytest.importorskip("torch", reason="the examples are programs of torch.distributed")

HERE = Path(__file__).parent
RANKS = 2
SECONDS = 200
DEADLINE = SECONDS + 40


@pytest.fixture(autouse=True)
def deadline() -> None:
    """Leave the deadline to the ranks: all programs are run by the first test."""


@functools.cache
def results() -> list[dict[str, dict[str, Any]]]:
    """Return what each rank has: results by backend and program."""
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=search_path())
    with tempfile.TemporaryDirectory() as folder:
        started = []
        for rank in range(RANKS):
            command = [sys.executable, str(HERE / "programs.py"), str(rank), str(RANKS), folder, str(SECONDS)]
            with open(f"{folder}/log{rank}", "w") as log:
                started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT))
        try:
            codes = [process.wait(SECONDS + 20) for process in started]
        finally:
            for process in started:
                process.kill()
                process.wait()
        logs = [Path(f"{folder}/log{rank}").read_text()[-6000:] for rank in range(RANKS)]
        assert codes == [0] * RANKS, "\n----\n".join(logs)
        return [json.loads(Path(f"{folder}/result{rank}").read_text()) for rank in range(RANKS)]


@pytest.mark.timeout(DEADLINE)
@pytest.mark.parametrize("name", programs.NAMES)
def test_program(name: str) -> None:
    for rank, found in enumerate(results()):
        gloo, ours = (found[backend][name] for backend in programs.BACKENDS)
        for backend, outcome in zip(programs.BACKENDS, (gloo, ours), strict=True):
            assert isinstance(outcome, dict), f"rank {rank}, {backend}: {outcome}"
        # Two ranks add two numbers: there is one order, so the results are the same bit for bit.
        assert ours == gloo, f"rank {rank}"
        assert all(values for values in ours.values())


def test_ways_to_train_agree() -> None:
    ddp, fsdp = (results()[0]["roundelay"][name] for name in ("ddp", "fsdp"))
    assert ddp["fp16"] == pytest.approx(ddp["plain"], rel=1e-3) and ddp["fp16"] != ddp["plain"]
    assert ddp["uneven"][0] == ddp["plain"][0]
    assert fsdp["hsdp"] == pytest.approx(fsdp["fsdp2"], rel=1e-5)
    assert fsdp["fsdp1"] == pytest.approx(fsdp["fsdp2"], rel=1e-5)


def test_ranks_have_data_of_their_own() -> None:
    first, second = (found["roundelay"]["ddp"]["plain"] for found in results())
    assert first != second
    uneven = [len(found["roundelay"]["ddp"]["uneven"]) for found in results()]
    assert uneven == [3, 4]
