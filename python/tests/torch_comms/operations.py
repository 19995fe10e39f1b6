"""The operations of a communicator, and what each must give, by arithmetic that needs no other rank."""

from __future__ import annotations

import importlib
import os
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeAlias

import odd
import torch
from torch import Tensor

MODULE = os.environ.get("ROUNDELAY_TEST_TORCHCOMMS", "roundelay.torchcomms")
"""The module whose communicators are tested: torchcomms itself takes the same calls."""

ours = MODULE == "roundelay.torchcomms"
python_only = os.environ.get("ROUNDELAY_TEST_PYTHON_ONLY") == "1"
"""True where torchcomms' interface for backends in Python takes the calls."""
torchcomms: Any = importlib.import_module(MODULE)
ReduceOp, OpName = torchcomms.ReduceOp, torchcomms.OpName
TorchComm: TypeAlias = Any

Case = Callable[[TorchComm, bool], None]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


def of(rank: int, count: int = 5, dtype: torch.dtype = torch.float32) -> Tensor:
    """The values of a rank: small whole numbers."""
    return (torch.arange(count) * (rank + 2) % 5 + rank + 1).to(dtype)


def same(found: Tensor, wanted: Tensor) -> None:
    assert found.dtype == wanted.dtype and torch.equal(found, wanted), f"{found} instead of {wanted}"


def refused(words: str, call: Callable[[], object]) -> None:
    try:
        call()
    except (RuntimeError, ValueError) as error:
        assert words in str(error), str(error)
        return
    raise AssertionError(f"was not refused: {words}")


def on_gpu(comm: TorchComm) -> bool:
    """Return True if operations go into streams: ``wait`` orders them there, and this thread waits for nothing."""
    return bool(comm.get_device().type == "cuda")


def every(comm: TorchComm) -> dict[str, str]:
    """Perform all cases, on this thread and in the background; returns what went wrong in each, or ''.

    All tensors are on the communicator's device.
    """
    outcomes = {}
    for name, function in CASES.items():
        try:
            with comm.get_device():
                function(comm, False)
                function(comm, True)
            outcomes[name] = ""
        except Exception:
            outcomes[name] = traceback.format_exc()
    comm.finalize()
    return outcomes


@case
def odd_tensors(comm: TorchComm, background: bool) -> None:
    if on_gpu(comm):
        return
    rank, size = comm.get_rank(), comm.get_size()
    face = odd.Face(
        rank,
        size,
        lambda tensor: comm.all_reduce(tensor, ReduceOp.SUM, background).wait(),
        lambda tensor, root: comm.broadcast(tensor, root, background).wait(),
        lambda outputs, tensor: comm.all_gather(outputs, tensor, background).wait(),
        lambda tensor: comm.send(tensor, (rank + 1) % size, True),
        lambda tensor: comm.recv(tensor, (rank - 1) % size, True),
    )
    wrong = odd.faults(face)
    assert wrong == [], "; ".join(wrong)


@case
def odd_windows(comm: TorchComm, background: bool) -> None:
    """What is put may be odd; what is put to is memory."""
    if on_gpu(comm) or python_only:
        return
    rank, size = comm.get_rank(), comm.get_size()
    after, before = (rank + 1) % size, (rank - 1) % size
    for name in ("every other", "transposed", "negated", "negated, every other", "conjugated"):
        make = odd.TABLE[name].make
        given, wanted = make(rank), odd.dense(make(before)).reshape(-1)
        table = torch.zeros(wanted.numel(), dtype=wanted.dtype)
        window = comm.new_window()
        window.tensor_register(table)
        window.put(given, after, 0, background)
        window.signal(after, background)
        work = window.wait_signal(before, background)
        if work is not None:
            work.wait()
        same(table, wanted)
        window.tensor_deregister()
        refused("the tensor of a window must be contiguous", lambda given=given: window.tensor_register(given))


@case
def windows(comm: TorchComm, background: bool) -> None:
    """What is put and signalled is there for what follows, on a GPU in its stream."""
    if python_only:
        return
    rank, size = comm.get_rank(), comm.get_size()
    after, before = (rank + 1) % size, (rank - 1) % size
    table = torch.full((size, 1000), -1.0)
    window = comm.new_window(table)
    for turn in range(10):
        given = of(rank + turn, 1000)
        window.put(given, after, rank * 1000, background)
        given.fill_(-2.0)
        window.signal(after, background)
        work = window.wait_signal(before, background)
        if work is not None:
            work.wait()
        seen = table.clone()
        same(seen[before], of(before + turn, 1000))
        if before != rank:
            assert bool((seen[rank] == -1.0).all())
        comm.barrier(False)
    if on_gpu(comm) and ours:
        theirs = window.map_remote_tensor(after)
        same(theirs[rank], of(rank + 9, 1000))
        comm.barrier(False)
    refused("float64", lambda: window.put(torch.zeros(1, dtype=torch.float64), after, 0, False))
    if on_gpu(comm):
        refused("cpu", lambda: window.put(torch.zeros(1, device="cpu"), after, 0, False))
    window.tensor_deregister()


@case
def persistent(comm: TorchComm, background: bool) -> None:
    """One handle serves many calls."""
    if python_only:
        return
    rank, size = comm.get_rank(), comm.get_size()
    output = torch.full((size * 7,), -1.0)
    handle = comm.all_gather_p_init(output)
    for turn in range(5):
        comm.all_gather_p_exec(handle, of(rank + turn, 7), background).wait()
        same(output.clone(), torch.cat([of(each + turn, 7) for each in range(size)]))
        output.fill_(-1.0)
    comm.all_gather_p_free(handle)
    refused("free", lambda: comm.all_gather_p_exec(handle, of(rank, 7), background))


@case
def elsewhere(comm: TorchComm, background: bool) -> None:
    if not ours and on_gpu(comm):
        refused('group("cuda:roundelay")', lambda: comm.all_reduce(torch.ones(4, device="cpu"), ReduceOp.SUM, background))


@case
def all_reduce(comm: TorchComm, background: bool) -> None:
    n = comm.get_size()
    types = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8)
    for dtype in types:
        for count in (0, 1, 5, 1000):
            stack = torch.stack([of(rank, count, dtype) for rank in range(n)])
            for op, wanted in (
                (ReduceOp.SUM, stack.sum(0)),
                (ReduceOp.PRODUCT, stack.prod(0)),
                (ReduceOp.MIN, stack.amin(0) if count else stack[0]),
                (ReduceOp.MAX, stack.amax(0) if count else stack[0]),
            ):
                tensor = of(comm.get_rank(), count, dtype)
                comm.all_reduce(tensor, op, background).wait()
                same(tensor, wanted.to(dtype))


@case
def operators(comm: TorchComm, background: bool) -> None:
    n, own = comm.get_size(), comm.get_rank()
    tensor = of(own)
    comm.all_reduce(tensor, ReduceOp.AVG, background).wait()
    torch.testing.assert_close(tensor, torch.stack([of(rank) for rank in range(n)]).mean(0))
    for factor in (0.5, torch.tensor([0.5])):
        tensor = of(own)
        comm.all_reduce(tensor, ReduceOp.PREMUL_SUM(factor), background).wait()
        same(tensor, torch.stack([of(rank) for rank in range(n)]).sum(0) * 0.5)
    for op, binary in (
        (ReduceOp.BAND, torch.bitwise_and),
        (ReduceOp.BOR, torch.bitwise_or),
        (ReduceOp.BXOR, torch.bitwise_xor),
    ):
        tensor, wanted = of(own, dtype=torch.int32), of(0, dtype=torch.int32)
        for rank in range(1, n):
            wanted = binary(wanted, of(rank, dtype=torch.int32))
        comm.all_reduce(tensor, op, background).wait()
        same(tensor, wanted)


@case
def strided(comm: TorchComm, background: bool) -> None:
    whole = torch.stack([of(comm.get_rank()), torch.zeros(5)], 1)
    comm.all_reduce(whole[:, 0], ReduceOp.SUM, background).wait()
    same(whole[:, 0].contiguous(), torch.stack([of(rank) for rank in range(comm.get_size())]).sum(0))
    same(whole[:, 1].contiguous(), torch.zeros(5))


@case
def broadcast(comm: TorchComm, background: bool) -> None:
    for root in range(comm.get_size()):
        tensor = of(comm.get_rank())
        comm.broadcast(tensor, root, background).wait()
        same(tensor, of(root))


@case
def reduce(comm: TorchComm, background: bool) -> None:
    n, own = comm.get_size(), comm.get_rank()
    for root in range(n):
        tensor = of(own)
        comm.reduce(tensor, root, ReduceOp.SUM, background).wait()
        same(tensor, torch.stack([of(rank) for rank in range(n)]).sum(0) if own == root else of(own))


@case
def all_gather(comm: TorchComm, background: bool) -> None:
    n, own = comm.get_size(), comm.get_rank()
    listed = [torch.zeros(5) for _ in range(n)]
    comm.all_gather(listed, of(own), background).wait()
    listed_v = [torch.zeros(rank + 1) for rank in range(n)]
    comm.all_gather_v(listed_v, of(own, own + 1), background).wait()
    output = torch.zeros(n, 5)
    comm.all_gather_single(output, of(own), background).wait()
    for rank in range(n):
        same(listed[rank], of(rank))
        same(listed_v[rank], of(rank, rank + 1))
        same(output[rank], of(rank))


@case
def reduce_scatter(comm: TorchComm, background: bool) -> None:
    n, own = comm.get_size(), comm.get_rank()
    output = torch.zeros(5)
    comm.reduce_scatter(output, [of(own) * (to + 1) for to in range(n)], ReduceOp.SUM, background).wait()
    wanted = torch.stack([of(rank) for rank in range(n)]).sum(0) * (own + 1)
    same(output, wanted)
    output = torch.zeros(n, 5)[own]
    comm.reduce_scatter_single(
        output, torch.stack([of(own) * (to + 1) for to in range(n)]), ReduceOp.SUM, background
    ).wait()
    same(output, wanted)
    output = torch.zeros(own + 1)
    comm.reduce_scatter_v(output, [of(own, to + 1) for to in range(n)], ReduceOp.MAX, background).wait()
    same(output, torch.stack([of(rank, own + 1) for rank in range(n)]).amax(0))


@case
def all_to_all(comm: TorchComm, background: bool) -> None:
    n, own = comm.get_size(), comm.get_rank()
    output = torch.zeros(n, 2)
    comm.all_to_all_single(output, torch.stack([of(own, 2) + to for to in range(n)]), background).wait()
    listed = [torch.zeros(rank + own + 1) for rank in range(n)]
    comm.all_to_all(listed, [of(own, own + to + 1) for to in range(n)], background).wait()
    for rank in range(n):
        same(output[rank], of(rank, 2) + own)
        same(listed[rank], of(rank, rank + own + 1))


@case
def all_to_all_v(comm: TorchComm, background: bool) -> None:
    n, own = comm.get_size(), comm.get_rank()
    # One more row at the end on both sides, which takes no part.
    sent, received = [to + 1 for to in range(n)], [own + 1] * n
    input = torch.cat([torch.full((to + 1, 2), float(10 * own + to)) for to in range(n)] + [torch.zeros(1, 2)])
    output = torch.full((sum(received) + 1, 2), -1.0)
    comm.all_to_all_v_single(output, input, received, sent, background).wait()
    wanted = [torch.full((own + 1, 2), float(10 * rank + own)) for rank in range(n)]
    same(output, torch.cat([*wanted, torch.full((1, 2), -1.0)]))


@case
def roots(comm: TorchComm, background: bool) -> None:
    n, own = comm.get_size(), comm.get_rank()
    for root in range(n):
        here = own == root
        output = torch.zeros(5)
        comm.scatter(output, [of(root) + to for to in range(n)] if here else [], root, background).wait()
        same(output, of(root) + own)
        listed = [torch.zeros(5) for _ in range(n)] if here else []
        comm.gather(listed, of(own), root, background).wait()
        single = torch.zeros(n, 5) if here else torch.zeros(0)
        comm.gather_single(single, of(own), root, background).wait()
        for rank in range(n if here else 0):
            same(listed[rank], of(rank))
            same(single[rank], of(rank))


@case
def messages(comm: TorchComm, background: bool) -> None:
    n, own = comm.get_size(), comm.get_rank()
    after, before = (own + 1) % n, (own - 1) % n
    if background and not on_gpu(comm):
        tensor = torch.zeros(5)
        works = [comm.recv(tensor, before, True), comm.send(of(own), after, True)]
        for work in works:
            work.wait()
        same(tensor, of(before))
    elif background:
        # Operations of a communicator go on one after the other on a GPU, so no rank may receive before all have sent.
        tensor = torch.zeros(5)
        calls = [lambda: comm.send(of(own), after, True), lambda: comm.recv(tensor, before, True)]
        for call in calls if own % 2 == 0 else reversed(calls):
            call().wait()
        same(tensor, of(before))
    elif own == 0:
        comm.send(of(0), 1, False)
        comm.send(of(0) + 1, 1, False)
    elif own == 1:
        for more in (0, 1):
            tensor = torch.zeros(5)
            comm.recv(tensor, 0, False)
            same(tensor, of(0) + more)


@case
def batches(comm: TorchComm, background: bool) -> None:
    n, own = comm.get_size(), comm.get_rank()
    others = [rank for rank in range(n) if rank != own]
    batch = comm.batch_op_create()
    received = {rank: torch.zeros(5) for rank in others}
    for rank in others:
        batch.recv(received[rank], rank)
    for rank in others:
        batch.send(of(own) + rank, rank)
    # A batch may be issued again.
    for _ in range(2):
        options = torchcomms.BatchP2POptions()
        options.timeout = timedelta(seconds=10)
        batch.issue(background, options).wait()
        for rank in others:
            same(received[rank], of(rank) + own)
            received[rank].zero_()


@case
def strided_batches(comm: TorchComm, background: bool) -> None:
    """Plain copies of several tensors are there at once."""
    n, own = comm.get_size(), comm.get_rank()
    others = [rank for rank in range(n) if rank != own]
    batch = comm.batch_op_create()
    received = [torch.zeros(1000, 2) for _ in range(3 * n)]
    for rank in others:
        for turn in range(3):
            batch.send(torch.stack([of(own, 1000) + turn, torch.zeros(1000)], 1)[:, 0], rank)
            batch.recv(received[3 * rank + turn][:, 0], rank)
    batch.issue(background).wait()
    for rank in others:
        for turn in range(3):
            same(received[3 * rank + turn][:, 0].contiguous(), of(rank, 1000) + turn)
            same(received[3 * rank + turn][:, 1].contiguous(), torch.zeros(1000))


@case
def barrier(comm: TorchComm, background: bool) -> None:
    for _ in range(3):
        work = comm.barrier(background)
        work.wait()
        work.wait()
        work.wait_blocking()
        assert work.is_completed()
        assert not ours or work.status() is torchcomms.WorkStatus.COMPLETED


@case
def order(comm: TorchComm, background: bool) -> None:
    tensors = [torch.full((100,), float(index)) for index in range(20)]
    works = [comm.all_reduce(tensor, ReduceOp.SUM, True) for tensor in tensors]
    works[-1].wait()
    # torchcomms keeps the state of work itself, and it follows the end of the operation.
    known = ours and not on_gpu(comm)
    assert not known or all(work.is_completed() for work in works), "the last one has ended before an earlier one"
    for index, tensor in enumerate(tensors):
        same(tensor, torch.full((100,), float(index * comm.get_size())))
    for work in works:
        work.wait()
    assert on_gpu(comm) or all(work.is_completed() for work in works)


@case
def dropped(comm: TorchComm, background: bool) -> None:
    output = torch.zeros(comm.get_size(), 1000)
    for _ in range(5):
        comm.all_gather_single(output, of(comm.get_rank(), 1000).clone(), True)
    comm.barrier(False)
    for rank in range(comm.get_size()):
        same(output[rank], of(rank, 1000))


@case
def hints(comm: TorchComm, background: bool) -> None:
    chosen = []
    for given in ({"algorithm": "ring"}, {"roundelay::algorithm": "ring", "gloo::x": "y", "lazy_init": "1"}):
        tensor = of(comm.get_rank(), 1000)
        comm.all_reduce(tensor, ReduceOp.SUM, background, hints=given).wait()
        same(tensor, torch.stack([of(rank, 1000) for rank in range(comm.get_size())]).sum(0))
        # The recorder is that of the hosts.
        impl = comm.get_backend_impl()
        native = impl.communicator.get_backend_impl() if hasattr(impl, "communicator") else impl
        chosen.append(not ours or on_gpu(comm) or "ring" in native.flight())
    assert all(chosen)
    # A hint that is nobody's may be another backend's; one that is said to be ours is refused.
    tensor = of(0)
    comm.all_reduce(tensor, ReduceOp.MAX, background, hints={"algoritm": "ring"}).wait()
    same(tensor, of(0))
    try:
        comm.all_reduce(of(0), ReduceOp.SUM, background, hints={"roundelay::algoritm": "ring"})
    except RuntimeError as error:
        assert "did you mean `algorithm`?" in str(error)
    else:
        raise AssertionError("an unknown hint is not refused")
    try:
        comm.all_reduce(of(0), ReduceOp.SUM, background, hints={"deterministic": "perhaps"})
    except RuntimeError as error:
        assert "deterministic=perhaps" in str(error)
    else:
        raise AssertionError("a wrong value of a hint is not refused")


@case
def split(comm: TorchComm, background: bool) -> None:
    n, own = comm.get_size(), comm.get_rank()
    listed = list(reversed(range(n)))
    part = comm.split(listed, "reversed", timeout=timedelta(seconds=9))
    assert part is not None
    assert (part.get_rank(), part.get_size(), part.get_name()) == (n - 1 - own, n, "reversed")
    assert not ours or part.get_ranks() == listed
    assert python_only or part.get_options().timeout == timedelta(seconds=9)
    tensor = of(own)
    part.broadcast(tensor, 0, background).wait()
    same(tensor, of(n - 1))
    pair = part.split([n - 1, n - 2] if own < 2 else [], "pair")
    assert (pair is None) == (own >= 2)
    if pair is not None:
        assert pair.get_rank() == own and pair.get_size() == 2
        assert not ours or pair.get_ranks() == [0, 1]
        tensor = of(own)
        pair.all_reduce(tensor, ReduceOp.SUM, background).wait()
        same(tensor, of(0) + of(1))
        pair.finalize()
    part.finalize()


@case
def hooks(comm: TorchComm, background: bool) -> None:
    called: list[tuple[str, int, Any]] = []
    before = comm.register_pre_hook(lambda name, number, args: called.append((name.name, number, args)))
    after = comm.register_post_hook(lambda number, args: called.append(("after", number, args)))
    tensor = of(comm.get_rank())
    work = comm.all_reduce(tensor, ReduceOp.MAX, background)
    work.wait()
    before.remove()
    before.remove()
    comm.barrier(False)
    after.remove()
    comm.barrier(False)
    assert [each[0] for each in called] == [OpName.all_reduce.name, "after", "after"], called
    assert called[0][1] == called[1][1] < called[2][1]
    assert called[0][2].tensor is tensor and called[0][2].async_op is background
    if ours:
        assert called[0][2].op == ReduceOp.MAX and called[1][2].work is work
