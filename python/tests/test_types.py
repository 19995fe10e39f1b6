"""Every type with every operator."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import pytest
from ranks import processes, threads

import roundelay
from roundelay import Communicator, UnsupportedError
from roundelay._dtypes import NAMES

ml_dtypes = pytest.importorskip("ml_dtypes", reason="numpy has no bfloat16 and float8 by itself")

OPS: dict[str, Any] = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
BITS = {"and", "or", "xor"}


def dtype_of(name: str) -> Any:
    return np.dtype(getattr(ml_dtypes, name) if name in vars(ml_dtypes) else name)


def has(name: str, op: str) -> bool:
    dtype = NAMES[name]
    if dtype.ops is not None:
        return op in dtype.ops
    if name == "bool":
        return op in BITS | {"min", "max"}
    return op not in BITS or not dtype.native.startswith(("f", "bf"))


def numbers(name: str, rank: int, count: int) -> Any:
    """Return small numbers of which sums and products of two ranks are exact in every type."""
    random = np.random.default_rng([7, rank, count])
    if name == "bool":
        return random.integers(0, 2, count).astype(bool)
    return random.integers(0, 4, count).astype(dtype_of(name))


def every_operator(comm: Communicator, counts: list[int]) -> list[str]:
    made = []
    for name in NAMES:
        for op, function in OPS.items():
            for count in counts:
                all_ = [numbers(name, rank, count) for rank in range(comm.size)]
                data = all_[comm.rank].copy()
                if not has(name, op):
                    with pytest.raises(UnsupportedError, match=f"{op}.* of {NAMES[name].native}|{op} of {name}"):
                        comm.all_reduce(data, op)  # type: ignore[arg-type]
                    continue
                comm.all_reduce(data, op)  # type: ignore[arg-type]
                wanted = reduce(function, all_)
                np.testing.assert_array_equal(data, wanted, err_msg=f"{op} of {name}, {count}")
            made.append(f"{op} {name}")
    return made


def test_every_operator_on_every_type() -> None:
    made = processes(every_operator, 2, [0, 1, 33, 4096])
    assert made[0] == made[1] and len(made[0]) == len(OPS) * len(NAMES)


def means(comm: Communicator) -> None:
    for name in ("float32", "float64", "complex64", "complex128"):
        all_ = [np.arange(9).astype(name) * (rank + 1) for rank in range(comm.size)]
        data = all_[comm.rank].copy()
        comm.all_reduce(data, "avg")
        np.testing.assert_allclose(data, sum(all_) / comm.size, rtol=1e-6)
        data = all_[comm.rank].copy()
        comm.all_reduce(data, roundelay.premul_sum(0.5))
        np.testing.assert_allclose(data, sum(all_) * 0.5, rtol=1e-6)


def test_means_and_factors() -> None:
    threads(means, 3)


def copies(comm: Communicator) -> None:
    n = comm.size
    for name in NAMES:
        own = [numbers(name, rank, 5) for rank in range(n)]
        out = np.zeros((n, 5), dtype_of(name))
        comm.all_gather_single(out, own[comm.rank])
        assert out.tobytes() == np.stack(own).tobytes(), name
        counts = list(range(1, n + 1))
        ragged = np.zeros(sum(counts), dtype_of(name))
        comm.all_gather_v(ragged, own[comm.rank][: counts[comm.rank]].copy(), counts)
        assert ragged.tobytes() == np.concatenate([own[r][: counts[r]] for r in range(n)]).tobytes(), name
        data = own[comm.rank].copy()
        comm.broadcast(data, n - 1)
        assert data.tobytes() == own[n - 1].tobytes(), name


@pytest.mark.parametrize("n", [2, 3])
def test_every_type_is_copied(n: int) -> None:
    threads(copies, n)
