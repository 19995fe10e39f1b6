"""The program ``roundelay``, the command line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from roundelay.errors import Error

__all__ = ["find", "output"]

VARIABLE = "ROUNDELAY_COMMAND"
"""The variable that names the program, if it is somewhere else."""


def _places() -> Iterator[Path]:
    if VARIABLE in os.environ:
        yield Path(os.environ[VARIABLE])
        return
    yield Path(__file__).parent / "bin" / "roundelay"
    yield Path(sysconfig.get_path("scripts")) / "roundelay"
    on_path = shutil.which("roundelay")
    if on_path is not None:
        yield Path(on_path)


def find() -> str:
    """Return the path of the program.

    It is what ``ROUNDELAY_COMMAND`` names, or in the package's folder ``bin``, or among the scripts of this
    interpreter, or on ``PATH``. Raises ``Error`` if it is nowhere.
    """
    places = list(_places())
    for place in places:
        if place.is_file() and os.access(place, os.X_OK):
            return str(place)
    looked = ", ".join(map(str, places))
    raise Error(
        f"the program `roundelay` is not installed (looked at {looked}, and on PATH): install a wheel that carries it, "
        f"run `cargo install --path cli`, or set {VARIABLE} to its path",
        code="RL0708",
    )


def output(arguments: Sequence[str], timeout: float | None = None) -> tuple[list[dict[str, Any]], str, int]:
    """Run a verb with ``--json``; return its objects, what it says beside them, and its exit code."""
    command = [find(), *arguments, "--json"]
    # A rank of a job runs the verb by itself, not as this rank.
    environment = {key: value for key, value in os.environ.items() if not key.startswith(_RANKS)}
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=False
    )
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return found, done.stderr.strip(), done.returncode


_RANKS = (
    "OMPI_COMM_WORLD_",
    "PALS_",
    "PMI_",
    "RANK",
    "ROUNDELAY_RANK",
    "ROUNDELAY_SIZE",
    "ROUNDELAY_STORE",
    "SLURM_",
    "TORCHCOMM_",
    "TORCHELASTIC_",
    "WORLD_SIZE",
)
