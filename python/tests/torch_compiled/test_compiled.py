"""The backend in C++: every case of the backend in Python gives what Gloo gives, and what only C++ can do works."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from place import search_path

torch = pytest.importorskip("torch", reason="the backend of torch.distributed needs torch")
if shutil.which(os.environ.get("CXX", "c++").split()[0]) is None:
    pytest.skip("the backend in C++ needs a C++ compiler, and there is none", allow_module_level=True)

HERE = Path(__file__).resolve().parent
CASES = HERE.parent / "torch_backend"


def of(name: str) -> Any:
    """Return a module of the tests of the backend in Python."""
    spec = importlib.util.spec_from_file_location(f"torch_backend_{name}", CASES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ranks = of("ranks")
SOURCE = (CASES / "operations.py").read_text()
NAMES = re.findall(r"^@(?:case|alone)\ndef (\w+)", SOURCE, re.MULTILINE)
TYPES = ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32"]
NAMES += [f"all_reduce_{dtype}" for dtype in TYPES]


@pytest.fixture(scope="session", autouse=True)
def built() -> None:
    """Compile the backend once, before a deadline of ranks runs."""
    from roundelay.torch import compiled

    compiled.module()


@functools.cache
def behaviour(count: int) -> list[Any]:
    results: list[Any] = ranks.run(str(HERE / "behaviour"), "every", count, ROUNDELAY_TORCH_COMPILED="1")
    return results


def run(function: str, count: int) -> list[Any]:
    """Return what a function of `behaviour.py` returned on each rank."""
    results = [of_rank[function] for of_rank in behaviour(count)]
    for result in results:
        assert not isinstance(result, str), result
    return results


@functools.cache
def outcomes(count: int) -> list[Any]:
    results: list[Any] = ranks.run("operations", "every", count, ROUNDELAY_TORCH_COMPILED="1")
    return results


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_operation(name: str, count: int) -> None:
    for rank, outcome in enumerate(outcomes(count)):
        assert outcome[name] == "", f"rank {rank}"


def test_no_case_is_left_out() -> None:
    assert sorted(outcomes(2)[0]) == sorted(NAMES)


def test_options_go_before_the_environment() -> None:
    python = "RoundelayBackend" if torch.__version__ >= "2.14" else "RoundelayGroup"
    assert run("selection", 2) == [["Backend", python, "Backend"]] * 2


def test_receives_from_any_rank() -> None:
    assert run("any_source", 3)[0] == [[1, 1, 11.0], [1, 2, 21.0], [2, 1, 12.0], [2, 2, 22.0]]


def test_a_work_says_how_it_stands() -> None:
    before, words, *after = run("works", 2)[0]
    assert before is False
    assert words.startswith("True roundelay: Timed out waiting 100ms for send/recv operation to complete"), words
    assert after == [True, True, 1, [1.0, 1.0, 1.0]]


def test_callbacks_may_wait_for_each_other() -> None:
    assert run("callbacks", 2)[0] == [float(index) for index in range(12)]


def test_tensors_live_until_the_end() -> None:
    assert run("dropped", 2) == [[2.0, 2.0]] * 2


def test_errors_of_arguments() -> None:
    begun = [
        "TypeError: roundelay: Invalid scalar type",
        "ValueError: roundelay: Cannot use ReduceOp.AVG with Bool tensors",
        "ValueError: all_gather: Invalid output tensor list",
        "ValueError: all_gather_single: the output has 3 elements; output tensor size must be equal",
        "ValueError: all_reduce does not support RedOpType.PRODUCT on complex tensors",
    ]
    for told in run("errors", 2):
        assert [text[: len(start)] for text, start in zip(told, begun, strict=True)] == begun


def test_a_late_rank_is_named() -> None:
    barrier, operation = run("late", 2)[0]
    assert "Rank 1 failed to pass monitoredBarrier in 200 ms" in barrier
    assert operation.startswith("OperationTimeoutError True roundelay: Timed out waiting 400ms"), operation


def test_abort_ends_the_group() -> None:
    for told in run("aborted", 2):
        first, second = told
        assert first.startswith("AbortedError roundelay: The group was aborted"), first
        assert "this communicator cannot be used after an error" in second


def test_split_and_shutdown() -> None:
    if torch.__version__ < "2.14":
        pytest.skip(f"torch {torch.__version__} shows no split of a backend to Python")
    first, middle, last = run("split", 3)
    assert middle == []
    assert first[:3] == [1, 2, [4.0] * 3] and last[:3] == [0, 2, [4.0] * 3]
    assert "the process group was shut down" in first[3]


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"CXX": "no-such-compiler"}, "needs a C++ compiler, but there is no no-such-compiler: install g++"),
        ({"ROUNDELAY_TORCH_COMPILED": "yes"}, "ROUNDELAY_TORCH_COMPILED is 'yes'; set it to 1, or to 0"),
    ],
)
def test_what_is_missing_is_said(environment: dict[str, str], words: str) -> None:
    program = (
        "import torch.distributed as dist, roundelay.torch\n"
        "roundelay.torch.register()\n"
        "dist.init_process_group('roundelay', store=dist.HashStore(), rank=0, world_size=1)\n"
    )
    variables = {**os.environ, "PYTHONPATH": search_path(), "ROUNDELAY_TORCH_COMPILED": "1", **environment}
    ended = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0
    assert words in ended.stderr


@pytest.mark.skipif(torch.__version__ < "2.15", reason="torch has reconfigure since 2.15")
def test_a_group_goes_on_with_other_ranks() -> None:
    results = ranks.run(str(HERE / "reconfigured"), "lives", 3, ROUNDELAY_TORCH_COMPILED="1")
    for rank, told in enumerate(results):
        assert told["supported"] == [True, rank]
        assert "call reconfigure first" in told["too early"], told
        assert told["alone"] == [0, 1, 1.0, -1.0]
        assert "was already used" in told["used"], told
        assert told["all"] == [rank, 3, 18.0, float((rank - 1) % 3)]
        if rank != 1:
            assert told["fewer"] == [rank // 2, 2, 6.0, 1.0 - rank // 2]
        place = [0, 2, 1][rank]
        assert told["set"] == [place, 3, 18.0, float((place - 1) % 3)], told["set"]
        assert told["backwards"] == [2 - rank, 3, 18.0, float((1 - rank) % 3)]
        assert told["aborted"].startswith("AbortedError"), told
        assert told["after an abort"] == told["all"]


@pytest.mark.skipif(torch.__version__ < "2.15", reason="torch has reconfigure since 2.15")
def test_survivors_go_on_without_a_rank_that_was_killed() -> None:
    first, none, last = ranks.run(str(HERE / "reconfigured"), "killed", 3, ROUNDELAY_TORCH_COMPILED="1")
    assert none is None
    for place, told in enumerate([first, last]):
        assert told["lost"].startswith(("LostRankError", "AbortedError")), told
        assert told["left"] == [place, 2, 6.0, 1.0 - place]


@pytest.mark.skipif(torch.__version__ < "2.15", reason="torch has windows since 2.15")
@pytest.mark.parametrize("count", [2, 3])
def test_windows(count: int) -> None:
    results = ranks.run(str(HERE / "windows"), "every", count, ROUNDELAY_TORCH_COMPILED="1")
    for rank, told in enumerate(results):
        before = (rank - 1) % count
        assert told["supported"] is True and told["wrong"] == 0, told
        assert "the window of torch.float32" in told["type"], told
        assert "no error" not in (told["beyond"], told["again"], told["none"]), told
        assert told["other"] == [0, before, before, 0], told
        assert "served by its own process" in told["private"], told
        assert told["mapped"] == [[3, 4], "torch.bfloat16", [(rank + 1) % count + 1.0]], told
        assert told["stored"] == [rank + 1.0, before + 20.0, rank + 1.0], told


def test_no_stream_crosses_the_border() -> None:
    """Streams of two copies of the C++ library do not go together, as where the compiler links it statically."""
    from roundelay.torch import compiled

    streams = re.compile(r"c10::(str|Join)\b|[io]?stringstream|std::ostream|<iostream>|<<|\bTORCH_(CHECK|WARN)")
    folders = (compiled.HERE, compiled.NATIVE, compiled.HERE.parent.parent / "torchcomms")
    sources = [path for folder in folders for path in folder.rglob("*") if path.suffix in (".h", ".cpp")]
    assert len(sources) > 10
    for path in sources:
        code = re.sub(r"//.*", "", path.read_text())
        assert not streams.search(code), f"{path.name}: {streams.search(code)}"
