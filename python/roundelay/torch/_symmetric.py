"""The symmetric memory of torch on groups and communicators of roundelay.

Torch maps the memory of GPUs among the ranks of a group by itself (``torch.distributed._symmetric_memory``): it only
needs the group's store. It asks the group for it, in C++, and older versions a table of stores by the names of groups.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor
from torch._C import _distributed_c10d
from torch._C._distributed_c10d import PrefixStore, ProcessGroup, Store

from ..errors import UnsupportedError

_numbers = itertools.count()


def make_group(group: ProcessGroup, store: Any, rank: int, size: int) -> None:
    """Make a group that has a store in C++, where torch looks for it."""
    if isinstance(store, Store):
        ProcessGroup.__init__(group, PrefixStore("roundelay/symmetric", store), rank, size)
    else:
        ProcessGroup.__init__(group, rank, size)


def share_store(name: str, rank: int, size: int, store: Any) -> None:
    """Give torch the store of a group that is made in Python, so that ``rendezvous`` takes the group.

    Nothing is done without a GPU, or if torch has a store for that name: it forgets none, and takes no second one.
    """
    if not torch.cuda.is_available():
        return
    from torch._C._distributed_c10d import _SymmetricMemory
    from torch.distributed import _symmetric_memory

    known: Any = _symmetric_memory._group_name_to_store
    if name in known:
        return
    own = PrefixStore("roundelay/symmetric", store)
    _SymmetricMemory.set_group_info(name, rank, size, own)
    known[name] = own


def symmetric_memory(
    count: int, dtype: torch.dtype, device: torch.device, rank: int, size: int, store: Any
) -> tuple[Tensor, Any]:
    """Return a tensor in memory that all ranks of a host map, and torch's handle of it. Collective.

    Raises ``UnsupportedError`` on the CPU, for which torch has no symmetric memory.
    """
    from torch._C._distributed_c10d import _SymmetricMemory

    memory: Any = _SymmetricMemory
    if device.type != "cuda":
        raise UnsupportedError(f"symmetric_memory: torch has none on {device}: give the communicator a GPU")
    # A name of this process: ranks find each other by the keys of the store. Torch keeps groups by name to the end.
    name = f"roundelay/symmetric/{next(_numbers)}"
    own = PrefixStore("roundelay/symmetric", store)
    # Any: names have a type of their own in newer versions.
    c10d: Any = _distributed_c10d
    c10d._register_process_group(name, ProcessGroup(own, rank, size))
    memory.set_group_info(name, rank, size, own)
    tensor: Tensor = memory.empty_strided_p2p((count,), (1,), dtype, device)
    return tensor, memory.rendezvous(tensor, name)
