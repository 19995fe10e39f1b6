"""Leaves a file when a process of a program has made a group of roundelay: that it was used at all."""

from __future__ import annotations

import atexit
import os
import sys


def _note() -> None:
    faces = ("_backend", "_group", "compiled")
    if any(f"roundelay.torch.{face}" in sys.modules for face in faces):
        with open(os.path.join(os.environ["ECOSYSTEM_WITNESS"], f"used-{os.getpid()}"), "w"):
            pass


if os.environ.get("ECOSYSTEM_WITNESS"):
    atexit.register(_note)
