"""Starts the ranks, and listens to them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from roundelay._launch import random_secret
from roundelay.errors import Error

from ._job import Job

GRACE = 5.0
"""The seconds that ranks have to end after another one has failed."""

PATIENCE = 60.0
"""The seconds that ranks have to end after the last result: of an interpreter with torch that takes many on busy cores."""

_LOOP = """import os
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""


def run(job: Job, on_row: Callable[[dict[str, Any]], None]) -> None:
    """Run a job with processes of this machine; ``on_row`` gets the rows that rank 0 emits.

    Raises ``Error`` with the last words of the first rank that failed. No process outlives the call.
    """
    from ._rank import VARIABLE

    with tempfile.TemporaryDirectory(prefix="roundelay-bench-") as folder:
        reading, writing = os.pipe()
        secret = random_secret()
        ranks: list[subprocess.Popen[bytes]] = []
        try:
            for rank in range(job.ranks):
                given = {
                    "job": job.text(),
                    "rank": rank,
                    "store": f"{folder}/store",
                    "pipe": writing if rank == 0 else None,
                }
                environment = dict(os.environ, LOCAL_RANK=str(rank), **{VARIABLE: json.dumps(given)}, **secret)
                # A name must mean the backend of that name.
                environment.pop("ROUNDELAY_REPLACE", None)
                environment.setdefault("OMP_NUM_THREADS", str(max(1, cores() // job.ranks)))
                package = str(Path(__file__).parents[2])
                environment["PYTHONPATH"] = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
                with open(f"{folder}/log{rank}", "wb") as log:
                    ranks.append(
                        subprocess.Popen(
                            [sys.executable, "-m", "roundelay.bench._rank"],
                            env=environment,
                            stdin=subprocess.DEVNULL,
                            stdout=log,
                            stderr=log,
                            pass_fds=[writing] if rank == 0 else [],
                        )
                    )
            os.close(writing)
            writing = -1
            with open(reading, encoding="utf-8") as lines:
                reading = -1
                for line in lines:
                    on_row(json.loads(line))
            _end(ranks, folder)
        finally:
            for descriptor in (reading, writing):
                if descriptor >= 0:
                    os.close(descriptor)
            for process in ranks:
                process.kill()
                process.wait()


def _end(ranks: list[subprocess.Popen[bytes]], folder: str) -> None:
    """Wait for the ranks; raise with what the first one said that failed."""
    until = time.monotonic() + PATIENCE
    is_failing = False
    while any(process.poll() is None for process in ranks) and time.monotonic() < until:
        if not is_failing and any(process.returncode for process in ranks):
            is_failing, until = True, time.monotonic() + GRACE
        time.sleep(0.02)
    late = [rank for rank, process in enumerate(ranks) if process.poll() is None]
    for rank in late:
        ranks[rank].kill()
        ranks[rank].wait()
    failed = [rank for rank, process in enumerate(ranks) if process.returncode != 0]
    if not failed:
        return
    # A rank that was ended from here says nothing of the reason.
    cause = next((rank for rank in failed if ranks[rank].returncode > 0), failed[0])
    said = Path(f"{folder}/log{cause}").read_text(errors="replace").strip()[-4000:]
    how = f"had not ended {PATIENCE:g} s after the last result" if cause in late else f"ended with {ranks[cause].returncode}"
    raise Error(f"rank {cause} {how}\n{said}", code="RL0712")


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


@contextmanager
def busy(wanted: bool) -> Iterator[None]:
    """Keep every core busy with a loop of its own meanwhile; the loops end with this process, however it ends."""
    loops = [subprocess.Popen([sys.executable, "-c", _LOOP]) for _ in range(cores() if wanted else 0)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
