"""The all-reduce of the example ``quantized.py``, a method of a backend in Python, against a reference in numpy."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import jobs
import pytest

np = pytest.importorskip("numpy", reason="the reference is written in it")
torch = pytest.importorskip("torch", reason="roundelay.torchcomms works on tensors of torch")

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "torchcomms"))
import quantized  # noqa: E402

import roundelay  # noqa: E402
import roundelay.torchcomms as torchcomms  # noqa: E402

LIMIT = timedelta(seconds=20)


def inputs(ranks: int, count: int) -> list[Any]:
    made = np.random.default_rng(7)
    # One block of zeros, and ranks of different magnitudes.
    every = [(made.standard_normal(count) * 10**rank).astype(np.float32) for rank in range(ranks)]
    for each in every:
        each[: quantized.BLOCK] = 0
    return every


def rounded(block: Any) -> Any:
    """Return a block as it is after its way by 8 bits."""
    scale = np.float32(np.abs(block).max() / np.float32(127))
    if scale == 0:
        return np.zeros_like(block)
    return np.rint(block / scale).astype(np.int8).astype(np.float32) * scale


def reference(every: list[Any]) -> Any:
    count, block = every[0].size, quantized.BLOCK
    found = np.zeros(count, np.float32)
    for at in range(0, count, block):
        total = np.zeros(block, np.float32)
        for each in every:
            padded = np.zeros(block, np.float32)
            padded[: each[at : at + block].size] = each[at : at + block]
            total = total + rounded(padded)
        found[at : at + block] = rounded(total)[: count - at]
    return found


def run(ranks: int, body: Any) -> list[Any]:
    store = torch.distributed.HashStore()

    def rank(number: int) -> Any:
        comm = torchcomms.new_comm(
            "quantized", "cpu", f"quantized by {ranks}", store=store, timeout=LIMIT, rank=number, size=ranks
        )
        found = body(comm, comm.unsafe_get_backend())
        comm.finalize()
        return found

    return jobs.threads(ranks, rank)


@pytest.mark.parametrize("ranks", [2, 3])
def test_sums_are_those_of_the_reference(ranks: int) -> None:
    count = 3000  # No whole number of blocks.
    every = inputs(ranks, count)

    def body(comm: Any, backend: Any) -> Any:
        tensor = torch.from_numpy(every[comm.get_rank()].copy()).view(30, 100)
        sent = backend.quantized_all_reduce(tensor)
        names = [backend.communicator.get_backend_impl().explain(collective, 4096, "u8")[1] for collective in ("all_to_all", "all_gather")]
        return tensor.view(-1).numpy(), sent, names

    expected = reference(every)
    for found, sent, names in run(ranks, body):
        assert np.array_equal(found, expected)
        assert sent < 2 * (ranks - 1) * 4 * count // ranks * 0.45, f"{sent} bytes: a quarter, and what fills blocks"
        assert names == ["pairs", "around"]
    exact = np.sum(every, axis=0, dtype=np.float64)
    steps = sum(np.abs(each).max() for each in every) + np.abs(exact).max()
    assert np.abs(expected - exact).max() <= steps / 127 * 0.51
    assert not np.array_equal(expected, reference(every[:-1])), "a rank counts for nothing"


def test_parts_have_the_operation_too() -> None:
    def body(comm: Any, backend: Any) -> Any:
        part = comm.split([comm.get_rank()], f"alone{comm.get_rank()}")
        tensor = torch.full((10,), 2.0)
        part.unsafe_get_backend().quantized_all_reduce(tensor)
        assert type(backend) is quantized.QuantizedBackend and backend is comm.get_backend_impl()
        part.finalize()
        return tensor.tolist()

    assert run(2, body) == [[2.0] * 10] * 2


def test_an_algorithm_that_is_wrong_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "wrong.algo"
    path.write_text("algorithm wrong implements all_gather on n ranks { each r { r -> (r + 1) % n : copy data[r] } }")
    algorithm = roundelay.load(path)

    def body(comm: Any, backend: Any) -> str:
        with pytest.raises(roundelay.RefusedError) as caught:
            backend.install(algorithm)
        return str(caught.value)

    for said in run(3, body):
        assert "wrong.algo:1:" in said
