"""The backend for groups of Ray's actors, with Ray itself and actors in processes of their own."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from place import search_path

PROGRAM = Path(__file__).parent / "ray_actors.py"


def reason() -> str:
    """Return why there is no Ray to test with. It is not imported: the tests of a stand-in run in this process."""
    found = importlib.util.find_spec("ray")
    if found is None or found.origin is None:
        return "Ray is not installed"
    registry = Path(found.origin).parent / "util" / "collective" / "backend_registry.py"
    if not registry.is_file() or "def register_collective_backend(" not in registry.read_text():
        return "this Ray has no ray.util.collective.register_collective_backend: 2.60.0 has it"
    return ""


pytestmark = pytest.mark.skipif(bool(reason()), reason=reason())


@functools.cache
def found() -> dict[str, Any]:
    """Run all cases with one Ray, and return what each has found."""
    environment = dict(
        os.environ,
        PYTHONPATH=search_path(),
        OMP_NUM_THREADS="1",
        RAY_USAGE_STATS_ENABLED="0",
        RAY_AUTH_MODE="disabled",
    )
    program = subprocess.Popen(
        [sys.executable, str(PROGRAM)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = program.communicate(timeout=280)
    except subprocess.TimeoutExpired:
        os.killpg(program.pid, signal.SIGKILL)
        output, _ = program.communicate()
        raise AssertionError("the actors have not ended in 280 s\n" + output) from None
    assert program.returncode == 0, output
    cases: dict[str, Any] = {}
    for line in output.splitlines():
        if line.startswith("{"):
            cases.update(json.loads(line))
    return cases


def case(name: str) -> Any:
    result = found()[name]
    assert not isinstance(result, dict), f"seed {result['seed']}\n{result['failed']}"
    return result


@pytest.mark.parametrize("size", [2, 3])
def test_every_operation_is_that_of_numpy(size: int) -> None:
    first, operations, left, *again = case(f"operations_{size}")
    assert first == [[rank, size] for rank in range(size)]
    count = operations[0][0]
    # By each operator: allreduce, reducescatter and a reduce to each; then allgather, broadcast, and a message.
    each = 4 * (2 + size) + size + size + 1
    assert count in (15 * each, 2 * 15 * each), "with numpy, and with torch where it is installed"
    assert operations == [[count, []]] * size
    assert left == [False] * size
    assert again == [first, operations, left], "a later group of the same name"


def test_a_group_that_the_driver_declares() -> None:
    assert case("declared") == [3.5, 3.5, False, False]


def test_a_barrier_waits_for_the_last() -> None:
    times = case("barrier")
    last = max(came for came, _ in times)
    assert len(times) == 3 and all(went >= last for _, went in times), times


def test_an_actor_is_in_two_groups() -> None:
    assert case("two_groups") == [[3.0] * 3, [2.0] * 2, [6.0] * 3]


def test_others_are_told_of_a_killed_actor() -> None:
    errors, left, joined, sums = case("killed")
    assert len(errors) == 2
    for kind, text, _, seconds in errors:
        assert kind == "LostRankError" and "rank 1 is gone" in text, text
        assert seconds < 20, text
    # They leave, and a new actor takes the place in a group of the same name.
    assert left == [False, False]
    assert joined == [[0, 3], [1, 3], [2, 3]] and sums == [6.0] * 3


def test_an_actor_that_joins_alone_says_who_is_missing() -> None:
    (kind, text, seconds), keys, joined = case("missing")
    assert kind == "StartError" and "rank 1 has not come" in text and 25 < seconds < 90
    assert keys == [], "rank 0 takes back what it has put into Ray's store"
    assert joined == [[0, 2], [1, 2]]


def test_what_a_killed_rank_has_left_in_the_store_is_no_hindrance() -> None:
    assert case("killed_in_join") == [[[0, 2], [1, 2]], [2.0, 2.0]]


def test_two_jobs_have_a_group_of_the_same_name() -> None:
    assert case("namespaces") == [[2.0, 2.0], [200.0, 200.0]]
