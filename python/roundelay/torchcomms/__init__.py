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
    from . import device_mesh, functional, hooks, objcol
    from ._allocator import get_mem_allocator
    from ._batch import BatchSendRecv
    from ._check import check_operations
    from ._comm import TorchComm, new_comm
    from ._hooks import OpName, PostHookArgs, PreHookArgs, RemovableHandle
    from ._persistent import AllGatherPHandle
    from ._python_backend import PythonBackend
    from ._python_backend import PythonBackend as TorchCommBackend
    from ._rdma_memory import RdmaMemory, RdmaMemoryMutableView, RdmaMemoryView, RdmaRemoteBuffer
    from ._register import register_backend
    from ._transport import RdmaTransport
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
    "PythonBackend",
    "RdmaMemory",
    "RdmaMemoryMutableView",
    "RdmaMemoryView",
    "RdmaRemoteBuffer",
    "RdmaTransport",
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
    "TorchCommBackend",
    "TorchCommWinAccessType",
    "TorchCommWindow",
    "TorchCommWindowAttr",
    "TorchWork",
    "WorkStatus",
    "built_backends",
    "check_operations",
    "device_mesh",
    "functional",
    "get_mem_allocator",
    "hooks",
    "is_backend_built",
    "new_comm",
    "objcol",
    "register_backend",
]

_LATER = {
    "AllGatherPHandle": "_persistent",
    "BatchSendRecv": "_batch",
    "check_operations": "_check",
    "TorchComm": "_comm",
    "get_mem_allocator": "_allocator",
    "new_comm": "_comm",
    "OpName": "_hooks",
    "PostHookArgs": "_hooks",
    "PreHookArgs": "_hooks",
    "RemovableHandle": "_hooks",
    "PythonBackend": "_python_backend",
    "TorchCommBackend": "_python_backend",
    "RdmaMemory": "_rdma_memory",
    "RdmaMemoryMutableView": "_rdma_memory",
    "RdmaMemoryView": "_rdma_memory",
    "RdmaRemoteBuffer": "_rdma_memory",
    "register_backend": "_register",
    "RdmaTransport": "_transport",
    "TorchCommWinAccessType": "_window",
    "TorchCommWindow": "_window",
    "TorchCommWindowAttr": "_window",
    "TorchWork": "_work",
}
"""What needs torch, which importing this module does not load."""

_MODULES = ("device_mesh", "functional", "hooks", "objcol")
"""Modules that are loaded when they are used."""


def is_backend_built(backend: str) -> bool:
    """Return True for ``roundelay``: this module has no other backend."""
    return backend in built_backends()


def built_backends() -> list[str]:
    """Return the names of the backends that ``new_comm`` makes communicators of."""
    return ["roundelay"]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
