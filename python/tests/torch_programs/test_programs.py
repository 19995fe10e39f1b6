"""The examples of torch.distributed have the losses that they have under Gloo, by both faces."""

from __future__ import annotations

import functools
import json
import os
import shutil
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
SECONDS = {2: 240, 4: 400}
"""The longest time of a job of so many ranks: it runs every program under every backend."""
COUNTS = list(SECONDS) if os.environ.get("ROUNDELAY_CI") == "full" else [2]
OURS = ["python"]
if shutil.which(os.environ.get("CXX", "c++").split()[0]) is not None:
    OURS.append("compiled")


@pytest.fixture(autouse=True)
def deadline() -> None:
    """Leave the deadline to the ranks: all programs are run by the first test."""


@functools.cache
def results(count: int) -> list[dict[str, dict[str, Any]]]:
    """Return what each rank has: results by backend and program."""
    if "compiled" in OURS:
        from roundelay.torch import compiled

        # Once, before a deadline of ranks runs.
        compiled.module()
    seconds = SECONDS[count]
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=search_path())
    with tempfile.TemporaryDirectory() as folder:
        started = []
        for rank in range(count):
            job = [str(rank), str(count), folder, str(seconds), ",".join(["gloo", *OURS])]
            command = [sys.executable, str(HERE / "programs.py"), *job]
            with open(f"{folder}/log{rank}", "w") as log:
                started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT))
        try:
            codes = [process.wait(seconds + 20) for process in started]
        finally:
            for process in started:
                process.kill()
                process.wait()
        logs = [Path(f"{folder}/log{rank}").read_text()[-6000:] for rank in range(count)]
        assert codes == [0] * count, "\n----\n".join(logs)
        return [json.loads(Path(f"{folder}/result{rank}").read_text()) for rank in range(count)]


@pytest.mark.timeout(max(SECONDS.values()) + 300)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("face", OURS)
@pytest.mark.parametrize("name", programs.NAMES)
def test_program(name: str, face: str, count: int) -> None:
    for rank, found in enumerate(results(count)):
        gloo, ours = found["gloo"][name], found[face][name]
        for backend, outcome in (("gloo", gloo), (face, ours)):
            assert isinstance(outcome, dict), f"rank {rank}, {backend}: {outcome}"
        if count == 2:
            # Two ranks add two numbers: there is one order, so the results are the same bit for bit.
            assert ours == gloo, f"rank {rank}"
        else:
            assert ours.keys() == gloo.keys()
            for key, values in ours.items():
                assert values == pytest.approx(gloo[key], rel=1e-4), f"rank {rank}, {key}"
        assert all(values for values in ours.values())


def test_ways_to_train_agree() -> None:
    ddp, fsdp = (results(2)[0]["python"][name] for name in ("ddp", "fsdp"))
    assert ddp["fp16"] == pytest.approx(ddp["plain"], rel=1e-3) and ddp["fp16"] != ddp["plain"]
    assert ddp["uneven"][0] == ddp["plain"][0]
    assert fsdp["allocated"] == fsdp["fsdp2"]
    assert fsdp["hsdp"] == pytest.approx(fsdp["fsdp2"], rel=1e-5)
    assert fsdp["fsdp1"] == pytest.approx(fsdp["fsdp2"], rel=1e-5)


def test_ranks_have_data_of_their_own() -> None:
    first, second = (found["python"]["ddp"]["plain"] for found in results(2))
    assert first != second
    uneven = [len(found["python"]["ddp"]["uneven"]) for found in results(2)]
    assert uneven == [3, 4]
