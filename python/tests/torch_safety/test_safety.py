"""Forks, threads, exceptions, Ctrl-C, dropped work, aborts and ends of programs, in both faces."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from place import search_path

pytest.importorskip("torch", reason="the backend of torch.distributed needs torch")

HERE = Path(__file__).resolve().parent
SECONDS = 60.0
"""The timeout of the groups: who is told of the end of another rank does not wait so long."""

spec = importlib.util.spec_from_file_location("torch_backend_ranks", HERE.parent / "torch_backend" / "ranks.py")
assert spec is not None and spec.loader is not None
ranks: Any = importlib.util.module_from_spec(spec)
spec.loader.exec_module(ranks)


@pytest.fixture(params=["python", "compiled"])
def face(request: pytest.FixtureRequest) -> str:
    """Return which face is tried, as its variable says it; compile it before a deadline of ranks runs."""
    if request.param == "python":
        return "0"
    if shutil.which(os.environ.get("CXX", "c++").split()[0]) is None:
        pytest.skip("the face in C++ needs a C++ compiler, and there is none")
    from roundelay.torch import compiled

    compiled.module()
    return "1"


@functools.cache
def behaviour(face: str) -> list[Any]:
    found: list[Any] = ranks.run(str(HERE / "behaviour"), "every", 2, ROUNDELAY_TORCH_COMPILED=face)
    return found


EXPECTED: dict[str, list[Any]] = {
    "fork": [[[0, 0], [10.0, True], True]] * 2,
    "workers": [[[], True]] * 2,
    "threads": [[[False] * 4, [], True]] * 2,
    "callbacks": [[True, 7, True]] * 2,
    "awaited": [[0, True]] * 2,
    "hooks": [[True, True, True]] * 2,
    "interrupted": [["KeyboardInterrupt", 1, [1.0] * 4, True], [True]],
    "dropped": [[True, 2.0, 2.0, True]] * 2,
    "aborted": [[True] * 5, [True]],
}


@pytest.mark.parametrize("name", list(EXPECTED))
def test_behaviour(name: str, face: str) -> None:
    for rank, (got, expected) in enumerate(zip(behaviour(face), EXPECTED[name], strict=True)):
        assert not isinstance(got[name], str), got[name]
        assert got[name] == expected, f"rank {rank}"


def ends(name: str, face: str, folder: Path, *how: str) -> list[tuple[int, str, float]]:
    """Return of each rank how it ended, what it said, and after how many seconds."""
    environment = dict(
        os.environ, PYTHONPATH=search_path(), ROUNDELAY_TORCH_COMPILED=face, OMP_NUM_THREADS="1", PYTHONFAULTHANDLER="1"
    )
    began = time.monotonic()
    processes = [
        subprocess.Popen(
            [sys.executable, str(HERE / "exits.py"), name, str(rank), str(folder / "store"), *how],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    found = []
    try:
        for process in processes:
            text, _ = process.communicate(timeout=100)
            found.append((process.returncode, text, time.monotonic() - began))
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return found


@pytest.mark.parametrize("name", ["pending", "dropped", "destroyed"])
def test_a_program_ends_when_its_work_has_ended(name: str, face: str, tmp_path: Path) -> None:
    for code, text, _ in ends(name, face, tmp_path):
        assert code == 0 and "reached the end" in text, text


def test_a_program_ends_though_its_message_never_comes(face: str, tmp_path: Path) -> None:
    for code, text, took in ends("never", face, tmp_path):
        # In order: with its status, and without a fault of the interpreter.
        assert code == 0 and "reached the end" in text and "Fatal" not in text, text
        assert took < SECONDS


@pytest.mark.parametrize(
    ("name", "words", "how"),
    [
        ("raises", "ValueError: no luck", []),
        ("raises", "ValueError: no luck", ["forked"]),
        ("interrupted", "KeyboardInterrupt", []),
    ],
    ids=["raises", "raises-forked", "interrupted"],
)
def test_who_waits_for_a_program_that_fails_is_told(
    name: str, words: str, how: list[str], face: str, tmp_path: Path
) -> None:
    (code, text, _), (other, told, took) = ends(name, face, tmp_path, *how)
    assert code in (1, 130, -2) and words in text, text
    assert other == 1 and "an exception ended the program" in told and words.split(":")[0] in told, told
    assert took < SECONDS
