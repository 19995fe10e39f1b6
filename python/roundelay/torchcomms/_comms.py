"""The names of :mod:`roundelay.torchcomms` where torchcomms has them too: in its compiled module."""

from __future__ import annotations

from ._batch import BatchSendRecv
from ._comm import TorchComm, new_comm
from ._hooks import OpName, PostHookArgs, PreHookArgs, RemovableHandle
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
from ._window import TorchCommWinAccessType, TorchCommWindow, TorchCommWindowAttr
from ._work import TorchWork

__all__ = [
    "AllGatherOptions",
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
    "TorchComm",
    "TorchCommWinAccessType",
    "TorchCommWindow",
    "TorchCommWindowAttr",
    "TorchWork",
    "WorkStatus",
    "new_comm",
]
