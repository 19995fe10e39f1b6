"""The API of torchcomms, for programs that cannot install it, and a backend for those that can.

>>> import roundelay.torchcomms as torchcomms
>>> comm = torchcomms.new_comm("roundelay", "cpu", name="main")
>>> comm.all_reduce(tensor, torchcomms.ReduceOp.SUM, async_op=False)
>>> comm.finalize()

``docs/torchcomms.md`` has what is there, and how ``torchcomms`` itself finds this backend.
"""

from __future__ import annotations

import importlib
from datetime import timedelta as Timeout
from typing import TYPE_CHECKING, Any

from ._types import (
    AllGatherOptions,
    AllGatherSingleOptions,
    AllReduceOptions,
    AllToAllOptions,
    AllToAllSingleOptions,
    AllToAllvSingleOptions,
    BarrierOptions,
    BatchP2POptions,
    BroadcastOptions,
    CommOptions,
    GatherOptions,
    GatherSingleOptions,
    P2POp,
    P2POpType,
    RecvOptions,
    RedOpType,
    ReduceOp,
    ReduceOptions,
    ReduceScatterOptions,
    ReduceScatterSingleOptions,
    ScatterOptions,
    SendOptions,
    WorkStatus,
)

if TYPE_CHECKING:
    from ._allocator import get_mem_allocator
    from ._batch import BatchSendRecv
    from ._comm import TorchComm, new_comm
    from ._hooks import OpName, PostHookArgs, PreHookArgs, RemovableHandle
    from ._persistent import AllGatherPHandle
    from ._window import TorchCommWinAccessType, TorchCommWindow, TorchCommWindowAttr
    from ._work import TorchWork

__all__ = [
    "AllGatherOptions",
    "AllGatherPHandle",
    "AllGatherSingleOptions",
    "AllReduceOptions",
    "AllToAllOptions",
    "AllToAllSingleOptions",
    "AllToAllvSingleOptions",
    "BarrierOptions",
    "BatchP2POptions",
    "BatchSendRecv",
    "BroadcastOptions",
    "CommOptions",
    "GatherOptions",
    "GatherSingleOptions",
    "OpName",
    "P2POp",
    "P2POpType",
    "PostHookArgs",
    "PreHookArgs",
    "RecvOptions",
    "RedOpType",
    "ReduceOp",
    "ReduceOptions",
    "ReduceScatterOptions",
    "ReduceScatterSingleOptions",
    "RemovableHandle",
    "ScatterOptions",
    "SendOptions",
    "Timeout",
    "TorchComm",
    "TorchCommWinAccessType",
    "TorchCommWindow",
    "TorchCommWindowAttr",
    "TorchWork",
    "WorkStatus",
    "get_mem_allocator",
    "new_comm",
]

_LATER = {
    "AllGatherPHandle": "_persistent",
    "BatchSendRecv": "_batch",
    "TorchComm": "_comm",
    "get_mem_allocator": "_allocator",
    "new_comm": "_comm",
    "OpName": "_hooks",
    "PostHookArgs": "_hooks",
    "PreHookArgs": "_hooks",
    "RemovableHandle": "_hooks",
    "TorchCommWinAccessType": "_window",
    "TorchCommWindow": "_window",
    "TorchCommWindowAttr": "_window",
    "TorchWork": "_work",
}
"""What needs torch, which importing this module does not load."""


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
