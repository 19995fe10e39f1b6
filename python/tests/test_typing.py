"""Programs of users under ``mypy --strict``: what is right passes, and what is wrong is found at its line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy", reason="types are checked by mypy")

RIGHT = """
import array

import numpy as np

import roundelay
from roundelay import Array, Communicator, Work


def main(comm: Communicator, scale: float) -> float:
    a = np.ones(4, np.float32)
    work = comm.all_reduce(a, async_op=True)
    work.wait()
    works: list[Work] = [
        comm.all_gather_single(np.zeros(8, np.float32), a, async_op=True, timeout=3),
        comm.reduce_into(None, a, 1, async_op=True),
        comm.barrier(async_op=True, hints={"algorithm": "ring"}),
        comm.send(a, 1, async_op=True),
        comm.recv(a, async_op=True),
        comm.batch().send(a, 1).run(async_op=True),
        comm.window(a).put(a, 1, async_op=True),
    ]
    source: int | None = comm.recv(a)
    for memory in (a, bytearray(8), array.array("f", [1.0])):
        summed(comm, memory)
    comm.all_reduce(a, roundelay.premul_sum(0.5), async_op=bool(source))
    return float(a[0]) * scale + len(works)


def summed(comm: Communicator, data: Array) -> None:
    comm.all_reduce(data)


@roundelay.algorithm("all_reduce")
def ring(n: int) -> None:
    pass


found: list[float] = roundelay.launch(main, 2, 1.0)
found = roundelay.launcher(timeout=60)(main, 2, 1.0)
checked: list[roundelay.Checked] = ring.check(4)
timeout: type[roundelay.OperationTimeoutError] = roundelay.TimeoutError
memory: type[roundelay.errors.OutOfMemoryError] = roundelay.errors.MemoryError
"""

WRONG = """
import numpy as np

import roundelay
from roundelay import Communicator


def main(comm: Communicator, scale: float) -> float:
    a = np.ones(4, np.float32)
    comm.all_reduce(a, "summ")  # wrong
    comm.all_reduce([1.0, 2.0])  # wrong
    comm.all_reduce("abc")  # wrong
    comm.all_reduce(3.5)  # wrong
    comm.all_reduce(a, asyncop=True)  # wrong
    comm.allreduce(a)  # wrong
    comm.broadcast(a, "0")  # wrong
    comm.all_gather(a, [a])  # wrong
    comm.window(a, peers_may=("reed",))  # wrong
    return float(a[0]) * scale


roundelay.launch(main, 2, "x")  # wrong
roundelay.launcher(timeout="60")  # wrong
roundelay.KeyError  # wrong
"""


def errors(text: str, folder: Path) -> list[int]:
    """Return the lines at which mypy finds something wrong."""
    program = folder / "program.py"
    program.write_text(text)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", str(folder), str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, cwd=folder)
    assert not done.stderr, done.stderr
    found = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert all(line.startswith("program.py:") or "/program.py:" in line for line in found), done.stdout
    return sorted({int(line.split("program.py:")[1].split(":")[0]) for line in found})


def test_right_programs_pass_and_wrong_calls_are_found(tmp_path: Path) -> None:
    assert errors(RIGHT, tmp_path) == []
    wrong = [at for at, line in enumerate(WRONG.splitlines(), 1) if line.endswith("# wrong")]
    assert errors(WRONG, tmp_path) == wrong
