"""Profiler, hooks, sequence numbers and flight recorder, by both faces."""

from __future__ import annotations

import functools
import pickle
from pathlib import Path
from typing import Any

import faces
import pytest
import ranks

torch = pytest.importorskip("torch", reason="the backend of torch.distributed needs torch")

both = pytest.mark.parametrize("face", [faces.PYTHON, faces.COMPILED])


@pytest.fixture(autouse=True)
def deadline() -> None:
    """Leave the deadline to the ranks: the first test of a face runs all of its cases."""


@functools.cache
def observed(face: str) -> list[Any]:
    return ranks.run("observing", "every", 2, seconds=200, **faces.environment(face))


def run(function: str, face: str) -> list[Any]:
    """Return what a function of `observing.py` returned on each rank."""
    results = [of_rank[function] for of_rank in observed(face)]
    for result in results:
        assert not (isinstance(result, str) and "Traceback" in result), result
    return results


@both
def test_every_operation_is_an_event_of_the_profiler(face: str) -> None:
    for events in run("profiler", face):
        assert sorted([name, shapes] for name, shapes, _ in events) == [
            ["roundelay:all_gather", [[3, 2]]],
            ["roundelay:all_reduce", [[3, 2]]],
            ["roundelay:barrier", []],
            ["roundelay:broadcast", [[5]]],
            ["roundelay:recv", [[4]]],
            ["roundelay:send", [[4]]],
        ]
        assert all(is_async for _, _, is_async in events)


@both
def test_the_profiler_sees_training(face: str) -> None:
    assert run("profiled_train", face) == [3, 3]


@both
def test_abort_hooks(face: str) -> None:
    if not hasattr(torch.distributed.ProcessGroup, "register_abort_hook"):
        pytest.skip(f"torch {torch.__version__} has no abort hooks")
    for before, told, error in run("abort_hooks", face):
        assert (before, told, error) == ([], ["kept"], "AbortedError")


@both
def test_completion_hooks(face: str) -> None:
    for result in run("completion_hooks", face):
        if face == faces.PYTHON:
            # Torch lets no backend in Python make what the hook is told.
            assert "roundelay does not support completion hooks; use Options(compiled=True)" in result
            continue
        told, has, twice = result
        kinds = [kind for kind, _, _ in told]
        assert kinds == ["ALLREDUCE"] * 3 + ["BARRIER"]
        assert [number for _, number, _ in told] == list(range(told[0][1], told[0][1] + 4))
        assert all(timed for _, _, timed in told) and has
        assert "has a completion hook already" in twice


@both
def test_sequence_numbers(face: str) -> None:
    if face == faces.COMPILED and torch.__version__ < "2.14":
        pytest.skip(f"torch {torch.__version__} asks only backends of its own for sequence numbers")
    assert run("sequence", face) == [[0, 1, 2, 3]] * 2


def records_every_backend() -> bool:
    """Return True if torch's flight recorder has the calls of backends that are not its own (2.15 and later)."""
    return bool(torch.__version__ >= "2.15")


def test_dump_says_which_torch_it_needs() -> None:
    if records_every_backend():
        pytest.skip(f"torch {torch.__version__} records every backend")
    import roundelay.torch

    with pytest.raises(RuntimeError, match=r"dump\(\) needs torch 2\.15 or later"):
        roundelay.torch.dump("trace_")


@both
def test_the_flight_recorder_is_read_by_the_analyser_of_torch(face: str, tmp_path: Path) -> None:
    """The traces name the operation that rank 0 has not begun."""
    if not records_every_backend():
        pytest.skip(f"torch {torch.__version__} records no backend but its own")
    from torch.distributed.flight_recorder import fr_trace

    # Torch does not make the folder. Stacks take it long on a busy machine, and a process may end before.
    (tmp_path / "traces").mkdir()
    prefix = f"{tmp_path}/traces/rank_"
    (_, first), (error, second) = ranks.run(
        "observing",
        "dumped",
        2,
        seconds=200,
        TORCH_FR_DUMP_TEMP_FILE=prefix,
        TORCH_INCLUDE_STACK_TRACE="0",
        **faces.environment(face),
    )
    assert first and second and error.startswith("OperationTimeoutError: roundelay: Timed out waiting 2000ms"), error
    states = [
        [
            (entry["profiling_name"], entry["state"])
            for entry in pickle.loads(Path(f"{prefix}{rank}").read_bytes())["entries"]
            if "trainers" in entry["process_group"]
        ]
        for rank in range(2)
    ]
    done = [("roundelay:all_reduce", "completed"), ("roundelay:barrier", "completed")]
    assert states == [done, [*done, ("roundelay:_all_gather_base", "scheduled")]]
    database = tmp_path / "database"
    fr_trace.main(["--prefix", "rank_", str(tmp_path / "traces"), "-o", str(database)])
    _, found = pickle.loads(database.read_bytes())
    trainers = [each for each in found.collectives if "trainers" in each.pg_desc]
    assert [each.collective_name for each in trainers[:2]] == [name for name, _ in done]
    assert all(each.pass_check for each in trainers[:2])
    (missing,) = [each for each in found.collectives if each.missing_ranks]
    assert (missing.collective_name, missing.missing_ranks) == ("roundelay:_all_gather_base", {0})


def recorded(face: str, folder: Path, most: int) -> list[Any]:
    if not records_every_backend():
        pytest.skip(f"torch {torch.__version__} records no backend but its own")
    return ranks.run(
        "observing",
        "recorded",
        2,
        seconds=200,
        ROUNDELAY_TEST_TRACE=str(folder / "trace"),
        TORCH_FR_BUFFER_SIZE=str(most),
        **faces.environment(face),
    )


@both
def test_the_record_has_the_latest_calls_without_hooks_of_torch(face: str, tmp_path: Path) -> None:
    for rank, (calls, hooked, groups) in enumerate(recorded(face, tmp_path, 2000)):
        assert hooked == 0 and groups == ["default_pg", "gone"]
        messages = [call for call in calls if "->" in call[1] or "<-" in call[1]]
        assert [call for call in calls if call not in messages] == [
            ["gone", "roundelay:all_reduce", [[3]], [[3]], "completed", True],
            ["gone", "roundelay:_all_gather_base", [[2]], [[4]], "completed", True],
            ["gone", "roundelay:_reduce_scatter_base", [[4]], [[2]], "completed", True],
            ["gone", "roundelay:all_gather", [[4]], [[4], [4]], "completed", True],
            ["default_pg", "roundelay:broadcast", [[5]], [[5]], "completed", True],
        ]
        assert messages == [
            ["default_pg", f"roundelay:send {rank}->{1 - rank}", [[7]], [], "completed", True],
            ["default_pg", f"roundelay:recv {rank}<-{1 - rank}", [], [[7]], "completed", True],
        ]


@both
def test_the_record_is_as_long_as_the_environment_says(face: str, tmp_path: Path) -> None:
    for calls, _, _ in recorded(face, tmp_path, 3):
        assert [name.split()[0] for _, name, *_ in calls] == ["roundelay:broadcast", "roundelay:send", "roundelay:recv"]
    assert [calls for calls, _, _ in recorded(face, tmp_path, 0)] == [[], []]
