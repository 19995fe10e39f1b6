"""Ranks that are killed or stopped while they train, and groups that come and go, in both faces."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import faults
import pytest
from place import search_path

pytest.importorskip("torch", reason="the backend of torch.distributed needs torch")

HERE = Path(__file__).resolve().parent
FACES = ["python", "compiled"]


@pytest.fixture(params=FACES)
def face(request: pytest.FixtureRequest) -> str:
    """Return which face is tried; compile it before a deadline of ranks runs."""
    name: str = request.param
    if name == "compiled":
        if shutil.which(os.environ.get("CXX", "c++").split()[0]) is None:
            pytest.skip("the face in C++ needs a C++ compiler, and there is none")
        from roundelay.torch import compiled

        compiled.module()
    return name


def campaign(folder: Path, case: str, rounds: int, face: str = "python", *more: str) -> dict[str, Any]:
    """Return the result of a case."""
    environment = dict(
        os.environ,
        PYTHONPATH=search_path(str(HERE)),
        OMP_NUM_THREADS="1",
        ROUNDELAY_TORCH_COMPILED="1" if face == "compiled" else "0",
    )
    command = [sys.executable, str(HERE / "campaign.py"), case, "--rounds", str(rounds), "--folder", str(folder), *more]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110)
    results = [line for line in ended.stdout.splitlines() if line.startswith("{")]
    assert ended.returncode == 0 and results, ended.stdout + ended.stderr
    found: dict[str, Any] = json.loads(results[0])
    return found


def test_survivors_name_the_rank_and_the_operation(face: str, tmp_path: Path) -> None:
    # Each way of being hurt at each place.
    found = campaign(tmp_path, "hurt", 8, face)
    assert found["problems"] == []
    assert sum(found["kinds"].values()) == 8


def test_errors_that_do_not_name_them_are_seen(tmp_path: Path) -> None:
    found = campaign(tmp_path, "hurt", 2, "python", "--backend", "gloo")
    assert any("does not name rank or operation" in problem for problem in found["problems"]), found


@pytest.mark.parametrize("of", ["native", "torch", "torchcomms"])
def test_survivors_of_every_fault_name_the_rank(of: str, tmp_path: Path) -> None:
    # Each kind over each transport.
    found = campaign(tmp_path, "faults", 18, "python", "--ranks", "3", "--faces", of)
    assert found["problems"] == []
    assert sum(row["right"] for row in found["rows"]) == 2 * 18


def test_the_first_rank_that_is_blamed_is_found() -> None:
    text = "rank 2 stopped because rank 0 failed: rank 0, all_reduce.ring, step 3 (ring.algo:4): waited 2s for rank 1"
    assert faults.first_named(text, 2) == 1
    assert faults.first_named("rank 0, all_reduce.ring, step 3: rank 2 is alive; rank 1 is stopped", 0) == 2
    assert faults.first_named("rank 0 has failed", 0) is None
    text = "rank 2 stopped because rank 0 failed: abort was called; rank 2, all_reduce.ring, step 3 (ring.algo:4)"
    assert faults.first_named(text, 2) == 0


@pytest.mark.parametrize(("case", "rounds"), [("cycles", 40), ("groups", 150)])
def test_groups_leave_nothing(case: str, rounds: int, face: str, tmp_path: Path) -> None:
    assert campaign(tmp_path, case, rounds, face)["problems"] == []


def test_a_leak_is_seen(tmp_path: Path) -> None:
    problems = "\n".join(campaign(tmp_path, "leaky", 100)["problems"])
    for what in ("descriptors grew", "mappings grew", "memory grew"):
        assert what in problems


def test_a_hundred_groups_live_at_once(face: str, tmp_path: Path) -> None:
    found = campaign(tmp_path, "alive", 100, face)
    assert found["problems"] == []
    for before, *_, after in found["ranks"]:
        # What docs/pytorch.md says.
        assert (after["descriptors"] - before["descriptors"]) / 100 <= 8
        assert after["threads"] - before["threads"] <= 104
