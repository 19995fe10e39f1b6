"""torch's symmetric memory finds the store of a group that is made in Python."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the backend of torch.distributed needs torch")
import torch.distributed as dist  # noqa: E402
from torch.distributed import _symmetric_memory as symmetric  # noqa: E402

from roundelay.errors import UnsupportedError  # noqa: E402
from roundelay.torch._symmetric import make_group, share_store, symmetric_memory  # noqa: E402


def test_torch_gets_the_store_once(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[Any, ...]] = []

    class Memory:
        @staticmethod
        def set_group_info(*info: Any) -> None:
            # As torch does, which takes no second one of a name.
            assert info[0] not in [each[0] for each in given]
            given.append(info)

    known: Any = {}
    monkeypatch.setattr(torch._C._distributed_c10d, "_SymmetricMemory", Memory)
    monkeypatch.setattr(symmetric, "_group_name_to_store", known)
    share_store("group", 1, 2, dist.HashStore())
    assert given == [] and known == {}  # There is no GPU.
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    store = dist.HashStore()
    share_store("group", 1, 2, store)
    share_store("group", 0, 3, dist.HashStore())
    assert [each[:3] for each in given] == [("group", 1, 2)]
    given[0][3].set("handle", "here")
    assert store.check(["roundelay/symmetric/handle"])
    # A program that enables the group, which older torch asks for, finds that it is.
    assert known == {"group": given[0][3]}


def test_groups_in_python_share_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    from roundelay.torch import _group

    shared: list[tuple[Any, ...]] = []
    monkeypatch.setattr(_group, "share_store", lambda *given: shared.append(given))
    group = _group.RoundelayGroup.__new__(_group.RoundelayGroup)
    group._names, group._place, group._given_store = ("", "undefined"), (1, 2), "store"
    group.setGroupName("name")
    assert shared == [("name", 1, 2, "store")] and group._names[0] == "name"


def test_a_group_has_its_store_where_torch_looks() -> None:
    class Group(dist.ProcessGroup):  # type: ignore[misc, unused-ignore]
        def __init__(self, store: Any) -> None:
            make_group(self, store, 1, 2)

    store = dist.HashStore()
    group = Group(store)
    group.get_group_store().set("handle", "here")
    assert store.check(["roundelay/symmetric/handle"]) and (group.rank(), group.size()) == (1, 2)
    without = Group(None)
    assert without.get_group_store() is None and (without.rank(), without.size()) == (1, 2)


def test_there_is_none_on_the_cpu() -> None:
    with pytest.raises(UnsupportedError, match="torch has none on cpu"):
        symmetric_memory(4, torch.float32, torch.device("cpu"), 0, 1, dist.HashStore())
