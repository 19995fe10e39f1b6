"""The backend for groups of Ray's actors, over what stands in for Ray: a registry, options and a key-value store."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest


class ReduceOp(Enum):
    SUM = 0
    PRODUCT = 1
    MIN = 2
    MAX = 3


class BaseGroup:
    def __init__(self, world_size: int, rank: int, group_name: str) -> None:
        self.world_size, self.rank, self.group_name = world_size, rank, group_name


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return the module, and the notes and backends of what it took for Ray."""
    notes: dict[str, bytes] = {}
    backends: dict[str, Any] = {}

    def put(key: str, value: bytes, overwrite: bool = True) -> None:
        notes[key] = value

    def registered(name: str, group: Any) -> None:
        if name in backends:
            raise ValueError(f"Backend {name} already registered")
        backends[name] = group

    context = SimpleNamespace(namespace="job")
    modules: dict[str, Any] = {
        "ray": dict(get_runtime_context=lambda: context),
        "ray.experimental.internal_kv": dict(
            _internal_kv_put=put, _internal_kv_get=notes.get, _internal_kv_del=lambda key: notes.pop(key)
        ),
        "ray.util.collective": dict(types=SimpleNamespace(ReduceOp=ReduceOp)),
        "ray.util.collective.backend_registry": dict(register_collective_backend=registered),
        "ray.util.collective.collective_group.base_collective_group": dict(BaseGroup=BaseGroup),
    }
    made: dict[str, ModuleType] = {}
    for name, content in modules.items():
        parts = name.split(".")
        for depth in range(1, len(parts) + 1):
            path = ".".join(parts[:depth])
            if path not in made:
                made[path] = ModuleType(path)
                monkeypatch.setitem(sys.modules, path, made[path])
            if depth > 1:
                setattr(made[".".join(parts[: depth - 1])], parts[depth - 1], made[path])
        vars(sys.modules[name]).update(content)
    monkeypatch.delitem(sys.modules, "roundelay.ray", raising=False)
    import roundelay.ray as module

    yield SimpleNamespace(module=module, notes=notes, backends=backends)
    del sys.modules["roundelay.ray"]


def options(**given: Any) -> Any:
    return SimpleNamespace(timeout_ms=timedelta(milliseconds=-1), reduceOp=ReduceOp.SUM, root_rank=0, **given)


def test_a_group_of_actors(ray: Any) -> None:
    ray.module.register()
    ray.module.register()
    kind = ray.backends["ROUNDELAY"]
    assert kind.backend() == "ROUNDELAY" and kind.check_backend_availability()
    failed: list[BaseException] = []

    def actor(rank: int) -> None:
        try:
            group = kind(2, rank, "gradients")
            calls(group, rank)
            group.destroy_group()
        except BaseException as error:
            failed.append(error)
            raise

    for _ in range(2):  # A later group of the same name finds nothing of the one before.
        actors = [threading.Thread(target=actor, args=(rank,)) for rank in range(2)]
        [thread.start() for thread in actors]
        [thread.join(60) for thread in actors]
        assert not failed and not any(thread.is_alive() for thread in actors)
        assert ray.notes == {}


def calls(group: Any, rank: int) -> None:
    data = np.full(5, rank + 1.0)
    group.allreduce([data])
    assert (data == 3).all()
    greatest = options()
    greatest.reduceOp = ReduceOp.MAX
    data[:] = rank
    group.allreduce([data], greatest)
    assert (data == 1).all()

    data[:] = rank + 1
    root = options()
    root.root_rank = 1
    group.reduce([data], root)
    assert (data == (3 if rank == 1 else 1)).all(), "what is not the root's stays as it is"
    group.broadcast([data], root)
    assert (data == 3).all()

    everything = [np.zeros(5), np.zeros(5)]
    group.allgather([everything], [np.full(5, float(rank))])
    assert [part[0] for part in everything] == [0, 1]
    group.reducescatter([data], [[np.full(5, 1.0 + rank), np.full(5, 10.0 + rank)]])
    assert (data == (3 if rank == 0 else 21)).all()

    group.barrier()
    if rank == 0:
        group.send([np.arange(4)], options(dst_rank=1))
    else:
        got = np.zeros(4, int)
        group.recv([got], options(src_rank=0))
        assert got.tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="allreduce of 2 tensors of one actor: give each GPU an actor"):
        group.allreduce([data, data])
