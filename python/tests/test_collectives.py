"""Every collective between processes, compared with numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ranks import processes

from roundelay import Communicator

COUNTS = [0, 1, 7, 1000, 1_000_003]
SIZES = [2, 3]


def data(seed: int, rank: int, count: int, dtype: str = "float32") -> Any:
    """Return a rank's numbers: whole and small, so that sums are exact in any order."""
    random = np.random.default_rng([seed, rank, count])
    return random.integers(-8, 9, count).astype(dtype)


def all_of(seed: int, n: int, count: int, dtype: str = "float32") -> list[Any]:
    """Return the numbers of all ranks."""
    return [data(seed, rank, count, dtype) for rank in range(n)]


def same(found: Any, wanted: Any, what: str) -> None:
    """Compare element by element."""
    np.testing.assert_array_equal(found, wanted, err_msg=what)


def every_collective(comm: Communicator, seed: int, counts: list[int]) -> int:
    """Call every form of every collective at some counts."""
    me, n = comm.rank, comm.size
    compared = 0
    for count in counts:
        for check in FORMS:
            check(comm, me, n, seed, count)
            compared += 1
    comm.barrier()
    return compared


def one_buffer(comm: Communicator, me: int, n: int, seed: int, count: int) -> None:
    all_ = all_of(seed, n, count)
    total = sum(all_)
    mine = all_[me].copy()
    assert comm.all_reduce(mine) is None
    same(mine, total, "all_reduce")

    mine, out = all_[me].copy(), np.full(count, -1, "float32")
    comm.all_reduce_into(out, mine, "max")
    same(out, np.max(all_, axis=0), "all_reduce_into")
    same(mine, all_[me], "all_reduce_into leaves its input")

    for root in {0, n - 1}:
        mine = all_[me].copy()
        comm.reduce(mine, root, "min")
        if me == root:
            same(mine, np.min(all_, axis=0), "reduce")
        out = np.full(count, -1, "float32")
        comm.reduce_into(out if me == root else None, all_[me], root)
        if me == root:
            same(out, total, "reduce_into")
        mine = all_[me].copy()
        comm.broadcast(mine, root)
        same(mine, all_[root], "broadcast")


def prefixes(comm: Communicator, me: int, n: int, seed: int, count: int) -> None:
    all_ = all_of(seed, n, count)
    mine = all_[me].copy()
    assert comm.scan(mine) is None
    same(mine, sum(all_[: me + 1]), "scan")
    out = np.full(count, -1, "float32")
    comm.scan_into(out, all_[me], "max")
    same(out, np.max(all_[: me + 1], axis=0), "scan_into")

    mine = all_[me].copy()
    work = comm.exscan(mine, "min", async_op=True)
    work.wait()
    same(mine, np.min(all_[:me], axis=0) if me else all_[0], "exscan")
    out = np.full(count, -1, "float32")
    comm.exscan_into(out, all_[me])
    same(out, sum(all_[:me]) if me else np.full(count, -1), "exscan_into")


def blocks(comm: Communicator, me: int, n: int, seed: int, count: int) -> None:
    all_ = all_of(seed, n, count)
    outs = [np.full(count, -1, "float32") for _ in range(n)]
    comm.all_gather(outs, all_[me])
    for rank in range(n):
        same(outs[rank], all_[rank], "all_gather")
    out = np.full((n, count), -1, "float32")
    comm.all_gather_single(out, all_[me])
    same(out, np.stack(all_), "all_gather_single")

    wide = [a.reshape(n, count) for a in all_of(seed + 1, n, n * count)]
    total = sum(wide)
    out = np.full(count, -1, "float32")
    comm.reduce_scatter(out, list(wide[me]))
    same(out, total[me], "reduce_scatter")
    out = np.full(count, -1, "float32")
    comm.reduce_scatter_single(out, wide[me], "avg")
    np.testing.assert_allclose(out, total[me] / n, rtol=1e-6, err_msg="reduce_scatter_single")

    outs = [np.full(count, -1, "float32") for _ in range(n)]
    comm.all_to_all(outs, list(wide[me]))
    for rank in range(n):
        same(outs[rank], wide[rank][me], "all_to_all")
    out = np.full((n, count), -1, "float32")
    comm.all_to_all_single(out, wide[me])
    same(out, np.stack([wide[rank][me] for rank in range(n)]), "all_to_all_single")


def unequal(comm: Communicator, me: int, n: int, seed: int, count: int) -> None:
    counts = [count // (rank + 1) for rank in range(n)]
    own = [data(seed, rank, counts[rank]) for rank in range(n)]
    out = np.full(sum(counts), -1, "float32")
    comm.all_gather_v(out, own[me], counts)
    same(out, np.concatenate(own), "all_gather_v")

    all_ = all_of(seed, n, sum(counts))
    start = sum(counts[:me])
    out = np.full(counts[me], -1, "float32")
    comm.reduce_scatter_v(out, all_[me], counts)
    same(out, sum(all_)[start : start + counts[me]], "reduce_scatter_v")

    # Rank r sends (r + p) % 3 parts to rank p.
    sent = [[(r + p) % 3 * count for p in range(n)] for r in range(n)]
    whole = [data(seed, r, sum(sent[r])) for r in range(n)]
    out = np.full(sum(sent[r][me] for r in range(n)), -1, "float32")
    comm.all_to_all_v(out, [sent[r][me] for r in range(n)], whole[me], sent[me])
    parts = [np.split(whole[r], np.cumsum(sent[r])[:-1])[me] for r in range(n)]
    same(out, np.concatenate(parts), "all_to_all_v")


def rooted(comm: Communicator, me: int, n: int, seed: int, count: int) -> None:
    all_ = all_of(seed, n, count)
    wide = data(seed, 99, n * count).reshape(n, count)
    for root in {0, n - 1}:
        outs = [np.full(count, -1, "float32") for _ in range(n)]
        comm.gather(outs if me == root else None, all_[me], root)
        out = np.full((n, count), -1, "float32")
        comm.gather_single(out if me == root else None, all_[me], root)
        if me == root:
            same(np.stack(outs), np.stack(all_), "gather")
            same(out, np.stack(all_), "gather_single")
        out = np.full(count, -1, "float32")
        comm.scatter(out, list(wide) if me == root else None, root)
        same(out, wide[me], "scatter")
        out = np.full(count, -1, "float32")
        comm.scatter_single(out, wide if me == root else None, root)
        same(out, wide[me], "scatter_single")


def messages(comm: Communicator, me: int, n: int, seed: int, count: int) -> None:
    all_ = all_of(seed, n, count)
    left, right = (me - 1) % n, (me + 1) % n
    out = np.full(count, -1, "float32")
    batch = comm.batch().send(all_[me], right).recv(out, left)
    assert len(batch) == 2
    batch.run()
    same(out, all_[left], "batch")
    if me == 0:
        comm.send(all_[0], 1)
    elif me == 1:
        out = np.full(count, -1, "float32")
        comm.recv(out, 0)
        same(out, all_[0], "recv")


FORMS = [one_buffer, prefixes, blocks, unequal, rooted, messages]


@pytest.mark.parametrize("n", SIZES)
def test_every_collective(n: int) -> None:
    seed = int(np.random.default_rng().integers(1 << 30))
    print(f"seed {seed}")
    assert processes(every_collective, n, seed, COUNTS) == [len(FORMS) * len(COUNTS)] * n


def test_every_collective_over_tcp() -> None:
    assert processes(every_collective, 2, 1, [0, 7, 1000], hints={"transport": "tcp"}) == [len(FORMS) * 3] * 2


def in_background(comm: Communicator, seed: int) -> None:
    """Start one of each, wait for all, and compare."""
    me, n, count = comm.rank, comm.size, 1001
    all_ = all_of(seed, n, count)
    reduced, gathered = all_[me].copy(), np.empty((n, count), "float32")
    sent = all_[me].copy()
    received = np.empty(count, "float32")
    works = [
        comm.all_reduce(reduced, async_op=True),
        comm.all_gather_single(gathered, all_[me], async_op=True),
        comm.batch().send(sent, (me + 1) % n).recv(received, (me - 1) % n).run(async_op=True),
        comm.barrier(async_op=True),
    ]
    for work in works:
        assert work is not None
        work.wait()
        assert work.done() and work.exception() is None
    same(reduced, sum(all_), "all_reduce")
    same(gathered, np.stack(all_), "all_gather_single")
    same(received, all_[(me - 1) % n], "batch")


@pytest.mark.parametrize("n", SIZES)
def test_in_background(n: int) -> None:
    processes(in_background, n, 5)


def parts(comm: Communicator) -> tuple[int, int, float]:
    mine = [rank for rank in range(comm.size) if rank % 2 == comm.rank % 2][::-1]
    part = comm.split(mine)
    assert part is not None and part.size == len(mine)
    assert mine[part.rank] == comm.rank
    out = np.array([comm.rank], "float64")
    part.all_reduce(out)
    nobody = comm.split([0] if comm.rank == 0 else [])
    assert (nobody is None) == (comm.rank != 0)
    return part.rank, part.size, float(out[0])


def test_split() -> None:
    assert processes(parts, 3) == [(1, 2, 2.0), (0, 1, 1.0), (0, 2, 2.0)]
