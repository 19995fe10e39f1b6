"""Jobs of the tests of observation: processes that are ranks, and what they have found."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import observed_cases
from place import search_path

HERE = Path(__file__).resolve().parent


def free_port() -> int:
    """Return a port of the loopback that is free now."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def start(
    program: str, ranks: int, folder: Path, *arguments: object, seconds: float, waited: int | None = None
) -> list[Any]:
    """Run a program of this folder as ranks; return what each has found, and None of one that has ended otherwise.

    The first ``waited`` ranks have to end, all by default; the others are killed then.
    """
    variables = dict(
        os.environ,
        PYTHONPATH=search_path(str(HERE)),
        OMP_NUM_THREADS="1",
        ROUNDELAY_TEST_PORT=str(free_port()),
    )
    processes = []
    for rank in range(ranks):
        command = [sys.executable, str(HERE / program), str(rank), str(ranks), str(folder), *map(str, arguments)]
        with open(folder / f"log{rank}", "w") as log:
            processes.append(subprocess.Popen(command, env=variables, stdout=log, stderr=subprocess.STDOUT))
    try:
        for process in processes[:waited]:
            process.wait(seconds)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"{program} has not ended in {seconds} s\n{logs(folder, ranks)}") from None
    finally:
        for process in processes:
            process.kill()
            process.wait()
    results = [folder / f"result{rank}" for rank in range(ranks)]
    return [json.loads(each.read_text()) if each.exists() else None for each in results]


def logs(folder: Path, ranks: int) -> str:
    """Return the end of what each rank has printed."""
    return "\n----\n".join((folder / f"log{rank}").read_text()[-4000:] for rank in range(ranks))


def run_cases(
    folder: Path, ranks: int, seed: int, order: Sequence[tuple[str, str]], count: int | None = None
) -> list[list[str]]:
    """Run cases of kinds and checks; return what is wrong with the errors of the ranks in each, a line a rank."""
    count = len(order) if count is None else count
    given = (count, seed, json.dumps(order))
    found = start("observed_cases.py", ranks, folder, *given, seconds=60 + 10 * count)
    if None in found:
        return [[f"a rank has not ended:\n{logs(folder, ranks)}"]] * count
    problems = []
    for number in range(count):
        case = observed_cases.plan(number, seed, ranks, order)
        judged = [(rank, judge(case, rank, found[rank][number])) for rank in range(ranks)]
        problems.append([f"case {number} ({case.kind}, {case.check}), rank {r}: {text}" for r, text in judged if text])
    return problems


def judge(case: observed_cases.CasePlan, rank: int, found: dict[str, Any]) -> str:
    """Return what is wrong with the error of a rank; empty if nothing is."""
    said = f"{found['error']}, {found['seconds']:.1f} s: {found['text']}"
    if found["seconds"] > observed_cases.DEADLINE:
        return f"too late: {said}"
    expected = "OperationTimeoutError" if case.kind == "hang" else "MismatchError"
    if found["error"] != expected:
        return f"not {expected}: {said}"
    if rank != case.culprit and found["peer"] != case.culprit:
        return f"the culprit is rank {case.culprit}, not {found['peer']}: {said}"
    if rank == case.culprit and f"this is rank {rank}" not in found["text"]:
        return f"it does not know itself: {said}"
    right = case.calls[-1]
    words = [f"rank {case.culprit} ", f"call {case.at}", f"rank {rank} "]
    if case.kind != "hang":
        words += [f"rank {case.culprit} makes {case.wrong.name}", f" make {right.name}"]
    elif rank != case.culprit:
        words += [f"rank {case.culprit} has not made call {case.at}", " s ago"]
        # Where a call has ended for this rank, as a gather for those that only send, it waits in the next one.
        own = re.search(rf"rank {rank} has made call (\d+), (\w+)", found["text"])
        if own is None or int(own[1]) < case.at or (int(own[1]) == case.at and own[2] != right.name):
            return f"what this rank has called is not in: {said}"
    missing = [word for word in words if word not in found["text"]]
    return f"{missing} not in: {said}" if missing else ""


def named(found: dict[str, Any], error: str, *words: str) -> None:
    """Assert that an error is of a class, names rank 2 as the one at fault, says some words, and came in time."""
    assert found["error"] == error and found["peer"] == 2 and found["seconds"] < 12, found
    for word in words:
        assert word in found["text"], found
