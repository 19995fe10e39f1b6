"""The two faces of the backend, for tests that both have to pass."""

from __future__ import annotations

import os
import shutil

import pytest

PYTHON, COMPILED = "python", "compiled"


def environment(face: str) -> dict[str, str]:
    """Return the variables that choose a face; skip the test where it cannot be compiled."""
    if face == PYTHON:
        return {}
    if shutil.which(os.environ.get("CXX", "c++").split()[0]) is None:
        pytest.skip("the backend in C++ needs a C++ compiler, and there is none")
    from roundelay.torch import compiled

    # Once, before a deadline of ranks runs.
    compiled.module()
    return {"ROUNDELAY_TORCH_COMPILED": "1"}
