"""Other backends than Gloo under observation: a prototype in Python, torchcomms, and ranks that are gone.

Runs as the ranks of a job: ``python others.py RANK RANKS FOLDER CASE,…``.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend

import roundelay

FOLDER = Path(sys.argv[3])
RANK, RANKS = int(sys.argv[1]), int(sys.argv[2])
CULPRIT = 2
KEPT: list[Any] = []
"""Groups whose destructors would wait for what hangs."""


class ToyWork(dist.Work):  # type: ignore[misc]
    """Work of the prototype, which is done by the thread that waits."""

    def __init__(self, finish: Callable[[], None]) -> None:
        super().__init__()
        self._finish = finish

    def wait(self, timeout: Any = None) -> bool:
        self._finish()
        return True

    def get_future(self) -> Any:
        return torch.futures.Future()


class ToyBackend(Backend):
    """A prototype: sums of tensors that pass through the store."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self._store, self._size = store, size
        self._count = 0
        self._aborted = False

    def getBackendName(self) -> str:
        return "toy"

    def abort(self) -> None:
        self._aborted = True

    def shutdown(self) -> None:
        pass

    def allreduce(self, tensors: Any, opts: Any) -> Any:
        self._count += 1
        number, tensor = self._count, tensors[0]
        self._store.set(f"{number}/{self.rank()}", ",".join(map(str, tensor.tolist())))

        def finish() -> None:
            total = torch.zeros_like(tensor)
            for rank in range(self._size):
                while not self._store.check([f"{number}/{rank}"]):
                    if self._aborted:
                        raise RuntimeError("toy: aborted")
                    time.sleep(0.002)
                text = bytes(self._store.get(f"{number}/{rank}")).decode()
                total += torch.tensor([float(each) for each in text.split(",")])
            tensor.copy_(total)

        return ToyWork(finish)


def outcome_of(call: Callable[[], Any]) -> dict[str, Any]:
    """Return the error of a call: class, rank at fault, text, seconds."""
    begun = time.monotonic()
    try:
        call()
    except roundelay.Error as error:
        seconds = time.monotonic() - begun
        return {"error": type(error).__name__, "peer": error.peer, "text": str(error), "seconds": seconds}
    except Exception as error:
        return {"error": type(error).__name__, "peer": None, "text": str(error), "seconds": time.monotonic() - begun}
    return {"error": "none", "peer": None, "text": "", "seconds": time.monotonic() - begun}


def prototype(store: Any) -> dict[str, Any]:
    """One rank of a backend in Python does not make a call; the others wait in works that abort ends."""
    dist.Backend.register_backend("toy", create_toy, devices=["cpu"])
    dist.init_process_group("toy", store=store, rank=RANK, world_size=RANKS, timeout=timedelta(seconds=60))
    group = roundelay.observe(timeout=1, late=0.2, interval=0.1)
    tensor = torch.full((3,), RANK + 1.0)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [6.0] * 3 and group.observer.collectives.count == 1
    if RANK == CULPRIT:
        wait_for_others(store)
        return outcome_of(lambda: dist.all_reduce(tensor))
    return outcome_of(lambda: dist.all_reduce(tensor))


def create_toy(store: Any, rank: int, size: int, timeout: Any) -> ToyBackend:
    """Return the backend of a group, as torch asks for it."""
    return ToyBackend(store, rank, size)


def coalesced(store: Any) -> dict[str, Any]:
    """Messages of one batch over roundelay's own backend have one work, and a wrong call is found before it is made."""
    import roundelay.torch

    roundelay.torch.register()
    dist.init_process_group("roundelay", store=store, rank=RANK, world_size=RANKS, timeout=timedelta(seconds=60))
    group = roundelay.observe(timeout=10, check="before")
    received = torch.full((2,), -9.0)
    peer, source = (RANK + 1) % RANKS, (RANK - 1) % RANKS
    sent = torch.full((2,), float(RANK))
    batch = [dist.P2POp(dist.isend, sent, peer), dist.P2POp(dist.irecv, received, source)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    messages = group.observer.messages
    assert received.tolist() == [float(source)] * 2 and messages.count == 2 and not list(messages.pending())
    tensor = torch.ones(4 if RANK == CULPRIT else 3)
    return outcome_of(lambda: dist.all_reduce(tensor))


def torchcomms(store: Any) -> dict[str, Any]:
    """One rank of a communicator of torchcomms makes a call of another operator, and every rank has the error before."""
    import roundelay.torchcomms as comms

    comm = comms.new_comm("roundelay", "cpu", "main", store=store, rank=RANK, size=RANKS)
    assert roundelay.observe(comm, timeout=5, check="before") is comm
    tensor = torch.full((3,), RANK + 1.0)
    comm.all_reduce(tensor, comms.ReduceOp.SUM, async_op=True).wait()
    comm.send(tensor, (RANK + 1) % RANKS, async_op=True)
    comm.recv(torch.empty(3), (RANK - 1) % RANKS, async_op=False)
    comm.barrier(async_op=False)
    observer = roundelay.observer_of(comm)
    assert (observer.collectives.count, observer.messages.count) == (2, 2) and tensor.tolist() == [6.0] * 3
    op = comms.ReduceOp.MAX if RANK == CULPRIT else comms.ReduceOp.SUM
    return outcome_of(lambda: comm.all_reduce(tensor, op, async_op=False))


def torchcomms_late(store: Any) -> dict[str, Any]:
    """One rank of a communicator does not make a call."""
    import roundelay.torchcomms as comms

    comm = comms.new_comm("roundelay", "cpu", "main", store=store, rank=RANK, size=RANKS)
    roundelay.observe(comm, timeout=1, late=0.2, interval=0.1)
    tensor = torch.full((3,), RANK + 1.0)
    comm.all_reduce(tensor, comms.ReduceOp.SUM, async_op=False)
    if RANK == CULPRIT:
        wait_for_others(store)
    return outcome_of(lambda: comm.all_reduce(tensor, comms.ReduceOp.SUM, async_op=True).wait())


def over_gloo(store: Any, harm: Callable[[], Any]) -> dict[str, Any]:
    """Have one rank be harmed where the others call an operation over Gloo."""
    dist.init_process_group("gloo", store=store, rank=RANK, world_size=RANKS, timeout=timedelta(seconds=20))
    roundelay.observe(timeout=1, late=0.2, interval=0.1, flight=f"{FOLDER}/flight-")
    dist.all_reduce(torch.ones(2))
    if RANK == CULPRIT:
        harm()
    return outcome_of(lambda: dist.all_reduce(torch.ones(2)))


def killed(store: Any) -> dict[str, Any]:
    """The process of one rank is killed."""
    return over_gloo(store, lambda: os.kill(os.getpid(), signal.SIGKILL))


def stopped(store: Any) -> dict[str, Any]:
    """The process of one rank is stopped."""
    return over_gloo(store, lambda: os.kill(os.getpid(), signal.SIGSTOP))


def message(store: Any) -> dict[str, Any]:
    """One rank does not send what another one receives, and a third waits for that one."""
    dist.init_process_group("gloo", store=store, rank=RANK, world_size=RANKS, timeout=timedelta(seconds=20))
    roundelay.observe(timeout=1, late=0.2, interval=0.1)
    if RANK == CULPRIT:
        wait_for_others(store)
        return outcome_of(lambda: dist.barrier())
    return outcome_of(lambda: dist.recv(torch.empty(2), RANK + 1))


def wait_for_others(store: Any) -> None:
    """Return once all ranks but this one have had their errors."""
    until = time.monotonic() + 25
    while int(store.add("reported", 0)) < RANKS - 1 and time.monotonic() < until:
        time.sleep(0.01)


def main() -> None:
    faulthandler.dump_traceback_later(80, exit=True)
    whole = dist.TCPStore("127.0.0.1", int(os.environ["ROUNDELAY_TEST_PORT"]), RANKS, RANK == 0)
    results = {}
    for case in sys.argv[4].split(","):
        print(case, flush=True)
        store = dist.PrefixStore(case, whole)
        results[case] = globals()[case](store)
        store.add("reported", 1)
        until = time.monotonic() + 20
        alive = RANKS - 1 if case in ("killed", "stopped") else RANKS
        while int(store.add("reported", 0)) < alive and time.monotonic() < until:
            time.sleep(0.01)
        if dist.is_initialized():
            KEPT.append(dist.group.WORLD)
            dist.destroy_process_group()
    (FOLDER / f"result{RANK}").write_text(json.dumps(results))
    whole.add("left", 1)
    until = time.monotonic() + 5
    while RANK == 0 and int(whole.add("left", 0)) < alive and time.monotonic() < until:
        time.sleep(0.01)
    # What hangs in a backend must not hold the end.
    os._exit(0)


if __name__ == "__main__":
    main()
