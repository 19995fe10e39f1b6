"""Jobs by torchcomms itself in which something goes wrong; each returns what a rank has seen."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

import torch
import torchcomms


def absent(comm: Any) -> list[Any]:
    """Rank 1 never comes to an operation with a timeout of half a second."""
    if comm.get_rank() == 1:
        # The failure of rank 0 ends this one's operation too.
        try:
            comm.recv(torch.ones(1), 0, False)
        except RuntimeError:
            pass
        return []
    begin = time.monotonic()
    work = comm.all_reduce(torch.ones(4), torchcomms.ReduceOp.SUM, True, timeout=timedelta(milliseconds=500))
    try:
        work.wait()
    except RuntimeError as error:
        return [not work.is_completed(), str(error), time.monotonic() - begin]
    return ["no error"]


def aborted(comm: Any) -> list[Any]:
    """Rank 0 waits for rank 1, and ends the communicator from another thread."""
    if comm.get_rank() == 1:
        try:
            comm.recv(torch.ones(1), 0, False)
        except RuntimeError:
            return [comm.is_aborted()]
        return ["no error"]
    told: list[str] = []
    comm.register_abort_hook(lambda: told.append("told"))
    work = comm.all_reduce(torch.ones(4), torchcomms.ReduceOp.SUM, True)
    thread = threading.Thread(target=comm.abort)
    thread.start()
    thread.join()
    try:
        work.wait()
    except RuntimeError as error:
        return [comm.is_aborted(), str(error), told]
    return ["no error"]


def missing(comm: Any) -> list[Any]:
    """What the backend has not says so."""
    seen = []
    for call in (
        lambda: comm.new_window().signal(0, False),
        lambda: comm.all_gather_p_init(torch.ones(2)),
        lambda: comm.split([0, 0], "part"),
    ):
        try:
            call()
        except RuntimeError:
            seen.append(True)
    comm.finalize()
    return seen


def elsewhere(comm: Any) -> list[Any]:
    """Tensors that are on no CPU are refused, in batches too, which do not look for them there."""
    there, peer = torch.empty(4, device="meta"), 1 - comm.get_rank()
    batch = comm.batch_op_create()
    batch.send(there, peer)
    batch.recv(torch.empty(4), peer)
    seen = []
    for call in (
        lambda: batch.issue(False),
        lambda: comm.send(there, peer, False),
        lambda: comm.all_reduce(there, torchcomms.ReduceOp.SUM, False),
        lambda: comm.all_gather_single(torch.empty(8), there, False),
    ):
        try:
            call()
        except RuntimeError as error:
            seen.append(str(error))
    comm.finalize()
    return seen
