"""A rank that hangs or makes another call over Gloo is named on all ranks, in seeded cases."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import jobs
import observed_cases
import pytest

pytest.importorskip("torch", reason="process groups are torch's")

RANKS = 3


SEED = 1
BEFORE = observed_cases.KINDS
LATE = ("hang", "operation", "operator")
"""Kinds that Gloo does not answer by the end of a process."""
ORDER = (*[(kind, "before") for kind in BEFORE], *[(kind, "late") for kind in LATE], ("hang", "bare"))


@functools.cache
def results() -> tuple[Path, list[list[str]]]:
    """Return the folder of a job that runs all cases, and what is wrong with the errors of each."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, True)
    return folder, jobs.run_cases(folder, RANKS, SEED, ORDER)


@pytest.mark.parametrize("number", range(len(ORDER) - 1), ids=["-".join(each) for each in ORDER[:-1]])
def test_the_culprit_is_named_on_every_rank(number: int) -> None:
    assert results()[1][number] == []


def test_without_observation_the_culprit_is_not_named() -> None:
    """The judge can fail: Gloo's own error of a hang names no rank at fault."""
    problems = results()[1][-1]
    assert len(problems) >= RANKS - 1 and all("not OperationTimeoutError" in each for each in problems), problems


@pytest.mark.parametrize("number", range(len(ORDER) - 1), ids=["-".join(each) for each in ORDER[:-1]])
def test_the_doctor_names_the_culprit_by_the_flight_records(number: int, command: str) -> None:
    folder = results()[0]
    case = observed_cases.plan(number, SEED, RANKS, ORDER)
    files = sorted(map(str, folder.glob(f"flight-{number}-*.json")))
    assert len(files) == RANKS
    done = subprocess.run([command, "doctor", *files], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    cause = done.stdout.partition("cause: ")[2]
    if case.kind == "hang":
        assert f"rank {case.culprit} " in cause and "has not made call " in cause, done.stdout
    else:
        assert f"call {case.at} is not the same on all ranks" in cause, done.stdout
        assert f"rank {case.culprit} makes {case.wrong.name}" in cause, done.stdout
