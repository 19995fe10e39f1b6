"""Observed groups do what Gloo does, are recorded, and have no verdict where nothing is wrong."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import jobs
import pytest

torch = pytest.importorskip("torch", reason="process groups are torch's")

RANKS = 3


@functools.cache
def found() -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        results = jobs.start("behaviour.py", RANKS, Path(folder), seconds=110)
        assert None not in results, jobs.logs(Path(folder), RANKS)
        return results


def of(name: str) -> list[Any]:
    results = [each[name] for each in found()]
    for result in results:
        assert not (isinstance(result, str) and "Traceback" in result), result
    return results


def test_results_are_those_of_gloo() -> None:
    assert of("right") == ["right"] * RANKS


def test_a_check_finds_what_has_ended() -> None:
    for peer, text in of("checked"):
        assert "call 12 is not the same on all ranks: rank 1 makes all_reduce of 3 x f32 with max" in text
        assert "ranks 0 and 2 make all_reduce of 3 x f32 with sum" in text
        assert peer == 1


def test_training_is_recorded() -> None:
    assert of("trained") == [[True, True]] * RANKS


def test_functional_collectives_are_observed() -> None:
    assert of("functional") == [[6.0, 3.0, 2]] * RANKS


def test_the_recorder_of_torch_has_the_calls() -> None:
    if torch.__version__ < "2.15":
        pytest.skip(f"torch {torch.__version__} records no backend but its own")
    expected = [
        ["gloo:all_reduce", [[6]], ["Float"]],
        ["gloo:_all_gather_base", [[2]], ["Float"]],
        ["gloo:all_reduce", [[2]], ["Long"]],
    ]
    assert of("dumped") == [expected] * RANKS


def test_messages_that_no_thread_waits_for_are_not_overdue() -> None:
    assert of("dropped") == ["none"] * RANKS


def test_what_cannot_be_observed_is_refused() -> None:
    for again, number, unknown, error, count, later in of("refused"):
        assert "is observed already: call it once for a group" in again
        assert "observe takes a process group of torch.distributed or a communicator" in number
        assert "is not observed: call roundelay.observe first" in unknown
        assert error in ("RuntimeError", "ValueError") and (count, later) == ("1", "1")


def test_the_package_needs_no_torch() -> None:
    import subprocess
    import sys

    from place import search_path

    code = "import sys, roundelay; assert callable(roundelay.observe); print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": search_path()}, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "False\n", done.stderr
