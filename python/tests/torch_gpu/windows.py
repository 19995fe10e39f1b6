"""Windows of tensors, and communicators of ranks with and without a GPU: what is put is there, in the streams' order.

On a GPU everything goes into streams; with `--device cpu` the same runs on windows of host memory.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from rank import Rank

import roundelay
from roundelay import Communicator

STRIPE = 5000
ROUNDS = 20


def main(job: Rank) -> None:
    store: Any = dist.distributed_c10d._get_default_store()
    hosts = Communicator.join(job.rank, job.size, store, name="windows")
    comm = hosts.cuda(job.device.index) if job.on_gpu else hosts
    for case in (puts, words, refused, graphs, mixed, late):
        case(job, hosts, comm)
        job.say(case=case.__name__)


def puts(job: Rank, hosts: Communicator, comm: Communicator) -> None:
    """Every rank puts into its stripe of every part, from a stream of its own, and signals."""
    mine = torch.zeros(job.size * STRIPE, device=job.device)
    job.synchronize()
    window = comm.window(mine)
    assert window.len(job.size - 1) == mine.numel()
    side = torch.cuda.Stream(job.device) if job.on_gpu else None
    for turn in range(ROUNDS):
        contribution = job.data(STRIPE, turn)
        late_data = torch.zeros(STRIPE, device=job.device)
        job.synchronize()
        with torch.cuda.stream(side) if side is not None else nullcontext():
            if side is not None:
                torch.cuda._sleep(200_000)
            # What is put is what the stream has written before, and what follows does not spoil it.
            late_data.copy_(contribution)
            for peer in range(job.size):
                window.put(late_data, peer, job.rank * STRIPE)
                window.signal(peer)
            if side is not None:
                late_data.fill_(-1)
            for peer in range(job.size):
                window.wait_signal(peer)
            seen = mine.clone()
        options: dict[str, Any] = {} if side is None else {"stream": side}
        window.flush(job.rank, **options)
        wanted = torch.cat([job.data(STRIPE, turn, rank) for rank in range(job.size)])
        assert torch.equal(seen, wanted), f"round {turn}: {(seen != wanted).sum()} numbers differ"
        hosts.barrier()
        peer = (job.rank + 1) % job.size
        got = torch.full((STRIPE + 7,), -1.0, device=job.device)
        window.get(got[:STRIPE], peer, job.rank * STRIPE)
        window.flush(peer)
        assert torch.equal(got[:STRIPE], contribution) and bool((got[STRIPE:] == -1).all())
        hosts.barrier()
    if job.on_gpu:
        assert window.map_remote(job.rank) == mine.data_ptr()
        assert window.map_remote((job.rank + 1) % job.size) not in (0, mine.data_ptr())
    window.free()


def words(job: Rank, hosts: Communicator, comm: Communicator) -> None:
    """All ranks add to a word of rank 0: each sum is seen once. One of them swaps another."""
    mine = torch.zeros(4, dtype=torch.int64, device=job.device)
    job.synchronize()
    window = comm.window(mine)
    before = torch.full((50,), -1, dtype=torch.int64, device=job.device)
    swapped = torch.full((1,), -1, dtype=torch.int64, device=job.device)
    if job.on_gpu:
        for i in range(50):
            window.fetch_add(1, 0, 3, before=before[i:])
        window.compare_swap(0, 5, 0, 1, before=swapped)
        window.flush(0)
    else:
        before.copy_(torch.tensor([window.fetch_add(1, 0, 3) for _ in range(50)]))
        swapped.fill_(window.compare_swap(0, 5, 0, 1))
    every = torch.empty(job.size * 50, dtype=torch.int64)
    hosts.all_gather_single(every, before.cpu())
    assert sorted(every.tolist()) == list(range(50 * job.size))
    found = torch.empty(job.size, dtype=torch.int64)
    hosts.all_gather_single(found, swapped.cpu())
    assert sorted(found.tolist()) == [0] + [5] * (job.size - 1)
    window.free()


def refused(job: Rank, hosts: Communicator, comm: Communicator) -> None:
    """Wrong uses say so, and nothing is written."""
    mine = torch.zeros(100, device=job.device)
    data = torch.ones(10, device=job.device)
    job.synchronize()
    window = comm.window(mine)
    last = job.size - 1
    raises(roundelay.WindowError, "RL0716", lambda: window.put(data, last, 91))
    raises(roundelay.UsageError, "RL0712", lambda: window.put(data, job.size))
    raises(roundelay.UsageError, "RL0712", lambda: window.signal(job.size))
    raises(roundelay.UsageError, "RL0712", lambda: window.put(data.double(), last))
    if job.on_gpu:
        raises(roundelay.UsageError, "RL0712", lambda: window.put(data.cpu(), last))
        raises(roundelay.UsageError, "RL0712", lambda: window.fetch_add(1, last))
        raises(roundelay.UsageError, "RL0712", lambda: window.fetch_add(1, last, before=data.cpu()))
        raises(roundelay.UsageError, "RL0712", lambda: window.fetch_add(1, last, 1, before=data))
        raises(roundelay.UnsupportedError, "RL0706", lambda: window.put(data, last, async_op=True))
        raises(roundelay.UnsupportedError, "RL0706", lambda: window.take_signal(last))
        raises(roundelay.UnsupportedError, "RL0706", lambda: window.withdraw("read"))
        raises(roundelay.UnsupportedError, "RL0706", lambda: comm.window(data, peers_may=["read"]))
        raises(roundelay.UsageError, "RL0712", lambda: hosts.window(data))
        uneven = data[: 5 + (job.rank == 0)]
        raises(roundelay.UsageError, "RL0712", lambda: comm.window(uneven))
        in_host_memory = comm.window(torch.zeros(10))
        raises(roundelay.UsageError, "RL0712", lambda: in_host_memory.put(data, last))
        in_host_memory.free()
    hosts.barrier()
    job.synchronize()
    assert not mine.any()
    window.free()
    raises(roundelay.UsageError, "RL0712", lambda: window.signal(last))


def graphs(job: Rank, hosts: Communicator, comm: Communicator) -> None:
    """A captured put, its signal and the wait for the other's are replayed without the host."""
    if not job.on_gpu:
        return
    following, before = (job.rank + 1) % job.size, (job.rank - 1) % job.size
    mine, count = torch.zeros(1, device=job.device), torch.zeros(1, device=job.device)
    wrong = torch.zeros(1, device=job.device)
    job.synchronize()
    window = comm.window(mine)
    side = torch.cuda.Stream(job.device)
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made, stream=side):
        count.add_(1)
        window.put(count, following)
        window.signal(following)
        window.wait_signal(before)
        wrong.add_(mine != count)
        # Whoever put this one may put the next.
        window.signal(before)
        window.wait_signal(following)
    for _ in range(200):
        made.replay()
    window.flush(following)
    job.synchronize()
    assert (count.item(), wrong.item()) == (200, 0), (count, wrong)
    hosts.barrier()
    del made
    window.free()


def mixed(job: Rank, hosts: Communicator, comm: Communicator) -> None:
    """Every second rank calls with memory of its GPU, the others with memory of their hosts."""
    has_gpu = job.on_gpu and job.rank % 2 == 0
    some = hosts.cuda_mixed(has_gpu, job.device.index if has_gpu else None)
    device = job.device if has_gpu else torch.device("cpu")
    n, following, before = job.size, (job.rank + 1) % job.size, (job.rank - 1) % job.size
    for turn in range(ROUNDS):
        wanted = sum(job.data(1000, turn, rank) for rank in range(n))
        data = job.data(1000, turn).to(device)
        out = torch.empty_like(data)
        some.all_reduce_into(out, data)
        assert torch.equal(out, torch.as_tensor(wanted).to(device))
        some.batch().send(data, following).recv(out, before).run()
        assert torch.equal(out, job.data(1000, turn, before).to(device))
    if job.on_gpu:
        error = roundelay.UnsupportedError if has_gpu else roundelay.UsageError
        memory = torch.zeros(10, device=job.device)
        raises(error, "RL0706" if has_gpu else "RL0712", lambda: some.window(memory))
    some.barrier()
    some.shutdown()


def late(job: Rank, hosts: Communicator, comm: Communicator) -> None:
    """A signal that does not come names its rank, and ends the communicator."""
    window = comm.window(torch.zeros(2, device=job.device))
    if job.rank == 0:
        window.set_timeout(1.0)

        def waits() -> None:
            window.wait_signal(1)
            window.flush(1)

        assert raises(roundelay.OperationTimeoutError, "RL0703", waits).peer == 1
    elif job.on_gpu:
        raises(roundelay.Error, "", comm.barrier)
    else:
        raises(roundelay.Error, "", lambda: window.wait_signal(0))


def raises(kind: type[roundelay.Error], code: str, call: Any) -> roundelay.Error:
    """Call a function, and return the error that it raises: of that class, with that code."""
    try:
        call()
    except kind as error:
        assert not code or error.code == code, f"{error.code} instead of {code}: {error}"
        return error
    raise AssertionError(f"no {kind.__name__} was raised")
