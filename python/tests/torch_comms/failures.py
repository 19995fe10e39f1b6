"""Jobs in which something goes wrong; each returns what a rank has seen."""

from __future__ import annotations

import os
import threading
import time
from datetime import timedelta
from typing import Any

import torch
from children import WAYS, forked

import roundelay
from roundelay.torchcomms import ReduceOp, TorchComm


def absent(comm: TorchComm) -> list[Any]:
    """Rank 1 never comes to an operation with a timeout of half a second."""
    store = comm.get_options().store
    if comm.get_rank() == 1:
        store.wait(["seen"], timedelta(seconds=30))
        return []
    begin = time.monotonic()
    work = comm.all_reduce(torch.ones(4), ReduceOp.SUM, True, timeout=timedelta(milliseconds=500))
    try:
        work.wait()
        seen: list[Any] = ["no error"]
    except roundelay.OperationTimeoutError as error:
        seen = [work.status().name, work.is_completed(), "Timed out" in str(error), error.code]
    seen.append(round(time.monotonic() - begin, 1))
    store.set("seen", "1")
    return seen


def killed(comm: TorchComm) -> list[Any]:
    """Rank 1 dies; rank 0 waits for it."""
    comm.barrier(False)
    if comm.get_rank() == 1:
        os._exit(9)
    begin = time.monotonic()
    try:
        comm.all_reduce(torch.ones(4), ReduceOp.SUM, False)
    except roundelay.Error as error:
        return [isinstance(error, RuntimeError), error.peer, time.monotonic() - begin]
    return ["no error"]


def aborted(comm: TorchComm) -> list[Any]:
    """Rank 0 waits for rank 1, and ends the communicator from another thread."""
    store = comm.get_options().store
    if comm.get_rank() == 1:
        store.wait(["seen"], timedelta(seconds=30))
        try:
            comm.barrier(False)
        except roundelay.AbortedError:
            return [comm.is_aborted()]
        return ["no error"]
    told: list[str] = []
    comm.register_abort_hook(lambda: told.append("told"))
    work = comm.all_reduce(torch.ones(4), ReduceOp.SUM, True)
    thread = threading.Thread(target=comm.abort)
    thread.start()
    try:
        work.wait()
        seen: list[Any] = ["no error"]
    except roundelay.AbortedError:
        seen = [work.status().name, work.is_completed(), comm.is_aborted()]
    thread.join()
    store.set("seen", "1")
    return [*seen, *told]


def mismatched(comm: TorchComm) -> list[Any]:
    """The ranks call all_reduce with different sizes."""
    try:
        comm.all_reduce(torch.ones(4 + comm.get_rank()), ReduceOp.SUM, False)
    except roundelay.Error as error:
        return [type(error).__mro__[1].__name__, "ismatch" in str(error)]
    return ["no error"]


def empty(comm: TorchComm) -> list[Any]:
    """Rank 1 has no elements in a call that both have made before with some."""
    seen: list[Any] = []
    try:
        for count in (0, 4, 4 * (1 - comm.get_rank())):
            comm.all_reduce(torch.ones(count), ReduceOp.SUM, False)
            seen.append(count)
    except roundelay.Error as error:
        seen.append([isinstance(error, roundelay.MismatchError)])
    return seen


def children(comm: TorchComm) -> list[Any]:
    """Children of a rank use its communicator and what it has started; return what was not refused, and a sum."""
    data, peer = torch.ones(4), 1 - comm.get_rank()
    comm.all_reduce(data, ReduceOp.SUM, False)
    pending = comm.all_reduce(torch.ones(1000), ReduceOp.SUM, True)
    bad = []
    for way in WAYS:
        for name, call in {
            "all_reduce": lambda: comm.all_reduce(torch.ones(4), ReduceOp.SUM, False),
            "started": lambda: comm.all_reduce(torch.ones(4), ReduceOp.SUM, True),
            "empty": lambda: comm.all_reduce(torch.ones(0), ReduceOp.SUM, False),
            "barrier": lambda: comm.barrier(False),
            "send": lambda: comm.send(torch.ones(4), peer, False),
            "split": lambda: comm.split([0, 1], "half"),
            "wait": lambda: pending.wait(),
            "abort": lambda: comm.abort(),
        }.items():
            said = forked(call, way)
            if "was forked from it, is no rank" not in said:
                bad.append([way, name, said])
    pending.wait()
    comm.all_reduce(data, ReduceOp.SUM, False)
    return [bad, data.tolist()]
