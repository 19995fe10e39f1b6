"""The backend of torchcomms: what the command says where something is missing, and, where torchcomms is, the backend.

``TORCHCOMMS_INCLUDE`` names a checkout of torchcomms, ``CXXFLAGS`` the headers that it needs; with ``torchcomms`` on
the path the backend is built, and takes the calls of ``operations.py``.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jobs
import pytest

torch = pytest.importorskip("torch", reason="the backend is compiled against torch")

BEYOND = {
    "operators": "PREMUL_SUM, which FSDP uses",
    "batches": "batch_op_issue not implemented for Python backends",
    "strided_batches": "batch_op_issue not implemented for Python backends",
    "hints": "an unknown hint is not refused",
}
"""Cases that need the backend in C++, and what they say without it."""

ENTRY_POINTS = """[torchcomms.backends]
roundelay = roundelay.torchcomms.entry

[torch.backends]
roundelay = roundelay.torch:autoload

[torch.distributed.backends]
roundelay = roundelay.torch:register
"""
LIMIT = 200


def build(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "roundelay", "torchcomms", *arguments]
    return subprocess.run(command, env=jobs.environment(**variables), capture_output=True, text=True, timeout=LIMIT)


def headers() -> None:
    if not os.environ.get("TORCHCOMMS_INCLUDE"):
        pytest.skip("TORCHCOMMS_INCLUDE names no checkout of torchcomms, whose headers the backend is compiled with")
    if shutil.which(os.environ.get("CXX") or "g++") is None:
        pytest.skip("there is no C++ compiler")


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    done = build("build", TORCHCOMMS_INCLUDE="")
    assert done.returncode == 1 and "error[RL0709]: TORCHCOMMS_INCLUDE is not set" in done.stderr
    done = build("build", TORCHCOMMS_INCLUDE=str(tmp_path))
    assert done.returncode == 1 and f"TORCHCOMMS_INCLUDE is {tmp_path}, where there is no comms/" in done.stderr
    header = tmp_path / "comms" / "torchcomms" / "TorchCommBackend.hpp"
    header.parent.mkdir(parents=True)
    header.write_text("#error a header of another version\n")
    done = build("build", TORCHCOMMS_INCLUDE=str(tmp_path), CXX="no-such-compiler -x")
    assert done.returncode == 1 and "the compiler 'no-such-compiler -x' is not there: install g++" in done.stderr
    done = build("make")
    assert done.returncode == 2 and "usage: python -m roundelay torchcomms build" in done.stderr


def test_the_compiler_is_quoted(tmp_path: Path) -> None:
    if shutil.which(os.environ.get("CXX") or "g++") is None:
        pytest.skip("there is no C++ compiler")
    header = tmp_path / "comms" / "torchcomms" / "TorchCommBackend.hpp"
    header.parent.mkdir(parents=True)
    header.write_text("#error a header of another version\n")
    done = build("build", "--check", TORCHCOMMS_INCLUDE=str(tmp_path))
    assert done.returncode == 1 and "comms/torchcomms/utils/Utils.hpp: No such file" in done.stderr
    assert "of the installed version?" in done.stderr


def test_the_entry_point_says_how_to_build(tmp_path: Path) -> None:
    program = "import roundelay.torchcomms.entry"
    variables = jobs.environment(XDG_CACHE_HOME=str(tmp_path))
    variables.pop("TORCHCOMMS_BACKEND_LIB_PATH_ROUNDELAY", None)
    # There is no torchcomms, or one without an interface for backends in Python.
    (tmp_path / "torchcomms").mkdir()
    (tmp_path / "torchcomms" / "__init__.py").write_text("")
    variables["PYTHONPATH"] = os.pathsep.join([str(tmp_path), variables["PYTHONPATH"]])
    done = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 1 and "python -m roundelay torchcomms build" in done.stderr


UPSTREAM = """
class TorchCommBackend: pass
backends = {}
def register_backend(name, backend):
    assert issubclass(backend, TorchCommBackend)
    backends[name] = backend
"""


def test_the_entry_point_of_torch_registers_the_backend(tmp_path: Path) -> None:
    program = "import sys, types; {}; import roundelay.torchcomms.entry_upstream; {}"
    # A stand-in: no released torch has the module.
    (tmp_path / "upstream.py").write_text(UPSTREAM)
    place = "import torch, upstream; sys.modules['torch.comms'] = upstream"
    check = "backend = upstream.backends['roundelay'](); print(sorted(upstream.backends), callable(backend.all_reduce))"
    variables = jobs.environment()
    variables["PYTHONPATH"] = os.pathsep.join([str(tmp_path), variables["PYTHONPATH"]])

    def run(text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", text], env=variables, capture_output=True, text=True, timeout=LIMIT)

    done = run(program.format(place, check))
    assert (done.returncode, done.stdout) == (0, "['roundelay'] True\n"), done.stderr
    if importlib.util.find_spec("torch.comms") is None:
        done = run(program.format("pass", "pass"))
        assert done.returncode == 1 and "this torch has no torch.comms that takes backends in Python" in done.stderr


def test_the_package_names_its_entry_points() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    named = dict(re.findall(r'^\[project.entry-points."(.+)"\]\nroundelay = "(.+)"$', text, re.MULTILINE))
    assert named["torch.comms.backend"] == "roundelay.torchcomms.entry_upstream"
    assert named["torchcomms.backends"] == "roundelay.torchcomms.entry"
    assert {"torch.backends", "torch.distributed.backends", "torch.distributed.transports"} <= set(named)
    for module in named.values():
        assert importlib.util.find_spec(module.partition(":")[0]) is not None


def test_it_compiles() -> None:
    headers()
    if importlib.util.find_spec("torchcomms") is not None:
        pytest.skip("torchcomms is here: the tests of the backend compile it")
    done = build("build", "--check", TORCHCOMMS_INCLUDE=os.environ["TORCHCOMMS_INCLUDE"])
    assert (done.returncode, done.stdout) == (0, "compiles\n"), done.stderr


@pytest.fixture(scope="module")
def unbuilt() -> Iterator[dict[str, str]]:
    """Return the variables with which torchcomms finds the package, where no backend was built."""
    if importlib.util.find_spec("torchcomms") is None:
        pytest.skip("torchcomms is not installed: the backend is compiled only")
    with tempfile.TemporaryDirectory() as folder:
        meta = Path(folder) / "roundelay-0.1.0.dist-info"
        meta.mkdir()
        (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: roundelay\nVersion: 0.1.0\n")
        (meta / "entry_points.txt").write_text(ENTRY_POINTS)
        yield {
            "XDG_CACHE_HOME": f"{folder}/unbuilt",
            "PYTHONPATH": os.pathsep.join([folder, jobs.environment()["PYTHONPATH"]]),
            "ROUNDELAY_TEST_TORCHCOMMS": "torchcomms",
        }


@pytest.fixture(scope="module")
def built(unbuilt: dict[str, str]) -> Iterator[dict[str, str]]:
    """Return the variables with which torchcomms finds a backend that was just built."""
    headers()
    with tempfile.TemporaryDirectory() as folder:
        variables = unbuilt | {"XDG_CACHE_HOME": folder}
        done = build("build", TORCHCOMMS_INCLUDE=os.environ["TORCHCOMMS_INCLUDE"], **variables)
        assert done.returncode == 0 and done.stdout.startswith("built "), done.stderr
        yield variables


@pytest.mark.parametrize("ranks", [2, 3])
def test_the_operations(built: dict[str, str], ranks: int) -> None:
    for rank, outcome in enumerate(jobs.run("operations", "every", ranks, **built)):
        wrong = {name: text for name, text in outcome.items() if text}
        assert not wrong, f"rank {rank}\n" + "\n".join(wrong.values())
        assert len(outcome) >= 15


PAGES_AHEAD = (
    "docs/source/hooks.rst: hooks_of_one_argument",  # Its hooks take several arguments.
    "docs/source/hooks.rst: flight_recorder",  # It has no `unregister`, and words of its own.
    "docs/source/hooks.rst: nan_check",  # It has no `unregister`.
)
"""Examples of torchcomms' pages that torchcomms itself does not run."""


def test_the_pages(built: dict[str, str], tmp_path: Path) -> None:
    for rank, outcome in enumerate(jobs.run("pages", "every", 2, **built, **jobs.free_place(), TEST_FOLDER=str(tmp_path))):
        wrong = {name: text for name, text in outcome.items() if text and name not in PAGES_AHEAD}
        assert not wrong, f"rank {rank}\n" + "\n".join(wrong.values())


def test_ranks_meet_by_a_launchers_variables(built: dict[str, str]) -> None:
    for said in jobs.launched("meeting.py", 2, **built):
        assert said.endswith("met\n"), said


@pytest.mark.parametrize("ranks", [2, 4])
def test_torch_distributed_by_torchcomms(built: dict[str, str], ranks: int) -> None:
    """Both names reach the backend through torchcomms, and programs have the losses that they have under Gloo."""
    for said in jobs.launched("distributed.py", ranks, TORCH_DISTRIBUTED_USE_TORCHCOMMS="1", **built):
        found = json.loads(said.splitlines()[-1])
        assert found["roundelay"][0] == [ranks * each + ranks * (ranks - 1) / 2 for each in range(5)]
        assert found["roundelay"] == found["cpu:roundelay"], said
        for ours, theirs in zip(found["roundelay"], found["gloo"], strict=True):
            # Two ranks add two numbers, in whichever order.
            assert ours == (theirs if ranks == 2 else pytest.approx(theirs, rel=1e-5)), said


def test_failures(built: dict[str, str]) -> None:
    seen: list[Any] = jobs.run("backend", "absent", 2, **built)
    assert seen[0][0] is True and "Timed out" in seen[0][1] and seen[0][2] < 10
    seen = jobs.run("backend", "aborted", 2, **built)
    assert seen[0][0] is True and "abort" in seen[0][1] and seen[0][2] == ["told"]
    assert jobs.run("backend", "missing", 2, **built)[0] == [True] * 3
    for seen in jobs.run("backend", "elsewhere", 2, **built):
        assert len(seen) == 4 and all("a tensor is on meta: move it to the CPU" in text for text in seen), seen


def test_without_the_backend(unbuilt: dict[str, str]) -> None:
    """What torchcomms' interface for backends in Python lets through works; the rest says how to build."""
    for rank, outcome in enumerate(jobs.run("operations", "every", 2, ROUNDELAY_TEST_PYTHON_ONLY="1", **unbuilt)):
        wrong = {name: text for name, text in outcome.items() if text}
        assert wrong.keys() == BEYOND.keys(), f"rank {rank}\n" + "\n".join(wrong.values())
        assert all(words in wrong[name] for name, words in BEYOND.items()), wrong
        assert "python -m roundelay torchcomms build" in wrong["operators"]
    program = "import torchcomms, torch; torchcomms.new_comm('roundelay', torch.device('cpu'), name='alone').finalize()"
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    variables = jobs.environment(**unbuilt, **alone)
    done = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0 and "python -m roundelay torchcomms build" in done.stderr, done.stderr
