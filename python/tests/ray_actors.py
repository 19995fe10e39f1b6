"""Starts Ray on this host, and actors of it as ranks of groups; prints what they found as JSON.

``test_ray_actors.py`` runs it. Every call of an actor has a deadline.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import ray  # type: ignore[import-not-found, unused-ignore]
import ray.experimental.internal_kv as kv  # type: ignore[import-not-found, unused-ignore]
import ray.util.collective as collective  # type: ignore[import-not-found, unused-ignore]

import roundelay.ray

LIMIT = 120.0
"""Seconds in which a call of an actor ends."""

TYPES = ["float32", "float64", "int32", "int64", "uint8"]
OPERATORS: dict[str, Any] = {"SUM": np.sum, "PRODUCT": np.prod, "MIN": np.min, "MAX": np.max}
SHAPES = [(1,), (3, 5), (100_003,)]


def mark(key: str) -> None:
    kv._internal_kv_put(f"test/{key}", b"here", overwrite=True)


def await_mark(key: str) -> None:
    end = time.monotonic() + LIMIT / 2
    while kv._internal_kv_get(f"test/{key}") is None:
        assert time.monotonic() < end, f"nothing has marked {key}"
        time.sleep(0.005)


def libraries() -> list[str]:
    return ["numpy"] + (["torch"] if importlib.util.find_spec("torch") is not None else [])


class Checks:
    """Calls of one actor, compared with what numpy makes of the data of all ranks."""

    def __init__(self, group: str, seed: int, library: str) -> None:
        self.group, self.seed, self.library = group, seed, library
        self.rank, self.size = collective.get_rank(group), collective.get_collective_group_size(group)
        self.wrong: list[str] = []
        self.count = 0

    def data(self, name: str, shape: tuple[int, ...], dtype: str) -> list[Any]:
        """Return what each rank has: whole numbers, so that every order of additions gives the same."""
        seeds = [[self.seed, zlib.crc32(name.encode()), rank] for rank in range(self.size)]
        return [np.random.default_rng(each).integers(1, 5, shape).astype(dtype) for each in seeds]

    def tensor(self, array: Any) -> Any:
        if self.library == "numpy":
            return array.copy()
        import torch

        return torch.from_numpy(array.copy())

    def equal(self, name: str, found: Any, expected: Any) -> None:
        self.count += 1
        found = np.asarray(found)
        if found.dtype != expected.dtype or not np.array_equal(found, expected):
            self.wrong.append(f"rank {self.rank}: {name}: {found.ravel()[:4]} instead of {expected.ravel()[:4]}")

    def reduced(self, operator: str, arrays: list[Any]) -> Any:
        return OPERATORS[operator](np.stack(arrays), axis=0).astype(arrays[0].dtype)

    def all(self) -> None:
        for dtype in TYPES:
            for shape in SHAPES:
                self.every_operation(dtype, shape)

    def every_operation(self, dtype: str, shape: tuple[int, ...]) -> None:
        group, rank, size = self.group, self.rank, self.size
        about = f"{self.library} {dtype} {shape}"
        for operator in OPERATORS:
            op = getattr(collective.types.ReduceOp, operator)
            arrays = self.data(f"all_reduce {operator} {about}", shape, dtype)
            tensor = self.tensor(arrays[rank])
            collective.allreduce(tensor, group, op)
            self.equal(f"allreduce {operator} {about}", tensor, self.reduced(operator, arrays))

            parts = [self.data(f"reduce_scatter {to} {operator} {about}", shape, dtype) for to in range(size)]
            tensor = self.tensor(np.zeros(shape, dtype))
            collective.reducescatter(tensor, [self.tensor(part[rank]) for part in parts], group, op)
            self.equal(f"reducescatter {operator} {about}", tensor, self.reduced(operator, parts[rank]))

            for root in range(size):
                arrays = self.data(f"reduce {root} {operator} {about}", shape, dtype)
                tensor = self.tensor(arrays[rank])
                collective.reduce(tensor, root, group, op)
                expected = self.reduced(operator, arrays) if rank == root else arrays[rank]
                self.equal(f"reduce {operator} to {root} {about}", tensor, expected)
        arrays = self.data(f"all_gather {about}", shape, dtype)
        tensors = [self.tensor(np.zeros(shape, dtype)) for _ in range(size)]
        collective.allgather(tensors, self.tensor(arrays[rank]), group)
        for source, tensor in enumerate(tensors):
            self.equal(f"allgather of {source} {about}", tensor, arrays[source])
        for root in range(size):
            arrays = self.data(f"broadcast {root} {about}", shape, dtype)
            tensor = self.tensor(arrays[rank])
            collective.broadcast(tensor, root, group)
            self.equal(f"broadcast of {root} {about}", tensor, arrays[root])
        arrays = self.data(f"message {about}", shape, dtype)
        after, before = (rank + 1) % size, (rank - 1) % size
        received = self.tensor(np.zeros(shape, dtype))
        if rank == 0:
            collective.send(self.tensor(arrays[rank]), after, group)
        collective.recv(received, before, group)
        if rank > 0:
            collective.send(self.tensor(arrays[rank]), after, group)
        self.equal(f"message of {before} {about}", received, arrays[before])


@ray.remote(num_cpus=0)
class Member:
    def __init__(self, rank: int) -> None:
        self.rank = rank
        roundelay.ray.register()

    def join(self, size: int, group: str, key: str | None = None) -> list[int]:
        if key is not None:
            mark(key)
        collective.init_collective_group(size, self.rank, "ROUNDELAY", group)
        return [collective.get_rank(group), collective.get_collective_group_size(group)]

    def failed_join(self, size: int, group: str) -> list[Any]:
        begun = time.monotonic()
        try:
            self.join(size, group)
        except Exception as error:
            return [type(error).__name__, str(error), time.monotonic() - begun]
        return ["", "it has joined", time.monotonic() - begun]

    def operations(self, group: str, seed: int) -> list[Any]:
        wrong: list[str] = []
        count = 0
        for library in libraries():
            checks = Checks(group, seed, library)
            checks.all()
            wrong += checks.wrong
            count += checks.count
        return [count, wrong]

    def sum(self, group: str, value: float) -> float:
        data = np.full(3, value)
        collective.allreduce(data, group)
        assert (data == data[0]).all()
        return float(data[0])

    def barrier(self, group: str, size: int) -> list[float]:
        """Rank 0 comes last."""
        if self.rank == 0:
            for rank in range(1, size):
                await_mark(f"barrier {rank}")
        came = time.monotonic()
        mark(f"barrier {self.rank}")
        collective.barrier(group)
        return [came, time.monotonic()]

    def sum_until_lost(self, group: str) -> list[Any]:
        mark(f"waits {group} {self.rank}")
        try:
            self.sum(group, 1.0)
        except Exception as error:
            return [type(error).__name__, str(error), getattr(error, "rank", None), time.monotonic()]
        return ["", "nothing was raised", None, time.monotonic()]

    def leave(self, group: str) -> bool:
        collective.destroy_collective_group(group)
        return bool(collective.is_group_initialized(group))


def members(count: int) -> list[Any]:
    return [Member.remote(rank) for rank in range(count)]


def of_all(actors: list[Any], method: str, *arguments: Any) -> list[Any]:
    calls = [getattr(actor, method).remote(*arguments) for actor in actors]
    return list(ray.get(calls, timeout=LIMIT))


def end(actors: list[Any]) -> None:
    for actor in actors:
        ray.kill(actor)


def operations(size: int, seed: int) -> Any:
    """Every operation, type, operator, root and shape; then once more in a later group of the same name."""
    actors = members(size)
    found: list[Any] = []
    for _ in range(2):
        found.append(of_all(actors, "join", size, "gradients"))
        found.append(of_all(actors, "operations", "gradients", seed))
        found.append(of_all(actors, "leave", "gradients"))
    end(actors)
    return found


def declared(seed: int) -> Any:
    """The driver says which actors a group has; each joins at its first call. Ranks are in another order."""
    actors = members(2)
    of_all(actors, "sum_until_lost", "no group")  # They are there, and have registered.
    collective.create_collective_group(actors, 2, [1, 0], "ROUNDELAY", "declared")
    found = ray.get([actors[0].sum.remote("declared", 1.5), actors[1].sum.remote("declared", 2.0)], timeout=LIMIT)
    found += of_all(actors, "leave", "declared")
    end(actors)
    return found


def barrier(seed: int) -> Any:
    actors = members(3)
    of_all(actors, "join", 3, "barrier")
    found = of_all(actors, "barrier", "barrier", 3)
    end(actors)
    return found


def two_groups(seed: int) -> Any:
    """Actors are in several groups at once, as other ranks' neighbours."""
    actors = members(3)
    of_all(actors, "join", 3, "whole")
    of_all(actors[:2], "join", 2, "part")
    found = [of_all(actors, "sum", "whole", 1.0), of_all(actors[:2], "sum", "part", 1.0)]
    found.append(of_all(actors, "sum", "whole", 2.0))
    end(actors)
    return found


def killed(seed: int) -> Any:
    """Ray kills an actor while the others are in a call; they go on with another one in a group of the same name."""
    actors = members(3)
    of_all(actors, "join", 3, "lost")
    calls = [actors[rank].sum_until_lost.remote("lost") for rank in (0, 2)]
    for rank in (0, 2):
        await_mark(f"waits lost {rank}")
    begun = time.monotonic()
    ray.kill(actors[1])
    errors = ray.get(calls, timeout=LIMIT)
    seen = [[kind, text, rank, ended - begun] for kind, text, rank, ended in errors]
    left = of_all([actors[0], actors[2]], "leave", "lost")
    actors[1] = Member.remote(1)
    again = of_all(actors, "join", 3, "lost")
    sums = of_all(actors, "sum", "lost", 2.0)
    end(actors)
    return [seen, left, again, sums]


def missing(seed: int) -> Any:
    """An actor that joins alone says who did not come; a later group of the same name finds nothing of it."""
    first = Member.remote(0)
    error = ray.get(first.failed_join.remote(2, "missing"), timeout=LIMIT)
    keys = [key.decode() for key in kv._internal_kv_list("roundelay/") if b"/missing/" in key]
    second = Member.remote(1)
    # It asks the store before rank 0 has put anything there.
    later = second.join.remote(2, "missing", "second asks")
    await_mark("second asks")
    joined = ray.get([first.join.remote(2, "missing"), later], timeout=LIMIT)
    end([first, second])
    return [error, keys, joined]


def killed_in_join(seed: int) -> Any:
    """What rank 0 has put into the store, before it was killed, keeps no later group of that name from being made."""
    first, second = members(2)
    first.join.remote(2, "early", "first joins")
    stop = time.monotonic() + LIMIT
    while not any(b"/early/" in key for key in kv._internal_kv_list("roundelay/")):
        assert time.monotonic() < stop, "rank 0 has put nothing into the store"
        time.sleep(0.005)
    ray.kill(first)
    first = Member.remote(0)
    later = second.join.remote(2, "early", "second joins")
    await_mark("second joins")
    joined = ray.get([first.join.remote(2, "early"), later], timeout=LIMIT)
    sums = of_all([first, second], "sum", "early", 1.0)
    end([first, second])
    return [joined, sums]


def namespaces(seed: int) -> Any:
    """Two jobs on one cluster have a group of the same name each."""
    first, second = members(2)
    later = second.join.remote(2, "shared", "second of ours")
    await_mark("second of ours")
    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, __file__, "other_job", address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stdout + done.stderr
    ray.get([first.join.remote(2, "shared"), later], timeout=LIMIT)
    sums = of_all([first, second], "sum", "shared", 1.0)
    end([first, second])
    return [sums, json.loads(done.stdout.splitlines()[-1])]


def other_job(address: str) -> None:
    start(address=address, namespace="other")
    actors = members(2)
    of_all(actors, "join", 2, "shared")
    print(json.dumps(of_all(actors, "sum", "shared", 100.0)))
    end(actors)
    ray.shutdown()


def start(**given: Any) -> None:
    ray.init(include_dashboard=None if "address" in given else False, log_to_driver=False, **given)
    roundelay.ray.register()


CASES: dict[str, Callable[[int], Any]] = {
    "operations_2": lambda seed: operations(2, seed),
    "operations_3": lambda seed: operations(3, seed),
    "declared": declared,
    "barrier": barrier,
    "two_groups": two_groups,
    "killed": killed,
    "missing": missing,
    "killed_in_join": killed_in_join,
    "namespaces": namespaces,
}


def main() -> None:
    seed = int.from_bytes(os.urandom(4), "little")
    # Paths of sockets are short.
    with tempfile.TemporaryDirectory(prefix="rl-ray-", ignore_cleanup_errors=True) as folder:
        start(num_cpus=2, object_store_memory=100 << 20, _temp_dir=folder)
        try:
            for name in sys.argv[1:] or CASES:
                try:
                    found = CASES[name](seed)
                except Exception:
                    found = {"failed": traceback.format_exc(), "seed": seed}
                print(json.dumps({name: found}), flush=True)
        finally:
            ray.shutdown()


if __name__ == "__main__":
    if sys.argv[1:2] == ["other_job"]:
        other_job(sys.argv[2])
    else:
        main()
