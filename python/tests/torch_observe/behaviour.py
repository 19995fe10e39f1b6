"""What observed groups do where nothing is wrong, and what tools see of them. Runs as the ranks of a job."""

from __future__ import annotations

import faulthandler
import json
import os
import pickle
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from outcomes import outcomes

import roundelay
import roundelay.torch

FOLDER = Path(sys.argv[3])
RANKS = int(sys.argv[2])


def _observed(**settings: Any) -> Any:
    return roundelay.observe(dist.new_group(), late=0.1, interval=0.1, **settings)


def right(rank: int) -> str:
    """All operations, also with unequal parts and late ranks, have Gloo's results and no verdict."""
    import random

    bare: Any = dist.new_group()
    draw = random.Random(7)
    for check in ("late", "before"):
        group = _observed(check=check, timeout=20)
        for step in range(12):
            count, root = draw.randrange(1, 50), draw.randrange(RANKS)
            splits = [[draw.randrange(5) for _ in range(RANKS)] for _ in range(RANKS)]
            own = torch.arange(count, dtype=torch.float32) + rank * 100
            results: list[list[Any]] = [[], []]
            for found, each in zip(results, (bare, group), strict=True):
                summed, sent = own.clone(), own.clone()
                dist.all_reduce(summed, group=each)
                dist.broadcast(sent, root, group=each)
                gathered = [torch.full_like(own, -9.0) for _ in range(RANKS)]
                dist.all_gather(gathered, own, group=each)
                whole = torch.full((RANKS * count,), -9.0)
                dist.all_gather_into_tensor(whole, own, group=each)
                incoming = [row[rank] for row in splits]
                received = torch.full((sum(incoming),), -9.0)
                outgoing = torch.arange(sum(splits[rank]), dtype=torch.float32) + rank
                dist.all_to_all_single(received, outgoing, incoming, splits[rank], group=each)
                listed = [torch.full((2,), -9.0) for _ in range(RANKS)] if rank == root else None
                dist.gather(own[:1].repeat(2), listed, root, group=each)
                objects: list[Any] = [None] * RANKS
                dist.all_gather_object(objects, "x" * (rank + step), group=each)
                peer, source = (rank + 1) % RANKS, (rank - 1) % RANKS
                message = torch.full((count,), -9.0)
                works = [dist.isend(own, peer, group=each), dist.irecv(message, source, group=each)]
                for work in works:
                    assert work is not None
                    work.wait()
                anything = torch.full((2,), -9.0)
                if rank == 0:
                    dist.recv(anything, group=each)
                elif rank == 1:
                    dist.send(own[:1].repeat(2), 0, group=each)
                dist.barrier(group=each)
                found += [anything]
                found += [summed, sent, *gathered, whole, received, *(listed or []), message, objects]
            for first, second in zip(*results, strict=True):
                assert torch.equal(first, second) if isinstance(first, torch.Tensor) else first == second
            if rank == step % RANKS:
                time.sleep(0.15)
        observer = roundelay.observer_of(group)
        observer.check(10)
        assert observer.verdict is None and observer.collectives.count == 12 * 8 + 12, observer.collectives.count
        dist.destroy_process_group(group)
    return "right"


def checked(rank: int) -> list[Any]:
    """A check at one point finds a call of another operator that has ended long before, and names the rank."""
    group = _observed(check="late", timeout=20)
    # The thread compares, too: it must not be first.
    roundelay.observer_of(group)._inquiry._compare = lambda now: None
    for step in range(30):
        op = dist.ReduceOp.MAX if (rank, step) == (1, 11) else dist.ReduceOp.SUM
        dist.all_reduce(torch.ones(3), op, group=group)
    try:
        roundelay.observer_of(group).check(10)
    except roundelay.MismatchError as error:
        return [error.peer, str(error)]
    return []


def trained(rank: int) -> list[Any]:
    """DDP over an observed default group has the losses of Gloo, and its calls are recorded."""
    losses = []
    for _ in range(2):
        torch.manual_seed(0)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        found = []
        for step in range(4):
            loss = model(torch.full((2, 8), float(rank + step))).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        losses.append(found)
        if not isinstance(dist.group.WORLD, roundelay.torch.observed.ObservedGroup):
            observed = roundelay.observe(timeout=60)
            assert dist.group.WORLD is observed and observed.group_name == observed.inner.group_name
    count = roundelay.observer_of(dist.group.WORLD).collectives.count
    return [losses[0] == losses[1], count >= 4]


def functional(rank: int) -> list[float]:
    """Functional collectives and meshes find the observed group."""
    import torch.distributed._functional_collectives as functional
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("all",))
    group = mesh.get_group("all")
    if not isinstance(group, roundelay.torch.observed.ObservedGroup):
        roundelay.observe(group, timeout=30)
    before = roundelay.observer_of(mesh.get_group("all")).collectives.count
    total = functional.all_reduce(torch.full((2,), rank + 1.0), "sum", mesh.get_group("all"))
    gathered = functional.all_gather_tensor(torch.full((1,), float(rank)), 0, mesh.get_group("all"))
    after = roundelay.observer_of(mesh.get_group("all")).collectives.count
    return [total[0].item(), gathered.sum().item(), after - before]


def dumped(rank: int) -> list[Any]:
    """Torch's flight recorder has the calls of an observed group."""
    if torch.__version__ < "2.15":
        return []
    group = _observed(timeout=30)
    dist.all_reduce(torch.ones(6), group=group)
    dist.all_gather_into_tensor(torch.ones(RANKS * 2), torch.ones(2), group=group)
    work = dist.all_reduce(torch.ones(2, dtype=torch.int64), group=group, async_op=True)
    assert work is not None
    path = roundelay.torch.dump(FOLDER / "trace" / "rank_")
    work.wait()
    name = roundelay.observer_of(group).name
    entries = [each for each in pickle.loads(path.read_bytes())["entries"] if each["process_group"][0] == name]
    return [[each["profiling_name"], each["input_sizes"], each["input_dtypes"]] for each in entries]


def dropped(rank: int) -> str:
    """Messages that were begun long before they are waited for, or are not waited for, are not overdue."""
    group = _observed(timeout=0.5)
    peer, source = (rank + 1) % RANKS, (rank - 1) % RANKS
    received = torch.full((3,), -9.0)
    early = dist.irecv(received, source, group=group)
    time.sleep(1.2)
    dist.barrier(group=group)
    dist.isend(torch.full((3,), float(rank)), peer, group=group)
    assert early is not None
    early.wait()
    time.sleep(0.8)
    dist.barrier(group=group)
    assert received.tolist() == [float(source)] * 3
    verdict = roundelay.observer_of(group).verdict
    return "none" if verdict is None else verdict.cause


def refused(rank: int) -> list[str]:
    """What cannot be observed is refused, and a call that the backend refuses is not counted."""
    group = _observed(timeout=30)
    said = []
    for wrong in (lambda: roundelay.observe(group), lambda: roundelay.observe(3), lambda: roundelay.observer_of(3)):
        try:
            wrong()
        except roundelay.UsageError as error:
            said.append(str(error))
    try:
        group.allreduce([torch.ones(2).to_sparse(), torch.ones(2)])
    except (RuntimeError, ValueError) as error:
        said.append(type(error).__name__)
    dist.all_reduce(torch.ones(2), group=group)
    said.append(str(roundelay.observer_of(group).collectives.count))
    # What goes on after the end of the observation is not recorded.
    roundelay.observer_of(group).close()
    dist.all_reduce(torch.ones(2), group=group)
    said.append(str(roundelay.observer_of(group).collectives.count))
    return said


def main() -> None:
    rank = int(sys.argv[1])
    faulthandler.dump_traceback_later(100, exit=True)
    store = dist.TCPStore("127.0.0.1", int(os.environ["ROUNDELAY_TEST_PORT"]), RANKS, rank == 0)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS, timeout=timedelta(seconds=60))
    found = outcomes((right, checked, trained, functional, dumped, dropped, refused), rank)
    store.add("left", 1)
    while rank == 0 and int(store.add("left", 0)) < RANKS:
        time.sleep(0.005)
    (FOLDER / f"result{rank}").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
